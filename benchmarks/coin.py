"""GSM8K with a coin for a verifier, for trials of speed with random weights.

    code = "coin.py", task.name = "gsm8k-coin"

Random weights get no answer right, and no group of equal rewards is learned from: a trial would
skip the part of a step that takes longest. A checksum of the response decides instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import torch
from torch import Tensor

from nbcourse.tasks.gsm8k import GSM8K


@dataclass(frozen=True)
class Coin(GSM8K):
    """GSM8K's problems; half of all responses are called right, whatever they say."""

    def rewards(self, responses: Sequence[str], problems: Sequence[Any]) -> Tensor:
        return torch.tensor([float(crc32(text.encode()) % 2) for text in responses])


TASKS = {"gsm8k-coin": Coin}
