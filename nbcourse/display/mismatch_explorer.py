"""A sampler and a learner that have the same logits and not the same settings."""

from collections.abc import Sequence

from IPython.display import HTML
from torch import Tensor

from nbcourse.display.curve_explorers import position
from nbcourse.display.in_page import in_page, rounded

DIGITS = 4  # significant: logits of a network differ a little from machine to machine


def explore_mismatch(
    logits: Tensor,
    names: Sequence[str],
    *,
    temperature: float = 0.6,
    top_p: float = 1.0,
    learner_temperature: float = 1.0,
) -> HTML:
    """Move what the sampler does to the logits, and what the learner does: the ratios of tokens.

    Below them, what a loss would do if all answers paid the same: the mean score, which is zero if
    and only if the two are one policy.

    Args:
        logits: (V,) of one state, the same for both.
        names: of the V tokens.
        temperature: of the sampler at first, a multiple of 0.1 from 0.3 to 2.
        top_p: of the sampler at first, a multiple of 0.05 up to 1, which keeps everything.
        learner_temperature: at first, as for the sampler.

    Returns:
        What a cell shows when it is its last line; the same in a live notebook and on the site.

    Raises:
        ValueError: if there is not one name for each logit, or a number is not one that its slider
            reaches.

    Book: equations (eq-mean-ratio), (eq-mismatch-score).
    """
    if logits.shape != (len(names),):
        raise ValueError(f"logits has shape {tuple(logits.shape)}, expected ({len(names)},)")
    start = [
        position(temperature, name="temperature", unit=0.1, low=3, high=20),
        position(top_p, name="top_p", unit=0.05, low=1, high=20),
        position(learner_temperature, name="learner_temperature", unit=0.1, low=3, high=20),
    ]
    order = logits.argsort(descending=True).tolist()
    kept = rounded(logits[order], digits=DIGITS)
    return in_page("mismatch", [names[token] for token in order], kept, start, parts=["curves"])
