"""From what a run left behind to the causes that are seen in it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nbcourse.diagnosis import credit, curves, draws, policies, updates
from nbcourse.diagnosis.report import CONFIDENCES, Finding, Report
from nbcourse.diagnosis.stated import ROUNDING, penalty_of, row_of
from nbcourse.diagnosis.witness import Witness

TOGETHER: tuple[Callable[[Sequence[Witness]], Finding | None], ...] = (
    draws.samples,
    draws.distribution,
)
OF_ONE: tuple[Callable[[Witness], Finding | None], ...] = (  # in the order of a step
    draws.tokens,
    policies.sampler,
    credit.masks,
    credit.padding,
    credit.verdicts,
    policies.reference,
    credit.token_rewards,
    credit.advantages,
    credit.value_targets,
    policies.learner,
    policies.old,
    updates.loss,
    updates.optimiser,
)

# What a cause brings about, which is then no finding of its own.
SAMPLER = {"mismatch", "rounding", "temperature", "truncation"}
EXPLAINS: Mapping[str, frozenset[str]] = {
    "re-tokenised": frozenset({f"sampler-{cause}" for cause in SAMPLER} | {"masked-eos"}),
    "same-samples": frozenset({"sampler-temperature", "sampler-truncation"}),
    "same-seed": frozenset({"sampler-temperature", "sampler-truncation"}),
    "masked-eos": frozenset({"all-truncated"}),
    "idle-optimiser": frozenset({"lost-moments"}),
}


@dataclass(frozen=True)
class Evidence:
    """What a run left behind.

    Attributes:
        name: of the run.
        witnesses: oldest first.
        history: one mapping of numbers for each step, under our names.
        recipe: the run's, as it was recorded; empty where none is known.
    """

    name: str
    witnesses: Sequence[Witness] = ()
    history: curves.History = ()
    recipe: Mapping[str, Any] = field(default_factory=dict)

    @property
    def precision(self) -> str:
        """The coarsest in which the run computed; float32 unless it states another."""
        model = self.recipe.get("model")
        stated = [witness.facts.get("precision") for witness in self.witnesses]
        stated += [model.get("precision")] if isinstance(model, Mapping) else []
        known = [one for one in stated if one in ROUNDING]
        return max(known, key=ROUNDING.__getitem__, default="float32")


def diagnose(evidence: Evidence) -> Report:
    """Recompute what the witnesses hold, read the curves, and name the causes that are seen.

    Each rule speaks once, by the first of the witnesses in which it is most certain. What curves
    make one suspect is left out where a witness names a cause, or shows that it is not there.

    Book: chapter 16.
    """
    by_witness = {"sampler-mismatch", "idle-optimiser"} if evidence.witnesses else {}
    suspected = [
        finding
        for finding in curves.findings(evidence.history, precision=evidence.precision)
        if finding.cause not in by_witness
    ]
    seen: dict[str, Finding] = {}
    for finding in list(_of_witnesses(evidence.witnesses)) or suspected[:1]:
        seen.setdefault(finding.cause, finding)
    explained = frozenset().union(*(EXPLAINS.get(cause, frozenset()) for cause in seen))
    kept = [finding for cause, finding in seen.items() if cause not in explained]
    return Report(
        name=evidence.name,
        witnesses=[witness.step for witness in evidence.witnesses],
        steps=len(evidence.history),
        findings=sorted(kept, key=_rank),
        notes=list(curves.notes(evidence.history)),
        unseen=list(dict.fromkeys(what for one in evidence.witnesses for what in unseen(one))),
    )


def _of_witnesses(witnesses: Sequence[Witness]) -> Iterator[Finding]:
    for rule in OF_ONE:
        findings = [finding for one in witnesses if (finding := rule(one)) is not None]
        if findings:
            yield min(findings, key=_rank)
    yield from filter(None, (rule(witnesses) for rule in TOGETHER))


def unseen(witness: Witness) -> Iterator[str]:
    """What no rule could look at, since the trainer did not tell it."""
    if not witness.has("sampler_log_probs"):
        yield (
            "the sampler's log-probs, which the trainer does not report: top-p and temperature "
            "are judged by the tokens alone, other differences of sampler and learner not at all"
        )
    if not witness.facts.get("fingerprints", {}).get("sampler"):
        yield "whether the sampler has the learner's weights: it was not seen while it sampled"
    if not witness.has("verdicts", "verified"):
        yield "whether rewards are deserved: they are taken as the trainer used them"
    if reason := witness.facts.get("not_followed"):
        yield f"advantages and loss: {reason}"
    elif row_of(witness) is None:
        yield (
            f"advantages and loss: {witness.facts.get('algorithm')!r} is not made of the package's "
            "functions"
        )
    charged = penalty_of(witness).placement != "none"
    if charged and not witness.has("ref_log_probs", "plain_ref_log_probs"):
        yield "the reference, which is not a model of its own in this trainer"


def _rank(finding: Finding) -> int:
    return CONFIDENCES.index(finding.confidence)
