"""A sampled update beside the expected one, for any two rows of the table of algorithms."""

from collections.abc import Mapping, Sequence

import torch
from IPython.display import HTML
from torch import Tensor

from nbcourse.display.in_page import in_page, rounded
from nbcourse.examine.groups import Groups

COUNTS = tuple(2**k for k in range(9))  # of groups in a batch
BATCHES = 99  # that can be drawn
DIGITS = 5  # significant


def explore_updates(
    rows: Mapping[str, Groups],
    gradient: Tensor,
    states: Sequence[str],
    *,
    axis: str,
    chosen: tuple[str, str] = ("rloo", "grpo"),
    groups: int = 8,
) -> HTML:
    """Draw batches of groups: the update that two rows make of each, beside the expected one.

    The package computes the update of every group, and the exact mean and variance of a batch's;
    the page draws groups, the same for both rows, and averages.

    Args:
        rows: name → every group of responses to one prompt, with its update. The policy has two
            tokens: the two logits of a state are pushed by opposite amounts, and the first is
            shown.
        gradient: (S, 2) ∇J of the prompt.
        states: names of the S states, at most four.
        axis: what these names say, in a few words.
        chosen: the two rows to begin with.
        groups: in a batch at first, one of `COUNTS`.

    Returns:
        What a cell shows when it is its last line; the same in a live notebook and on the site.

    Raises:
        ValueError: if there are too many states, a shape does not fit, a row is not there or has
            an expected update of 0, or there is no position for so many groups.
    """
    if len(states) > 4:
        raise ValueError(f"states has {len(states)} names, expected at most 4")
    shapes = {"gradient": gradient.shape, **{n: of.updates.shape[1:] for n, of in rows.items()}}
    for name, shape in shapes.items():
        if shape != (len(states), 2):
            raise ValueError(f"{name} has shape {tuple(shape)}, expected {(len(states), 2)}")
    for name in chosen:
        if name not in rows:
            raise ValueError(f"chosen has {name!r}, expected two of {', '.join(map(repr, rows))}")
    if groups not in COUNTS:
        raise ValueError(f"groups is {groups}, expected one of {COUNTS}")
    made = {name: _of_row(name, of_row) for name, of_row in rows.items()}
    kinds: list[object] = []  # rows may be alike
    for one in made.values():
        if one not in kinds:
            kinds.append(one)
    data = {
        "probs": rounded(next(iter(rows.values())).probs, digits=DIGITS),
        "gradient": rounded(gradient[:, 0], digits=DIGITS),
        "states": list(states),
        "axis": axis,
        "counts": COUNTS,
        "most": BATCHES,
        "rows": [[name, kinds.index(one)] for name, one in made.items()],
        "kinds": kinds,
    }
    start = [*(list(rows).index(name) for name in chosen), COUNTS.index(groups)]
    return in_page("updates", data, start, parts=["curves", "numbers"])


def _of_row(name: str, row: Groups) -> dict[str, object]:
    """Updates and weights of all groups; means and deviations for each number of groups."""
    moments = (row.moments(count) for count in COUNTS)
    means, variances = map(torch.stack, zip(*moments, strict=True))
    if not _without_noise(means).flatten(1).any(dim=1).all():
        raise ValueError(f"{name} has an expected update of 0, expected one with a direction")
    tables = {
        "updates": _without_noise(row.updates),
        "means": _without_noise(means),
        "deviations": _without_noise(variances).sqrt(),
    }
    lines = {
        key: [rounded(line, digits=DIGITS) for line in table[..., 0]]
        for key, table in tables.items()
    }
    return {"weights": row.weights.tolist(), **lines}


def _without_noise(table: Tensor) -> Tensor:
    """0 for what is nothing but rounding, which differs between machines."""
    return table.masked_fill(table.abs() < 1e-12, 0.0)
