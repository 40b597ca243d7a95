"""`python -m nbcourse` is the same as `nbcourse`."""

from nbcourse.cli import app

app(prog_name="nbcourse")
