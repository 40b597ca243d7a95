"""What an examination says besides its findings: where a loss goes, and what it is near to."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nbcourse.examine import families
from nbcourse.examine.facts import Facts
from nbcourse.examine.known import Nearest
from nbcourse.mistakes import findings
from nbcourse.mistakes.findings import CHOICE, MISTAKE, Finding

HYGIENE = ("padding-nan", "empty-response", "empty-batch", "half-precision", "kl-rounding")  # notes


def mask_safe(facts: Facts) -> bool:
    """Whether padding is neither read, nor counted, nor trained, whatever it holds."""
    return facts.padding_clean and facts.padding_gradient_free and facts.padding == "nothing"


def detached(facts: Facts) -> bool:
    """Whether no gradient reaches old log-probs, reference or rewards."""
    return not {"old_log_probs", "ref_log_probs", "rewards"} & {*facts.attached}


REQUIREMENTS: findings.Requirements = {
    "exact": lambda report: report.facts.fresh.verdict == "exact",
    "unbiased": lambda report: (
        report.facts.fresh.verdict in ("exact", "proportional")
        and min(report.facts.fresh.factors.values()) > 0
    ),
    "no-mistake": lambda report: not any(f.kind == MISTAKE for f in report.findings),
    "mask-safe": lambda report: mask_safe(report.facts),
    "eos-trained": lambda report: -1 not in report.facts.silent_positions,
    "microbatch-invariant": lambda report: report.facts.micro_batches.by in ("mean", "parts"),
    "detached": lambda report: detached(report.facts),
    "finite-long": lambda report: report.facts.finite_long,
    "kl-reverse": lambda report: report.facts.descent.descends == "reverse",
    "kl-stale-exact": lambda report: report.facts.kl_stale_exact,
}


@dataclass(frozen=True)
class Report(findings.Report):
    """Facts and findings about one loss, mistakes first.

    Attributes:
        name: of the loss.
        findings: what the facts mean.
        facts: what was measured.
        nearest: the row of the table that does most of the same.
    """

    facts: Facts
    nearest: Nearest

    REQUIREMENTS: ClassVar[findings.Requirements] = REQUIREMENTS

    def opening(self) -> list[str]:
        """Three sentences, and what its clip is."""
        return [*self.verdict(), self.clip]

    def paragraphs(self) -> Iterator[Sequence[Finding]]:
        """What a caller can keep to is said once, and not a paragraph a time."""
        hygiene = [finding for finding in self.findings if finding.id in HYGIENE]
        for finding in self.findings:
            if finding not in hygiene[1:]:
                yield hygiene if finding in hygiene else [finding]

    def verdict(self) -> list[str]:
        """Where it goes, what becomes of it on stale samples, and what is wrong with it."""
        return [_fresh(self.facts), _stale(self.facts), self._count()]

    def closing(self) -> list[str]:
        """How later probes went round what was found, and what could not be looked at."""
        facts, said = self.facts, []
        if facts.repairs:
            spared = ", ".join(facts.repairs)
            said += [f"So that nothing is told twice, the rest was looked at with {spared}.", ""]
        if facts.who_learns == "neither":
            where = " where there is one prompt" if facts.influence == "crossed" else ""
            said += [
                f"Not looked at, for no reward reaches the policy{where}: ratio, clip and average."
            ]
        return said

    @property
    def clip(self) -> str:
        """Its clip, or that it has none."""
        if self.facts.average == "times-the-length":
            return "Its clip was not looked at: a weight goes by the length of the response."
        if self.facts.level == "own":
            return "Its clip was not looked at: a weight goes by the probability of the token."
        if self.facts.who_learns == "neither":
            return "Its clip was not looked at."
        return families.said(self.facts.clip, held=self.facts.held.name != "none")

    def _count(self) -> str:
        mistakes = [f for f in self.findings if f.kind == MISTAKE]
        choices = sum(f.kind == CHOICE for f in self.findings)
        named = ", ".join(f.id for f in mistakes)
        wrong = f"{_many(len(mistakes), 'mistake')} ({named})" if mistakes else self._none()
        known = f"{wrong} and {_many(choices, 'choice')} to know of"
        if self.nearest.factor == 0:
            return f"{known}; no row of the table is near to steps of length 0."
        return f"{known}; the nearest row of the table is {self.nearest.row}, {self._gap()}."

    def _none(self) -> str:
        """What is said where no mistake was found: that is no verdict on a step that is off."""
        shares = self.facts.shares
        if not any(finding.id == "unexplained" for finding in self.findings):
            return "No mistake"
        return (
            f"No mistake that has a name, and no verdict: {shares.unexplained:.1%} of the expected "
            "step is unexplained,"
        )

    def _gap(self) -> str:
        one = self.nearest
        if math.isnan(one.gap):
            return "but how far its steps are from that row's cannot be said, since some are NaN"
        if not one.same:
            return f"and the expected steps differ from that row's by {one.gap:.2g} of their length"
        same_length = abs(one.factor - 1) <= 1e-6
        times = "" if same_length else f" times {one.factor:.3g}"
        return f"and the steps are those of that row{times}"

    def as_dict(self) -> dict[str, Any]:
        """For machines: the keys stay, JSON has no NaN and no infinity."""
        plain: dict[str, Any] = _without_infinities(super().as_dict())
        return plain

    def details(self) -> dict[str, Any]:
        """What was measured."""
        facts = self.facts
        return {
            "verdict": self.verdict(),
            "direction": {
                "fresh": _direction(facts.fresh),
                "stale": _direction(facts.stale),
                "worst": {
                    "cosine": facts.worst.cosine,
                    "probs": facts.worst.probs,
                    "rewards": facts.worst.rewards,
                },
            },
            "difficulty": {f"{chance:g}": f for chance, f in facts.difficulty.items()},
            "length": {"weight": facts.average},
            "kl": {
                "estimates": facts.kl_estimator,
                "placement": facts.kl_placement,
                "descends": facts.descent.descends,
                "beta": facts.descent.beta,
                "stale_exact": facts.kl_stale_exact,
            },
            "clip": {
                "low": facts.clip.bounds[0],
                "high": facts.clip.bounds[1],
                "of_sequence": facts.clip.of_sequence,
                "level": facts.clip.level,
                "said": self.clip,
            },
            "mask": {"safe": mask_safe(facts)},
            "eos": {"trained": -1 not in facts.silent_positions},
            "microbatch": {"invariant": facts.micro_batches.by in ("mean", "parts")},
            "detached": detached(facts),
            "finite": {"long": facts.finite_long},
            "nearest": {
                "row": self.nearest.row,
                "same": self.nearest.same,
                "factor": self.nearest.factor,
                "gap": self.nearest.gap,
            },
            "errata": sorted(
                {f.row.erratum for f in self.findings if f.row.erratum and f.kind != CHOICE}
            ),
        }


def _fresh(facts: Facts) -> str:
    fresh = facts.fresh
    if math.isnan(fresh.cosine_min):
        return "On fresh samples its expected step is not a number: some batch gives NaN."
    if fresh.verdict == "exact":
        return "On fresh samples its expected step is ∇J, exactly, in every world that was listed."
    if fresh.verdict == "proportional":
        kind = "groups" if fresh.size == "group" else "batches"
        factors = ", ".join(f"{f:.3g} in {kind} of {size}" for size, f in fresh.factors.items())
        same = len({round(f, 6) for f in fresh.factors.values()}) == 1
        said = f"{next(iter(fresh.factors.values())):.3g}" if same else f"a constant: {factors}"
        return f"On fresh samples its expected step is ∇J times {said}."
    if fresh.cosine_min > 1 - 1e-6:
        low, high = fresh.lengths
        return (
            "On fresh samples its expected step is along ∇J in every world, but some prompts count "
            f"more than others: by factors from {low:.3g} to {high:.3g}."
        )
    worst = facts.worst.cosine
    further = f", and to {worst:.3f} in the worst one that was found"
    return (
        "On fresh samples its expected step is not along ∇J: the cosine falls to "
        f"{fresh.cosine_min:.4f} in the worlds that were listed"
        + (further if worst < fresh.cosine_min else "")
        + "."
        + _turned(facts)
    )


def _turned(facts: Facts) -> str:
    """What turns the step, each part alone."""
    shares = facts.shares
    parts = [
        f"{name} to {cosine:.4f}"
        for name, cosine in (
            ("how responses are weighed", shares.advantages),
            ("how tokens are averaged", shares.average),
        )
        if cosine < 1 - 1e-6
    ]
    return f" Each alone turns it: {', '.join(parts)}." if parts else ""


def _stale(facts: Facts) -> str:
    if math.isnan(facts.stale.cosine_min):
        return "On stale samples it is not a number: some batch gives NaN."
    if facts.stale.verdict != "biased":
        return "On stale samples that stays so."
    return (
        "On samples from a policy a little way off (ratios between .85 and 1.18) the cosine "
        f"falls to {facts.stale.cosine_min:.4f}."
    )


def _direction(one: Any) -> dict[str, Any]:
    factors = one.factors
    same = len({round(f, 6) for f in factors.values()}) == 1
    factor = next(iter(factors.values())) if same else {str(g): f for g, f in factors.items()}
    return {
        "verdict": one.verdict,
        "factor": factor if factors else None,
        "cosine_min": one.cosine_min,
    }


def _many(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def _without_infinities(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_infinities(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_without_infinities(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
