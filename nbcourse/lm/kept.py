"""What a warm start made is kept on this machine, and found again by a hash of all that made it.

That is the model as it was, every text in its order, how fast it was learned, the code, the
versions of the libraries, the processor and the number of threads. So what is found has the bits
that would be made now, and whatever differs is made anew.
"""

import hashlib
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import torch

import nbcourse
from nbcourse import durable
from nbcourse.installation import Finding, processor
from nbcourse.lm.places import warm_starts

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LARGEST = 1 << 26  # bytes of the weights that are kept, 64 MiB: larger models begin with knowledge


def made_once(
    model: "PreTrainedModel", lessons: Iterable[object], make: Callable[[], None]
) -> bool:
    """Give a model the weights that were made of it before; or make them, and keep them.

    Runs that make the same at the same time do not disturb each other, and a file that is damaged
    is made anew. Where nothing can be written, nothing is kept.

    Args:
        model: is changed in place.
        lessons: everything beside the model and this package's code that `make` depends on, each
            with a `repr` that tells it from any other.
        make: trains the model.

    Returns:
        Whether the weights were there.
    """
    weights = dict(model.named_parameters())
    if sum(weight.nbytes for weight in weights.values()) > LARGEST:
        make()
        return False
    file = warm_starts() / f"{_digest(model, lessons)}.safetensors"
    if _found(file, weights):
        return True
    make()
    _keep(file, weights)
    return False


def finding() -> Finding:
    """A line for `nbcourse doctor`: where warm starts lie, and how large they are in all."""
    files = list(warm_starts().glob("*.safetensors"))
    size = sum(file.stat().st_size for file in files)
    remark = f"{size / 1e6:.1f} MB in {warm_starts()}, to be used again; may be removed"
    return Finding("warm starts", f"{len(files)} kept", None, remark if files else "")


def _digest(model: "PreTrainedModel", lessons: Iterable[object]) -> str:
    found = hashlib.sha256(_code())
    device = model.device
    computed_by = (
        [version(package) for package in ("torch", "transformers")],
        device.type,
        torch.cuda.get_device_name(device) if device.type == "cuda" else processor(),
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
    )
    described = (type(model), model.config.to_json_string(use_diff=False))
    for fact in (computed_by, described, model.config._attn_implementation, *lessons):
        found.update(repr(fact).encode())
    for name, weight in model.named_parameters():
        found.update(f"{name} {weight.dtype} {weight.requires_grad}".encode())
        found.update(weight.detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


@cache
def _code() -> bytes:
    """The files of this package by which a model learns from texts."""
    package = Path(nbcourse.__file__).parent
    files = sorted(file for room in ("functional", "lm") for file in (package / room).glob("*.py"))
    return b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)


def _found(file: Path, weights: dict[str, torch.nn.Parameter]) -> bool:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        kept = load(file.read_bytes())
    except (OSError, SafetensorError):
        return False
    for name, weight in weights.items():
        weight.data.copy_(kept[name])
    return True


def _keep(file: Path, weights: dict[str, torch.nn.Parameter]) -> None:
    """Write a file under its name as a whole, whatever other runs write meanwhile."""
    from safetensors.torch import save

    content = save({name: weight.detach().cpu().contiguous() for name, weight in weights.items()})
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as own:
            durable.write(Path(own) / file.name, content)
            (Path(own) / file.name).replace(file)
    except OSError:
        pass  # no such folder can be made, or the disk is full
