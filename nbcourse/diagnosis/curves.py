"""What curves alone can show: little, and never one cause to the exclusion of others.

Each question of `QUESTIONS` is answered by a finding, by nothing where the curves are as they
should be, or by a sentence that says why it could not be looked at.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from statistics import fmean, median
from typing import TypeGuard

from nbcourse.diagnosis.names import ALWAYS, PART, is_known
from nbcourse.diagnosis.report import Answer
from nbcourse.diagnosis.stated import DRIFT, FALSE_ALARM
from nbcourse.mistakes.findings import LIKELY, POSSIBLE, seen

GAP = 0.05  # nats between sampler and learner in float32
COARSE = 10.0  # in any precision; the largest of a recorded sound run in bfloat16 is 5.1
MEAN_GAP = 0.1  # nats a token: public runs in bfloat16 report .006 to .02, in eight bits .05
DRIFT_IN_ANY = 0.05  # mean k3, where sampler or learner may compute in eight bits
LATE = 2  # the last half of a run
LONG = 32  # tokens, beyond which the longest responses of several steps are not alike by chance
FEW = 3  # steps of it, below which a group without a spread, or a long answer, is one draw
NEARLY_ALL, MOST, HARDLY_ANY = 0.9, 0.5, 0.05
SOLVED = 0.05  # of the best reward that was earned: so much below it there is little to learn
# Of some 35 public runs that log the first step, in which the policy is the reference, all but four
# have a KL of at most .006 there. Those begin at .15 to 1.1: an adapter had been trained before.
AT_THE_REFERENCE = 0.05
DEPENDENT = -0.2  # correlation of differences, above which `_smoothed` finds points dependent
# Names of what is taken off: 0 where nobody had to pay, or the same for all by design.
FINES = re.compile("penal|punish|long|len|cost|repet|mix", re.IGNORECASE)
SPIKE = 10  # times the usual KL, in one step: about a third of the public runs that log it have one
FIRST = 5  # steps of it, whose KL is that of a policy that has hardly moved
TREND = 30  # points, of which a fifth is enough for a mean with a scatter
# Of the recorded runs with so many points the sound ones fall from their best fifth by at most 5.0
# standard errors of such a mean, those that collapsed from .9 by 7.4 to 10.3, and by .23 to .29 of
# it. Short of 6 sound runs fall by more than a fifth, too.
COLLAPSE_ERRORS, COLLAPSE_SHARE = 6.0, 0.2
# Sound runs that end with a tenth of their entropy had learned something for it: the reward rose.
ENTROPY_LEFT, ENTROPY_LOW = 0.1, 0.05
PART_LEFT = 0.2  # of a part of the reward: below a fifth of what it was it has gone

History = Sequence[Mapping[str, float]]


@dataclass(frozen=True)
class Curves:
    """The numbers of a run.

    Attributes:
        history: one mapping for each step, under our names.
        precision: in which the run computed.
        vocabulary: how many tokens are possible; None if that is not known.
        rounded: a number that is smaller is written as 0.
    """

    history: History
    precision: str = "float32"
    vocabulary: int | None = None
    rounded: float = 0.0

    def values(self, name: str) -> list[float]:
        """The finite ones."""
        return _values(self.history, name)

    def step(self, place: int) -> int:
        """What a row calls its step, or counts itself; its number where it does not say."""
        row = self.history[place]
        return int(row.get("step", row.get("number", place + 1)))


# ---------------------------------------------------------------- the questions


def numbers(curves: Curves) -> Answer:
    """Whether a number is nan or infinite that never should be, from which step."""
    if not any(name in row for row in curves.history for name in ALWAYS):
        return "the log has none of the numbers that a step always has"
    for place, row in enumerate(curves.history):
        wrong = [name for name in ALWAYS if _not_finite(row.get(name))]
        wrong = [name for name in wrong if not _skipped(curves.history, name)]
        if wrong:
            later = curves.history[place + 1 :]
            return seen(
                "not-finite",
                LIKELY,
                number=" and ".join(ALWAYS[name] for name in wrong),
                value=row[wrong[0]],
                step=curves.step(place),
                again=sum(_not_finite(one.get(wrong[0])) for one in later),
                later=len(later),
            )
    return None


def gradient(curves: Curves) -> Answer:
    """Whether the gradient is 0 in steps whose groups have a spread."""
    spread = [
        (place, row["grad_norm"])
        for place, row in enumerate(curves.history)
        if _number(row.get("grad_norm")) and _spread(row) and row.get("truncated", 0) < 1
    ]
    if not curves.values("grad_norm"):
        return "the log has no gradient norm"
    if len(spread) < 2:
        return "the log has no two steps with a gradient norm whose groups are known to differ"
    last = max((n for n, (_, norm) in enumerate(spread) if norm != 0), default=-1) + 1
    silent = spread[last:]
    if len(silent) < (2 if last == 0 else 5):
        return None
    if curves.rounded:
        return f"numbers below {curves.rounded:g} are written as 0, the gradient norm among them"
    if _rose(curves):
        return "the gradient norm is 0 and the reward rises: it is read where the gradient is gone"
    told = {"steps": len(silent), "first": curves.step(silent[0][0])}
    if all(curves.history[place].get("length") == 0 for place, _ in silent):
        return seen("empty-mask", LIKELY, **told)
    return seen(
        "detached-loss",
        LIKELY,
        **told,
        spread=_spread(curves.history[silent[0][0]]),
    )


def truncation(curves: Curves) -> Answer:
    """Whether nearly every response is cut off."""
    late = _late(curves)
    cut, reward = _mean(late, "truncated"), _reward(late)
    if cut is None:
        return _endless(late)
    if max(curves.values("truncated")) > 1:
        return NO_SHARE
    if cut < NEARLY_ALL:
        return None
    if len(late) < FEW:
        return _short(late)
    if cut == 1 and any(row.get("length_min", 0) < row.get("length_max", 0) for row in late):
        return seen("all-truncated", POSSIBLE + ":ends", steps=len(late))  # not at one limit
    if reward is None or reward > HARDLY_ANY:
        return seen("all-truncated", POSSIBLE, steps=len(late), cut=cut)
    return seen("all-truncated", POSSIBLE + ":unpaid", steps=len(late), cut=cut, reward=reward)


def limit(curves: Curves) -> Answer:
    """Whether most responses are cut off."""
    late = _late(curves)
    cut = _mean(late, "truncated")
    if cut is None:
        return UNCUT
    if max(curves.values("truncated")) > 1:
        return NO_SHARE
    if not MOST <= cut < NEARLY_ALL:  # of which `truncation` speaks
        return None
    if len(late) < FEW:
        return _short(late)
    return seen("often-truncated", POSSIBLE, steps=len(late), cut=cut)


def _endless(late: History) -> Answer:
    """Whether no response ended by itself, of a log that says so by their ends or lengths."""
    ends, means = _values(late, "ends"), _values(late, "length")
    longest = max(means, default=0)
    alike = len(means) >= FEW and means.count(longest) >= NEARLY_ALL * len(means)
    # where each step of an episode pays 1, that is the reward
    if not ends and alike and longest >= LONG and longest != _reward(late):
        told = {"steps": len(means), "length": longest, "alike": means.count(longest)}
        return seen("all-truncated", POSSIBLE + ":alike", **told)
    if not ends:
        return UNCUT
    if any(ends):
        return None
    if len(ends) < FEW:
        return _short(late)
    return seen("all-truncated", POSSIBLE + ":ends", steps=len(ends))


def lengths(curves: Curves) -> Answer:
    """Whether the shortest and the longest response of a step tell where responses end.

    Of steps that are known to have several responses, not all of them cut off.
    """
    told = [
        (row["length_min"], row["length_max"], row.get("truncated"))
        for row in curves.history
        if _number(row.get("length_min")) and _number(row.get("length_max")) and _spread(row)
    ]
    told = [one for one in told if one[2] is None or one[2] < NEARLY_ALL]
    if len(told) < FEW:
        return "the log has no three steps with the shortest and the longest of several responses"
    longest = [most for _, most, _ in told]
    if all(least == most for least, most, _ in told) and len({*longest}) > 1:
        return seen("trained-padding", POSSIBLE, steps=len(told), lengths=_list(longest))
    if len(told) < 2 * FEW or len({*longest}) > 1 or longest[0] < LONG:
        return None
    if all(cut == 0 for *_, cut in told):
        return seen("finished-by-last-column", POSSIBLE, steps=len(told), most=longest[0])
    return None


def baseline(curves: Curves) -> Answer:
    """Whether advantages are the rewards themselves."""
    names = ("advantage_max", "reward_max", "advantage_min", "reward_min")
    rows = (row for row in curves.history if all(_number(row.get(name)) for name in names))
    told = [[row[name] for name in names] for row in rows if row["reward_max"] != row["reward_min"]]
    if len(told) < FEW:
        return f"the log has no {FEW} steps with the ends of advantages and of rewards that differ"
    same = partial(math.isclose, rel_tol=1e-4)  # for a division by a spread of 1 and a bit
    # compared with others of their group, some are above 0 and some below
    alone = sum(low * high > 0 for high, _, low, _ in told) >= FEW
    if alone and all(same(a, r) and same(b, s) for a, r, b, s in told):
        return seen("missing-baseline", LIKELY, steps=len(told))
    return None


def signal(curves: Curves) -> Answer:
    """Whether there is anything to learn from."""
    late = _late(curves)
    flat, reward = _flat(late), _reward(late)
    if flat is None or reward is None:
        return "the log does not say how many groups have a spread" if flat is None else NO_REWARD
    if curves.values("value_loss") and not any(map(curves.values, ("no_spread", "advantage_max"))):
        return "with a critic responses have advantages though their groups have no spread"
    told = _earned(curves.history)
    best, worst = max([*told, *curves.values("reward_max")]), min(told)
    little = SOLVED * max(abs(best), abs(reward), best - worst)
    solved, moved = best - reward <= little, best - worst > little
    if flat < NEARLY_ALL or (solved and moved):
        return None
    if reward <= HARDLY_ANY:
        how = ""
    elif not solved and (flat == 1 or best - reward > MOST * (best - worst)):
        how = ":paid"
    else:
        return SAME if flat == 1 else None
    if len(late) < FEW:
        return _short(late)
    exact = flat == 1 or late[0].get("no_spread") is not None
    share = f"{flat:.0%}" if exact else f"at least {flat:.0%}"  # steps of several groups count once
    return seen("no-signal", POSSIBLE + how, steps=len(late), flat=share, reward=reward, best=best)


def gap(curves: Curves) -> Answer:
    """Whether sampler and learner agree on the tokens that were sampled."""
    if (below := _below_zero(curves.values("kl"))) is not None:
        return seen("sampler-mismatch", POSSIBLE + ":negative", kl=below)
    usual = {"kl_sampler": DRIFT[curves.precision], "kl_sampler_in_any_precision": DRIFT_IN_ANY}
    means = {name: max(values) for name in usual if (values := curves.values(name))}
    for name, kl in means.items():
        if kl > usual[name]:
            return seen("sampler-mismatch", POSSIBLE + ":mean", kl=kl, usual=usual[name])
    apart = _mean(_late(curves), "mean_gap")
    if apart is not None and apart > MEAN_GAP:
        return seen("sampler-mismatch", POSSIBLE + ":tokens", gap=apart, usual=MEAN_GAP)
    exact, coarse = curves.values("gap"), curves.values("gap_in_any_precision")
    if not exact and not coarse and not means and apart is None:
        return "the log does not compare the log-probs of sampler and learner"
    gaps = [gap for gap in exact if gap > GAP and curves.precision == "float32"]
    gaps += [gap for gap in coarse if gap > COARSE]
    if gaps:
        return seen("sampler-mismatch", POSSIBLE, gap=max(gaps))
    if means or apart is not None or (exact and curves.precision == "float32"):
        return None
    return "in a coarse precision the largest difference of a token says little; the mean k3 would"


def _below_zero(values: Sequence[float]) -> float | None:
    """The mean of the last fifth, if it is surely negative."""
    if len(values) < TREND:
        return None
    last = fmean(values[-(len(values) // 5) :])
    return last if last < -max(MEAN_GAP, COLLAPSE_ERRORS * _error(values)) else None


def likelihood(curves: Curves) -> Answer:
    """Whether the sampled tokens are likelier than if all were equally likely."""
    if curves.vocabulary is None or not curves.values("entropy"):
        return "the log does not say how likely the sampled tokens are, and how many are possible"
    most = math.log(curves.vocabulary)
    for place, row in enumerate(curves.history):
        surprisal = row.get("entropy")
        # of tokens that the policy drew, with a probability of at most exp(−excess)
        excess = (surprisal - most) * row.get("tokens", 1) if _number(surprisal) else 0.0
        if excess > -math.log(FALSE_ALARM):
            return seen(
                "unlikely-tokens",
                POSSIBLE,
                step=curves.step(place),
                mean=-row["entropy"],
                least=-most,
                vocabulary=curves.vocabulary,
            )
    return None


def weights(curves: Curves) -> Answer:
    """Whether the policy leaves its reference, and has a learning rate to do so."""
    rates = curves.values("learning_rate")
    if len(rates) >= FEW and not any(rates) and not curves.rounded and not _rose(curves):
        return seen("idle-optimiser", POSSIBLE + ":rate", steps=len(rates))
    distances, norms = curves.values("kl_ref"), curves.values("grad_norm")
    measured = [n for n, row in enumerate(curves.history, start=1) if _number(row.get("kl_ref"))]
    steps = max(measured, default=0)
    if len(kl := curves.values("kl")) >= 5 and not distances:
        zero = f"the KL is 0 in all {len(kl)} steps: β is 0, or the weights do not move"
        return None if any(kl) else zero
    if not norms or steps < 5:
        return "the log has no gradient norm and KL to the reference over five steps"
    if max(map(abs, distances)) >= 1e-9 or max(norms) <= 0:
        return None
    if curves.rounded:
        return f"numbers below {curves.rounded:g} are written as 0, the KL among them"
    return seen("idle-optimiser", POSSIBLE, steps=steps)


def reward(curves: Curves) -> Answer:
    """Whether the reward ends far below its best, as no sound run's does."""
    name = _paid_as(curves.history)
    values = curves.values(name)
    if len(values) < TREND:
        return _too_few(len(values), "reward")
    count = len(values) // 5
    if _smoothed(values):
        return "neighbours of the rewards are not independent, as those of a running mean"
    sums = [0.0, *accumulate(values)]
    means = [(after - before) / count for before, after in zip(sums, sums[count:], strict=False)]
    peak = max(range(len(means)), key=means.__getitem__)
    fall = means[peak] - means[-1]
    # of rewards below 0 the best is near 0, and no measure of what had been learned
    scale = max(abs(means[peak]), abs(means[-1]), means[peak] - min(means))
    error = _error(values)
    if fall <= COLLAPSE_SHARE * scale or fall <= COLLAPSE_ERRORS * error:
        return None
    paid = [n for n, row in enumerate(curves.history) if _number(row.get(name))]
    return seen(
        "reward-collapse",
        POSSIBLE,
        count=count,
        best=means[peak],
        until=curves.step(paid[peak + count - 1]),
        what=name,
        last=means[-1],
        errors=fall / error,
    )


