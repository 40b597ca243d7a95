"""Probes of the ratio between two policies: what it weighs, and where a token loses its gradient.

What a token counts is read by its ratio, by how likely it is, and by the sign of its advantage, in
responses of one token and of several. `families` says which methods have such weights.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import pairwise

import torch
from torch import Tensor

from nbcourse.examine.batches import (
    batch,
    of_rewards,
    of_rewards_of_each,
    reference_is_the_sampler,
    same,
    without_reference,
)
from nbcourse.examine.kernel import CONSTANT, kernel_of_old
from nbcourse.examine.subject import Batches, LossInputs, Subject

SAMPLER = "sampler_log_probs"
RATIOS = [0.01, 0.5, 0.9, 0.999, 1.001, 1.1, 1.5, 5.0, 100.0]  # of the pictures
NEAR = 3e-5  # log-ratio that no interval is smaller than
UP = [NEAR, 0.001, 0.05, 0.1, 0.25, 0.5, 0.8, 1.2, 1.7, 2.3, 3.4, 4.6]  # log-ratios to look at
LOG_RATIOS = [math.log(ratio) for ratio in RATIOS]
GATED = [-2.3, -0.5, 0.3, math.log(1.5), 1.0]  # log-ratios at which a gate is looked for
RARE = 0.001  # of the policy that learns, where no ratio makes a probability above 1
LIKELY = (RARE, 0.02, 0.1, 0.4, 0.8)
HALVINGS = 18
NOTHING = 1e-12  # beside a fresh weight
FAR = 11.0  # log-ratio of a token that takes its whole response with it
LARGEST = 700.0  # log of a weight: exp of more is no number of float64
SIGNS = {1: "A > 0", -1: "A < 0"}


@dataclass(frozen=True)
class Side:
    """What becomes of a token's weight as its ratio leaves 1 in one direction.

    Attributes:
        kind: "kept" (it goes on as near 1), "lost" (it is 0 from some point on), "held" (it stays
            at one value), "freed" (the same up to a point, and by the ratio from there), "gate"
            (SAPO's sigmoid), "fades" (ever less), "silent" (it is 0 at a ratio of 1, too), "open"
            (no ratio takes or bounds it, and it goes by none that has a name), or "other".
        edge: the ratio from which it is lost or held; NaN if that is not one.
        by: for one that is lost, what decides: "ratio", "tv", "kl", or "other".
        value: what it is held at, relative to a fresh token; the threshold of "tv" and "kl"; the
            temperature of a gate.
        jumps: whether the value of the loss does, where the weight is lost.
    """

    kind: str
    edge: float = math.nan
    by: str = "ratio"
    value: float = math.nan
    jumps: bool = False


@dataclass(frozen=True)
class WholeMask:
    """Where a response is left out whole, by the ratio of its tokens.

    Attributes:
        sides: (sign, direction) → the threshold, a log-ratio.
        by: "mean" or "sum" of the log-ratios of its tokens, or "one" of them.
        token_by_token: whether that goes by the sign of each token's own advantage.
    """

    sides: dict[tuple[int, int], float]
    by: str
    token_by_token: bool


@dataclass(frozen=True)
class Clip:
    """Weights of a token by its ratio π/π_old, relative to a fresh one, at `RATIOS`.

    Attributes:
        positive: where the advantage is positive.
        negative: where it is negative.
        slopes: by the sign of the advantage, the power of the ratio that a token counts near 1.
        sides: (sign, direction) → what becomes of the weight there.
        level: whose ratio it is: of the "token", the "product" over the response, its "geometric"
            or "arithmetic" mean, the product over the "prefix", or "other".
        whole: where responses are left out whole; None if nowhere.
        of_reference: whether it is a ratio to the reference.
        pulled: where a penalty that grows with |A| draws tokens back to the other policy:
            "everywhere", "near" a ratio of 1 and not beyond, or nowhere.
        seen: weights that belong to no family, in words.
        asleep: signs of the advantage with which no token counts, whatever its ratio.
    """

    positive: list[float]
    negative: list[float]
    slopes: dict[int, float]
    sides: dict[tuple[int, int], Side]
    level: str
    whole: WholeMask | None
    of_reference: bool
    pulled: str = ""
    seen: str = ""
    asleep: tuple[int, ...] = ()

    @property
    def of_sequence(self) -> bool:
        """Whether it is a ratio of more than the token."""
        return self.level != "token"

    @property
    def free(self) -> bool:
        """Whether it goes by the ratio, and no ratio takes a token's gradient or bounds it."""
        kinds = {side.kind for side in self.sides.values()}
        moved = "open" in kinds or any(slope != 0 for slope in self.slopes.values())
        free = moved and self.whole is None and kinds <= {"kept", "open"}
        return free and not self.pulled

    @property
    def bounds(self) -> tuple[float, float]:
        """Where tokens lose their gradient that went where they should; 0 and ∞ if nowhere."""
        low, high = self.sides[-1, -1], self.sides[1, 1]
        return (
            low.edge if low.kind == "lost" and low.by == "ratio" else 0.0,
            high.edge if high.kind == "lost" and high.by == "ratio" else math.inf,
        )


def clip(subject: Subject) -> Clip:
    """What a token counts by its ratio to the old policy."""
    return curve(subject, "old_log_probs")


def correction(subject: Subject) -> Clip | None:
    """The same by π_old/π_sampler, if a loss takes both."""
    return curve(subject, SAMPLER) if knows_both(subject) else None


def knows_both(subject: Subject) -> bool:
    """Whether a loss takes an old policy and the one that sampled."""
    return {"old_log_probs", SAMPLER} <= set(subject.takes)


def curve(subject: Subject, policy: str) -> Clip:
    """What a token counts by its ratio to one of the other policies."""
    level = level_of(subject, policy)
    whole = _whole(subject, policy) if level in ("token", "other") else None
    reader = _Reader(subject, policy, even=whole is not None and whole.by != "one")
    reader.read(_places())
    slopes, sides = {}, {}
    for sign in SIGNS:
        slopes[sign] = _slope(reader, sign)
        gate = _gate(reader, sign)
        for direction in (1, -1):
            sides[sign, direction] = gate or _side(reader, sign, direction, slopes[sign])
    positive, negative = (reader.weights(sign, RARE, LOG_RATIOS) for sign in SIGNS)
    pulled = _pulled(reader)
    seen = "" if pulled == "everywhere" else _seen(reader, sides)
    reference = ratio_is_to_the_reference(subject)
    asleep = tuple(sign for sign in SIGNS if not any(reader.raw(sign)))
    return Clip(positive, negative, slopes, sides, level, whole, reference, pulled, seen, asleep)


def ratio_weights(
    subject: Subject, advantage_sign: int, ratios: list[float], policy: str = "old_log_probs"
) -> list[float]:
    """Weight of a rare token with this ratio π/π_old, relative to that of a fresh one.

    Of one response to two; the other one's tokens are fresh. 1 everywhere means that the loss does
    not look at the ratio.
    """
    reader = _Reader(subject, policy)
    return reader.weights(advantage_sign, RARE, [math.log(ratio) for ratio in ratios])


@dataclass(frozen=True, eq=False)
class _Reader:
    """Reads what a token counts, each once.

    Attributes:
        policy: which one is moved away.
        even: whether a second token goes the other way, so that the response stays where it is.
    """

    subject: Subject
    policy: str
    even: bool = False
    _read: dict[tuple[int, float, float], float] = field(default_factory=dict, init=False)

    def weights(self, sign: int, likely: float, logs: Sequence[float]) -> list[float]:
        """By log-ratios, relative to a fresh token of the same probability."""
        asked = [(sign, likely, log) for log in (0.0, *logs)]
        self.read(asked)
        unit, *moved = (self._read[one] for one in asked)
        return [w / unit if unit else math.nan for w in moved]

    def read(self, asked: Iterable[tuple[int, float, float]]) -> None:
        """Those of these signs, probabilities and log-ratios that are not known yet."""
        if new := [one for one in dict.fromkeys(asked) if one not in self._read]:
            batches = [self.batch(*one) for one in new]
            if _is_clipped_at_rewards_of_0(self.subject, self.policy):
                found = self.subject.weights_of_each(Batches(batches))
            else:
                found = of_rewards_of_each(self.subject, batches)
            self._read.update(zip(new, found[:, 0, 0].tolist(), strict=True))

    def raw(self, sign: int) -> list[float]:
        """All weights that were read of this sign, as they are."""
        return [weight for (of, *_), weight in self._read.items() if of == sign]

    def value(self, sign: int, likely: float, log: float) -> float:
        """Of the loss."""
        return self.subject.loss(self.subject.quantities(self.batch(sign, likely, log))).item()

    def batch(self, sign: int, likely: float, log: float) -> LossInputs:
        """Two responses, the first token of which is that likely and has that log-ratio."""
        one = _two_responses(self.subject, sign, 1 + self.even)
        log_probs = one.log_probs.clone()
        log_probs[0, 0] = math.log(likely)
        shift = torch.zeros_like(log_probs)
        shift[0, 0] = log
        if self.even:
            shift[0, 1] = -log
        return moved(self.subject, one.with_(log_probs=log_probs), self.policy, shift)


@lru_cache(maxsize=4)
def _is_clipped_at_rewards_of_0(subject: Subject, policy: str) -> bool:
    """Whether a response counts something where none earns anything, and by its ratio.

    So it is where a constant is subtracted from rewards. What rewards make of a weight is then the
    difference of two weights, each with a clip of its own.
    """
    nothing = batch([1, 1], [0.0, 0.0], group_size=2)
    near, away = (
        subject.weights(moved(subject, nothing, policy, torch.full((2, 1), log)))
        for log in (0.0, 0.05)
    )
    constant = kernel_of_old(subject).name in CONSTANT
    return bool(near.abs().max() > NOTHING) and not same(near, away) and not constant


@cache
def _places() -> tuple[tuple[int, float, float], ...]:
    """What `curve` reads of every loss, whatever it finds: signs, probabilities and log-ratios."""
    of_rare = [0.0, NEAR, -NEAR, *GATED, *LOG_RATIOS, *(k * log for log in UP for k in (1, -1))]
    rare = [(sign, RARE, log) for sign in SIGNS for log in of_rare]
    ends = [
        (sign, likely, log)
        for sign in SIGNS
        for likely in LIKELY
        for log in (0.0, *(math.log(_reach(likely, direction)) for direction in (1, -1)))
    ]
    return tuple(dict.fromkeys((*rare, *ends)))


def _two_responses(subject: Subject, sign: int, length: int) -> LossInputs:
    """The first of which has an advantage of this sign.

    Where nothing is subtracted, it has to lose something. Others get no rewards below 0, which a
    loss may divide by.
    """
    worse = [-1.0, 0.0] if _own_reward_alone(subject) else [0.0, 1.0]
    return batch([length, length], [1.0, 0.0] if sign > 0 else worse, group_size=2)


@lru_cache(maxsize=4)
def _own_reward_alone(subject: Subject) -> bool:
    """Whether a response that earns nothing counts nothing, whatever the other one earns."""
    one = without_reference(batch([1, 1], [0.0, 1.0], group_size=2))
    return of_rewards(subject, one)[0, 0].item() == 0


def moved(subject: Subject, one: LossInputs, policy: str, shift: Tensor) -> LossInputs:
    """A batch in which the policy that learns has moved from another one by these log-ratios."""
    away = one.with_(**{"old_log_probs": one.log_probs, policy: one.log_probs - shift})
    return without_reference(away, sampler=reference_is_the_sampler(subject))


def _slope(reader: _Reader, sign: int) -> float:
    """The power of the ratio that a token counts near 1; NaN if it counts nothing there.

    On the side where it goes by the ratio, if that is one: a cap may be at 1 itself.
    """
    powers = [
        float(round(power)) if abs(power - round(power)) < 0.05 else power
        for log in (NEAR, -NEAR)
        for weight in reader.weights(sign, RARE, [log])
        if weight > 0
        for power in [math.log(weight) / log]
    ]
    return next((power for power in powers if power), powers[0] if powers else math.nan)


def _pulled(reader: _Reader) -> str:
    """Where a token counts its ratio, less what a penalty on its distance from 1 takes.

    What such a penalty takes grows with |A| and not with A, so the mean over both signs is the
    ratio, and it is towards 1 wherever the token is.
    """
    better, worse = (reader.weights(sign, RARE, LOG_RATIOS) for sign in SIGNS)
    back = {
        ratio: abs(up + down - 2 * ratio) <= 1e-2 * (down - up) * math.copysign(1, ratio - 1)
        for ratio, up, down in zip(RATIOS, better, worse, strict=True)
        if abs(down - up) > 1e-5
    }
    if len(back) == len(RATIOS) and all(back.values()):
        return "everywhere"
    return "near" if back.get(0.999) and back.get(1.001) else ""


def _gate(reader: _Reader, sign: int) -> Side | None:
    """SAPO's gate, 4/τ · sigmoid(τ(ρ − 1)): its weight is ρ / cosh²(τ(ρ − 1)/2)."""
    weights = reader.weights(sign, RARE, GATED)
    at = weights[3] / 1.5
    if not 0 < at < 0.9999:
        return None
    tau = 4 * math.acosh(math.sqrt(1 / at))

    def gated(log: float) -> float:
        ratio = math.exp(log)
        return ratio / math.cosh(tau * (ratio - 1) / 2) ** 2

    if all(
        math.isclose(w, gated(log), rel_tol=1e-3) for w, log in zip(weights, GATED, strict=True)
    ):
        return Side("gate", value=tau)
    return None


def _side(reader: _Reader, sign: int, direction: int, slope: float) -> Side:
    """Read one of the four sides, on rare tokens first and then on likelier ones."""
    logs = [direction * log for log in UP]
    weights = reader.weights(sign, RARE, logs)
    if all(map(math.isnan, weights)):
        return Side("silent")
    lost: dict[float, float] = {}
    for likely in LIKELY:
        log = _edge(reader, sign, likely, direction, guess=next(reversed(lost.values()), None))
        if log is not None:
            lost[likely] = log
    edges = {likely: math.exp(log) for likely, log in lost.items()}
    if edges:
        by, value = _decided_by(edges, direction)
        where, edge = next(iter(edges.items()))
        inside = [log for log in logs if abs(log) < abs(math.log(edge)) - 1e-3]
        read = reader.weights(sign, where, inside)
        kept = all(_expected(w, log, slope) for w, log in zip(read, inside, strict=True))
        if not kept and not math.isnan(slope):
            return Side("other", edge=edge, by=by)
        jumps = by == "ratio" and _jumps(reader, sign, edge)
        return Side("lost", edge if by == "ratio" else math.nan, by, value, jumps)
    off = [i for i, w in enumerate(weights) if not _expected(w, logs[i], slope)]
    if not off:
        return Side("kept")
    tail = weights[off[0] :]
    if max(tail) - min(tail) <= 1e-5 * max(map(abs, tail)):
        return _held(reader, sign, logs, off[0], slope)
    if slope == 0 and (edge := _freed(logs, weights)):
        return Side("freed", edge=edge)
    falling = all(0 < b < a for a, b in pairwise(weights[2:]))
    if falling and direction > 0:
        return Side("fades")
    held = math.isclose(weights[-1], weights[-2], rel_tol=1e-3)
    return Side("other" if held or 0 in weights else "open")


def _freed(logs: list[float], weights: list[float]) -> float:
    """The ratio from which a weight goes by it that was the same before; 0 if there is none."""
    edges = [math.exp(log) / w for log, w in zip(logs, weights, strict=True) if abs(w - 1) > 1e-4]
    return edges[-1] if len(edges) > 1 and edges[-1] > 0 and _agree(edges) else 0.0


def _expected(weight: float, log: float, slope: float) -> bool:
    power = slope * log
    return power < LARGEST and math.isclose(weight, math.exp(power), rel_tol=1e-4)


def _held(reader: _Reader, sign: int, logs: list[float], first: int, slope: float) -> Side:
    """Where a weight stays from `first` on: the edge by bisection."""
    (value,) = reader.weights(sign, RARE, [logs[-1]])

    def kept(log: float) -> bool:
        (weight,) = reader.weights(sign, RARE, [log])
        return math.isclose(weight, math.exp(slope * log), rel_tol=1e-6)

    inside, outside = (logs[first - 1] if first else 0.0), logs[first]
    # a cap is at the ratio that it is, and a millionth further
    farther = math.copysign(1e-6, outside)
    guess = (math.log(value) + farther) / slope if value > 0 and slope else None
    edge = _last(inside, outside, kept, guess=guess)
    return Side("held", edge=math.exp(edge), value=value)


def _edge(
    reader: _Reader, sign: int, likely: float, direction: int, *, guess: float | None
) -> float | None:
    """The log-ratio from which a token of this probability counts nothing; None if it always does.

    As far as both policies have probabilities.
    """

    def gone(*logs: float) -> list[bool]:
        return [abs(weight) < NOTHING for weight in reader.weights(sign, likely, logs)]

    reach = math.log(_reach(likely, direction))
    if gone(reach) == [False]:
        return None
    logs = [*(direction * u for u in UP if u < abs(reach)), reach]
    zero = gone(*logs)
    first = zero.index(True)
    if not all(zero[first:]):
        return None
    inside, outside = (logs[first - 1] if first else 0.0), logs[first]
    return _last(inside, outside, lambda log: gone(log) == [False], guess=guess)


def _last(
    inside: float, outside: float, kept: Callable[[float], bool], *, guess: float | None
) -> float:
    """The last log-ratio at which something is as it was inside, by bisection.

    Args:
        inside: where it is so.
        outside: where it is not.
        kept: whether it is, which goes from yes to no once.
        guess: where that may be: two looks tell if it is there.
    """
    if guess is not None:
        last, after = _halved(inside, outside, lambda log: abs(log) <= abs(guess))
        if kept(last) and not kept(after):
            return last
    return _halved(inside, outside, kept)[0]


def _halved(inside: float, outside: float, kept: Callable[[float], bool]) -> tuple[float, float]:
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if kept(middle) else (inside, middle)
    return inside, outside


def _reach(likely: float, direction: int) -> float:
    """The ratio farthest from 1 at which both policies have probabilities."""
    return math.exp(UP[-1]) if direction > 0 else max(math.exp(-UP[-1]), likely * 1.0001)


def _binary_kl(p: float, q: float) -> float:
    tiny = 1e-12
    p, q = min(max(p, tiny), 1 - tiny), min(max(q, tiny), 1 - tiny)
    return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))


