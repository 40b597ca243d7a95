"""Reports of strangers, written anew and judged once: losses by `examine`, logs by `diagnose`.

A batch is a module of its own beside this one, and a list `CASES` in it:

    python -m book.studies.strangers_third book/runs/strangers-third

Each case is written from what its thread says was wrong, beside its mended twin. What would be
right was written down and committed before either tool had seen any of them, by somebody who had
not read the tools' rules. `environment.json` and `results.jsonl` say what came of the first run.
"""

import argparse
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from nbcourse.diagnosis.diagnose import diagnose
from nbcourse.examine import Subject, examine
from nbcourse.experiments import evidence, records


@dataclass(frozen=True)
class Verdict:
    """What has to be said of a loss or a log, and what must not be.

    Attributes:
        mistakes: ids that have to be among the mistakes, or among the causes of a log.
        also: further ids that may be: they are true, and the first ones imply them.
        named: ids that have to be somewhere in the report, as a mistake, a choice or a note.
        one_of: ids of which one has to be somewhere in the report.
        never: ids that must not be anywhere in it.
        said: patterns that its text has to hold.
    """

    mistakes: set[str] = field(default_factory=set)
    also: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    one_of: set[str] = field(default_factory=set)
    never: set[str] = field(default_factory=set)
    said: tuple[str, ...] = ()

    def wrong_in(self, mistakes: set[str], ids: set[str], text: str) -> list[str]:
        """What is missing in a report, or false; nothing if it is right."""
        missing = (self.mistakes - mistakes) | (self.named - ids)
        unsaid = f"none of {', '.join(sorted(self.one_of))}"
        return [
            *(f"{one} is not said" for one in sorted(missing)),
            *(f"{one} is false" for one in sorted(mistakes - self.mistakes - self.also)),
            *(f"{one} is said" for one in sorted(self.never & ids)),
            *([unsaid] if self.one_of and not self.one_of & ids else []),
            *(f"nothing like {one!r}" for one in self.said if not re.search(one, text)),
        ]

    def __str__(self) -> str:
        parts = (
            ("", self.mistakes),
            ("named: ", self.named),
            ("one of: ", self.one_of),
            ("never: ", self.never),
            ("said: ", set(self.said)),
        )
        return "; ".join(label + ", ".join(sorted(ids)) for label, ids in parts if ids) or "nothing"


RIGHT = Verdict()


@dataclass(frozen=True)
class Case:
    """A fault report, with its mended twin.

    Attributes:
        source: the thread.
        date: when it was reported.
        title: what it says, in our words.
        fault: a loss, or the text of a log.
        mended: the same without the fault.
        expected: what has to be said of the fault.
        twin: what has to be said of the mended one.
        convention: whose names the losses take.
        suffix: how the file of a log is called, which says what printed it.
    """

    source: str
    date: str
    title: str
    fault: Any
    mended: Any
    expected: Verdict
    twin: Verdict = RIGHT
    convention: str = "book"
    suffix: str = ".log"


def clipped(ratio, advantages):
    return -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)


def masked_mean(losses, mask):
    return (losses * mask).sum() / mask.sum().clamp(min=1)


def mean_of_rows(losses, mask):
    return ((losses * mask).sum(-1) / mask.sum(-1).clamp(min=1)).mean()


def k3(log_probs, ref_log_probs):
    change = ref_log_probs - log_probs
    return change.exp() - change - 1


def examined(loss: Callable[..., Any], convention: str) -> tuple[set[str], set[str], str]:
    """The mistakes, all ids and the text of an examination."""
    report = examine(Subject.of(loss, convention=convention))
    mistakes = {one.id for one in report.findings if one.kind == "mistake"}
    return mistakes, {one.id for one in report.findings}, str(report)


def diagnosed(log: str, suffix: str) -> tuple[set[str], set[str], str]:
    """The causes, twice, and the text of a diagnosis of printed lines."""
    with tempfile.TemporaryDirectory() as folder:
        path = (Path(folder) / "run").with_suffix(suffix)
        path.write_text(log, "utf-8")
        report = diagnose(evidence.read(path))
    causes = {one.id for one in report.findings}
    return causes, causes, str(report)


def judged(case: Case) -> dict[str, Any]:
    """What the tools say of a case and of its twin, and whether that is right."""
    kept: dict[str, Any] = {
        "source": case.source,
        "date": case.date,
        "title": case.title,
        "kind": "log" if isinstance(case.fault, str) else "loss",
    }
    for name, subject, verdict in (
        ("fault", case.fault, case.expected),
        ("mended", case.mended, case.twin),
    ):
        try:
            said = (
                diagnosed(subject, case.suffix)
                if isinstance(subject, str)
                else examined(subject, case.convention)
            )
        except Exception as error:  # a refusal is a verdict, too, and here it is a wrong one
            said = set(), set(), f"{type(error).__name__}: {error}"
            wrong = [said[2]]
        else:
            wrong = verdict.wrong_in(*said)
        kept[name] = {
            "expected": str(verdict),
            "allowed": sorted(verdict.also),
            "mistakes": sorted(said[0]),
            "others": sorted(said[1] - said[0]),
            "wrong": wrong,
        }
    kept["right"] = not (kept["fault"]["wrong"] or kept["mended"]["wrong"])
    return kept


def record(cases: list[Case], description: str | None) -> None:
    """The command of a batch: judge each of its cases, and keep what came of it."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=Path, help="where the record goes")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    records.write_json(folder / "environment.json", records.environment(1))
    records.write_results(folder, [judged(case) for case in cases])
