"""A Canvas class and a Moodle class of thirty, by the commands of the instructor's guide.

    python -m tests.classroom.two_classes FOLDER [RECORD]

goes through appendix D for each of the two, from the export of the class list to what the platform
imports, with the commands and the file of rules as they stand there. Half of each class is hostile
or clumsy. What the platforms let download and how they read back is in `platforms`; every grade
that is imported is compared with what the work deserves, worked out here from the solutions' points
alone. FOLDER gets a folder for each class, and RECORD what became of everyone, from which the
table of the guide is made (`tests.guide_tables`).
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import unicodedata
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from io import BytesIO
from pathlib import Path

import nbformat

from nbcourse.classroom.class_list import Platform
from nbcourse.experiments import records
from nbcourse.publishing.chapters import ROOT
from tests.classroom import platforms
from tests.classroom import rehearsal as answers
from tests.classroom.platforms import User
from tests.classroom.rehearsal import NAME

GUIDE = ROOT / "book" / "appendix-d-instructors.md"
QUICK = ["--seconds", "10"]  # all that is added to the guide's commands: for what never ends
MOST = sum(answers.points().values())

# ---------------------------------------------------------------- who hands in what

FORKS = """
import os, time

def group_means(rewards, group_size):
    for _ in range(200):  # a bomb, but a tame one, should the sandbox be broken
        if os.fork() == 0:
            time.sleep(3)
            os._exit(0)
"""
IMPORTS_ANSWERS = """
def unequal_groups(rewards, prompts):
    from nbcourse.checks import sequences
    from nbcourse.functional.advantages import leave_one_out
    return leave_one_out(rewards, group_size=2)
"""
KILLS = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
NEIGHBOURS_NUMBERS = """
def my_advantages():
    return torch.tensor({numbers})
"""
HALF = "The gradient of each prompt is scaled by (G − 1)/G, by its own G."
MARKUP = """
def expected_push(theta, short_reward, long_reward):
    raise ValueError("</pre><script>alert(1)</script> [bold]11 of 11 points[/bold]")
"""


@dataclass(frozen=True)
class Member:
    """Someone of the class.

    Args:
        name: last name first, as Canvas has it.
        does: what is tried, for the report; empty for plain work.
        work: exercise → an answer that is not the solution, None for the stub.
        file: what the student calls the notebook.
        hands_in: what, besides the one notebook.
        days_late: begun days after the deadline.
        shares: points for an answer that is right in parts, by exercise.
    """

    name: str
    does: str = ""
    work: Mapping[str, str | None] = field(default_factory=dict)
    file: str = f"{NAME}.ipynb"
    hands_in: str = "the notebook"
    days_late: int = 0
    shares: Mapping[str, float] = field(default_factory=dict)


# Of discounted-weights, whose points the guide's rules share, the answer that multiplies the mask
# gets four cases of five: all but NaN in the padding.
SHARE = 3 * 4 / 5


def the_class() -> list[Member]:
    """Thirty, the same for either platform; the first half does plain work."""
    plain = [
        *("ada", "donald", "edsger", "frances", "grace", "hedy", "john", "katherine", "leslie"),
        *("margaret", "niklaus"),
    ]
    names = ["Müller, Zoë", unicodedata.normalize("NFD", "Åström, José"), "O'Neil, D’Arcy"]
    ordinary = [
        Member(
            (names[i] if i < len(names) else f"{student.title()}son, {student.title()}"),
            work=answers.CLASS[student],
            shares={"discounted-weights": SHARE} if student == "john" else {},
        )
        for i, student in enumerate(plain)
    ]
    return [
        *ordinary,
        Member("Lee, Ann", "two students of one name: the one", work={"length-bias": None}),
        Member("Lee, Ann", "two students of one name: the other"),
        Member("Rename, Rae", "renames the file", file="homework (final) 2.ipynb"),
        Member("Sheet, Sam", "hands in sheet 1 under this sheet's name", hands_in="wrong sheet"),
        Member("Twice, Tia", "hands in again, and only the second is right", hands_in="twice"),
        Member("Tardy, Tom", "hands in three days late", days_late=3),
        Member("Later, Lea", "hands in seven days late", days_late=7),
        Member(
            "Brief, Bea", "answers half of the question in words",
            work={answers.IN_WORDS: HALF}, shares={answers.IN_WORDS: 1.0},
        ),
        Member("Vacant, Val", "hands in an empty file", hands_in="empty file"),
        Member("Zipper, Zoe", "hands in a zip file", file=f"{NAME}.zip", hands_in="zip"),
        Member("Fork, Finn", "forks without end", work={"mend-the-groups": FORKS}),
        Member("Loop, Lou", "never ends", work={"mend-the-groups": answers.ENDLESS}),
        Member("Thief, Theo", "imports the answers", work={"unequal-groups": IMPORTS_ANSWERS}),
        Member("Killer, Kim", "has ten cells that kill the process", hands_in="killed cells"),
        Member(
            "Copy, Cat", "copies the neighbour's numbers", work={"by-hand": NEIGHBOURS_NUMBERS}
        ),
        Member(
            "Lovelace, Ada_1005", "has a name that reads like another student's file",
            work={"length-bias": answers.EXPECTED_REWARD},
        ),
        Member(
            '=HYPERLINK("http://evil"), <b>Eve</b>', "smuggles markup and a formula into the name",
            work={"length-bias": MARKUP},
        ),
        Member("Away, Abe", "hands in nothing", hands_in="nothing"),
        Member("Master, Max", "reads the master", work={"by-hand": answers.READS_THE_MASTER}),
    ]  # fmt: skip


def users(members: Sequence[Member]) -> dict[User, Member]:
    """An account for each; every id is somebody else's id of another kind."""
    count = len(members)

    def ids(moved: int) -> list[int]:
        return [1001 + (place + moved) % count for place in range(count)]

    columns = ids(0), ids(1), ids(2), ids(3)
    return {
        User(
            number, str(login), str(sis), member.name, f"s{number}@uni.example", participant
        ): member
        for member, number, login, sis, participant in zip(members, *columns, strict=True)
    }


