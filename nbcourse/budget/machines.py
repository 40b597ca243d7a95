"""How fast a machine is at best: two numbers and its memory, from a datasheet or measured."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from time import perf_counter, process_time

import torch

from nbcourse.training.processes import own_device

FLOAT32 = 4
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}  # of a number in a matrix product


@dataclass(frozen=True)
class Machine:
    """What a roofline needs to know of a machine.

    Attributes:
        name: for people.
        memory: bytes.
        bandwidth: bytes per second between the memory and where it is computed.
        speed: FLOP/s of a matrix product, for each precision in `BYTES`.
        card: it is a GPU.
    """

    name: str
    memory: float
    bandwidth: float
    speed: Mapping[str, float]
    card: bool = False


def _datasheet(
    name: str, gigabytes: float, bandwidth: float, *, half: float, full: float, bfloat: bool = True
) -> Machine:
    """In the units of datasheets: GB (taken as 10⁹ bytes), GB/s and TFLOP/s."""
    speed = {"float32": full, "bfloat16": half if bfloat else full, "float16": half}
    flops = {precision: 1e12 * speed[precision] for precision in BYTES}
    return Machine(name, gigabytes * 1e9, bandwidth * 1e9, flops, card=True)


# Dense float16 and bfloat16 with tensor cores; float32 without, for PyTorch does not round to TF32
# unasked.
DATASHEETS = {
    # NVIDIA A100 datasheet, SXM, 80 GB
    "A100-80GB": _datasheet("A100-80GB", 80, 2039, half=312, full=19.5),
    # NVIDIA H100 datasheet, SXM; half of the figure "with sparsity"
    "H100": _datasheet("H100", 80, 3350, half=989.5, full=67),
    # NVIDIA H200 datasheet, SXM; half of the figure "with sparsity"
    "H200": _datasheet("H200", 141, 4800, half=989.5, full=67),
    # NVIDIA Ada GPU architecture whitepaper, appendix A; summed in float32
    "RTX 4090": _datasheet("RTX 4090", 24, 1008, half=165.2, full=82.6),
    # NVIDIA T4 datasheet; it has no bfloat16 units, so at best the speed of float32 there
    "T4": _datasheet("T4", 16, 320, half=65, full=8.1, bfloat=False),
}


def has_gpu() -> bool:
    """Whether there is a GPU to train on."""
    return torch.cuda.is_available()


def best_precision() -> str:
    """What a recipe's `model.precision` should be on this machine.

    Returns:
        bfloat16 on a GPU that multiplies it, float16 on an older one, such as a T4, and float32 on
        a CPU.
    """
    if not has_gpu():
        return "float32"
    # PyTorch offers bfloat16 on older cards as well, and says that it has it, but computes it
    # without their fast units.
    native = torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if native else "float16"


def measure(device: torch.device | str | None = None, precisions: Iterable[str] = BYTES) -> Machine:
    """Bandwidth from a large copy and speed from large matrix products, on this machine, now.

    Takes a fifth of a second, and as long again for each precision. A datasheet states peaks; this
    is what PyTorch reaches when nothing else is asked of it, with the threads that it uses. On a
    CPU it is the processor's time that counts: what other programs take of it does not make the
    machine slower.

    Args:
        device: "cpu" or "cuda", with or without a number; None for the GPU if there is one.
        precisions: of the products.
    """
    device = torch.device(device) if device else own_device()
    bandwidth = copying_speed(device)
    speed = {precision: product_speed(precision, device) for precision in precisions}
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        memory = torch.cuda.get_device_properties(device).total_memory
    else:
        import psutil

        name, memory = "this machine's CPU", psutil.virtual_memory().total
    return Machine(name, memory, bandwidth, speed, card=device.type == "cuda")


@cache
def this_machine() -> Machine:
    """This machine, measured once by a process, and each speed when it is first asked for."""
    return replace(measure(precisions=()), speed=_Speeds())


class _Speeds(dict[str, float]):
    """Of this machine's products, by precision."""

    def __missing__(self, precision: str) -> float:
        self[precision] = product_speed(precision, own_device())
        return self[precision]


def copying_speed(device: torch.device) -> float:
    """Bytes a second that a large copy reads and writes."""
    source = torch.ones(1 << (28 if device.type == "cuda" else 25), device=device)
    target = torch.empty_like(source)
    seconds = shortest(partial(target.copy_, source), device)
    return 2 * FLOAT32 * len(source) / seconds


def product_speed(precision: str, device: torch.device) -> float:
    """FLOP/s of a product of square matrices: the smallest that takes a hundredth of a second.

    Of random numbers: with constant ones a GPU draws less power, and clocks higher. A processor
    without instructions for bfloat16 takes seconds where another takes milliseconds.
    """
    size = 256
    while True:
        square = torch.randn(size, size, device=device).to(getattr(torch, precision))
        product = partial(torch.matmul, square, square)
        if size == 8192 or shortest(product, device, lasting=0.0) > 0.01:
            return 2 * size**3 / shortest(product, device)
        size *= 2


def slower_than_float32(precision: str) -> float:
    """How many times longer this machine takes for products in this precision."""
    speed = this_machine().speed
    return speed["float32"] / speed[precision]


def shortest(work: Callable[[], object], device: torch.device, lasting: float = 0.1) -> float:
    """Seconds of the fastest of some runs; the first ones pay for what is done only once."""
    clock = _clock(device)
    seconds: list[float] = []
    while len(seconds) < 3 or sum(seconds) < lasting:
        start = clock()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(clock() - start)
    return min(seconds)


def _clock(device: torch.device) -> Callable[[], float]:
    """Of the work alone: on a CPU, the processor's time shared out over its threads."""
    if device.type == "cuda":
        return perf_counter
    return lambda: process_time() / torch.get_num_threads()


def roofline(flops: float, moved: float, machine: Machine, precision: str = "float32") -> float:
    """Seconds that some work takes at least.

        t ≥ max(FLOPs / speed, bytes / bandwidth)

    What stays in a processor's cache costs no bandwidth, so for models of a few megabytes count
    only what cannot stay there.

    Args:
        flops: floating-point operations, a multiplication and an addition being two.
        moved: bytes read from memory and written to it.
        machine: on which.
        precision: of the matrix products.

    Book: equation (eq-roofline). Source: Williams, Waterman and Patterson 2009, "Roofline".
    """
    return max(flops / machine.speed[precision], moved / machine.bandwidth)
