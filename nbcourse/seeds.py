"""Random numbers that depend on what they are for, and on nothing that happened before.

Each draw of a run has its own generator, made from the run's seed, a purpose and some counters. A
run that is taken up at step 37 therefore draws what the uninterrupted run would have drawn at step
37, and there is no random state to save.
"""

import hashlib
import os

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


def require_deterministic_kernels() -> None:
    """Have PyTorch compute the same bits each time on a GPU, or refuse an operation by name.

    On a CPU it does so anyway. Kernels that are deterministic can be slower; attention is computed
    without the memory-efficient one, whose backward pass is not. To be called before CUDA is used.

    Source: PyTorch's notes on reproducibility.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.use_deterministic_algorithms(True)
