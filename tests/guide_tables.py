"""The tables of appendix D that are made from records: `python -m tests.guide_tables` writes them.

Each stands between `<!-- made from FOLDER -->` and `<!-- end -->`, FOLDER in `book/runs`.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nbcourse.experiments import records
from nbcourse.publishing.chapters import ROOT

GUIDE = ROOT / "book" / "appendix-d-instructors.md"
PLACE = re.compile(r"<!-- made from (\S+) -->\n.*?<!-- end -->", re.DOTALL)
Lines = list[dict[str, Any]]


def verdicts(lines: Lines, environment: Mapping[str, Any]) -> str:
    """A row for each sheet: what grader and bundle say to wrong and to right answers."""
    columns = [
        "wrong", "wrong refused", "wrong refused in a bundle",
        "right", "right refused", "right refused in a bundle",
    ]  # fmt: skip
    sums: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(columns, 0))
    for line in lines:
        for column in columns:
            sums[line["chapter"]][column] += line[column]
            sums["all"][column] += line[column]
    head = [
        "sheet", "exercises", "wrong answers", "refused", "by the bundle alone",
        "right answers", "accepted", "by the bundle too",
    ]  # fmt: skip
    rows = []
    for sheet in [*sorted(set(sums) - {"all"}), "all"]:
        of_sheet = [x for x in lines if sheet in (x["chapter"], "all")]
        exercises = {(x["chapter"], x["exercise"]) for x in of_sheet}
        count = sums[sheet]
        numbers = [
            len(exercises),
            *(count[c] for c in columns[:4]),
            count["right"] - count["right refused"],
            count["right"] - count["right refused in a bundle"],
        ]
        name = sheet if sheet == "all" else str(int(sheet[:2]))
        rows.append([name, *(f"{number:,}" for number in numbers)])
    students = len({line["student"] for line in lines})
    source = f"{_source(environment)}, with the numbers of {students} students."
    return f"{_table(head, rows)}\n\n{source}\n"


def rehearsal(lines: Lines, environment: Mapping[str, Any]) -> str:
    """A row for each thing that was tried: what the platforms have in the end."""
    head = ["what a student does", "grade in Canvas", "grade in Moodle"]
    tried: dict[str, dict[str, Lines]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        tried[line["does"]][line["platform"]].append(line)
    rows = []
    for does, by in tried.items():
        cells = [_grades(by[platform]) for platform in ("Canvas", "Moodle")]
        rows.append([does or f"plain work, all of it right or not ({len(by['Canvas'])})", *cells])
    right = sum(line["deserved"] == line["imported"] and line["page"] for line in lines)
    times = "; ".join(
        f"{platform}: " + ", ".join(f"`{name}` {value:.0f}" for name, value in by.items())
        for platform, by in environment["seconds"].items()
    )
    return (
        f"{_table(head, rows)}\n\n{right} of {len(lines)} grades are right, and so are their "
        f"pages. Seconds of processor time: {times}. {_source(environment)}.\n"
    )


def _grades(lines: Lines) -> str:
    if len(lines) > 1:
        right = sum(line["deserved"] == line["imported"] for line in lines)
        return f"{right} of {len(lines)} right"
    (line,) = lines
    grade = "none" if line["imported"] is None else f"{line['imported']:g} of {line['of']:g}"
    return grade if line["deserved"] == line["imported"] else f"**{grade}, wrong**"


def _table(head: list[str], rows: list[list[str]]) -> str:
    ruler = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ruler, *rows])


def _source(environment: Mapping[str, Any]) -> str:
    assert not environment["uncommitted_changes"], "record from a committed state"
    commit, day = environment["commit"][:7], environment["began"][:10]
    said = f"Recorded at commit {commit}, {day}, {environment['hardware']}"
    for more in environment.get("added", []):
        numbers = [sheet.partition("-")[0].lstrip("0") for sheet in more["sheets"]]
        sheets = f"sheet{'s' * (len(numbers) > 1)} {' and '.join(numbers)}"
        said += f"; {sheets} {_source(more).removeprefix('Recorded ')}"
    return said


TABLES: dict[str, Callable[[Lines, Mapping[str, Any]], str]] = {
    "exercise-verdicts": verdicts,
    "class-rehearsal": rehearsal,
}


def with_tables(guide: str) -> str:
    """The guide with its tables as the records have them."""

    def made(found: re.Match[str]) -> str:
        folder = records.RUNS / found[1]
        environment = records.read_json(folder / records.ENVIRONMENT)
        table = TABLES[found[1]](records.read_results(folder), environment)
        return f"<!-- made from {found[1]} -->\n{table}<!-- end -->"

    return PLACE.sub(made, guide)


def write(guide: Path = GUIDE) -> None:
    guide.write_text(with_tables(guide.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write()
