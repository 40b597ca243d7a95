"""The command `nbcourse`, called in this process."""

from click.testing import Result
from typer.testing import CliRunner

from nbcourse.cli import app


def invoke(*arguments: object) -> Result:
    """Its exit status and what it printed, whatever came of it."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def nbcourse(*arguments: object, code: int = 0) -> str:
    """What it printed, after it has ended with this exit status."""
    answer = invoke(*arguments)
    assert answer.exit_code == code, (answer.output, answer.exception)
    return answer.output


def refused(*arguments: object) -> str:
    """The one line that a mistake is answered with."""
    answer = invoke(*arguments)
    assert answer.exit_code == 2, (answer.output, answer.exception)
    assert len(answer.output.splitlines()) == 1, answer.output
    assert answer.stderr.startswith("nbcourse: ")
    return answer.stderr
