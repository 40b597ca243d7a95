"""The application: what is typed behind `nbcourse`, and how mistakes are answered."""

from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from nbcourse import __version__, installation
from nbcourse.errors import UserError, did_you_mean

RecipeName = Annotated[
    str, typer.Argument(help="A name, such as `arithmetic-grpo`, or a TOML file of your own.")
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key, such as `seed=1`."),
]


class Commands(TyperGroup):
    """Answers a mistake of the user in one line; a fault of ours keeps its stack trace."""

    def invoke(self, context: Any) -> Any:
        try:
            return super().invoke(context)
        except UserError as error:
            line = str(error)
        except OSError as error:
            if error.strerror is None:  # raised by a program, not by the operating system
                raise
            line = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        except ModuleNotFoundError as error:
            if (remedy := installation.remedy(error)) is None:
                raise
            line = remedy
        typer.secho(f"nbcourse: {line}", fg="red", err=True)
        raise typer.Exit(2)

    def resolve_command(self, context: Any, arguments: list[str]) -> Any:
        """As typer does it, with a question where the command is almost one that there is."""
        name = arguments[0] if arguments else ""
        if name and not name.startswith("-") and name not in self.commands:
            raise UserError(
                f"there is no command {name!r}{did_you_mean(name, self.commands)} "
                "(`nbcourse --help` lists them)"
            )
        return super().resolve_command(context, arguments)


def group(about: str, **settings: Any) -> typer.Typer:
    """Commands under one name, with what `--help` says of them all, in Markdown."""
    return typer.Typer(
        cls=Commands, no_args_is_help=True, rich_markup_mode="markdown", help=about, **settings
    )


app = group(
    """
    Policy gradients for language models: the book's tools.

    To **read** the book, open it in JupyterLab with `make lab`. The commands below train models by
    recipes (`nbcourse recipes` lists them), run a chapter without a browser, and build the pages.
    """,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """What holds for every command."""


def fail(reason: object) -> NoReturn:
    """End with exit code 1 and a reason: the work failed, the command itself was right."""
    warn(reason)
    raise typer.Exit(1)


def warn(line: object, colour: str = "red") -> None:
    """Print a line on standard error."""
    typer.secho(str(line), fg=colour, err=True)
