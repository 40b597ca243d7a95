"""The hunt: each student gets a trainer with one to three faults: find, name, mend, write the test.

Which faults a student has, where they are planted and what else differs from the book's text
follows from the name and the class's key, which students do not get: nothing has to be kept. The
recorded run that comes with a trainer is one of our own loop, of the same algorithm and with the
same faults behind their switches.

Marks come from running what was handed in. Mended is what keeps the laws of the builds, and each
fault is judged with the others taken out of the way, so that one that is left costs once.
"""

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from nbcourse.builds import bench, check, grading, pieces, planted
from nbcourse.builds.bench import Law, Runs
from nbcourse.builds.mistakes import Way
from nbcourse.builds.planted import CONTENTS, FORMS, PLANTS
from nbcourse.builds.report import Judged, Verdict
from nbcourse.confined.forkserver import ForkServer, Zygote
from nbcourse.confined.sandbox import Limits
from nbcourse.diagnosis.diagnose import Evidence
from nbcourse.diagnosis.faults import FAULTS
from nbcourse.diagnosis.suspects import CAUSES
from nbcourse.errors import UserError, did_you_mean
from nbcourse.experiments import combinations, evidence
from nbcourse.experiments.combinations import Mark, go_together
from nbcourse.mistakes.catalogue import current
from nbcourse.mistakes.findings import MISTAKE, Finding, paragraph

MOST = 3  # faults
POINTS = 10  # for the names, for the mended trainer, and for the test
ACCUSATIONS, TRAINER, TEST, RUN = "accusations.txt", "trainer.py", "test_trainer.py", "run.zip"
# Of a piece of which a trainer has a part only: what can be asked of that part.
OF_THE_SAMPLER = ("rollout", "gap", "draws", "log-probs", "reward")
Broken = Mapping[tuple[str, str], Judged]

NAMES = """\
# The causes that you accuse, one to a line, and after a colon what makes you sure:
# mixed-groups: the advantages of rows 0 to 3 do not follow from their rewards
# `nbcourse diagnose --causes` lists them all. A false accusation costs as much as a
# correct one earns.
"""
TESTS = f'''\
"""Tests that fail on the trainer as you got it, and pass on any that is right.

They are run with each of your faults alone, and on healthy trainers that add in another order:
allow for rounding. `given.warm()` is a model that you can ask; `pytest test_trainer.py` runs them
here.
"""

import torch
import {planted.TRAINER}
'''


@dataclass(frozen=True)
class Deal:
    """What a student gets.

    Attributes:
        student: the name.
        algorithm: of the trainer, a key of `CONTENTS`.
        ways: fault, of `FAULTS` → how it is planted.
        forms: places in `FORMS` of harmless differences.
        seed: of the recorded run.
    """

    student: str
    algorithm: str
    ways: Mapping[str, Way]
    forms: tuple[int, ...]
    seed: int

    @property
    def faults(self) -> tuple[str, ...]:
        """One to three, of `FAULTS`."""
        return tuple(self.ways)

    def trainer(self, *faults: str) -> str:
        """The student's trainer with some of its faults."""
        return planted.trainer(self.algorithm, [self.ways[name] for name in faults], self.forms)

    def run(self) -> Evidence:
        """A run with all of the faults: the small model of the benchmark."""
        return combinations.train(self.faults, self.seed, self.student, algorithm=self.algorithm)


def deal(student: str, key: str) -> Deal:
    """What a student gets, the same whenever it is asked for.

    Raises:
        UserError: if the name is none that a folder can have.
    """
    if grading.NAME.search(student) or student[:1] in ("", ".", "-"):
        raise UserError(
            f"a student's name is {student!r}, expected one that a folder can have: letters, "
            "digits and . _ @ + -, beginning with neither a dot nor a dash"
        )
    digest = sha256(f"{key}/{student}".encode()).digest()
    source = torch.Generator().manual_seed(int.from_bytes(digest[:6], "big"))

    def below(count: int) -> int:
        return int(torch.randint(count, (), generator=source))

    algorithm = list(CONTENTS)[below(len(CONTENTS))]
    ways = {name: found[below(len(found))] for name, found in _possible(algorithm).items()}

    def fits(*names: str) -> bool:
        changed = [function for name in names for function in planted.functions(ways[name])]
        return len(changed) == len(set(changed)) and go_together(*names, algorithm=algorithm)

    names = _drawn(source, list(ways), fits)
    forms = tuple(place for place in range(len(FORMS)) if below(2))
    chosen = {name: ways[name] for name in names}
    return Deal(student, algorithm, chosen, forms, seed=below(10_000))


