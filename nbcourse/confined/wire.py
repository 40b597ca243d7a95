"""What the grader and a student's process say to each other: bytes that can mean plain data only.

A message is its length (four bytes, big-endian) and then a JSON object. Values travel as a
structure and a list of tensors: numbers, strings, booleans and None stand for themselves, anything
else is an object with one key that names its kind, as in {"tuple": [1, {"tensor": 0}]}. A tensor
is its dtype, its shape and its bytes in base64. Nothing that arrives can name a class or run.

The student's process may be hostile, so whatever is not exactly of this form is `Malformed`, and no
memory is set aside for it before its size has been looked at.
"""

import base64
import binascii
import json
import math
import numbers
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

LARGEST_MESSAGE = 32 * 2**20  # bytes of a message
MOST_VALUES = 2**19  # in a message: as objects they take fifty times the room of their text
DEEPEST_NESTING = 32  # lists in lists
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    )
}


class Malformed(ValueError):
    """Bytes that are no message."""


class TooBig(ValueError):
    """A message of more than `LARGEST_MESSAGE` bytes, or `MOST_VALUES` values."""


class NotPlain(ValueError):
    """A value that is no plain data. The message is written for the student."""


def parcel(value: Any) -> dict[str, Any]:
    """A value as a part of a message: its structure, and its tensors as JSON.

    Raises:
        NotPlain: as `pack`.
        TooBig: if a tensor is larger than a message.
    """
    structure, tensors = pack(value)
    return {"structure": structure, "tensors": [from_tensor(tensor) for tensor in tensors]}


def pack(value: Any) -> tuple[Any, list[Tensor]]:
    """A value as a structure and the tensors in it.

    Raises:
        NotPlain: if there is anything but tensors, numbers, arrays, strings, booleans, None,
            lists, tuples and dicts.
    """
    tensors: list[Tensor] = []
    return _pack(value, tensors, 0), tensors


def _pack(value: Any, tensors: list[Tensor], depth: int) -> Any:
    if depth > DEEPEST_NESTING:
        raise NotPlain(f"more than {DEEPEST_NESTING} lists inside each other")
    if value is None or isinstance(value, bool | str | float):
        return value
    if isinstance(value, numbers.Integral):
        if not -(2**63) <= int(value) < 2**63:
            raise NotPlain("an integer of more than 64 bits")
        return int(value)
    if isinstance(value, numbers.Real):  # of NumPy, fractions: as the checks read them
        return float(value)
    if hasattr(value, "tolist") and not isinstance(value, Tensor):
        return _pack(value.tolist(), tensors, depth + 1)
    if isinstance(value, Tensor):
        if str(value.dtype).removeprefix("torch.") not in DTYPES:
            raise NotPlain(f"a tensor of dtype {value.dtype}")
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_pack(item, tensors, depth + 1) for item in value]}
    if isinstance(value, dict):
        return {
            "dict": [
                [_pack(key, tensors, depth + 1), _pack(item, tensors, depth + 1)]
                for key, item in value.items()
            ]
        }
    raise NotPlain(
        f"an object of type {type(value).__name__}; plain data are tensors, numbers, strings, "
        "booleans, None, and lists, tuples and dicts of these"
    )


def unpack(structure: Any, tensors: Sequence[Tensor]) -> Any:
    """The value that `pack` took apart.

    Raises:
        Malformed: if the structure is not of the form that `pack` makes.
    """
    return _unpack(structure, tensors, 0)


def _unpack(node: Any, tensors: Sequence[Tensor], depth: int) -> Any:
    if depth > DEEPEST_NESTING:
        raise Malformed("too deep")
    if node is None or isinstance(node, bool | float):
        return node
    if isinstance(node, str):
        return _text(node)
    if isinstance(node, int):
        return _integer(node, -(2**63), 2**63 - 1)
    if not (isinstance(node, dict) and len(node) == 1):
        raise Malformed("neither a plain value nor an object of one key")
    ((kind, content),) = node.items()
    if kind == "tensor":
        return tensors[_integer(content, 0, len(tensors) - 1)]
    if not isinstance(content, list):
        raise Malformed(f"{kind!r} without a list")
    match kind:
        case "list":
            return [_unpack(item, tensors, depth + 1) for item in content]
        case "tuple":
            return tuple(_unpack(item, tensors, depth + 1) for item in content)
        case "dict":
            return dict(_unpack_entry(pair, tensors, depth + 1) for pair in content)
    raise Malformed("an unknown kind")


def _unpack_entry(pair: Any, tensors: Sequence[Tensor], depth: int) -> tuple[Any, Any]:
    if not (isinstance(pair, list) and len(pair) == 2):
        raise Malformed("a dict's entry that is not a pair")
    key = _unpack(pair[0], (), depth)  # no tensor can be a key
    try:
        hash(key)
    except TypeError:
        raise Malformed("a dict's key that is not hashable") from None
    return key, _unpack(pair[1], tensors, depth)