def reference(curves: Curves) -> Answer:
    """Whether the policy begins at its reference."""
    name = "kl_ref" if curves.values("kl_ref") else "kl"
    if name == "kl_ref" and curves.precision != "float32":
        return "in a coarse precision the KL of the first step says little"
    told = [(n, row[name]) for n, row in enumerate(curves.history) if _number(row.get(name))]
    if len(told) < 5:
        return f"{len(told)} points with a KL to the reference, expected at least 5"
    row = curves.history[told[0][0]]
    if row.get("step", math.inf) > 1:
        return "the log has no KL of the first step"
    if max(row.get(name, 0) for name in ("clip_low", "clip_high")) > 0 or row.get("updates", 1) > 1:
        return "the first step has several updates, and its KL may be that behind them"
    first, *later = (value for _, value in told)
    if min(first, *later) < 0:
        return "the KL is an estimate that may be negative, of which one step says little"
    if first < AT_THE_REFERENCE:
        return None
    return seen("distant-reference", POSSIBLE, first=first, later=fmean(later))


def silent_parts(curves: Curves) -> Answer:
    """Whether a part of the reward pays nothing, or costs the same, in every step."""
    names, rewards = _parts(curves), curves.values("reward")
    if not names or len({*rewards}) == 1:
        return None
    if len(rewards) < TREND:
        return _too_few(len(rewards), "reward")
    told = {name: curves.values(name) for name in names if not any(curves.values(f"{name}/std"))}
    silent = [
        f"{name.removeprefix(PART)} was {values[0]:g}"
        for name, values in told.items()
        if len(values) >= TREND and len({*values}) == 1 and values[0] <= 0
        if not FINES.search(name)  # which nobody had to pay, or everybody by design
    ]
    if not silent:
        return None
    return seen("silent-part", POSSIBLE, parts=", ".join(silent), steps=len(rewards))