DISTANCES: dict[str, Callable[[float, float], float]] = {  # of the policy that learns, the other
    "tv": lambda p, q: abs(p - q),
    "kl": lambda p, q: _binary_kl(q, p),
    "reverse kl": _binary_kl,
    "larger kl": lambda p, q: max(_binary_kl(p, q), _binary_kl(q, p)),
}


def _decided_by(edges: dict[float, float], direction: int) -> tuple[str, float]:
    """What is the same wherever tokens are lost, however likely they are: a ratio or a distance."""
    first = next(iter(edges.values()))
    within = [p for p in LIKELY if direction > 0 or p < 0.99 * first]
    if set(within) <= set(edges) and _agree(edges.values()):
        return "ratio", math.nan
    for name, distance in DISTANCES.items():
        found = [distance(p, p / ratio) for p, ratio in edges.items()]
        farthest = [distance(p, p / _reach(p, direction)) for p in LIKELY if p not in edges]
        if len(found) > 1 and _agree(found) and all(d <= 1.01 * found[0] for d in farthest):
            return name, found[0]
    return "other", math.nan


def _agree(values: Iterable[float]) -> bool:
    found = [*values]
    return max(found) - min(found) <= 3e-3 * max(map(abs, found))


def _jumps(reader: _Reader, sign: int, edge: float) -> bool:
    """Whether the value of the loss jumps where a token loses its gradient: it is left out."""
    log = math.log(edge)
    step = 1e-4 * math.copysign(1, log)
    before, after = (reader.value(sign, RARE, log + k * step) for k in (-1, 1))
    fresh = of_rewards(reader.subject, reader.batch(sign, RARE, 0.0))[0, 0].item()
    return abs(after - before) > 0.05 * edge * abs(fresh)