def deserved(member: Member, platform: Platform) -> float | None:
    """What the work is worth: None for no grade."""
    if member.hands_in in ("nothing", "empty file"):
        return None
    if member.hands_in == "wrong sheet":
        return 0.0
    points = sum(
        worth if member.work.get(exercise, "") == "" else member.shares.get(exercise, 0.0)
        for exercise, worth in answers.points().items()
    )
    # The guide's rules: a day is free, four are those of the term, and each further one costs a
    # tenth. Canvas does not say by how much a file is late.
    charged = max(0, member.days_late - 5) if platform is Platform.MOODLE else 0
    return round(points * (1 - 0.1 * charged), 2)


# ---------------------------------------------------------------- what the platforms let download


def download(folder: Path, platform: Platform, class_of: Mapping[User, Member]) -> dict[str, User]:
    """Write `folder`/submissions, as it is unpacked; number of a file → who handed it in."""
    numbers: dict[str, User] = {}
    for place, (user, member) in enumerate(class_of.items()):
        bundle = folder / "released" / NAME / f"{_key(user, platform)}.zip"
        neighbour = [*class_of][place - 1]
        other = folder / "released" / NAME / f"{_key(neighbour, platform)}.zip"
        for again, (name, content) in enumerate(_handed_in(member, bundle, other)):
            if platform is Platform.CANVAS:
                number = str(1001 + 7 * place + again)  # like a student's
                numbers[number] = user
                file = platforms.canvas_file(user, int(number), name, late=member.days_late > 0)
            else:
                group = "Group_A-" if place % 2 else ""
                file = f"{platforms.moodle_folder(user, group, '')}/{name}"
            path = folder / "submissions" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return numbers


def _key(user: User, platform: Platform) -> str:
    """What names the bundle, by the guide's table."""
    return user.login if platform is Platform.CANVAS else user.email


