"""A class of twenty to rehearse with: good work, half of it, known mistakes, and foul play.

    python -m tests.classroom.rehearsal FOLDER

writes `FOLDER/class.csv`, the bundles that `nbcourse release` makes for this class, and what comes
back: `FOLDER/submissions/STUDENT/02-sequences.ipynb`.
"""

import re
import sys
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import nbformat

from nbcourse.checks import Sheet
from nbcourse.classroom.release import write_bundles
from nbcourse.publishing.chapters import ROOT

NAME = "02-sequences"

# The first student hands in the solutions; what a student has otherwise is named here, as code.
OWN_MEAN = """
def my_advantages():
    rewards = torch.tensor(sheet.numbers("by-hand")["rewards"], dtype=torch.float64)
    return rewards - rewards.mean()
"""
BATCH_MEAN = """
def group_means(rewards, group_size):
    return rewards.mean().expand(len(rewards))
"""
WHOLE_BATCH = """
def unequal_groups(rewards, prompts):
    return rewards - (rewards.sum() - rewards) / (len(rewards) - 1)
"""
ONLY_THE_EXAMPLE = """
def unequal_groups(rewards, prompts):
    if len(rewards) == 5:
        return torch.tensor([1.0, -1.0, 2.5, -2.0, -0.5])
    return torch.zeros_like(rewards)
"""
MULTIPLIED_MASK = """
def discounted_weights(rewards, mask, gamma):
    powers = gamma ** torch.arange(rewards.shape[1], dtype=rewards.dtype)
    return (rewards * mask * powers).flip(1).cumsum(1).flip(1) * mask
"""
EXPECTED_REWARD = """
import math
def expected_push(theta, short_reward, long_reward):
    stop = 1 / (1 + math.exp(-theta))
    return stop * (1 - stop) * (short_reward - long_reward)
"""
CRASHES = """
def expected_push(theta, short_reward, long_reward):
    return short_reward / (long_reward - long_reward)
"""
BROKEN_SYNTAX = "def group_means(rewards, group_size)\n    return rewards\n"

ENDLESS = "def group_means(rewards, group_size):\n    while True:\n        pass\n"
GREEDY = "def group_means(rewards, group_size):\n    return torch.ones(10**11)\n"
EXITS = "import os\nos._exit(0)\n"
EQUAL_TO_ALL = """
class Anything(torch.Tensor):
    def __eq__(self, other):
        return True
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return True

def group_means(rewards, group_size):
    return rewards.as_subclass(Anything)
"""
READS_THE_MASTER = f"""
from pathlib import Path
stolen = (Path({str(ROOT)!r}) / "solutions" / "02-sequences.ipynb").read_text()
"""
SHOUTS = "for _ in range(1000):\n    print('x' * 100_000)\n"
NO_CHECKS = """
import builtins, nbcourse.checks.sheet
nbcourse.checks.sheet.Sheet.check = lambda *a: print("right")
def group_means(rewards, group_size):
    return rewards
"""

# student → cells that differ from the solution, which "" stands for; None leaves a cell as it was
# given out.
IN_WORDS = "groups-that-shrank"  # which no check looks at
ALL_EMPTY = dict.fromkeys([*Sheet(NAME).exercises, IN_WORDS])
CLASS: dict[str, dict[str, str | None]] = {
    "ada": {},
    "alan": {},
    "barbara": {},
    "claude": {},
    "donald": {"length-bias": None},
    "edsger": {"length-bias": None, "discounted-weights": None},
    "frances": ALL_EMPTY | {"mend-the-groups": ""},
    "grace": ALL_EMPTY,
    "hedy": {"by-hand": OWN_MEAN},
    "john": {"mend-the-groups": BATCH_MEAN, "discounted-weights": MULTIPLIED_MASK},
    "katherine": {"unequal-groups": WHOLE_BATCH, "length-bias": EXPECTED_REWARD},
    "leslie": {"unequal-groups": ONLY_THE_EXAMPLE},
    "margaret": {"length-bias": CRASHES},
    "niklaus": {"mend-the-groups": BROKEN_SYNTAX},
    "radia": {"mend-the-groups": ENDLESS},
    "shafi": {"mend-the-groups": GREEDY},
    "tim": {"by-hand": EXITS},
    "ursula": {"mend-the-groups": EQUAL_TO_ALL},
    "vint": {"by-hand": READS_THE_MASTER},
    "whitfield": {"mend-the-groups": NO_CHECKS, "by-hand": SHOUTS},
}


def points() -> dict[str, float]:
    """What each exercise is worth."""
    marks = (cell.metadata.get("nbgrader", {}) for cell in _master().cells)
    return {m["grade_id"].removesuffix("-check"): m["points"] for m in marks if m.get("grade")}


def points_of(student: str) -> float:
    """What the work deserves, before a person has read the answers in words: the points of the
    exercises in which it is the solution."""
    right = (name for name in points() if CLASS[student].get(name, "") == "" and name != IN_WORDS)
    return sum(points()[name] for name in right)


def write(folder: Path) -> None:
    """Write the class list and the submissions."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["student,name", *(f"{student},{student.title()}" for student in CLASS)]
    (folder / "class.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for bundle in write_bundles(NAME, folder / "released", students=CLASS):
        target = folder / "submissions" / bundle.stem / f"{NAME}.ipynb"
        target.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(solved(bundle, CLASS[bundle.stem]), target)


def handed_out(bundle: Path) -> nbformat.NotebookNode:
    """The notebook in a bundle."""
    with zipfile.ZipFile(bundle) as archive:
        return nbformat.reads(archive.read(f"{NAME}/{NAME}.ipynb"), as_version=4)


def solved(bundle: Path, work: Mapping[str, str | None]) -> nbformat.NotebookNode:
    """The notebook of a bundle with the solutions, but for these answers."""
    notebook, solutions = handed_out(bundle), _solution_cells()
    for cell in notebook.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id")
        if name in solutions:
            other = work.get(name, "")
            cell.source = {None: cell.source, "": solutions[name]}.get(other, other)
    return notebook


@cache
def _master() -> nbformat.NotebookNode:
    return nbformat.read(ROOT / "solutions" / f"{NAME}.ipynb", as_version=4)


@cache
def _solution_cells() -> dict[str, str]:
    master = _master()
    marks = {cell.id: cell.metadata.get("nbgrader", {}) for cell in master.cells}
    return {
        marks[cell.id]["grade_id"]: re.sub(r"(?m)^\s*### (BEGIN|END) SOLUTION\n?", "", cell.source)
        for cell in master.cells
        if marks[cell.id].get("solution")
    }


if __name__ == "__main__":
    write(Path(sys.argv[1]))