def _seen(reader: _Reader, sides: dict[tuple[int, int], Side]) -> str:
    """Some of the weights of a side that belongs to no family: of a rare token, and of another."""
    odd = [place for place, side in sides.items() if {"other", "open"} & {side.kind, side.by}]
    if not odd:
        return ""
    (sign, direction), *_ = odd
    logs = [direction * log for log in (0.1, 0.5, 1.7)]
    told = [
        f"{SIGNS[sign]} and π = {likely:g}: "
        + ", ".join(
            f"{w + 0.0:.3g} at a ratio of {math.exp(log):.3g}"
            for w, log in zip(reader.weights(sign, likely, logs), logs, strict=True)
        )
        for likely in (RARE, 0.1)
    ]
    return "; ".join(told)


# ---------------------------------------------------------------- whose ratio it is


def level_of(subject: Subject, policy: str) -> str:
    """Whose ratio, of `Clip.level`: read off from what other tokens count where one has moved."""
    for sign, log in ((1, -0.7), (-1, 0.4), (1, 0.4), (-1, -0.7), (1, -2e-4), (-1, 2e-4)):
        two, four = (_others(subject, policy, sign, log, length) for length in (2, 4))
        if min(abs(two), abs(four)) == 0 or math.isnan(two + four):
            continue
        ratio, loose = math.exp(log), 1e-5 if abs(log) > 0.1 else 1e-8
        forms = {
            "token": (1.0, 1.0),
            "product": (ratio, ratio),
            "geometric": (ratio ** (1 / 2), ratio ** (1 / 4)),
            "arithmetic": ((1 + ratio) / 2, (3 + ratio) / 4),
        }
        for name, (at_two, at_four) in forms.items():
            if abs(two - at_two) < loose and abs(four - at_four) < loose:
                back = _others(subject, policy, sign, log, 2, first=False)
                return "prefix" if name == "product" and abs(back - 1) < loose else name
        return "other"
    return "token"


