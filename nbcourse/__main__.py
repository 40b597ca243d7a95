"""The command `nbcourse`, and the same as `python -m nbcourse`."""

import sys

from nbcourse import installation


def main() -> None:
    """Run the command line, or say what it takes to have one."""
    try:
        from nbcourse.cli import app
    except ModuleNotFoundError as error:
        if (line := installation.remedy(error)) is None:
            raise
        print(f"nbcourse: {line}", file=sys.stderr)
        sys.exit(2)
    app(prog_name="nbcourse")


if __name__ == "__main__":  # processes that grade are started by importing this again
    main()
