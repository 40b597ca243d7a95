"""Many steps on one batch: ratios of trained and of spare samples, and what they say of the KL."""

from IPython.display import HTML
from torch import Tensor

from nbcourse.display.curve_explorers import position
from nbcourse.display.in_page import in_page, rounded

RATES = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1)
CLIPS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, None)
STEPS = 40
LIMIT = 0.02  # of an early stop
DIGITS = 6  # significant


def explore_ratios(
    logits: Tensor,
    rewards: Tensor,
    drawn: Tensor,
    spare: Tensor,
    *,
    learning_rate: float = 0.03,
    clip: float | None = 0.2,
    steps: int = 5,
    share: int = 1,
) -> HTML:
    """Move learning rate, clip, steps and how many samples share a state: ratios, and four KLs.

    Each state has a row of logits of its own, the same in all of them at first, and each step of
    Adam goes down `ppo_clip` over the whole batch, with exact advantages.

    Args:
        logits: (K,) of the old policy, the same in each state.
        rewards: (K,) of the actions, the same in each state.
        drawn: (B,) sampled actions that are trained on; B is a power of two.
        spare: (B,) further actions, drawn in the same states and not trained on.
        learning_rate: at first, one of `RATES`.
        clip: at first, one of `CLIPS`; None has no clip.
        steps: at first, 1 to 40.
        share: samples in a state at first, a power of two up to B.

    Returns:
        What a cell shows when it is its last line; the same in a live notebook and on the site.

    Raises:
        ValueError: if the shapes do not fit, B is not a power of two, or a number is not one that
            its slider reaches.

    Book: equations (eq-ppo-clip), (eq-approx-kl), (eq-in-sample).
    """
    if rewards.shape != logits.shape or spare.shape != drawn.shape:
        raise ValueError(
            f"rewards has shape {tuple(rewards.shape)} and spare {tuple(spare.shape)}, expected "
            f"those of logits {tuple(logits.shape)} and drawn {tuple(drawn.shape)}"
        )
    for name, number in (("the number of samples", len(drawn)), ("share", share)):
        if number < 1 or number & (number - 1) or number > len(drawn):
            raise ValueError(f"{name} is {number}, expected a power of two up to {len(drawn)}")
    for name, value, choices in (("learning_rate", learning_rate, RATES), ("clip", clip, CLIPS)):
        if value not in choices:
            raise ValueError(f"{name} is {value}, expected one of {choices}")
    start = [
        RATES.index(learning_rate),
        CLIPS.index(clip),
        position(steps, name="steps", unit=1, low=1, high=STEPS),
        share.bit_length() - 1,
    ]
    batch = {
        "logits": rounded(logits, digits=DIGITS),
        "rewards": rounded(rewards, digits=DIGITS),
        "drawn": drawn.tolist(),
        "spare": spare.tolist(),
    }
    offered = {"rates": RATES, "clips": CLIPS, "most": STEPS, "limit": LIMIT}
    return in_page("ratios", batch, offered, start, parts=["curves", "numbers"])
