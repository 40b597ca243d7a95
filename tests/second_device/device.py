"""A device besides the CPU, for machines that have no other: what is on one is not on the other.

Its tensors wrap tensors of the CPU, which do the arithmetic. As on a GPU, an operation whose
operands are on two devices is refused; so are random numbers from another device's generator, and
NumPy. What CUDA allows is allowed: a copy, a single number, an index from the CPU.

Importing this module registers the device under the name `NAME`, for the rest of the process.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import backend_registration

NAME = "second"
aten = torch.ops.aten

COPIES = {aten.copy_.default, aten._to_copy.default}
INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
SEQUENCES = (tuple, list)  # as a union of types they would take several times as long to ask for
FUSED = "aten._fused"  # updates, whose counters of steps are on the device too


class OnSecond(Tensor):
    """A tensor on the second device.

    Attributes:
        inner: the tensor of the CPU that holds its numbers.
    """

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "OnSecond":
        made = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=f"{NAME}:0",
        )
        made.inner = inner
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"OnSecond({self.inner})"

    def tolist(self) -> Any:
        return self.inner.tolist()

    def untyped_storage(self) -> torch.UntypedStorage:  # which tensors share memory
        return self.inner.untyped_storage()

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = tensors((args, kwargs))
        operands = tensors((args[0], args[2:])) if function in INDEXING else given
        refuse_what_is_elsewhere(function, operands, kwargs.get("generator"))
        wrapped = {id(x.inner): x for x in given if isinstance(x, OnSecond)}
        leaves = "device" in kwargs and torch.device(kwargs["device"]).type != NAME
        if "device" in kwargs:
            kwargs = {**kwargs, "device": "cpu"}
        made = function(*each(inner, args), **each(inner, kwargs))
        if leaves or (function in COPIES and args[0] is made):
            return made
        return each(lambda x: wrapped[id(x)] if id(x) in wrapped else OnSecond(x), made)


def inner(tensor: Tensor) -> Tensor:
    return tensor.inner if isinstance(tensor, OnSecond) else tensor


def each(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """What holds tensors, with each changed: `tree_map`, which takes several times as long."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, SEQUENCES):
        return type(value)([each(change, part) for part in value])
    if isinstance(value, dict):
        return {name: each(change, part) for name, part in value.items()}
    return value


def tensors(value: Any) -> list[Tensor]:
    """All that are in it, without recursion: this is asked of every operation."""
    found, waiting = [], [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, SEQUENCES):
            waiting.extend(value)
        elif isinstance(value, dict):
            waiting.extend(value.values())
    return found


def refuse_what_is_elsewhere(
    function: Callable, operands: list[Tensor], generator: torch.Generator | None
) -> None:
    numbers_too = is_fused(function)
    on_cpu = [x for x in operands if not isinstance(x, OnSecond) and (x.dim() or numbers_too)]
    if on_cpu and function not in COPIES:
        raise RuntimeError(
            f"{function}: a tensor on {NAME} and one of {on_cpu[0].shape} on the CPU"
        )
    if generator is not None and generator._cdata not in _generators:
        raise RuntimeError(f"{function}: a generator of the CPU for a tensor on {NAME}")


@functools.cache
def is_fused(function: Callable) -> bool:
    return str(function).startswith(FUSED)


_generators: dict[int, torch.Generator] = {}  # kept, so that no other gets the same address


class Generator(torch.Generator):
    """A generator of either device; those of the second draw what the CPU's draw."""

    def __new__(cls, device: torch.device | str = "cpu") -> "Generator":
        second = torch.device(device).type == NAME
        made = super().__new__(cls, "cpu" if second else device)
        if second:
            _generators[made._cdata] = made
        return made


class Module(backend_registration._DummyBackendModule):  # type: ignore[misc]
    """What torch asks `torch.second`."""

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    # only `fork_rng` asks, and no global random number is drawn on the device
    def get_rng_state(self, device: Any = None) -> Tensor:
        return torch.zeros(1, dtype=torch.uint8)

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        pass

    def manual_seed_all(self, seed: int) -> None:
        pass


def empty(size, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    return OnSecond(torch.empty(size, dtype=dtype))


def empty_strided(size, stride, dtype=None, layout=None, device=None, pin_memory=None):
    return OnSecond(torch.empty_strided(size, stride, dtype=dtype))


def copied(source: Tensor, to: Tensor, non_blocking: bool = False) -> Tensor:
    inner(to).copy_(inner(source))
    return to


def in_low_precision(function: Callable) -> Callable:
    """As autocast runs a product: on rounded operands."""
    others = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)

    def rounded(operand: Tensor) -> Tensor:
        number = operand.is_floating_point()
        return operand.to(torch.get_autocast_dtype(NAME)) if number else operand

    def run(*args, **kwargs):
        with torch._C._ExcludeDispatchKeyGuard(others):
            return function(*each(rounded, args), **each(rounded, kwargs))

    return run


def moved(module: nn.Module, function: Callable[[Tensor], Tensor], recurse: bool = True):
    """`Module._apply`; torch's own gives each module its own copy of a weight that two share."""
    parameters = {
        parameter: nn.Parameter(function(parameter.data), requires_grad=parameter.requires_grad)
        for parameter in module.parameters()
    }
    for part in module.modules():
        for name, parameter in part._parameters.items():
            part._parameters[name] = parameters.get(parameter)  # type: ignore[arg-type]
        for name, buffer in part._buffers.items():
            part._buffers[name] = None if buffer is None else function(buffer)
    return module


backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=Module())
_aten = torch.library.Library("aten", "IMPL")
_aten.impl("empty.memory_format", empty, "PrivateUse1")
_aten.impl("empty_strided", empty_strided, "PrivateUse1")
_aten.impl("_copy_from", copied, "PrivateUse1")
for _product in ("linear", "matmul", "mm", "bmm", "addmm", "scaled_dot_product_attention"):
    _aten.impl(_product, in_low_precision(getattr(aten, _product)), "AutocastPrivateUse1")
_others = torch.library.Library("_", "IMPL")
_others.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
torch.Generator = Generator  # type: ignore[misc]
nn.Module._apply = moved  # type: ignore[assignment,method-assign]