def from_tensor(tensor: Tensor) -> dict[str, Any]:
    """A tensor as JSON: dtype, shape, bytes, and whether gradients are wanted."""
    if tensor.numel() * tensor.element_size() > LARGEST_MESSAGE:
        raise TooBig(f"a tensor of shape {tuple(tensor.shape)}")
    plain = tensor.detach().resolve_conj().resolve_neg().cpu()
    # To `contiguous` every step is right along an axis of one entry, and not to `view`.
    plain = plain.clone(memory_format=torch.contiguous_format)
    data = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    return {
        "dtype": str(plain.dtype).removeprefix("torch."),
        "shape": list(plain.shape),
        "data": base64.b64encode(data).decode("ascii"),
        "requires_grad": tensor.requires_grad,
    }


def to_tensor(node: Any) -> tuple[Tensor, bool]:
    """The tensor, and whether gradients are wanted; the tensor itself does not require them yet.

    Raises:
        Malformed: if dtype, shape and number of bytes are not exactly those of a tensor.
    """
    if not (isinstance(node, dict) and set(node) == {"dtype", "shape", "data", "requires_grad"}):
        raise Malformed("no tensor")
    name, shape, data, wanted = (node[k] for k in ("dtype", "shape", "data", "requires_grad"))
    if not (isinstance(name, str) and name in DTYPES):
        raise Malformed("an unknown dtype")
    dtype = DTYPES[name]
    if not (isinstance(shape, list) and len(shape) <= 16):
        raise Malformed("no shape")
    sizes = [_integer(size, 0, LARGEST_MESSAGE) for size in shape]
    if not isinstance(wanted, bool) or (wanted and not dtype.is_floating_point):
        raise Malformed("a gradient of what has none")
    if not isinstance(data, str):
        raise Malformed("no bytes")
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise Malformed("no base64") from None
    if math.prod(sizes) * dtype.itemsize != len(content):
        raise Malformed("a shape that does not fit the number of bytes")
    # The strides of an empty tensor must not overflow.
    if math.prod(size for size in sizes if size) > LARGEST_MESSAGE:
        raise Malformed("an empty tensor of an enormous shape")
    if not content:
        return torch.empty(sizes, dtype=dtype), wanted
    raw = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    flat = raw != 0 if dtype is torch.bool else raw.view(dtype)
    return flat.reshape(sizes), wanted


def send(channel: socket.socket, message: dict[str, Any]) -> None:
    """Send a message whole.

    Raises:
        TooBig: before anything was sent.
        OSError: if the other side is gone.
    """
    body = json.dumps(message).encode("ascii")
    if len(body) > LARGEST_MESSAGE:
        raise TooBig(f"{len(body) / 2**20:.0f} MB")
    _count(body)
    channel.sendall(struct.pack(">I", len(body)) + body)


def receive(channel: socket.socket, wait: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Receive a message. `wait` is called before each read and may raise to give up.

    Raises:
        EOFError: if the other side closed the channel.
        Malformed: if what came is no message.
        TooBig: if it announces more than `LARGEST_MESSAGE` bytes, or has too many values.
    """
    (length,) = struct.unpack(">I", _exactly(channel, 4, wait))
    if length > LARGEST_MESSAGE:
        raise TooBig(f"{length / 2**20:.0f} MB")
    body = _exactly(channel, length, wait)
    _count(body)
    try:
        message = json.loads(body.decode("ascii"))
    except (ValueError, RecursionError):
        raise Malformed("no JSON") from None
    if not isinstance(message, dict):
        raise Malformed("no object")
    return message


def _count(body: bytes) -> None:
    """Refuse a message of too many values before any of them takes up room."""
    if (values := body.count(b",") + body.count(b"[") + body.count(b"{")) > MOST_VALUES:
        raise TooBig(f"{values:,} values; hand in a tensor instead of a long list")


def _exactly(channel: socket.socket, count: int, wait: Callable[[], None]) -> bytes:
    content = bytearray()
    while len(content) < count:
        wait()
        if not (chunk := channel.recv(min(count - len(content), 2**20))):
            raise EOFError
        content += chunk
    return bytes(content)


def _integer(node: Any, low: int, high: int) -> int:
    if isinstance(node, bool) or not isinstance(node, int) or not low <= node <= high:
        raise Malformed("no integer, or one out of range")
    return node


def _text(node: str) -> str:
    try:
        node.encode("utf-8")  # a lone surrogate could not be written to a file later
    except UnicodeEncodeError:
        raise Malformed("no text") from None
    return node
