"""The command `nbcourse`, and the same as `python -m nbcourse`."""

import sys

from nbcourse import installation


def main() -> None:
    """Run the command line; a package that is missing is answered with how to install it."""
    try:
        from nbcourse.cli import app

        app(prog_name="nbcourse")
    except ModuleNotFoundError as error:
        if (line := installation.remedy(error)) is None:
            raise
        sys.exit(f"nbcourse: {line}")


if __name__ == "__main__":  # processes that grade are started by importing this again
    main()
