"""What was drawn: are the tokens the sampler's, independent, and of the stated distribution?

The statistical tests look at all witnesses of a run together, but at none whose responses were
chosen by their reward (dynamic sampling), which are no fair draw.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from nbcourse.diagnosis.report import UNTOLD, Answer
from nbcourse.diagnosis.stated import FALSE_ALARM, apart, sampled, vocabulary_of, whole
from nbcourse.diagnosis.witness import Witness
from nbcourse.mistakes.findings import CERTAIN, LIKELY, Finding, seen

Z = 5.0  # a sum of surprisals this many standard deviations off: one-sided 3e-7
NUCLEI = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)


def tokens(witness: Witness) -> Answer:
    """Whether the learner's tokens are those that were sampled."""
    if not witness.has("drawn_tokens", "encoded_tokens", "tokens", "mask"):
        return UNTOLD
    learned, drawn, encoded = (
        [row[row >= 0].tolist() for row in table]
        for table in (
            witness["tokens"].masked_fill(~_up_to_mask(witness), -1),
            witness["drawn_tokens"],
            witness["encoded_tokens"],
        )
    )
    # a mask that goes on behind the end is not the tokens' fault
    other = [
        row
        for row, (there, said) in enumerate(zip(learned, drawn, strict=True))
        if there[: len(said)] != said[: len(there)]
    ]
    if not other:
        return None
    again = [row for row in other if learned[row] == encoded[row][: len(learned[row])]]
    example = (again or other)[0]
    return seen(
        "re-tokenised",
        CERTAIN if len(again) == len(other) else LIKELY,
        step=witness.step,
        other=len(other),
        count=len(learned),
        again=len(again),
        learned=learned[example][:8],
        drawn=drawn[example][:8],
    )


def _up_to_mask(witness: Witness) -> Tensor:
    """(R, T) up to the last token that the learner looks at."""
    columns = torch.arange(witness["mask"].shape[1])
    return columns <= (witness["mask"] * columns).amax(dim=1, keepdim=True)


def samples(witnesses: Sequence[Witness]) -> Answer:
    """Whether responses repeat each other, in every witness, as independent draws would not.

    The probability of a repetition is the product of what the policy gives the repeated tokens.
    """
    fair = _fair(witnesses, "plain_log_probs", "lengths", "group")
    if not fair:
        return UNTOLD
    same = _repeated(fair, "same-samples", _within_groups)
    return same or _repeated(fair, "same-seed", _across_halves)


def _repeated(
    fair: Sequence[Witness],
    cause: str,
    repeats: Callable[[Witness], float | None],
) -> Finding | None:
    """A repetition that every witness has, if chance does not make it."""
    chances = [chance for witness in fair if (chance := repeats(witness)) is not None]
    if len(chances) < len(fair) or not sum(chances) < math.log(FALSE_ALARM):
        return None
    return seen(cause, LIKELY, step=_steps(fair), power=sum(chances) / math.log(10))


def _within_groups(witness: Witness) -> float | None:
    """Log-probability that all groups are unanimous, token by token; None if they are not."""
    tokens, chance = _responses(witness)
    group = witness.facts["group_size"]
    groups = tokens.view(-1, group, tokens.shape[1])
    if group == 1 or not (groups == groups[:, :1]).all():
        return None
    return chance.view(-1, group)[:, 1:].sum().item()


def _across_halves(witness: Witness) -> float | None:
    """Log-probability that the second half repeats the first; None if it does not."""
    tokens, chance = _responses(witness)
    half = len(tokens) // 2
    if not whole(witness) or len(tokens) % 2 or not half:
        return None
    same_prompts = (witness["group"][:half] == witness["group"][half:]).all()
    if not same_prompts or not (tokens[:half] == tokens[half:]).all():
        return None
    return chance[half:].sum().item()


def _responses(witness: Witness) -> tuple[Tensor, Tensor]:
    """(R, T) tokens, −1 behind the end, and (R,) log-probs of whole responses."""
    mask = sampled(witness)
    return witness["tokens"].masked_fill(~mask, -1), (witness["plain_log_probs"] * mask).sum(dim=1)


