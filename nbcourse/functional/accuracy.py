"""How often is the answer right? Counts of verdicts, and how far chance could have moved them.

A verdict is a `bool`, and what was drawn by chance is the *problem*: every interval here is over
problems. Several samples of one problem are not several problems, so they are averaged first.
"""

import math
from typing import Annotated, NamedTuple

import torch
from annotated_types import Ge, Interval
from torch import Tensor

from nbcourse.functional.arguments import Axes, checked

RESAMPLED_ENTRIES = 1 << 20  # drawn at a time: 8 MiB of indices, 8 MiB of values

Verdicts = Annotated[Tensor, Axes("P", "bools")]


def wilson_interval(successes: int, trials: int, *, z: float = 1.96) -> tuple[float, float]:
    """A confidence interval for a share that stays within [0, 1], also near its ends.

        (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n)

    Args:
        successes: how many.
        trials: out of how many, n.
        z: standard errors; 1.96 for 95 %.

    Raises:
        ValueError: if there is no trial, or more successes than trials.

    Book: equation (eq-wilson). Source: Wilson 1927, "Probable Inference, the Law of Succession,
    and Statistical Inference".

    >>> wilson_interval(0, 4, z=2.0)  # p = 0, z² = n: (½ ± 2 √(1/16)) / (1 + 1)
    (0.0, 0.5)
    """
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(
            f"successes={successes} of trials={trials}: expected at least one trial, "
            "and 0 <= successes <= trials"
        )
    p, n = successes / trials, trials
    centre = p + z * z / (2 * n)
    radius = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (centre - radius) / scale), min(1.0, (centre + radius) / scale)


@checked
def pass_at_k(correct: Annotated[Tensor, Axes("P n", "bools")], *, k: int) -> Tensor:
    """The chance that at least one of k samples is right, estimated from n ≥ k samples.

        1 − C(n−c, k) / C(n, k)        c of the n samples are right

    The fraction is the chance that k of the n samples, drawn without replacement, are all wrong.
    Its mean over all that could have been sampled is (1 − p)^k, so the estimator is unbiased. The
    plug-in 1 − (1 − c/n)^k is not: (1 − p)^k is convex in p, hence chance in c/n makes its mean
    too large (Jensen), and the plug-in is too low on average for every k > 1, unless p
    is 0 or 1.

    Args:
        correct: (P, n) bool, the verdicts on n samples of each of P problems.
        k: how many tries, from 1 to n.

    Returns:
        (P,) float64, one estimate for each problem; exactly 0 if no sample is right, exactly 1 if
        fewer than k are wrong. Their mean is the pass@k of the problems.

    Raises:
        ValueError: if correct is not boolean, not (P, n) or empty, or k is not from 1 to n.

    Book: equation (eq-pass-at-k). Source: Chen et al. 2021, "Evaluating Large Language Models
    Trained on Code", equation 1.

    >>> correct = torch.tensor([[True, False, False, False], [False] * 4])
    >>> pass_at_k(correct, k=2).tolist()  # 1 − C(3, 2)/C(4, 2) = 1 − 3/6, and never
    [0.5, 0.0]
    """
    if correct.numel() == 0:
        raise ValueError(
            f"correct has shape {tuple(correct.shape)}, expected at least one problem and sample"
        )
    n = correct.shape[1]
    if k not in range(1, n + 1):
        raise ValueError(f"k is {k}, expected an integer from 1 to {n}, the number of samples")
    wrong = (~correct).sum(dim=1, keepdim=True)
    drawn = torch.arange(k, dtype=torch.float64, device=correct.device)
    # Draw by draw, for the binomials overflow. With fewer than k wrong, one factor is exactly 0.
    return 1 - ((wrong - drawn) / (n - drawn)).prod(dim=1)