def _others(
    subject: Subject, policy: str, sign: int, log: float, length: int, *, first: bool = True
) -> float:
    """What another token of the response counts where the first, or the last, has this ratio."""
    one = _two_responses(subject, sign, length)
    shift = torch.zeros(2, length, dtype=torch.float64)
    at, other = (0, -1) if first else (-1, 0)
    shift[0, at] = log
    still = of_rewards(subject, moved(subject, one, policy, 0 * shift))[0, other].item()
    now = of_rewards(subject, moved(subject, one, policy, shift))[0, other].item()
    return now / still if still else math.nan


def _whole(subject: Subject, policy: str) -> WholeMask | None:
    """Responses that are left out whole because of some of their tokens."""

    def gone(sign: int, log: float, length: int, spread: int) -> bool:
        """Whether the last token counts nothing where the first `spread` have gone that far."""
        one = _two_responses(subject, sign, length)
        log_probs, shift = one.log_probs.clone(), torch.zeros(2, length, dtype=torch.float64)
        log_probs[0, :spread] = -FAR - 1
        shift[0, :spread] = log
        away = moved(subject, one.with_(log_probs=log_probs), policy, shift)
        return of_rewards(subject, away)[0, -1].item() == 0

    def edge(sign: int, direction: int, length: int, spread: int = 1) -> float:
        def kept(log: float) -> bool:
            return not gone(sign, log, length, spread)

        inside, _ = _halved(*_halved(0.0, direction * FAR, kept), kept)
        return inside

    found = {
        (sign, direction): edge(sign, direction, 3)
        for sign in SIGNS
        for direction in (1, -1)
        if gone(sign, direction * FAR, 3, 1)
    }
    if not found or any(gone(sign, 0.0, length, 1) for sign in SIGNS for length in (3, 6)):
        return None
    (sign, direction), three = next(iter(found.items()))
    both = edge(sign, direction, 3, spread=2)
    longer = edge(sign, direction, 6)
    by = "one" if abs(both - three) < 0.02 * abs(three) else "sum"
    by = "mean" if abs(longer - 2 * three) < 0.02 * abs(three) else by
    thresholds = {side: log / 3 if by == "mean" else log for side, log in found.items()}
    return WholeMask(thresholds, by, _token_by_token(subject, policy, found))