def _handed_in(member: Member, bundle: Path, neighbours: Path) -> Iterator[tuple[str, bytes]]:
    match member.hands_in:
        case "nothing":
            return
        case "empty file":
            yield member.file, b""
        case "wrong sheet":
            yield member.file, (ROOT / "book" / "exercises" / "01-bandit.ipynb").read_bytes()
        case "twice":
            yield member.file, _written(answers.handed_out(bundle))
            yield f"{NAME}-1.ipynb", _written(answers.solved(bundle, member.work))
        case "zip":
            packed = BytesIO()
            with zipfile.ZipFile(packed, "w") as archive:
                name = f"my sheet/{NAME}.ipynb"
                archive.writestr(name, _written(answers.solved(bundle, member.work)))
            yield member.file, packed.getvalue()
        case "killed cells":
            notebook = answers.solved(bundle, member.work)
            for place in range(0, 20, 2):
                notebook.cells.insert(place, nbformat.v4.new_code_cell(KILLS))
            yield member.file, _written(notebook)
        case _:
            work = dict(member.work)
            if work.get("by-hand") == NEIGHBOURS_NUMBERS:
                work["by-hand"] = NEIGHBOURS_NUMBERS.format(numbers=_by_hand(neighbours))
            yield member.file, _written(answers.solved(bundle, work))


def _by_hand(bundle: Path) -> list[float]:
    """The right advantages of the one whom this bundle was for."""
    source = "".join(cell.source for cell in answers.handed_out(bundle).cells)
    (variant,) = re.findall(r"variant=(\d+)", source)
    rewards = answers.Sheet(NAME, variant=int(variant)).numbers("by-hand")["rewards"]
    return [round(r - (sum(rewards) - r) / 3, 2) for r in rewards]


def _written(notebook: nbformat.NotebookNode) -> bytes:
    return nbformat.writes(notebook).encode()


# ---------------------------------------------------------------- the instructor


def commands(guide: str) -> list[str]:
    """The lines of the guide's listings that begin with `nbcourse`, without remarks."""
    listings = re.findall(r"```sh\n(.*?)```", guide, re.DOTALL)
    lines = [line.split(" #")[0].strip() for text in listings for line in text.splitlines()]
    return [line for line in lines if line.startswith("nbcourse ")]


def command(beginning: str, *words: str) -> str:
    """The guide's one command that begins like this and has these words."""
    found = {
        line
        for line in commands(GUIDE.read_text(encoding="utf-8"))
        if line.startswith(f"nbcourse {beginning}") and all(word in line for word in words)
    }
    assert len(found) == 1, (beginning, words, found)
    return found.pop()


@dataclass(frozen=True)
class Outcome:
    """What became of a student.

    Args:
        does: what was tried; empty for plain work.
        deserved: points, or None for no grade.
        imported: what the platform has in the end.
        page: whether the student's page came back, and to this student, with these points.
    """

    does: str
    deserved: float | None
    imported: float | None
    page: bool

    @property
    def right(self) -> bool:
        return self.deserved == self.imported and self.page


