"""The KL explorer: drag the bars of two policies, see the estimators as values and as losses.

Its drawings cannot be stored one by one, as those of `explorers` are: there are as many as pairs of
policies. The formulas are short, so the page computes them itself, live notebook or not.
"""

import math
from collections.abc import Sequence
from html import escape

from IPython.display import HTML

from nbcourse.display.in_page import in_page

HUNDREDTHS = 100
NAMES = "ABCDEF"
LONGEST_NAME = 6  # characters; longer ones would not fit under six bars


def explore_kl(
    probs: Sequence[float] = (0.5, 0.4, 0.1),
    ref_probs: Sequence[float] = (0.1, 0.3, 0.6),
    *,
    names: Sequence[str] | None = None,
) -> HTML:
    """Drag the probabilities of π and π_ref: what k1, k2 and k3 give as values and as losses.

    Shown at once, all exact: KL(π‖π_ref); the distribution of each estimator under π, with mean and
    standard deviation; and its expected gradient in the logits of π when it is used as a loss,

        Σₐ π(a) ∇k(a),    beside    ∇KL(π‖π_ref)

    The bars also obey the arrow keys, Page Up and Down, Home and End. The other tokens share what
    is left in the proportions they had.

    Args:
        probs: (K,) the policy to begin with, 2 to 6 tokens. All bars move in steps of 0.01.
        ref_probs: (K,) the reference policy.
        names: (K,) what the tokens are called, at most 6 characters each; None means A, B, C, …

    Returns:
        What a cell shows when it is its last line; the same in a live notebook and on the site.

    Raises:
        ValueError: if the lengths differ or are not 2 to 6, if a probability is not a positive
            multiple of 0.01, if the probabilities do not sum to 1, or if a name is empty or too
            long.

    Source: Schulman 2020, "Approximating KL Divergence", for k1, k2 and k3.
    """
    hundredths = in_hundredths(probs, name="probs")
    ref_hundredths = in_hundredths(ref_probs, name="ref_probs")
    tokens = NAMES[: len(hundredths)] if names is None else names
    for name, values in (("ref_probs", ref_hundredths), ("names", tokens)):
        if len(values) != len(hundredths):
            raise ValueError(
                f"{name} has {len(values)} entries, expected {len(hundredths)} as probs has"
            )
    for i, token in enumerate(tokens):
        if not 1 <= len(token) <= LONGEST_NAME:
            raise ValueError(
                f"names[{i}] is {token!r}, expected 1 to {LONGEST_NAME} characters: it labels a bar"
            )
    return in_page("kl", [escape(token) for token in tokens], hundredths, ref_hundredths)


def in_hundredths(probs: Sequence[float], *, name: str) -> list[int]:
    """Probabilities as whole hundredths, in which the bars count."""
    if not 2 <= len(probs) <= len(NAMES):
        raise ValueError(f"{name} has {len(probs)} entries, expected 2 to {len(NAMES)}")
    hundredths = []
    for i, p in enumerate(map(float, probs)):
        nearest = round(HUNDREDTHS * p) if math.isfinite(p) else 0
        if nearest < 1 or abs(HUNDREDTHS * p - nearest) > 1e-4:  # float32 is near enough
            raise ValueError(f"{name}[{i}] is {p}, expected a positive multiple of 0.01")
        hundredths.append(nearest)
    if sum(hundredths) != HUNDREDTHS:
        raise ValueError(f"{name} sums to {sum(hundredths) / HUNDREDTHS}, expected 1")
    return hundredths
