"""From what a run left behind to the causes that are seen in it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nbcourse.diagnosis import credit, curves, draws, policies, updates
from nbcourse.diagnosis.report import Answer, Report
from nbcourse.diagnosis.stated import ROUNDING, row_of, vocabulary_of
from nbcourse.diagnosis.witness import Witness
from nbcourse.mistakes.findings import CONFIDENCES, Finding

# In the order of a step: what is asked of each witness.
OF_ONE: Mapping[str, Callable[[Witness], Answer]] = {
    "tokens": draws.tokens,
    "sampler": policies.sampler,
    "ends of the mask": credit.masks,
    "padding": credit.padding,
    "verdicts": credit.verdicts,
    "reference": policies.reference,
    "rewards of tokens": credit.token_rewards,
    "advantages": credit.advantages,
    "targets of the critic": credit.value_targets,
    "learner": policies.learner,
    "old log-probs": policies.old,
    "loss": updates.loss,
    "optimiser": updates.optimiser,
}
# What is asked of all witnesses together; of batches that were chosen by their reward, nothing.
TOGETHER: Mapping[str, Callable[[Sequence[Witness]], Answer]] = {
    "repetitions": draws.samples,
    "distribution of tokens": draws.distribution,
}
NO_WITNESS = "there is no witness batch"
# of the curves' questions, where there is one
BY_WITNESS = ("gap of the sampler", "lengths", "likelihood of the tokens", "weights")

# What a cause brings about, which is then no finding of its own.
SAMPLER = {"mismatch", "rounding", "temperature", "truncation"}
EXPLAINS: Mapping[str, frozenset[str]] = {
    "re-tokenised": frozenset({f"sampler-{cause}" for cause in SAMPLER} | {"masked-eos"}),
    "same-samples": frozenset({"sampler-temperature", "sampler-truncation"}),
    "same-seed": frozenset({"sampler-temperature", "sampler-truncation"}),
    "masked-eos": frozenset({"all-truncated"}),
    "all-truncated": frozenset({"no-signal"}),
    "sampler-mismatch": frozenset({"distant-reference"}),
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
        recognised: columns of another program's log that the questions know; of ours, none.
        unknown: its other columns of numbers.
        rounded: a number of the log that is smaller is written as 0.
        left_out: rows of the log whose steps later ones have again.
    """

    name: str
    witnesses: Sequence[Witness] = ()
    history: curves.History = ()
    recipe: Mapping[str, Any] = field(default_factory=dict)
    recognised: Sequence[str] = ()
    unknown: Sequence[str] = ()
    rounded: float = 0.0
    left_out: int = 0

    @property
    def precision(self) -> str:
        """The coarsest in which the run computed; float32 unless it states another."""
        model = self.recipe.get("model")
        stated = [witness.facts.get("precision") for witness in self.witnesses]
        stated += [model.get("precision")] if isinstance(model, Mapping) else []
        known = [one for one in stated if one in ROUNDING]
        return max(known, key=ROUNDING.__getitem__, default="float32")

    @property
    def vocabulary(self) -> int | None:
        """How many tokens are possible, at most; None of a run that is not ours."""
        model = self.recipe.get("model")
        return vocabulary_of(model) if isinstance(model, Mapping) else None


def diagnose(evidence: Evidence) -> Report:
    """Recompute what the witnesses hold, read the curves, and name the causes that are seen.

    Each rule speaks once, by the first of the witnesses in which it is most certain. What curves
    make one suspect is left out where a witness names a cause, or shows that it is not there.

    Book: chapter 16.
    """
    by_witness = dict(_of_witnesses(evidence.witnesses))
    by_curves = dict(_of_curves(evidence))
    seen: dict[str, Finding] = {}
    for finding in _found(by_witness) or _found(by_curves):
        seen.setdefault(finding.id, finding)
    explained = frozenset().union(*(EXPLAINS.get(cause, frozenset()) for cause in seen))
    kept = [finding for cause, finding in seen.items() if cause not in explained]
    return Report(
        name=evidence.name,
        witnesses=[witness.step for witness in evidence.witnesses],
        steps=len(evidence.history),
        findings=sorted(kept, key=_rank),
        notes=list(curves.notes(evidence.history)),
        unseen=list(dict.fromkeys(what for one in evidence.witnesses for what in unseen(one))),
        answers=by_witness | by_curves,
        recognised=evidence.recognised,
        unknown=evidence.unknown,
        left_out=evidence.left_out,
    )


def _found(answers: Mapping[str, Answer]) -> list[Finding]:
    return [answer for answer in answers.values() if isinstance(answer, Finding)]


def _of_curves(evidence: Evidence) -> Iterator[tuple[str, Answer]]:
    run = curves.Curves(evidence.history, evidence.precision, evidence.vocabulary, evidence.rounded)
    for name, question in curves.QUESTIONS.items():
        if not (evidence.witnesses and name in BY_WITNESS):
            yield name, question(run)


def _of_witnesses(witnesses: Sequence[Witness]) -> Iterator[tuple[str, Answer]]:
    """A question is looked at if one witness can answer it."""
    for name, rule in OF_ONE.items():
        yield name, _of_all(list(map(rule, witnesses)))
    for name, together in TOGETHER.items():
        yield name, _of_all([together(witnesses)] if witnesses else [])


def _of_all(answers: Sequence[Answer]) -> Answer:
    """The most certain finding; else why nothing was looked at; None if something was."""
    found = [answer for answer in answers if isinstance(answer, Finding)]
    if found:
        return min(found, key=_rank)
    return None if None in answers else next(iter(answers), NO_WITNESS)


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
    if policies.reference_is_unknown(witness):
        yield "the reference, which is not a model of its own in this trainer"


def _rank(finding: Finding) -> int:
    return CONFIDENCES.index(finding.kind)
