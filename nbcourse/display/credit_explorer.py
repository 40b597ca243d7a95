"""The credit of each token of one answer, under β, λ and γ to choose."""

from collections.abc import Sequence

from IPython.display import HTML

from nbcourse.display.curve_explorers import position
from nbcourse.display.in_page import in_page


def explore_credit(
    names: Sequence[str],
    log_ratios: Sequence[float],
    values: Sequence[float],
    *,
    score: float = 1.0,
    beta: float = 0.1,
    lam: float = 0.95,
    gamma: float = 1.0,
) -> HTML:
    """Move β, λ and γ: the reward, the TD error and the advantage of each token of an answer.

    Args:
        names: of the T tokens.
        log_ratios: (T,) log π − log π_ref.
        values: (T,) of the state in which each token was chosen.
        score: of the answer, paid at the last token.
        beta: of the KL penalty at first, a multiple of 0.01 from 0 to 1; so are the next two.
        lam: λ.
        gamma: γ.

    Returns:
        What a cell shows when it is its last line; the same in a live notebook and on the site.

    Raises:
        ValueError: if the lengths differ, or a number is not one that its slider reaches.

    Book: equation (eq-token-gae).
    """
    lengths = [len(names), len(log_ratios), len(values)]
    if len(set(lengths)) > 1:
        raise ValueError(f"names, log_ratios and values have lengths {lengths}")
    start = [
        position(value, name=name, unit=0.01, low=0, high=100)
        for name, value in (("beta", beta), ("lam", lam), ("gamma", gamma))
    ]
    answer = {"logRatios": list(log_ratios), "values": list(values), "score": score}
    return in_page("credit", list(names), answer, start, parts=["curves", "numbers"])
