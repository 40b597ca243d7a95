"""Probes of what a response and its tokens count, and whose rewards that depends on."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from nbcourse.examine.batches import (
    MIXED,
    TOLERANCE,
    batch,
    finite,
    in_float32,
    of_one_token,
    of_rewards,
    same,
    without_reference,
)
from nbcourse.examine.subject import OF_TOKENS, LossInputs, Subject

DIVISOR = 2e-3  # relative: some add a small constant to what they divide by


def influence(subject: Subject) -> str:
    """Whose rewards move what a response counts, in two prompts of three responses.

    "own" (there is no baseline), "group", "batch", "strided" (every other response, as if groups
    were not side by side), "crossed" (other prompts, and not all of its own group) or "other";
    "none" if the loss does not look at rewards.
    """
    found = _reach(subject)
    if found != "other":
        return found
    # of answers that are chosen by their reward, the count alone may reach all
    if (scaled := _reach(subject, scaled=True)) != "other":
        return scaled
    # and so may the count of a term beside, which a small change of no special reward leaves alone
    still = _reach(subject, [0.93, 0.21, 0.53, 0.87, 0.41, 0.06], by=0.003)
    return still if still in ("own", "group") else found


def _reach(
    subject: Subject,
    rewards: Sequence[float] = (1.0, 0.2, 0.5, 0.9, 0.4, 0.0),
    *,
    by: float = 0.37,
    scaled: bool = False,
) -> str:
    """The same; if `scaled`, of weights up to a factor that all others have in common."""
    one = without_reference(batch([2] * 6, [*rewards], group_size=3))
    before = subject.weights(one)
    moved = torch.zeros(6, 6, dtype=torch.bool)
    for j in range(6):
        other = one.rewards.clone()
        other[j] += by
        after = subject.weights(one.with_(rewards=other))
        others = torch.arange(6) != j
        if scaled and bool((told := others & (after[:, 0] != 0)).any()):
            after = after * (before[told, 0] / after[told, 0]).median()
        moved[:, j] = ((after - before).abs() > TOLERANCE * before.abs().max()).any(dim=1)
    i = torch.arange(6)
    group, strided = i[:, None] // 3 == i // 3, i[:, None] % 2 == i % 2
    reach = moved | torch.eye(6, dtype=torch.bool)
    if not bool(moved.any()):
        return "none"
    if not bool((reach & ~group).any()):  # an answer that is left out is moved by none
        return "own" if torch.equal(reach, torch.eye(6, dtype=torch.bool)) else "group"
    if torch.equal(reach, strided):
        return "strided"
    if bool(reach.all()):
        return "batch"
    crossed = (reach & ~group).any(dim=1) & (group & ~reach).any(dim=1)
    at_home = (reach == group).all(dim=1)
    return "crossed" if bool((crossed | at_home).all()) else "other"


def spread_is_divided_out(subject: Subject) -> bool:
    """Ten times the rewards, or a tenth, and the weights (all but) the same.

    With one more for everyone, too, as far as responses to a prompt differ: a mean, which some
    divide by, is another one then.
    """
    one = without_reference(batch([2] * 6, MIXED, group_size=3))
    plain = of_rewards(subject, one)
    scaled = [of_rewards(subject, one.with_(rewards=k * one.rewards)) for k in (10, 0.1)]
    if not all(bool((other - plain).norm() < 0.1 * plain.norm()) for other in scaled):
        return False
    apart, moved = (
        weights.view(2, 3, -1) - weights.view(2, 3, -1).mean(dim=1, keepdim=True)
        for weights in (plain, of_rewards(subject, one.with_(rewards=1 + one.rewards)))
    )
    return bool((moved - apart).norm() < 0.1 * apart.norm())


def flat_groups(subject: Subject) -> str:
    """What becomes of a group whose rewards are all alike.

    "nothing", "something" (whatever the reward), "noise" (rounding, where a reward is no dyadic
    number), or "nan".
    """
    alike = [
        without_reference(batch([3, 2, 3], [reward] * 3, group_size=3)) for reward in (0.0, 1.0)
    ]
    if not all(finite(subject, one) for one in alike):
        return "nan"
    if not all(bool((subject.weights(one).abs() <= 1e-9).all()) for one in alike):
        return "something"
    spread = subject.weights(in_float32(of_one_token((1.0, 0.0) * 4))).abs().max()
    flat = (in_float32(of_one_token((k / 100,) * 8)) for k in range(1, 100, 2))
    noise = max(subject.weights(one).abs().max() for one in flat)
    return "noise" if noise > 0.05 * spread else "nothing"


def constant_term(subject: Subject) -> bool:
    """Whether every token has the same weight, and not 0, where no response earns anything."""
    one = without_reference(batch([2, 2, 2], [0.0, 0.0, 0.0], group_size=3))
    weights = subject.weights(one)
    return weights[0, 0].abs().item() > 1e-9 and same(weights, weights[0, 0].expand_as(weights))


def bad_beside_good(subject: Subject) -> float:
    """What an advantage below 0 counts beside one as far above it; NaN where one counts nothing."""
    one = without_reference(batch([2, 2], [1.0, 0.0], group_size=2))
    good, bad = of_rewards(subject, one).sum(dim=1).tolist()
    return -bad / good if good and bad else math.nan


def who_learns(subject: Subject) -> str:
    """Which answers move the policy on fresh samples, of a group with one good or one bad one.

    "both" (good ones up, bad ones down, or the reverse), "good" or "bad" only, "alike" (all the
    same way), or "neither".
    """
    found = []
    for odd in (1.0, 0.0):  # a baseline such as the median may be what most of a group earned
        rewards = [1 - odd, odd, 1 - odd, 1 - odd]
        one = without_reference(batch([2, 2, 2, 2], rewards, group_size=4))
        weights = of_rewards(subject, one).sum(dim=1)
        found.append([weights[rewards.index(reward)].item() for reward in (1.0, 0.0)])
    if any(good * bad > 0 for good, bad in found):
        return "alike"
    good, bad = (any(pair) for pair in zip(*found, strict=True))
    return "both" if good and bad else "good" if good else "bad" if bad else "neither"


def level(subject: Subject) -> str:
    """What changes where a token is less likely to all policies, so that every ratio stays.

    "none", "own" (the token's weight, or all of them) or "others" (those of some other tokens).
    """
    one = batch([4, 4], [1.0, 0.0], group_size=2)
    one = one.each(OF_TOKENS, lambda own: torch.full_like(own, -1.3))  # compared, they make 1
    shift = torch.zeros_like(one.log_probs)
    shift[0, 1] = -0.01  # so that no clip hides it
    other = one.each(OF_TOKENS, lambda own: own + shift)
    before, after = subject.weights(one), subject.weights(other)
    moved = (after - before).abs() > TOLERANCE * before.abs().max()
    if not bool(moved.any()):
        return "none"
    others = torch.arange(4) != 1
    return "others" if moved[0, others].any() and not moved[0, others].all() else "own"


def positions(subject: Subject) -> list[float]:
    """What the tokens of a response of four count, equally likely ones, beside the last."""
    log_probs = torch.full((4, 4), -1.0, dtype=torch.float64)
    mask = torch.ones(4, 4, dtype=torch.bool)
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    weights = of_rewards(subject, LossInputs(log_probs, log_probs, log_probs, mask, rewards, 4))
    moved = weights[weights.abs().sum(dim=1).argmax()]  # some methods leave answers out
    return (moved / moved[-1]).tolist()


def every_token_counts(subject: Subject) -> list[int]:
    """Positions, counted from the end of each response, whose tokens get no weight."""
    one = without_reference(batch([4, 4, 4, 4], [0.0, 1.0, 0.0, 0.0], group_size=4))
    silent = (of_rewards(subject, one) == 0).all(dim=0)
    return [int(i) - 4 for i in silent.nonzero().flatten()]


def advantages_mix(subject: Subject) -> bool:
    """Whether the advantage of another response counts as much as a response's own."""
    if "advantages" not in subject.takes:
        return False
    one = without_reference(batch([2, 2, 2], [1.0, 0.0, 0.0], group_size=3))
    source = torch.Generator().manual_seed(1)
    given = torch.randn(3, 2, generator=source, dtype=torch.float64)
    plain = subject.weights(one.with_(advantages=given))[0]

    def effect(row: int) -> Tensor:
        more = given.clone()
        more[row] += 0.5
        return subject.weights(one.with_(advantages=more))[0] - plain

    own, other = effect(0), effect(1)
    return bool((own != 0).any()) and same(own, other)


def credit_reaches_back(subject: Subject) -> bool:
    """Whether tokens before a gap in the mask, such as a tool's answer, are given credit."""
    one = without_reference(batch([4, 4], [1.0, 0.0], group_size=2))
    mask = one.mask.clone()
    mask[:, 2] = False
    gap = of_rewards(subject, one.with_(mask=mask))
    whole = of_rewards(subject, one)
    # the token just before the gap may be left out like the last of a response
    return bool((gap[:, :2] != 0).any(dim=1).all()) or not bool((whole[:, :2] != 0).all())


def counted(mask: Tensor) -> dict[str, Tensor]:
    """(…, B, T) by ways to average, what a token counts beside that of a response of one token."""
    lengths, count = mask.sum(dim=-1, keepdim=True).clamp(min=1).double(), mask.shape[-2]
    factors = {
        "seq-mean-token-mean": 1 / lengths,
        "token-mean": count / lengths.sum(dim=-2, keepdim=True),
        "seq-mean-token-sum": torch.ones(()),
        "divided-twice": 1 / lengths.square(),
        "longest": 1 / lengths.amax(dim=-2, keepdim=True),
        "position": count / mask.sum(dim=-2, keepdim=True).clamp(min=1),
    }
    return {name: factor * mask for name, factor in factors.items()}


def average(subject: Subject) -> str:
    """How tokens are averaged, by what a token counts in responses of several lengths.

    One of the names of `functional.aggregation.MODES`, "divided-twice" (by the length of the
    response, squared), "position" (a mean over responses at each position), "times-the-length"
    (one of them times the length of the response, until it is too long to count),
    "longest" (the sum by the longest response of the batch), or "other".
    """
    lengths = [4, 2, 3, 1]
    rewards = [1.0, 0.2, 0.3, 0.1]  # none of which is 0, for a loss without a baseline

    def of(lengths: list[int]) -> tuple[Tensor, dict[str, Tensor]]:
        """Of the last tokens, since credit may fade before them, and in each way to average."""
        one = without_reference(batch(lengths, rewards, group_size=4, width=6))
        last = torch.tensor(lengths)[:, None] - 1
        ways = {name: made.gather(1, last)[:, 0] for name, made in counted(one.mask).items()}
        return of_rewards(subject, one).double().gather(1, last)[:, 0], ways

    (equal, before), (uneven, after) = of([2, 2, 2, 2]), of(lengths)
    if not bool((equal != 0).all()):
        return "other"
    expected = {name: after[name] / before[name] * equal for name in after}
    for loose in (TOLERANCE, DIVISOR):
        for name, weights in expected.items():
            if same(uneven, weights, loose=loose):
                return name
    L = torch.tensor(lengths, dtype=torch.float64)
    kept = uneven != 0
    too_long = torch.where(kept, torch.inf, L).min()
    if torch.equal(kept, too_long > L) and bool(kept.any()):
        for name in ("seq-mean-token-mean", "token-mean", "seq-mean-token-sum"):
            if same(uneven[kept], (expected[name] * L / 2)[kept]):
                return "times-the-length"
    return "other"


def nobody_left_out(subject: Subject) -> bool:
    """Whether the sum of all rewards of a group, its own among them, is divided by G − 1.

    Of one answer that earns something, the others then count −1/(G − 2) times as much, and
    −1/(G − 1) times where their baseline is a mean, with its own reward or without.
    """
    for size in (3, 4):
        one = without_reference(batch([2] * size, [1.0, *[0.0] * (size - 1)], group_size=size))
        own, *others = of_rewards(subject, one).sum(dim=1).tolist()
        if not own or any(abs(other / own + 1 / (size - 2)) > TOLERANCE for other in others):
            return False
    return True


def entropy_weighs(subject: Subject) -> str:
    """What the entropy at a token changes about its weight.

    "nothing", "weighed" (how much it counts), or "chosen" (only those of high entropy count).
    """
    if "entropy" not in subject.takes:
        return "nothing"
    one = without_reference(batch([4, 4], [1.0, 0.0], group_size=2))
    ranks = 0.1 + torch.arange(8, dtype=torch.float64).view(2, 4) / 8
    plain = of_rewards(subject, one)
    rising, falling = (
        of_rewards(subject, one.with_(entropy=entropy)) for entropy in (ranks, ranks.flip(0, 1))
    )
    if same(rising, plain) and same(falling, plain):
        return "nothing"
    kept = [weights != 0 for weights in (rising, falling.flip(0, 1))]
    upper = [bool(ranks[one].min() > ranks[~one].max()) for one in kept if 0 < one.sum() < 8]
    return "chosen" if len(upper) == 2 and all(upper) else "weighed"


def lengths_weigh(subject: Subject) -> bool:
    """Whether how much a response counts beside another depends on the lengths of others.

    The average aside: the weights of the two responses that stay as long as they were, in a group
    whose others become longer, or in one whose lengths are dealt otherwise.
    """

    def beside(lengths: list[int]) -> float:
        rewards = [1.0, 0.4, 0.0, 0.1]
        weights = of_rewards(subject, without_reference(batch(lengths, rewards, group_size=4)))
        return (weights[1, 0] / weights[0, 0]).item()

    found = [beside(lengths) for lengths in ([2, 2, 2, 2], [2, 2, 4, 1], [2, 2, 1, 4])]
    if not all(map(math.isfinite, found)):
        return False
    return max(found) - min(found) > 1e-5 * max(map(abs, found))


def truncated(subject: Subject) -> str:
    """What becomes of a response that was cut off.

    "kept" (the flag changes nothing, or is not taken), "dropped" (with its tokens), "counted" (it
    gets no gradient, and its tokens still count in the average), "only" (no other gets one), or
    "other".
    """
    if "truncated" not in subject.takes:
        return "kept"
    one = without_reference(batch([2, 2, 4, 2], [1.0, 0.0, 0.5, 0.0], group_size=4))
    flags = torch.tensor([False, False, True, False])
    plain, cut = subject.weights(one), subject.weights(one.with_(truncated=flags))
    if same(plain, cut):
        return "kept"
    others = ~flags
    if not bool((plain != 0).any()) and bool((cut[flags] != 0).any()):
        return "only"
    if bool((cut[flags] != 0).any()):
        return "other"
    return "counted" if same(plain[others], cut[others]) else "dropped"


def entropy_slope(subject: Subject) -> float:
    """∂L/∂H of all tokens together, beside what a token of a fresh batch counts; 0 if none."""
    if "entropy" not in subject.takes:
        return 0.0
    one = without_reference(batch([2, 2], [1.0, 0.0], group_size=2))
    quantities = subject.quantities(one)
    entropy = quantities["entropy"].requires_grad_()
    loss = subject.loss(quantities)
    if not loss.requires_grad:
        return 0.0
    (slope,) = torch.autograd.grad(loss, entropy, allow_unused=True)
    return 0.0 if slope is None else slope.sum().item()


def entropy_is_a_constant(subject: Subject) -> bool:
    """Whether the entropy changes the loss, and neither its slope nor the weight of a token.

    So it is with a bonus that was computed without a graph. A choice of tokens by their entropy
    changes weights, and a number for a log does not change the loss.
    """
    if "entropy" not in subject.takes:
        return False
    one = without_reference(batch([2, 2], [1.0, 0.0], group_size=2))
    entropy = subject.quantities(one)["entropy"]
    other = one.with_(entropy=entropy + torch.arange(entropy.numel()).view_as(entropy) / 10)
    before, after = (subject.loss(subject.quantities(x)).item() for x in (one, other))
    moved = not math.isclose(before, after, rel_tol=1e-9, abs_tol=1e-12)
    unmoved = same(subject.weights(one), subject.weights(other))
    return moved and unmoved and entropy_slope(subject) == 0
