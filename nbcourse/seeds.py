"""Random numbers that depend on what they are for, and on nothing that happened before.

Each draw of a run has its own generator, made from the run's seed, a purpose and some counters. A
run that is taken up at step 37 therefore draws what the uninterrupted run would have drawn at step
37, and there is no random state to save.
"""

import hashlib

import torch


def generator(
    seed: int, purpose: str, *counters: int, device: torch.device | str = "cpu"
) -> torch.Generator:
    """A generator for one purpose of one run.

    Args:
        seed: of the run.
        purpose: such as "sampling".
        counters: which of its kind, such as the step.
        device: where the numbers will be drawn.
    """
    name = "/".join(map(str, (seed, purpose, *counters)))
    digest = hashlib.sha256(name.encode()).digest()
    return torch.Generator(device=device).manual_seed(int.from_bytes(digest[:8]) >> 1)