def _token_by_token(subject: Subject, policy: str, found: dict[tuple[int, int], float]) -> bool:
    """Whether a response that is to be left out keeps its tokens of the other sign."""
    signs = {sign for sign, _ in found}
    if "advantages" not in subject.takes or len(signs) > 1:
        return False
    ((sign, direction), log), *_ = found.items()
    one = batch([3, 3], [1.0, 0.0], group_size=2)
    mixed = torch.tensor([[-0.5, 0.25, -0.35], [0.2, 0.2, 0.2]], dtype=torch.float64) * -sign
    shift = torch.zeros(2, 3, dtype=torch.float64)
    shift[0] = 0.4 * log
    given = moved(subject, one.with_(advantages=mixed), policy, shift)
    weights = subject.weights(given)[0]
    return bool((weights == 0).any() and (weights != 0).any()) and direction != 0


def ratio_is_to_the_reference(subject: Subject) -> bool:
    """Whether a token counts its ratio π/π_ref, where it should count π/π_old."""
    plain = without_reference(batch([1, 1], [1.0, 0.0], group_size=2))
    ref = plain.ref_log_probs.clone()
    ref[0, 0] -= math.log(1.01)
    unit, away = (
        of_rewards(subject, one)[0, 0].item() for one in (plain, plain.with_(ref_log_probs=ref))
    )
    return unit != 0 and math.isclose(away / unit, 1.01, rel_tol=1e-5)
