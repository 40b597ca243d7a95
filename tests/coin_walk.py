"""A coin walk of three states between two ends, the right one of which pays, and two critics."""

import torch
from torch import Tensor

from nbcourse.toys import chain


def coin_walk() -> tuple[chain.DecisionProcess, Tensor, dict[str, Tensor]]:
    """The process, the policy that tosses a coin, and an exact critic beside one without a view."""
    moves = torch.zeros(2, 5, 5, dtype=torch.float64)
    inner = torch.arange(1, 4)
    moves[0, inner, inner - 1] = moves[1, inner, inner + 1] = 1.0
    pays = torch.zeros(5, 5, dtype=torch.float64)
    pays[3, 4] = 1.0
    process = chain.DecisionProcess(moves, pays, torch.tensor([True, False, False, False, True]))
    coin = torch.full((5, 2), 0.5, dtype=torch.float64)
    return process, coin, {"exact": torch.arange(5) / 4, "nothing": torch.zeros(5)}
