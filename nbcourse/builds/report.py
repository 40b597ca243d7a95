"""What a check of a folder says: to people first, then to machines."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from nbcourse.builds.bench import Law
from nbcourse.builds.mistakes import MISTAKES
from nbcourse.builds.pieces import PieceState
from nbcourse.mistakes.findings import Finding, paragraph

UNKNOWN = "It is wrong, but not by any mistake that is known here."
TEST_POINTS, EXPLOIT_POINTS = 20, 5


class Verdict(StrEnum):
    """How a law came out."""

    HOLDS = "holds"
    BROKEN = "broken"
    OPEN = "not examined"


@dataclass(frozen=True)
class Judged:
    """A law, and what became of it.

    Attributes:
        law: which one.
        verdict: how it came out.
        finding: what was seen, where it is broken.
        waits_for: the broken law before it, where it was not examined.
    """

    law: Law
    verdict: Verdict
    finding: Finding | None = None
    waits_for: str = ""

    @property
    def points(self) -> int:
        """What it earned."""
        return self.law.points if self.verdict == Verdict.HOLDS else 0

    def lines(self) -> list[str]:
        """The complaint in words; empty where there is none."""
        if self.finding is None:
            return []
        mark, indent = f"    ✗ {self.law.name}: ", "      "
        if self.finding.id:
            return paragraph([self.finding], mark=mark, indent=indent)
        seen = f"{indent}seen: {self.finding.evidence}"
        return [f"{mark}{UNKNOWN}", seen, f"{indent}see {self.law.section}"]

    def as_dict(self) -> dict[str, Any]:
        """For machines: the keys stay."""
        found = self.finding
        return {
            "law": self.law.name,
            "sentence": self.law.sentence,
            "verdict": str(self.verdict),
            "points": self.points,
            "max_points": self.law.points,
            "finding": found and (found.as_dict() if found.id else vars(found)),
            "section": self.law.section,
            "waits_for": self.waits_for,
        }


@dataclass(frozen=True)
class Build:
    """What was found of one piece.

    Attributes:
        piece: its name.
        state: what there is of it.
        remark: why it was not examined, where that is so.
        laws: of the piece.
        beneath: pieces under it that are the book's here, since there were none, or wrong ones.
    """

    piece: str
    state: PieceState
    remark: str
    laws: Sequence[Judged]
    beneath: Sequence[str] = ()

    @property
    def right(self) -> bool:
        """Whether it is the reader's own, and every law holds."""
        return self.state == PieceState.OWN and all(j.verdict == Verdict.HOLDS for j in self.laws)

    def lines(self) -> list[str]:
        """A heading, and a complaint for each broken law."""
        points, most = (sum(values) for values in zip(*self._points(), strict=True))
        if self.state != PieceState.OWN:
            remark = self.remark or "taken from the book: it works but earns nothing"
            return [f"{self.piece:<10} {points:>2}/{most:<2}  {remark}"]
        held = sum(judged.verdict == Verdict.HOLDS for judged in self.laws)
        lines = [f"{self.piece:<10} {points:>2}/{most:<2}  {held} of {len(self.laws)} laws hold"]
        if self.beneath:
            lines.append(f"    run with the book's {', '.join(self.beneath)}")
        for judged in self.laws:
            lines += judged.lines()
        if waiting := [judged.law.name for judged in self.laws if judged.verdict == Verdict.OPEN]:
            lines.append(f"    not examined until that is fixed: {', '.join(waiting)}")
        return lines

    def _points(self) -> list[tuple[int, int]]:
        return [(judged.points, judged.law.points) for judged in self.laws]

    def as_dict(self) -> dict[str, Any]:
        """For machines: the keys stay."""
        return {
            "piece": self.piece,
            "state": str(self.state),
            "remark": self.remark,
            "points": sum(points for points, _ in self._points()),
            "max_points": sum(most for _, most in self._points()),
            "beneath": list(self.beneath),
            "laws": [judged.as_dict() for judged in self.laws],
        }


