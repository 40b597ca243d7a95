"""What a diagnosis says besides its findings: what was looked at, and how sure it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from nbcourse.mistakes import findings
from nbcourse.mistakes.findings import CERTAIN, CONFIDENCES, LIKELY, POSSIBLE, Finding

MEANING = {
    CERTAIN: "a recomputation from the witness gives other numbers, and this cause the run's own",
    LIKELY: "a test on the witness, which a healthy run fails less than once in 100,000 times, or "
    "a difference that is certain while its cause is inferred",
    POSSIBLE: "a curve looks as it does with this cause; others may do the same",
}


# Of a question: what was found; None if all is as it should be; else why it was not looked at.
Answer = Finding | str | None
UNTOLD = "the trainer does not tell what would answer it"


def state(answer: Answer) -> str:
    """`found`, `fine` or `not looked at`."""
    if answer is None:
        return "fine"
    return "not looked at" if isinstance(answer, str) else "found"


@dataclass(frozen=True)
class Report(findings.Report):
    """What was seen in a run: the most certain first, and of these what comes first in a step.

    Attributes:
        name: of the run.
        findings: what was seen.
        witnesses: the steps of its witness batches.
        steps: lines of its curves.
        notes: what looks like a fault and is none.
        unseen: what could not be looked at, for want of what the run did not tell.
        answers: to each question.
        recognised: columns of another program's log that the questions know.
        unknown: its other columns of numbers.
        left_out: rows of its whose steps later ones have again.
    """

    witnesses: Sequence[int]
    steps: int
    notes: Sequence[str] = ()
    unseen: Sequence[str] = ()
    answers: Mapping[str, Answer] = field(default_factory=dict)
    recognised: Sequence[str] = ()
    unknown: Sequence[str] = ()
    left_out: int = 0

    REQUIREMENTS: ClassVar[findings.Requirements] = {
        "healthy": lambda report: report.healthy,
        "witness": lambda report: bool(report.witnesses),
        "complete": lambda report: report.complete,
    }

    @property
    def healthy(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def complete(self) -> bool:
        """Whether every question was looked at."""
        return bool(self.answers) and not self._missed()

    def _missed(self) -> dict[str, str]:
        """The questions that were not looked at, and why."""
        return {name: why for name, why in self.answers.items() if isinstance(why, str)}

    def opening(self) -> list[str]:
        """What was looked at, and how many causes were seen."""
        return [self.verdict()]

    def closing(self) -> list[str]:
        """What the confidences mean, how much was looked at, and notes."""
        used = {finding.kind for finding in self.findings}
        lines = [f"{word}: {MEANING[word]}" for word in CONFIDENCES if word in used]
        lines += self._coverage()
        lines += [f"[not looked at] {what}" for what in self.unseen]
        return lines + [f"[note] {note}" for note in self.notes]

    def _coverage(self) -> list[str]:
        """How much was looked at, of the questions and of the log."""
        lines, missed = [], self._missed()
        if self.answers:
            count = len(self.answers)
            lines.append(f"Looked at {count - len(missed)} of {count} questions.")
        if columns := len(self.recognised) + len(self.unknown):
            others = ", ".join(self.unknown[:3])
            more = f"; not, for example, {others}" if others else ""
            lines.append(
                f"Recognised {len(self.recognised)} of {columns} columns of the log{more}."
            )
        if self.left_out:
            lines.append(
                f"Left out {self.left_out} rows of the log: behind them its steps begin again."
            )
        for reason in dict.fromkeys(missed.values()):
            names = ", ".join(name for name, why in missed.items() if why == reason)
            lines.append(f"[not looked at] {names}: {reason}")
        return lines

    def verdict(self) -> str:
        """What was looked at, and how many causes were seen."""
        count = len(self.findings)
        seen = f"{count} cause{'' if count == 1 else 's'} seen" if count else "No cause was seen"
        points = f"{self.steps} point{'' if self.steps == 1 else 's'}"
        if self.witnesses:
            steps = ", ".join(map(str, self.witnesses))
            batches = "batch of step" if len(self.witnesses) == 1 else "batches of steps"
            said = f"{seen} in the witness {batches} {steps}, and in {points} of curves."
            return said + (" Part of a step could not be looked at: see below." * bool(self.unseen))
        missed = self._missed().get("trend of the reward", "") if self.steps else ""
        young = ", in which no trend of the reward could be judged" * bool(missed)
        young += " (is this a log of reinforcement learning?)" * (missed == "the log has no reward")
        return (
            f"{seen} in {points} of its curves{young}. There is no witness batch, and most faults "
            "leave curves as they are: set witness.every in the recipe (with a trainer of TRL's, "
            "call keep_witnesses), and ask again."
        )

    def details(self) -> dict[str, Any]:
        """For machines: the keys stay."""
        return {
            "healthy": self.healthy,
            "basis": "witness" if self.witnesses else "curves",
            "witnesses": list(self.witnesses),
            "steps": self.steps,
            "notes": list(self.notes),
            "not_looked_at": list(self.unseen),
            "questions": {name: state(answer) for name, answer in self.answers.items()},
            "complete": self.complete,
            "recognised": list(self.recognised),
            "not_recognised": list(self.unknown),
            "left_out": self.left_out,
        }
