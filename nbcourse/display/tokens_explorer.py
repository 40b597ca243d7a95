"""The token inspector: which words of recorded answers two rows of the table push, and how."""

from typing import TypeVar

from IPython.display import HTML
from torch import Tensor

from nbcourse.diagnosis.inspection import first_groups, inspect, policies, ratios, rows_for
from nbcourse.diagnosis.witness import Witness
from nbcourse.display.in_page import in_page, rounded
from nbcourse.training.algorithms import Algorithm

Number = TypeVar("Number", int, float)
MILLIONTHS = 1_000_000  # of all pushes: a token's share as a whole number, which is short


def explore_tokens(
    witness: Witness, *, rows: tuple[str, str] = ("grpo", "dr-grpo"), groups: int = 3
) -> HTML:
    """What two algorithms do with each token of a recorded group: its advantage, clip and push.

    Every number is the package's, computed here with the rows' own losses (`inspection.inspect`);
    the page only selects and draws them.

    Args:
        witness: with the texts of its tokens.
        rows: the two of `ALGORITHMS` to begin with.
        groups: how many prompts of the witness are shown, as if they were the whole batch.

    Returns:
        What a cell shows when it is its last line; the same in a live notebook and on the site.

    Raises:
        ValueError: if a row is not in the table, or needs what the witness does not have, or if
            the witness has fewer groups.
    """
    witness = first_groups(witness, groups)
    table = rows_for(witness)
    for name in rows:
        if name not in table:
            raise ValueError(
                f"rows has {name!r}, expected two of {', '.join(map(repr, table))}: "
                "the witness has what they need"
            )
    mask, moved = witness["mask"], ratios(witness)
    data = {
        "size": witness.facts["group_size"],
        "prompts": [prompt.strip() for prompt in witness.facts["prompts"]],
        "golds": witness.facts["answers"],
        "pieces": witness.facts["pieces"],
        "rewards": rounded(witness["scores"], digits=4),
        "probs": _by_token(policies(witness)[1].exp(), mask),
        "ratios": _by_token(moved, mask),
        "means": rounded((moved.log().sum(dim=1) / mask.sum(dim=1)).exp(), digits=6),
        "rows": [_of_row(name, row, witness) for name, row in table.items()],
    }
    return in_page("tokens", data, [list(table).index(name) for name in rows])


def _of_row(name: str, row: Algorithm, witness: Witness) -> dict[str, object]:
    found, mask = inspect(row, witness), witness["mask"]
    settings = row.all_settings
    low, high = (settings.get(key) for key in ("clip_low", "clip_high"))
    total = found.pushes.abs().sum()
    shares = (MILLIONTHS * found.pushes / (total or 1.0)).round().int()  # all may be cut
    return {
        "name": name,
        "clip": None if low is None else [1 - low, 1 + (low if high is None else high)],
        "advantages": _by_token(found.advantages, mask),
        "shares": [_short(share.tolist()) for share in _unpadded(shares, mask)],
        "cut": ["".join(str(int(cut)) for cut in cuts) for cuts in _unpadded(found.cut, mask)],
        "total": rounded(total[None], digits=4)[0],
    }


def _by_token(values: Tensor, mask: Tensor) -> list[list[float]]:
    """A list for each response, as short as it can be."""
    return [_short(rounded(row, digits=4)) for row in _unpadded(values, mask)]


def _unpadded(values: Tensor, mask: Tensor) -> list[Tensor]:
    """The tokens of each response, without the padding behind them."""
    return [row[:length] for row, length in zip(values, mask.sum(dim=1), strict=True)]


def _short(numbers: list[Number]) -> list[Number]:
    """One number, if all tokens have the same."""
    return numbers[:1] if len(set(numbers)) == 1 else numbers