@dataclass(frozen=True)
class Tests:
    """What the tests that a reader wrote are worth.

    Attributes:
        modules: names of those that hold them.
        accused: test → what it says against a healthy trainer.
        caught: mistakes that some test notices.
        missed: those that none notices.
    """

    modules: Sequence[str]
    accused: Sequence[tuple[str, str]]
    caught: Sequence[str]
    missed: Sequence[str]

    @property
    def points(self) -> float:
        """Paid for what they catch, and nothing if they accuse a healthy trainer."""
        return 0.0 if self.accused else _in_proportion(TEST_POINTS, self.caught, self.missed)

    def lines(self) -> list[str]:
        """What was caught, and what was not."""
        heading = f"{'your tests':<10} {self.points:g}/{TEST_POINTS}"
        if not self.modules:
            return [f"{heading}  there is no test_*.py"]
        if self.accused:
            lines = [f"{heading}  a healthy trainer is accused, which costs all points"]
            return [*lines, *(f"    ✗ {test}: {said}" for test, said in self.accused)]
        every = len(self.caught) + len(self.missed)
        lines = [f"{heading}  {len(self.caught)} of {every} wrong trainers caught"]
        pieces: dict[str, list[str]] = {}
        for name in self.missed:
            pieces.setdefault(MISTAKES[name].piece, []).append(name)
        return lines + [
            f"    missed, {piece}: {', '.join(names)}" for piece, names in pieces.items()
        ]

    def as_dict(self) -> dict[str, Any]:
        """For machines: the keys stay."""
        return {**vars(self), "points": self.points, "max_points": TEST_POINTS}


@dataclass(frozen=True)
class Exploits:
    """What a reader's exploits are worth.

    Attributes:
        complaint: why they could not be read; empty as a rule.
        innocent: responses that the book's verifier pays, too.
        fooled: wrong verifiers that pay one of the others.
        missed: those that refuse them all.
    """

    complaint: str
    innocent: Sequence[str]
    fooled: Sequence[str]
    missed: Sequence[str]

    @property
    def points(self) -> float:
        """In proportion to the wrong verifiers that are fooled."""
        return _in_proportion(EXPLOIT_POINTS, self.fooled, self.missed)

    def lines(self) -> list[str]:
        """Which wrong verifiers were fooled, and what is no exploit."""
        heading = f"{'exploits':<10} {self.points:g}/{EXPLOIT_POINTS}"
        if self.complaint:
            return [f"{heading}  {self.complaint}"]
        every = len(self.fooled) + len(self.missed)
        lines = [f"{heading}  {len(self.fooled)} of {every} wrong verifiers fooled"]
        lines += [f"    not an exploit but a right answer: {text[:60]!r}" for text in self.innocent]
        return lines + ([f"    not fooled: {', '.join(self.missed)}"] if self.missed else [])

    def as_dict(self) -> dict[str, Any]:
        """For machines: the keys stay."""
        return {**vars(self), "points": self.points, "max_points": EXPLOIT_POINTS}


@dataclass(frozen=True)
class Report:
    """What was found in a folder.

    Attributes:
        name: of the folder.
        builds: of the pieces that were asked about.
        tests: of the reader's own tests; None where they were not asked about.
        exploits: the same of the reader's exploits.
        failure: why nothing could be examined; empty as a rule.
    """

    name: str
    builds: Sequence[Build]
    tests: Tests | None = None
    exploits: Exploits | None = None
    failure: str = ""

    @property
    def points(self) -> float:
        """Of all pieces, and of the tests."""
        parts = [part.as_dict()["points"] for part in self._parts()]
        return round(sum(parts), 1)

    @property
    def most(self) -> int:
        """What could be earned."""
        return sum(part.as_dict()["max_points"] for part in self._parts())

    @property
    def taken(self) -> list[str]:
        """Pieces that are the book's."""
        return [build.piece for build in self.builds if build.state == PieceState.TAKEN]

    def _parts(self) -> list[Build | Tests | Exploits]:
        return [*self.builds, *(part for part in (self.tests, self.exploits) if part)]

    def __str__(self) -> str:
        lines = [self.name, "=" * len(self.name), ""]
        for part in self._parts():
            lines += part.lines()
        if self.failure:
            lines.append(self.failure)
        lines += ["", f"{self.points:g} of {self.most} points"]
        if self.taken:
            lines[-1] += f"; taken from the book: {', '.join(self.taken)}"
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """For machines: the keys stay."""
        return {
            "name": self.name,
            "points": self.points,
            "max_points": self.most,
            "taken": self.taken,
            "failure": self.failure,
            "builds": [build.as_dict() for build in self.builds],
            "tests": self.tests.as_dict() if self.tests else None,
            "exploits": self.exploits.as_dict() if self.exploits else None,
        }


def _in_proportion(most: int, reached: Sequence[str], missed: Sequence[str]) -> float:
    """Points for what was reached of all there was, to one digit."""
    every = len(reached) + len(missed)
    return round(most * len(reached) / every, 1) if every else 0.0
