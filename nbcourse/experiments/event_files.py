"""The scalars of a TensorBoard event file, without TensorBoard and what it brings along.

A file is a row of records, each of them an `Event` of protocol buffers between a length and two
checksums (tensorboard/compat/proto/event.proto and summary.proto). Of these messages three are
followed: event → summary → value, to a tag and its `simple_value`, which is what torch's
`SummaryWriter` writes, and with it transformers, TRL, accelerate and verl.
"""

import struct
from collections.abc import Iterator
from typing import Any

from nbcourse.errors import UserError

HEADER, FOOTER = 12, 4  # length and its checksum before a record, its own checksum behind it
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
STEP, SUMMARY = 2, 5  # fields of an event
VALUE = 1  # of a summary
TAG, SIMPLE_VALUE = 1, 2  # of a value


def scalars(content: bytes, *, name: str) -> list[tuple[int, str, float]]:
    """(step, tag, value) of all scalars in an event file, in the order in which they were written.

    A record that the file breaks off in is left out: the run may still be writing.

    Raises:
        ValueError: if it is no event file; `name` is the file's.
    """
    found = []
    try:
        for record in _records(content):
            event = dict(_fields(record))
            for field, part in _fields(event.get(SUMMARY, b"")):
                value = dict(_fields(part)) if field == VALUE else {}
                if SIMPLE_VALUE in value:
                    (number,) = struct.unpack("<f", value[SIMPLE_VALUE])
                    found.append((event.get(STEP, 0), value[TAG].decode(), number))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, struct.error) as error:
        raise UserError(f"{name} is no event file of TensorBoard, or a damaged one") from error
    return found


def _records(content: bytes) -> Iterator[bytes]:
    place = 0
    while place + HEADER <= len(content):
        (length,) = struct.unpack_from("<Q", content, place)
        start, place = place + HEADER, place + HEADER + length + FOOTER
        if place > len(content):
            if start == HEADER:  # not one whole record
                raise ValueError(f"a record of {length} bytes")
            return
        yield content[start : start + length]


def _fields(message: Any) -> Iterator[tuple[int, Any]]:
    """Number and content of each field of a message."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        kind = key & 7
        if kind == VARINT:
            number, place = _varint(message, place)
            yield key >> 3, number
            continue
        length = {FIXED64: 8, FIXED32: 4}.get(kind)
        if kind == BYTES:
            length, place = _varint(message, place)
        if length is None or place + length > len(message):
            raise ValueError(f"a field of kind {kind}")
        yield key >> 3, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """A number of as many bytes as it needs, and where it ends."""
    number = shift = 0
    while True:
        byte = message[place]
        number |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return number, place
