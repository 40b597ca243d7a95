"""The credit of each action of recorded episodes, under the four stages of chapter 4's agent."""

from collections.abc import Mapping, Sequence

from IPython.display import HTML
from torch import Tensor

from nbcourse.display.curve_explorers import position
from nbcourse.display.in_page import in_page, rounded

DIGITS = 4  # significant: enough for a picture


def explore_stages(
    played: Mapping[str, Tensor],
    values: Tensor,
    next_values: Tensor,
    *,
    columns: Sequence[int],
    stage: int = 1,
    gamma: float = 0.99,
    lam: float = 0.95,
) -> HTML:
    """Move stage, γ, λ and a step: what two episodes of CartPole have their actions pushed by.

    Stage 1 is the return to go; stage 2 takes the critic's value off; stage 3 sums TD errors, so
    that the critic stands in for what the clock cut off; stage 4 weighs them by λ.

    Args:
        played: whole episodes, one in each column: `observations` (T, N, 4), `rewards`,
            `truncated` and `mask`, all (T, N); steps before an episode's end are True in the mask.
        values: (T, N), of the states in which actions were chosen.
        next_values: (T, N), of those that followed.
        columns: of the two episodes that are shown.
        stage: at first, 1 to 4.
        gamma: γ at first, a multiple of 0.01 from 0 to 1.
        lam: λ at first, likewise; it counts in stage 4.

    Returns:
        What a cell shows when it is its last line; the same in a live notebook and on the site.

    Raises:
        ValueError: if there are not two columns, a column is empty, or a number is not one that its
            slider reaches.

    Book: equations (eq-return-to-go), (eq-env-gae).
    """
    if len(columns) != 2:
        raise ValueError(f"columns is {tuple(columns)}, expected two of them")
    start = [
        position(stage, name="stage", unit=1, low=1, high=4),
        position(gamma, name="gamma", unit=0.01, low=0, high=100),
        position(lam, name="lam", unit=0.01, low=0, high=100),
    ]
    episodes = []
    for column in columns:
        steps = int(played["mask"][:, column].sum())
        if not steps:
            raise ValueError(f"column {column} has no steps, expected an episode")
        observations = played["observations"][:steps, column]
        with_last = [*values[:steps, column].tolist(), next_values[steps - 1, column].item()]
        episodes.append(
            {
                "positions": rounded(observations[:, 0], digits=DIGITS),
                "angles": rounded(observations[:, 2], digits=DIGITS),
                "rewards": rounded(played["rewards"][:steps, column], digits=DIGITS),
                "values": rounded(with_last, digits=DIGITS),
                "cut": bool(played["truncated"][steps - 1, column]),
            }
        )
    return in_page("stages", episodes, start, parts=["curves", "numbers"])