def distribution(witnesses: Sequence[Witness]) -> Answer:
    """Whether tokens were drawn from another distribution than the one that the run states.

    All witnesses count together, but not those whose log-probs or weights are wrong themselves.

    Three tests, each of which a fair sampler fails less than once in a million times. If a sampler
    keeps to a nucleus, no token lies outside of it: a fair draw does that with the probability
    Π mass(nucleus), and that of six nuclei is multiplied by six. If it is colder, the surprisal
    −log π of the tokens is below its mean, the entropy, by more than 5 standard deviations of the
    sum; −log π is bounded on that side, so the normal tail is an upper bound in practice. And the
    surprisals of n tokens add up to n log V + t, where V tokens are possible, with a probability of
    at most exp(−t): 1/(Vπ) has mean 1, so its product over the tokens has, too (Markov).
    """
    if not _fair(witnesses, "plain_log_probs"):
        return UNTOLD
    fair = [
        witness
        for witness in _fair(witnesses, "likeliest", "entropy", "plain_log_probs")
        if not other_weights(witness) and not _reports_others(witness)
    ]
    rules = (_kept_to_a_nucleus, _too_likely, _too_unlikely) if fair else ()
    return next(filter(None, (rule(fair) for rule in rules)), None)


def _kept_to_a_nucleus(fair: Sequence[Witness]) -> Finding | None:
    known, plain = _of_tokens(fair, "likeliest").exp(), _of_tokens(fair, "plain_log_probs")
    for nucleus in NUCLEI:
        inside = known.cumsum(dim=1) - known < nucleus  # by the mass of all that is likelier
        mass = (known * inside).sum(dim=1).clamp(max=1.0)
        least = known.masked_fill(~inside, 2.0).amin(dim=1)
        outside = plain.exp() < least * (1 - 1e-4)
        chance = len(NUCLEI) * mass.log().sum().exp().item()
        if not outside.any() and chance < FALSE_ALARM:
            return seen(
                "sampler-truncation",
                LIKELY,
                step=_steps(fair),
                count=len(plain),
                nucleus=nucleus,
                chance=chance,
            )
    return None


def _too_likely(fair: Sequence[Witness]) -> Finding | None:
    plain = _of_tokens(fair, "plain_log_probs")
    surprise = (-plain - _of_tokens(fair, "entropy")).sum().item()
    deviation = _of_tokens(fair, "surprisal_variance").clamp(min=0).sum().sqrt().item()
    if not deviation or surprise / deviation >= -Z:
        return None
    return seen(
        "sampler-temperature",
        LIKELY,
        step=_steps(fair),
        count=len(plain),
        surprise=-surprise,
        deviations=-surprise / deviation,
    )


def _too_unlikely(fair: Sequence[Witness]) -> Finding | None:
    plain, vocabulary = _of_tokens(fair, "plain_log_probs"), vocabulary_of(fair[0].facts)
    excess = (-plain.double() - math.log(vocabulary)).sum().item()
    if excess <= -math.log(FALSE_ALARM):
        return None
    return seen(
        "unlikely-tokens",
        LIKELY,
        step=_steps(fair),
        count=len(plain),
        mean=plain.mean().item(),
        least=-math.log(vocabulary),
        vocabulary=vocabulary,
        power=-excess / math.log(10),
    )


def other_weights(witness: Witness) -> bool:
    """Whether other weights sampled than learn, as far as both are known."""
    prints = witness.facts.get("fingerprints", {})
    ours, theirs = prints.get("learner"), prints.get("sampler")
    return bool(ours and theirs and ours != theirs)


def _reports_others(witness: Witness) -> bool:
    """Whether the sampler reports log-probs, and they are not those of the policy."""
    if not witness.has("sampler_log_probs"):
        return False
    pair = witness["sampler_log_probs"], witness["plain_log_probs"]
    return apart(witness, *pair, sampled(witness))


def _fair(witnesses: Sequence[Witness], *needed: str) -> list[Witness]:
    return [one for one in witnesses if not one.facts.get("selected") and one.has(*needed)]


def _of_tokens(fair: Sequence[Witness], name: str) -> Tensor:
    return torch.cat([witness[name][sampled(witness)] for witness in fair])


def _steps(witnesses: Sequence[Witness]) -> str:
    return ", ".join(str(witness.step) for witness in witnesses)