def _parts(curves: Curves) -> list[str]:
    known = (name for row in curves.history for name in row if name.startswith(PART))
    return [name for name in dict.fromkeys(known) if is_known(name)]


def parts(curves: Curves) -> Answer:
    """Whether one part of the reward went while the whole rose."""
    names, rewards = _parts(curves), curves.values("reward")
    if not names or len(rewards) < TREND:
        return _too_few(len(rewards), "reward") if names else None
    earned, earns = _ends(rewards)
    if earns - earned <= HARDLY_ANY * max(abs(earned), abs(earns)):
        return None
    for name in names:
        values = curves.values(name)
        if len(values) < TREND:
            continue
        before, left = _ends(values)
        fell = before - left > COLLAPSE_ERRORS * _error(values)
        if fell and 0 <= left <= PART_LEFT * before:
            told = {"before": before, "left": left, "earned": earned, "earns": earns}
            return seen("traded-reward", POSSIBLE, part=name.removeprefix(PART), **told)
    return None


def entropy(curves: Curves) -> Answer:
    """Whether the entropy went without a reward for it."""
    values, paid = curves.values("entropy"), _earned(curves.history)
    if min(len(values), len(paid)) < TREND:
        return _too_few(len(values), "entropy") if len(values) < TREND else NO_REWARD
    if min(values) < 0:
        return "the entropy is below 0, and so no entropy of tokens, or its sign is another"
    (before, left), (earned, earns) = _ends(values), _ends(paid)
    gained = earns - earned > HARDLY_ANY * max(abs(earned), abs(earns)) or _rose(curves)
    if gained or left > ENTROPY_LOW or left > ENTROPY_LEFT * before:
        return None
    step = next(
        curves.step(place)
        for place, row in enumerate(curves.history)
        if _number(value := row.get("entropy")) and value <= ENTROPY_LEFT * before
    )
    return seen(
        "entropy-collapse",
        POSSIBLE,
        before=before,
        left=left,
        step=step,
        earned=earned,
        earns=earns,
    )


