"""`python -m nbcourse` is the same as `nbcourse`."""

from nbcourse.cli import app

if __name__ == "__main__":  # processes that grade are started by importing this again
    app(prog_name="nbcourse")