def _possible(algorithm: str) -> dict[str, Sequence[Way]]:
    """The faults that a trainer and a run of an algorithm can have → the ways to plant them."""
    found = {
        name: planted.ways_of(name, algorithm)
        for name in PLANTS
        if algorithm in FAULTS[name].algorithms
    }
    return {name: ways for name, ways in found.items() if ways}


def _drawn(
    generator: torch.Generator, names: Sequence[str], fits: Callable[..., bool]
) -> tuple[str, ...]:
    """One to three of the names, each number of them as likely, of which `fits(*names)` holds."""
    count = int(torch.randint(1, MOST + 1, (), generator=generator))
    order = torch.randperm(len(names), generator=generator).tolist()
    chosen: tuple[str, ...] = ()
    for name in (names[place] for place in order):
        if len(chosen) < count and fits(*chosen, name):
            chosen += (name,)
    return chosen


def new(dealt: Deal, out: Path) -> Path:
    """Write a student's folder: the trainer, a recorded run, and what is to be filled in.

    Raises:
        UserError: if the folder has files already.
    """
    folder = out / dealt.student
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty: a new hunt would replace what has been filled in")
    folder.mkdir(parents=True, exist_ok=True)
    given = f"{pieces.GIVEN}.py"
    texts = {
        TRAINER: dealt.trainer(*dealt.faults),
        given: pieces.solution(pieces.GIVEN),
        ACCUSATIONS: NAMES,
        TEST: TESTS,
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    shutil.copyfile(pieces.WARM, folder / pieces.WARM.name)
    (folder / RUN).write_bytes(evidence.pack(dealt.run()))
    return folder


# ---------------------------------------------------------------- what was handed in


@dataclass(frozen=True)
class Named:
    """The accusations.

    Attributes:
        mark: what was found of what was planted, and what was accused falsely.
        unknown: names that are no causes, which count for nothing.
    """

    mark: Mark
    unknown: Sequence[str]

    @property
    def share(self) -> float:
        """Found less falsely accused, of those planted."""
        return self.mark.share

    def lines(self) -> list[str]:
        """In words, the first line without the points."""
        lines = [f"found {_of(self.mark.found, self.mark.missed)}"]
        if self.mark.false:
            lines[0] += f", falsely accused: {', '.join(self.mark.false)}"
        lines += [f"    missed: {name}: {CAUSES[name].sentence}" for name in self.mark.missed]
        return lines + [
            f"    not counted: there is no cause {name!r}{did_you_mean(name, CAUSES)}"
            for name in self.unknown
        ]


@dataclass(frozen=True)
class MendedTrainer:
    """The trainer that was handed in.

    Attributes:
        gone: faults that are no longer there.
        left: those that are, each with what shows it.
        broken: laws that do not hold whatever becomes of the faults.
    """

    gone: Sequence[str]
    left: Mapping[str, str]
    broken: Sequence[Judged]

    @property
    def share(self) -> float:
        """Gone less newly broken, of those planted."""
        return max(0, len(self.gone) - len(self.broken)) / (len(self.gone) + len(self.left))

    def lines(self) -> list[str]:
        """In words, the first line without the points."""
        lines = [f"mended {_of(self.gone, self.left)}"]
        for name, seen in self.left.items():
            left = Finding(FAULTS[name].cause, MISTAKE, seen)
            lines += paragraph([left], mark="    ✗ still there: ", indent="      ")
        for seen, one in {_evidence(one): one for one in reversed(self.broken)}.items():
            lines += [
                f"    ✗ newly broken: {one.law.sentence}",
                f"      seen: {seen}",
                f"      see {one.law.section}",
            ]
        return lines


@dataclass(frozen=True)
class Tested:
    """The test that was handed in.

    Attributes:
        caught: faults that it sees, each planted alone.
        missed: those that it does not see.
        accused: test → what it says against a healthy trainer.
    """

    caught: Sequence[str]
    missed: Sequence[str]
    accused: Mapping[str, str]

    @property
    def share(self) -> float:
        """Caught of those planted, and nothing if a healthy trainer is accused."""
        return 0.0 if self.accused else len(self.caught) / (len(self.caught) + len(self.missed))

    def lines(self) -> list[str]:
        """In words, the first line without the points."""
        if self.accused:
            lines = ["a healthy trainer is accused, which costs all points"]
            return lines + [f"    ✗ {test}: {said}" for test, said in self.accused.items()]
        missed = [f"    not caught: {FAULTS[name].cause}" for name in self.missed]
        return [f"caught {_of(self.caught, self.missed)}", *missed]


def _of(some: Any, others: Any) -> str:
    return f"{len(some)} of {len(some) + len(others)}"


HuntPart = Named | MendedTrainer | Tested
PARTS = {"named": ACCUSATIONS, "mended": TRAINER, "test": TEST}


@dataclass(frozen=True)
class Report:
    """What a student's folder is worth.

    Attributes:
        name: of the student.
        parts: key of `PARTS` → what was found; None where the file is not there.
        failure: why nothing could be marked; empty as a rule.
    """

    name: str
    parts: Mapping[str, HuntPart | None]
    failure: str = ""

    def points_of(self, part: str) -> float:
        """Of one part, to one digit."""
        found = self.parts.get(part)
        return round(POINTS * found.share, 1) if found else 0.0

    @property
    def points(self) -> float:
        """Of all parts."""
        return round(sum(map(self.points_of, PARTS)), 1)

    @property
    def most(self) -> int:
        """What could be earned."""
        return POINTS * len(PARTS)

    def __str__(self) -> str:
        lines = [self.name, "=" * len(self.name), ""]
        for name, file in PARTS.items():
            found = self.parts.get(name)
            said = found.lines() if found else [] if self.failure else [f"there is no {file}"]
            first, *others = said or [""]
            lines += [f"{name:<7} {self.points_of(name):>4g}/{POINTS}  {first}".rstrip(), *others]
        if self.failure:
            lines.append(self.failure)
        return "\n".join([*lines, "", f"{self.points:g} of {self.most} points"])

    def as_dict(self) -> dict[str, Any]:
        """For machines: the keys stay."""
        return {
            "name": self.name,
            "points": self.points,
            "max_points": self.most,
            "failure": self.failure,
            **{
                name: {"points": self.points_of(name), "said": found.lines() if found else []}
                for name, found in ((name, self.parts.get(name)) for name in PARTS)
            },
        }


def mark(
    submissions: Path,
    key: str,
    out: Path,
    *,
    limits: Limits,
    jobs: int | None = None,
    confined: bool = True,
) -> list[Report]:
    """Mark every folder in a folder, and write the reports and the points.

    Args:
        submissions: holds a folder for each student, of the name that `new` was given.
        key: the class's.
        out: `STUDENT.txt`, `STUDENT.json` and `grades.csv` are written there.
        limits: what each session of files may use.
        jobs: students at a time; None for one for each processor.
        confined: whether the files run confined.

    Raises:
        UserError: if there is nothing to mark, a folder has a name that no student has, or this
            machine cannot confine processes.
    """
    folders = grading.students(submissions, *PARTS.values())
    for folder in folders:
        deal(folder.name, key)
    work = partial(marked, key=key, limits=limits, confined=confined)
    with Zygote() as zygote:
        reports = grading.written(work, folders, out, zygote=zygote, jobs=jobs, confined=confined)
    grading.write_table(
        out / "grades.csv",
        ["student", "points", "of", *PARTS, "failure"],
        [_row(one) for one in reports],
    )
    return reports


def _row(report: Report) -> list[Any]:
    """What could not be marked is no zero."""
    points: list[Any] = [report.points, report.most, *map(report.points_of, PARTS)]
    if report.failure:
        points = [""] * len(points)
    return [report.name, *points, report.failure]


def marked(
    folder: Path, zygote: Zygote, *, key: str, limits: Limits, confined: bool = True
) -> Report:
    """The report on one student's folder; whatever its code does, there is one."""
    torch.set_num_threads(1)
    dealt = deal(folder.name, key)
    try:
        handed_in = {
            name: pieces.text(folder / file) if (folder / file).is_file() else None
            for name, file in PARTS.items()
        }
        with ForkServer(zygote, confined=confined) as server:
            runs = partial(grading.apart, server=server, limits=limits)
            return judged(dealt, handed_in, runs)
    except Exception as error:
        return Report(dealt.student, {}, f"not marked: {type(error).__name__}: {error}")


def judged(dealt: Deal, handed_in: Mapping[str, str | None], runs: Runs = bench.here) -> Report:
    """The report on what a student handed in.

    Args:
        dealt: what the student got.
        handed_in: key of `PARTS` → the text of the file, or None.
        runs: runs files and answers, in this process or in another one.
    """
    judges: Mapping[str, Callable[[str], HuntPart]] = {
        "named": partial(named, dealt),
        "mended": partial(mended, dealt, runs=runs),
        "test": partial(tested, dealt, runs=runs),
    }
    parts = {name: None if text is None else judges[name](text) for name, text in handed_in.items()}
    return Report(dealt.student, parts)


def named(dealt: Deal, text: str) -> Named:
    """Count the accusations: the first word of each line that is no comment."""
    lines = [line.strip() for line in text.splitlines()]
    said = [current(re.split(r"[\s:,;]", line)[0]) for line in lines if line and line[0] != "#"]
    unknown = [name for name in said if name not in CAUSES]
    return Named(combinations.mark(dealt.faults, [n for n in said if n in CAUSES]), unknown)


def mended(dealt: Deal, text: str, *, runs: Runs) -> MendedTrainer:
    """Which faults are gone from a trainer.

    If every law holds, all of them are. Otherwise each is looked for with the functions of the
    others as the book has them: it is gone if the first law holds that it breaks by itself, and
    nothing is broken but what is so without any of the faults' functions.
    """
    breaks = partial(_broken, algorithm=dealt.algorithm, runs=runs)
    if not breaks(text):
        return MendedTrainer(dealt.faults, {}, [])
    places = {name: planted.functions(way) for name, way in dealt.ways.items()}

    def without(*names: str) -> Broken:
        functions = [function for name in names for function in places[name]]
        return breaks(planted.healed(text, dealt.algorithm, functions))

    before = without(*dealt.faults)
    gone, left = [], {}
    for name in dealt.faults:
        found = without(*(other for other in dealt.faults if other != name))
        first = next(iter(breaks(dealt.trainer(name))))
        fresh = [one for place, one in found.items() if place not in before or place == first]
        if fresh:
            left[name] = _evidence(fresh[0])
        else:
            gone.append(name)
    return MendedTrainer(gone, left, [one for one in before.values() if one.finding])


def _evidence(one: Judged) -> str:
    if one.finding is None:
        return f"it could not be examined, since another law is broken: {one.waits_for}"
    return one.finding.evidence


def _broken(text: str, *, algorithm: str, runs: Runs) -> Broken:
    """(piece, law) → what became of it, of those that do not hold of a trainer, in their order."""
    found = {}
    with runs(planted.modules(text, algorithm)) as asked:
        for piece in CONTENTS[algorithm]:
            for one in check.judge(laws(piece, algorithm), asked):
                if one.verdict != Verdict.HOLDS:
                    found[piece, one.law.name] = one
    return found


def laws(piece: str, algorithm: str) -> list[Law]:
    """What has to hold of a piece in a trainer; the curve shows nothing that they do not."""
    whole = "train" in CONTENTS[algorithm][piece] or piece != "reinforce"
    return [
        law
        for law in check.LAWS
        if law.piece == piece and (law.name != "curve" if whole else law.name in OF_THE_SAMPLER)
    ]


def tested(dealt: Deal, text: str, *, runs: Runs) -> Tested:
    """Run a student's test on healthy trainers, and with each of the faults alone."""
    module = TEST.removesuffix(".py")
    healthy = [
        planted.trainer(dealt.algorithm, (), forms)
        for forms in ((), dealt.forms, range(len(FORMS)))
    ]
    with runs({}) as asked:

        def fails(source: str) -> list[tuple[str, str]]:
            sources = bench.with_given({planted.TRAINER: source, module: text})
            return check.failures(asked, sources, [module])

        accused = dict(failure for source in healthy for failure in fails(source))
        caught = [name for name in dealt.faults if not accused and fails(dealt.trainer(name))]
    return Tested(caught, [name for name in dealt.faults if name not in caught], accused)
