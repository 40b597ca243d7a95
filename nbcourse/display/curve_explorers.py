"""Explorers of curves: a few numbers to move, and sums that the page computes anew each time."""

import math
from collections.abc import Sequence

from IPython.display import HTML

from nbcourse.display.in_page import in_page


def explore_group(p: float = 0.25, *, wrong: float = 0.0, group_size: int = 4) -> HTML:
    """Move the group size: what leave-one-out costs in variance beside constant baselines.

    A policy with two answers, one right. The variance of one rollout's worth of gradient, exactly:
    without a baseline, with the true mean, with the best constant, and with the mean of the others.

    Args:
        p: probability of the right answer, a multiple of 0.01 between 0 and 1.
        wrong: what a wrong answer pays, a multiple of 0.1 from −2 to 2; a right one pays 1 more.
        group_size: G, 2 to 32.

    Returns:
        What a cell shows when it is its last line; the same in a live notebook and on the site.

    Raises:
        ValueError: if a number is not one that its slider reaches.

    Book: equations (eq-rloo-variance), (eq-two-arms).
    """
    start = [
        position(p, name="p", unit=0.01, low=1, high=99),
        position(wrong, name="wrong", unit=0.1, low=-20, high=20) + 20,  # links have no minus
        position(group_size, name="group_size", unit=1, low=2, high=32),
    ]
    return in_page("group", start, parts=["curves"])


def explore_passes(p: float = 0.1, *, samples: int = 8, k: int = 8) -> HTML:
    """Move samples and tries: what two estimators of pass@k say on average, and their scatter.

    Args:
        p: probability that a sample is right, a multiple of 0.01 between 0 and 1.
        samples: n, 1 to 64.
        k: 1 to 64.

    Returns:
        What a cell shows when it is its last line; the same in a live notebook and on the site.

    Raises:
        ValueError: if a number is not one that its slider reaches.

    Book: equation (eq-pass-at-k).
    """
    start = [
        position(p, name="p", unit=0.01, low=1, high=99),
        position(samples, name="samples", unit=1, low=1, high=64),
        position(k, name="k", unit=1, low=1, high=64),
    ]
    return in_page("passes", start, parts=["curves"])


def explore_beta(
    names: Sequence[str],
    ref_probs: Sequence[float],
    rewards: Sequence[float],
    scores: Sequence[float],
    *,
    beta: float = 1.0,
) -> HTML:
    """Move β: the best policy by a score, what the score says of it, and what it is worth.

    A few answers to one prompt. The policy is the reference, weighted by e to the score over β. The
    score of the last answer can be moved as well.

    Args:
        names: of the K answers.
        ref_probs: (K,) the reference, none of them 0.
        rewards: (K,) 1 for a right answer, 0 for a wrong one.
        scores: (K,) what the reward model says; the last one is a multiple of 0.01 from 0 to 1.5.
        beta: at first; the nearest that the slider has, from 0.032 to 10.

    Returns:
        What a cell shows when it is its last line; the same in a live notebook and on the site.

    Raises:
        ValueError: if the lengths differ, the reference is no distribution over all answers, or a
            slider cannot start where it should.

    Book: equation (eq-score-optimum).
    """
    lengths = [len(names), len(ref_probs), len(rewards), len(scores)]
    if len(set(lengths)) > 1:
        raise ValueError(f"names, ref_probs, rewards and scores have lengths {lengths}")
    if min(ref_probs) <= 0 or abs(sum(ref_probs) - 1) > 1e-6:
        raise ValueError(f"ref_probs is {ref_probs}, expected positive numbers with sum 1")
    if not 0.0316 <= beta <= 10:
        raise ValueError(f"beta is {beta}, expected 0.0316 to 10")
    start = [
        round(20 * (math.log10(beta) + 1.5)),
        position(scores[-1], name="scores[-1]", unit=0.01, low=0, high=150),
    ]
    answers = {"names": names, "refProbs": ref_probs, "rewards": rewards, "scores": scores}
    return in_page("beta", answers, start, parts=["curves", "numbers"])


def position(value: float, *, name: str, unit: float, low: int, high: int) -> int:
    """Where a slider of steps of `unit` stands."""
    steps = value / unit
    if abs(steps - round(steps)) > 1e-6 or not low <= round(steps) <= high:
        raise ValueError(
            f"{name} is {value}, expected a multiple of {unit:g} from {low * unit:g} "
            f"to {high * unit:g}"
        )
    return round(steps)