@checked
@torch.no_grad()
def bootstrap_interval(
    values: Annotated[Tensor, Axes("P")],
    *,
    generator: torch.Generator,
    resamples: Annotated[int, Ge(1)] = 10_000,
    level: Annotated[float, Interval(gt=0, lt=1)] = 0.95,
) -> tuple[float, float]:
    """A confidence interval for the mean over problems: the percentiles of the bootstrap.

    Draws P problems out of the P with replacement, takes their mean, and does so `resamples`
    times. The interval holds the middle `level` of these means. For a plain share of right answers
    `wilson_interval` is better, above all near 0 and 1, where the resamples cannot show what the
    sample missed.

    Args:
        values: (P,) one number for each *problem*, such as its share of right samples, its
            `pass_at_k`, or its difference in `gain_split`.
        generator: of the resamples, on the device of values.
        resamples: how many, at least 1.
        level: the share of resamples in the interval, between 0 and 1.

    Returns:
        The two ends.

    Raises:
        ValueError: if values is not (P,), empty or not finite, resamples < 1, or level is not
            strictly between 0 and 1.

    Source: Efron & Tibshirani 1993, "An Introduction to the Bootstrap", chapter 13.

    >>> dice = torch.Generator().manual_seed(0)
    >>> bootstrap_interval(torch.ones(5), generator=dice)  # every resample has the mean 1
    (1.0, 1.0)
    """
    if len(values) == 0:
        raise ValueError("values is empty, expected at least one problem")
    if not values.isfinite().all():
        row = int(values.isfinite().logical_not().nonzero()[0])
        raise ValueError(f"values[{row}] is {values[row].item()}, expected a finite number")
    values, problems = values.double(), len(values)
    rows = max(1, RESAMPLED_ENTRIES // problems)
    means = []
    for done in range(0, resamples, rows):
        shape = (min(rows, resamples - done), problems)
        drawn = torch.randint(problems, shape, generator=generator, device=values.device)
        means.append(values[drawn].mean(dim=1))
    tail = (1 - level) / 2
    low, high = torch.cat(means).quantile(values.new_tensor([tail, 1 - tail])).tolist()
    return low, high


class GainSplit(NamedTuple):
    """What training changed, each (P,) float64 of −1, 0 and 1; the means are shares."""

    total: Tensor
    form: Tensor
    content: Tensor


@checked
def gain_split(
    before_strict: Verdicts,
    before_lenient: Verdicts,
    after_strict: Verdicts,
    after_lenient: Verdicts,
) -> GainSplit:
    """Split a gain in strict accuracy into what was learned about form and about content.

        S₁ − S₀ = (F₀ − F₁) + (L₁ − L₀),      F = L − S
        total   = form      + content

    S is strictly right: the right answer in the form asked for. L is leniently right: the right
    answer in any form. What is right strictly is right leniently too, so F = L − S, the right
    answer in the wrong form, is 0 or 1. Form is what was lost to F before and no longer is. It is
    negative where a policy learns new answers and writes them in the wrong form.

    The problems are the same before and after, so each has a difference of its own: what is hard
    on both sides cancels, and `bootstrap_interval(split.form, …)` is a *paired* interval.

    Args:
        before_strict: (P,) bool, the verdicts before training.
        before_lenient: (P,) bool.
        after_strict: (P,) bool, on the same problems in the same order.
        after_lenient: (P,) bool.

    Returns:
        A `GainSplit`, total = form + content for every problem.

    Raises:
        ValueError: if an argument is not boolean, not (P,), empty or of another length, or if an
            answer is right strictly and wrong leniently.

    Book: equation (eq-gain-split).

    >>> none, one, both = torch.tensor([[False, False], [True, False], [True, True]])
    >>> split = gain_split(none, one, both, both)  # the first was right in the wrong form
    >>> split.form.tolist(), split.content.tolist()
    ([1.0, 0.0], [0.0, 1.0])
    """
    if len(before_strict) == 0:
        raise ValueError("before_strict is empty, expected at least one problem")
    before, after = (before_strict, before_lenient), (after_strict, after_lenient)
    for when, (strict, lenient) in (("before", before), ("after", after)):
        impossible = strict & ~lenient
        if impossible.any():
            row = int(impossible.nonzero()[0])
            raise ValueError(
                f"{when}_lenient[{row}] is False and {when}_strict[{row}] is True, "
                "expected what is right strictly to be right leniently too"
            )
    total = after_strict.double() - before_strict.double()
    content = after_lenient.double() - before_lenient.double()
    return GainSplit(total=total, form=total - content, content=content)