def critic(curves: Curves) -> Answer:
    """Whether the critic predicts better than one number for all would."""
    values, norms = curves.values("explained_variance"), curves.values("critic_grad_norm")
    if not values:
        has_critic = norms or curves.values("value_loss")
        return "the log does not say how much the critic explains" if has_critic else None
    late = values[len(values) // LATE :]
    if max(late) >= 0:
        return None
    if len(values) < TREND:
        norm = f", its gradient norm was up to {max(norms):.3g}" if norms else ""
        return (
            f"the critic explains nothing yet (explained variance {values[-1]:.3g}{norm}), but "
            + _too_few(len(values), "explained variance")
        )
    return seen("blind-critic", POSSIBLE, steps=len(late), most=max(late))


# The likeliest first.
QUESTIONS: Mapping[str, Callable[[Curves], Answer]] = {
    "numbers": numbers,
    "gradient": gradient,
    "truncation": truncation,
    "lengths": lengths,
    "baseline": baseline,
    "signal": signal,
    "likelihood of the tokens": likelihood,
    "gap of the sampler": gap,
    "weights": weights,
    "limit of new tokens": limit,
    "reference": reference,
    "trend of the reward": reward,
    "silent parts of the reward": silent_parts,
    "parts of the reward": parts,
    "trend of the entropy": entropy,
    "critic": critic,
}


# ---------------------------------------------------------------- what looks wrong and is not


def notes(history: History) -> Iterator[str]:
    """How far the reward went, and metrics that look wrong and are not.

    None of the latter while a gradient is 0 or a number not finite.
    """
    for name in ("reward", "accuracy"):
        if len(values := _values(history, name)) < TREND or _smoothed(values):
            continue
        (before, after), error = _ends(values), _error(values)
        chance = ", no more than chance may do" if abs(after - before) <= 2 * error else ""
        yield (
            f"The {name} was {before:.3g} in the first fifth and is {after:.3g} in the last: "
            f"{after - before:+.2g} with a standard error of {error:.2g}{chance}."
        )
        break
    yield from _spikes(_values(history, "kl"))
    if any(row.get("grad_norm") == 0 for row in history):
        return
    if any(_not_finite(row.get(name)) for row in history for name in ALWAYS):
        return
    clipped = [*_values(history, "clip_low"), *_values(history, "clip_high")]
    if clipped and max(clipped) == 0 and _one_update(history):
        yield (
            "The clip fraction is 0 because there is one update for each batch: the ratio is 1 "
            "(section 5.9)."
        )
    losses = _values(history, "policy_loss")
    if losses and max(map(abs, losses)) < 0.02:
        yield (
            "The loss is near 0 because advantages add up to about 0 and the ratio is near 1; it "
            "says nothing about progress (section 1.4)."
        )


def _spikes(kl: Sequence[float]) -> Iterator[str]:
    """A few steps whose KL is far above the usual, or that it has left what was usual."""
    if len(kl) < TREND or min(kl) < 0:
        return
    usual = min(median(kl), median(kl[:FIRST]))
    far = [value > max(1.0, SPIKE * usual) for value in kl]
    if all(far[-FEW:]):
        when = "most" if usual == median(kl) else f"the first {FIRST}"
        yield (
            f"The KL is {kl[-1]:.3g} in the last step, and was {usual:.3g} in {when}: the policy "
            "is leaving its reference."
        )
    elif any(far):
        yield (
            f"The KL was {max(kl):.3g} in one step, and {usual:.3g} in most: a token that only the "
            "reference likes counts enormously in k3 (section 11.2), and in its gradient."
        )


def _one_update(history: History) -> bool:
    """Whether the log says that there was one update for each batch."""
    return max(_values(history, "updates"), default=2) <= 1


# ---------------------------------------------------------------- numbers of a history

SAME = "all responses earned the same in every step: the best there is, or a constant reward"
NO_SHARE = "of the responses that were cut off the log has a count, or percents, and no share"
UNCUT = "the log does not say how many responses were cut off"
NO_REWARD = f"the log has a reward in fewer than {TREND} points"


def _too_few(count: int, what: str) -> str:
    if not count:
        return f"the log has no {what}"
    return f"{count} point{'' if count == 1 else 's'} with {what}, expected at least {TREND}"


def _number(value: float | None) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)


