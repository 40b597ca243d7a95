"""One process, or several that torchrun started: who does which share, and how shares are joined.

All processes hold the whole batch; they share out the work of making it and of differentiating it.
Since they add gradients of slices of *one* loss, the sum is the gradient a single process gets.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """This process among its peers.

    Attributes:
        rank: its number, from 0.
        count: how many there are.
        device: where its tensors are.
    """

    rank: int
    count: int
    device: torch.device

    def share(self, work: Sequence[T]) -> Sequence[T]:
        """This process's part of the work: every `count`-th piece."""
        return work[self.rank :: self.count]

    def gather(self, shares: Sequence[T]) -> list[T]:
        """The results of everybody's shares, in the order of the work."""
        if self.count == 1:
            return list(shares)
        everyone: list = [None] * self.count
        torch.distributed.all_gather_object(everyone, moved(list(shares), "cpu"))
        pieces = range(sum(map(len, everyone)))
        return moved([everyone[i % self.count][i // self.count] for i in pieces], self.device)

    def add(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over all processes."""
        if self.count > 1:
            for tensor in tensors:
                torch.distributed.all_reduce(tensor)

    def agree(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by the first process's."""
        if self.count > 1:
            for tensor in tensors:
                torch.distributed.broadcast(tensor, src=0)

    def wait(self) -> None:
        """Block until all processes have come this far."""
        if self.count > 1:
            torch.distributed.barrier()


def moved(value: Any, device: torch.device | str) -> Any:
    """The same with every tensor on `device`, in lists, tuples and dataclasses too."""
    if torch.is_tensor(value):
        return value.to(device)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{f.name: moved(getattr(value, f.name), device) for f in fields(value)}
        )
    if isinstance(value, list | tuple):
        items = [moved(item, device) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def own_device() -> torch.device:
    """The GPU of this machine, or its CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def connect() -> Processes:
    """Find out who we are: from torchrun's environment, or alone.

    Several GPUs are joined by nccl, several CPUs by gloo.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        return Processes(0, 1, own_device())
    from accelerate import PartialState

    state = PartialState(cpu=not torch.cuda.is_available())
    return Processes(state.process_index, state.num_processes, state.device)
