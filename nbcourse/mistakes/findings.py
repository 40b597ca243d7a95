"""What was found and what is said of it: to people first, then to machines."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nbcourse.errors import UserError, did_you_mean
from nbcourse.mistakes.catalogue import CATALOGUE, Mistake

# Of a loss: it does what no policy gradient may, methods differ here, or it asks for some care.
MISTAKE, CHOICE, NOTE = ("mistake", "choice", "note")
CERTAIN, LIKELY, POSSIBLE = CONFIDENCES = ("certain", "likely", "possible")  # of a run
KINDS = (MISTAKE, CHOICE, NOTE, *CONFIDENCES)
Requirements = Mapping[str, Callable[[Any], bool]]


@dataclass(frozen=True)
class Finding:
    """Something that was seen.

    Attributes:
        id: of a row of `CATALOGUE`.
        kind: one of `KINDS`.
        evidence: what shows it, with its numbers; empty where the row's sentence says all.
    """

    id: str
    kind: str
    evidence: str = ""

    @property
    def row(self) -> Mistake:
        """What the catalogue says of it."""
        return CATALOGUE[self.id]

    def as_dict(self) -> dict[str, Any]:
        """For machines: the keys stay."""
        row = self.row
        said = {"sentence": row.sentence, "fix": row.fix}
        return {**vars(self), **said, "section": row.section, "erratum": row.erratum}


def seen(name: str, how: str, /, **numbers: Any) -> Finding:
    """A finding in the words of its row.

    Args:
        name: of the row.
        how: a kind, or what else stands in the row for a way of seeing it.
        numbers: what the braces there ask for.
    """
    return Finding(name, how.partition(":")[0], CATALOGUE[name].evidence[how].format(**numbers))


def paragraph(findings: Sequence[Finding], *, mark: str = "", indent: str = "    ") -> list[str]:
    """Lines about one finding, or about several of a kind that are said in one breath.

    Args:
        findings: one or more.
        mark: what the first line begins with; the kind in brackets if empty.
        indent: of the other lines.
    """
    rows = [finding.row for finding in findings]
    sentences = " ".join(row.sentence for row in rows)
    mark = mark or f"[{findings[0].kind}] "
    lines = [f"{mark}{', '.join(row.id for row in rows)}: {sentences}"]
    if seen := "; ".join(one.evidence for one in findings if one.evidence):
        lines.append(f"{indent}seen: {seen}")
    fixes = [row.fix for row, one in zip(rows, findings, strict=True) if one.kind != CHOICE]
    if fix := "; ".join(filter(None, fixes)):
        lines.append(f"{indent}instead: {fix}")
    erratum = f"; appendix B, {rows[0].erratum}" if rows[0].erratum else ""
    return [*lines, f"{indent}see {rows[0].section}{erratum}"]


@dataclass(frozen=True)
class Report:
    """What was found; who examines adds what was looked at.

    Attributes:
        name: of the loss or the run.
        findings: in the order in which they are to be read.
    """

    name: str
    findings: Sequence[Finding]

    REQUIREMENTS: ClassVar[Requirements] = {}

    def opening(self) -> list[str]:
        """Sentences that come first."""
        return []

    def paragraphs(self) -> Iterator[Sequence[Finding]]:
        """The findings, with those together that are said in one breath."""
        return ([finding] for finding in self.findings)

    def closing(self) -> list[str]:
        """Lines that come last."""
        return []

    def details(self) -> dict[str, Any]:
        """What a machine is told besides."""
        return {}

    def __str__(self) -> str:
        lines = [self.name, "=" * len(self.name), "", *self.opening(), ""]
        for findings in self.paragraphs():
            lines += [*paragraph(findings), ""]
        return "\n".join([*lines, *self.closing()]).rstrip()

    def as_dict(self) -> dict[str, Any]:
        """For machines: the keys stay."""
        findings = [finding.as_dict() for finding in self.findings]
        return {"name": self.name, **self.details(), "findings": findings}

    def missing(self, requirements: Sequence[str]) -> list[str]:
        """Which requirements are not met, of those in `REQUIREMENTS`.

        Raises:
            UserError: if there is no such requirement.
        """
        for name in requirements:
            if name not in self.REQUIREMENTS:
                raise UserError(
                    f"a requirement is {name!r}, expected some of {', '.join(self.REQUIREMENTS)}"
                    f"{did_you_mean(name, self.REQUIREMENTS)}"
                )
        return [name for name in requirements if not self.REQUIREMENTS[name](self)]