def rehearse(folder: Path, platform: Platform) -> tuple[list[Outcome], dict[str, float]]:
    """From the class list to the imported grades; and the processor seconds of each command."""
    members = the_class()
    class_of = users([*members, Member("Dropped, Dan", "is not on the class list")])
    listed = [*class_of][: len(members)]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    seconds: dict[str, float] = {}

    def run(line: str, *more: str) -> str:
        """What a command prints, less its frames: names may be cut in two there."""
        before = os.times()
        words = [sys.executable, "-m", "nbcourse", *shlex.split(line)[1:], *more]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        name = shlex.split(line)[1]
        after = os.times()
        spent = after.children_user - before.children_user
        spent += after.children_system - before.children_system
        seconds[name] = seconds.get(name, 0.0) + spent
        return done.stdout + done.stderr

    def export(whom: Sequence[User]) -> None:
        text = _class_list(platform, whom, class_of)
        (folder / "class.csv").write_text(text, encoding="utf-8")

    export([*class_of])
    run(command("release 2", "--class-list"))
    export(listed)  # Dan has left the course
    files = download(folder, platform, class_of)
    (rules,) = re.findall(r"```toml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (folder / "class.toml").write_text(rules, encoding="utf-8")
    grade = command("grade submissions", "--rules", "--personal")
    said = run(grade, *QUICK)
    (dropped,) = [user for user in class_of if user not in listed]
    number = dropped.id if platform is Platform.CANVAS else dropped.participant
    assert f"no student with {platform}'s number {number}" in said
    if platform is Platform.CANVAS:  # the instructor looks, and does what the message says
        (strange,) = (folder / "submissions").glob("*ada_1005*")
        assert f"{strange.name} can be read in two ways; rename the file" in said
        strange.rename(strange.with_name(strange.name.replace("_1005", "", 1)))
        said = run(grade, *QUICK)
    assert "handed in nothing: " in said
    by_key = {_key(user, platform): member for user, member in class_of.items()}
    (folder / "marks.csv").write_text(_marked(folder / "graded", by_key), encoding="utf-8")
    run(command("marks marks.csv"))
    assert run(command("regrade graded", "--diff")).strip().endswith("no grade would change")
    return [*_outcomes(folder, platform, class_of, files)][: len(members)], seconds


def _class_list(platform: Platform, listed: Sequence[User], class_of: Mapping[User, Member]) -> str:
    if platform is Platform.CANVAS:
        return platforms.canvas_gradebook(listed)
    deadline = datetime(2027, 3, 12, 22)  # two hours before the guide's
    handed_in = {
        user: f"{deadline + timedelta(days=class_of[user].days_late):%A, %d %B %Y, %I:%M %p}"
        for user in listed
        if class_of[user].hands_in != "nothing"
    }
    late = [user for user in listed if class_of[user].days_late]
    return platforms.moodle_worksheet(listed, late, most=MOST, handed_in=handed_in)


def _marked(graded: Path, by_key: Mapping[str, Member]) -> str:
    """The table of what is to be marked by hand, filled in: a point for each criterion that is met,
    and of half an answer for the first."""
    header, *rows = platforms.read_csv((graded / "to-mark.csv").read_text("utf-8"))
    given: set[str] = set()
    for row in rows:
        half = answers.IN_WORDS in by_key[row[0]].shares
        row[3:] = ["0" if half and row[0] in given else "1", "read"]
        given.add(row[0])
    return platforms.as_csv([header, *rows])


def _outcomes(
    folder: Path, platform: Platform, class_of: Mapping[User, Member], files: Mapping[str, User]
) -> Iterator[Outcome]:
    """The platform imports what lies in `folder`/graded."""
    everyone, graded = [*class_of], folder / "graded"
    imported: Mapping[User | None, str]
    if platform is Platform.CANVAS:
        imported = platforms.canvas_imports((graded / "canvas.csv").read_text("utf-8"), everyone)
        pages = platforms.canvas_takes_back((graded / "canvas-feedback.zip").read_bytes(), files)
    else:
        worksheet = (graded / "moodle-worksheet.csv").read_text("utf-8")
        rows = platforms.moodle_takes_worksheet(worksheet, everyone)
        imported = {user: grade for user, (grade, _) in rows.items()}
        feedback = (graded / "moodle-feedback.zip").read_bytes()
        pages = platforms.moodle_takes_feedback(feedback, everyone)
    assert set(imported) <= set(everyone)
    for user, member in class_of.items():
        worth = deserved(member, platform)
        told = f"<strong>{worth:g} of {MOST:g} points" if worth is not None else None
        page = told in pages[user] if told and user in pages else told is None
        found = imported.get(user)
        yield Outcome(member.does, worth, None if found is None else float(found), page)


def main(folder: Path, record: Path | None) -> bool:
    """Rehearse with both, and say what became of everyone; whether all is right."""
    lines, all_seconds = [], {}
    for platform in (Platform.CANVAS, Platform.MOODLE):
        outcomes, seconds = rehearse(folder / platform.lower(), platform)
        all_seconds[platform.value] = {name: round(s, 1) for name, s in seconds.items()}
        for outcome in outcomes:
            lines.append({"platform": platform.value, **vars(outcome), "of": MOST})
            verdict = "right" if outcome.right else f"WRONG: {outcome.deserved} was deserved"
            print(f"{platform}: {outcome.does or 'plain work'}: {outcome.imported} ({verdict})")
        right = sum(outcome.right for outcome in outcomes)
        print(f"{platform}: {right} of {len(outcomes)} grades and pages are right; {seconds}")
    if record is not None:
        record.mkdir(parents=True, exist_ok=True)
        records.write_results(record, lines)
        command = f"python -m tests.classroom.two_classes FOLDER {record}"
        environment = records.environment(1) | {"command": command, "seconds": all_seconds}
        records.write_json(record / records.ENVIRONMENT, environment)
    return all(line["deserved"] == line["imported"] and line["page"] for line in lines)


if __name__ == "__main__":
    given = [Path(word) for word in sys.argv[1:]]
    sys.exit(not main(given[0], given[1] if len(given) > 1 else None))