def _not_finite(value: float | None) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _skipped(history: History, name: str) -> bool:
    """Whether it is a gradient that overflowed now and then: float16's scaler skips such a step."""
    values = [row[name] for row in history if name in row]
    return name == "grad_norm" and _number(values[-1])


def _spread(row: Mapping[str, float]) -> str:
    """How a row shows that advantages are not all 0; empty if it does not."""
    if _number(flat := row.get("no_spread")):
        return f"{1 - flat:.0%} of the groups had a spread" if flat < 1 else ""
    for name in ("reward_std", "advantage_max"):
        if _number(value := row.get(name)) and value > 0:
            return f"{name.replace('_', ' ')} was {value:.3g}"
    return ""


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values[:FEW])


def _late(curves: Curves) -> History:
    return curves.history[len(curves.history) // LATE :]


def _short(late: History) -> str:
    return f"the last half of the log has {len(late)} of at least {FEW} steps"


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """The means of the first and of the last fifth."""
    count = len(values) // 5
    return fmean(values[:count]), fmean(values[-count:])


def _rose(curves: Curves) -> bool:
    """Whether the reward surely rose."""
    values = _earned(curves.history)
    if len(values) < TREND:
        return False
    before, after = _ends(values)
    return after - before > COLLAPSE_ERRORS * _error(values)


def _error(values: Sequence[float]) -> float:
    """The standard error of a difference of two means, of a fifth of the values each."""
    steps = [after - before for before, after in pairwise(values)]
    return math.sqrt(fmean(step * step for step in steps) / (len(values) // 5))


def _smoothed(values: Sequence[float]) -> bool:
    """Whether neighbours depend on each other, as those of a running mean do.

    Where each has a scatter of its own, one difference up is followed by one down: their
    correlation is −½, in the recorded runs and in those of others at most −.3 in some third.
    """
    third = len(values) // 3
    told = []
    for n in range(3):
        steps = [b - a for a, b in pairwise(values[n * third : (n + 1) * third])]
        usual = fmean(steps)
        left = [step - usual for step in steps]
        if (square := sum(one * one for one in left)) > 1e-12:
            told.append(sum(a * b for a, b in pairwise(left)) / square)
    return len(told) > 1 and min(told) > DEPENDENT


def _flat(rows: History) -> float | None:
    """How many of the groups have no spread, at least; None if the rows do not tell."""
    if (share := _mean(rows, "no_spread")) is not None:
        return share
    for names in (("reward_std",), ("advantage_max", "advantage_min")):
        told = [values for row in rows if all(map(_number, values := [*map(row.get, names)]))]
        if told:
            return fmean(not any(values) for values in told)
    return None


def _earned(history: History) -> list[float]:
    """What was earned, where the rows say it."""
    return _values(history, _paid_as(history))


def _paid_as(history: History) -> str:
    """As what the rows say it: as the accuracy where there are as many of it as of the reward."""
    return max(("accuracy", "reward"), key=lambda name: len(_values(history, name)))


def _values(history: History, name: str) -> list[float]:
    return [value for row in history if _number(value := row.get(name))]


def _mean(history: History, name: str) -> float | None:
    values = _values(history, name)
    return fmean(values) if values else None


def _reward(history: History) -> float | None:
    return _mean(history, _paid_as(history))
