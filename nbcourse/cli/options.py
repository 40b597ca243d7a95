"""Options that several commands have, and what they stand for."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from nbcourse.confined.sandbox import Limits


# What commands that grade have in common.
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Submissions at a time; by default, one per processor.")
]
Memory = Annotated[float, typer.Option(min=0.25, help="Memory of each submission, in GiB.")]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust-submissions", help="Run submissions without a sandbox. Read all of them first."
    ),
]
Json = Annotated[
    Path | None, typer.Option("--json", help="Also write the report into this file, as JSON.")
]
Results = Annotated[Path, typer.Option(help="Folder for the results.")]
Seconds = Annotated[float, typer.Option(min=1, help="For each call.")]


def limits(memory: float, seconds: float) -> "Limits":
    """What a submission may use: GiB, and seconds for each call."""
    from nbcourse.confined.sandbox import Limits

    return Limits(memory=int(memory * 2**30), seconds=seconds, total=5 * seconds)


def write_json(report: Any, json_file: Path | None) -> None:
    """Write a report for programs, if asked for."""
    if json_file is not None:
        import json

        json_file.write_text(json.dumps(report.as_dict(), indent=1), encoding="utf-8")
        typer.echo(f"\n{json_file} written")
