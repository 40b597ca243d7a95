"""The downhill explorer: a bandit in which dividing by the standard deviation can lower J.

Its drawings cannot be stored one by one, as those of `explorers` are: there are as many as bandits.
The sums are short, so the page computes them itself, live notebook or not.
"""

from collections.abc import Sequence

from IPython.display import HTML

from nbcourse.display.in_page import in_page
from nbcourse.display.kl_explorer import in_hundredths

LARGEST = 100  # reward that the sliders reach
SIZES = range(2, 9)


def explore_downhill(
    probs: Sequence[float] = (0.7, 0.2, 0.1),
    rewards: Sequence[float] = (1, 2, 5),
    *,
    group_size: int = 3,
) -> HTML:
    """Move three arms and their rewards until the normalised advantage points downhill.

    Two arrows, in the plane of all gradients of three logits: the exact gradient ∇J, and the
    expectation over all groups of G pulls of

        (1/G) Σᵢ (rᵢ − mean)/(std + ε) ∇ log π(aᵢ)

    Args:
        probs: (3,) the policy to begin with; it moves in steps of 0.01.
        rewards: (3,) what the arms pay, whole numbers from 0 to 100.
        group_size: G, 2 to 8.

    Returns:
        What a cell shows when it is its last line; the same in a live notebook and on the site.

    Raises:
        ValueError: if there are not three arms, if a probability is not a positive multiple of
            0.01 or they do not sum to 1, or if a reward or the group size is out of range.
    """
    if len(probs) != 3 or len(rewards) != 3:
        raise ValueError(
            f"probs has {len(probs)} entries and rewards {len(rewards)}, expected 3 each"
        )
    for arm, reward in enumerate(map(float, rewards)):
        if reward not in range(LARGEST + 1):
            raise ValueError(
                f"rewards[{arm}] is {reward}, expected a whole number from 0 to {LARGEST}"
            )
    if group_size not in SIZES:
        raise ValueError(f"group_size is {group_size}, expected {SIZES[0]} to {SIZES[-1]}")
    start = {
        "probs": in_hundredths(probs, name="probs"),
        "rewards": [int(reward) for reward in rewards],
        "size": group_size,
    }
    return in_page("downhill", start)
