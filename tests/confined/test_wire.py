"""The bytes between the grader and a student's process: exact both ways; nothing else gets in."""

import base64
import json
import socket
import struct
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nbcourse.confined import wire
from nbcourse.confined.wire import Malformed
from tests.effort import examples

PATIENT = settings(deadline=None, database=None)  # an example takes long on a busy machine
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
keys = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2).map(tuple), max_leaves=3)
plain = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=12,
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
kinds = st.sampled_from(["list", "tuple", "dict", "tensor", "set", "__class__"])
almost_structures = st.recursive(
    json_values,
    lambda inner: st.dictionaries(kinds, st.lists(inner, max_size=3) | inner, max_size=2),
    max_leaves=12,
)


def there_and_back(value):
    structure, tensors = wire.pack(value)
    structure = json.loads(json.dumps(structure))
    nodes = json.loads(json.dumps([wire.from_tensor(tensor) for tensor in tensors]))
    return wire.unpack(structure, [wire.to_tensor(node)[0] for node in nodes])


def types(value):
    """The value with every type spelled out, since 1 == 1.0 == True in Python."""
    if isinstance(value, dict):
        return dict, [(types(key), types(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [types(item) for item in value]
    return type(value), value


@PATIENT
@given(plain)
def test_plain_data_come_back_as_they_were(value):
    assert types(there_and_back(value)) == types(value)


@pytest.mark.parametrize("dtype", wire.DTYPES.values(), ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 4)])
def test_a_tensor_comes_back_bit_for_bit(dtype, shape):
    raw = torch.randint(0, 2 if dtype is torch.bool else 100, shape).to(dtype)
    back = there_and_back([raw, raw.transpose(0, -1)] if shape else [raw])
    torch.testing.assert_close(back[0], raw, rtol=0, atol=0)
    if shape:  # its memory lies in another order
        torch.testing.assert_close(back[1], raw.transpose(0, -1), rtol=0, atol=0)


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:, 2],
        lambda x: x[:, ::3],
        lambda x: x[:, -1:],
        lambda x: x.T,
        lambda x: x.T[:1],
        lambda x: x.flip(1)[:, :2],
        lambda x: x[:, :1].expand(-1, 4),
        lambda x: x.sum().to(x.dtype).expand(1),
        lambda x: x.sum().to(x.dtype).expand(1, 1),
        lambda x: x[:, 1].unsqueeze(1),
        lambda x: x.unbind(1)[3],
    ],
)
def test_a_view_comes_back_as_its_numbers_however_they_lie_in_memory(view, dtype, rows):
    value = view(torch.arange(4.0 * rows).view(rows, 4).to(dtype))
    found = there_and_back(value)
    assert found.dtype == dtype
    assert torch.equal(found, value)


def test_numbers_that_are_none_come_back_too():
    numbers = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])
    back, nan = there_and_back((numbers, float("nan")))
    assert torch.equal(back.view(torch.int32), numbers.view(torch.int32))
    assert nan != nan


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, b"bytes", 2**63, 1j, torch.zeros(2, dtype=torch.complex64), len, [int]],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_plain_data_is_refused_by_its_sender(value):
    with pytest.raises(wire.NotPlain):
        wire.pack(value)


@examples(100)
@given(almost_structures)
def test_a_structure_is_read_or_refused_and_nothing_else(structure):
    try:
        value = wire.unpack(structure, [torch.zeros(2)])
    except Malformed:
        return
    packed, _ = wire.pack(value)  # what was read is plain data
    json.dumps(packed)


@pytest.mark.parametrize(
    "structure",
    [
        [1],
        {},
        {"list": [1], "tuple": [1]},
        {"list": 1},
        {"set": []},
        {"tensor": 1},
        {"tensor": -1},
        {"tensor": True},
        {"tensor": 0.0},
        {"dict": [[1]]},
        {"dict": [[{"list": []}, 1]]},
        {"dict": [[{"tensor": 0}, 1]]},
        {"dict": [[{"tuple": [{"list": []}]}, 1]]},
        2**63,
        "\ud800",
    ],
    ids=repr,
)
def test_a_wrong_structure_is_malformed(structure):
    with pytest.raises(Malformed):
        wire.unpack(structure, [torch.zeros(2)])


def test_a_structure_of_endless_depth_is_malformed():
    structure: object = 0
    for _ in range(wire.DEEPEST_NESTING + 2):
        structure = {"list": [structure]}
    with pytest.raises(Malformed):
        wire.unpack(structure, [])


TWO = {
    "dtype": "float32",
    "shape": [2],
    "data": base64.b64encode(bytes(8)).decode(),
    "requires_grad": False,
}


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [3]},
        {"shape": [1]},
        {"shape": [-2]},
        {"shape": [2.0]},
        {"shape": [True, 2]},
        {"shape": 2},
        {"shape": [1] * 17 + [2]},
        {"shape": [0, 2**62]},
        {"shape": [0, 2**20, 2**20, 2**20, 2**20], "data": ""},
        {"dtype": "float64"},
        {"dtype": "object"},
        {"dtype": "complex64"},
        {"dtype": None},
        {"dtype": []},
        {"data": "AAAA"},
        {"data": "not base64!"},
        {"data": "é"},
        {"data": None},
        {"requires_grad": 1},
        {"dtype": "int32", "requires_grad": True},
        {"more": 1},
    ],
    ids=repr,
)
def test_a_wrong_tensor_is_malformed(change):
    assert torch.equal(wire.to_tensor(TWO)[0], torch.zeros(2))
    with pytest.raises(Malformed):
        wire.to_tensor(TWO | change)


@pytest.mark.parametrize("missing", TWO)
def test_a_tensor_without_a_part_is_malformed(missing):
    with pytest.raises(Malformed):
        wire.to_tensor({key: value for key, value in TWO.items() if key != missing})


def test_bytes_of_a_bool_tensor_are_made_0_or_1():
    node = TWO | {"dtype": "bool", "shape": [8], "data": base64.b64encode(bytes(range(8))).decode()}
    read, _ = wire.to_tensor(node)
    assert read.view(torch.uint8).tolist() == [0, 1, 1, 1, 1, 1, 1, 1]


def received(content: bytes):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        writer = threading.Thread(target=lambda: (theirs.sendall(content), theirs.close()))
        writer.start()
        try:
            return wire.receive(ours)
        finally:
            ours.close()
            writer.join()


@PATIENT
@given(st.binary(max_size=200))
def test_garbage_is_no_message(content):
    with pytest.raises((Malformed, EOFError, wire.TooBig)):
        received(struct.pack(">I", len(content)) + b"!" + content)


@pytest.mark.parametrize(
    "body", [b"[]", b"1", b"null", b"{", b"\xff", b'{"a": ' + b"[" * 10**5, b"9" * 5000]
)
def test_json_that_is_no_object_is_malformed(body):
    with pytest.raises(Malformed):
        received(struct.pack(">I", len(body)) + body)


def test_an_enormous_message_is_refused_before_it_is_read():
    with pytest.raises(wire.TooBig):
        received(b"\xff\xff\xff\xff")
    with pytest.raises(wire.TooBig):
        wire.from_tensor(torch.zeros(1).expand(2**30))


def test_a_message_cut_off_is_an_end_and_not_a_message():
    with pytest.raises(EOFError):
        received(struct.pack(">I", 10) + b'{"a"')


def test_a_message_arrives_whole():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire.send(theirs, {"structure": ["é", 1.5]})
        assert wire.receive(ours) == {"structure": ["é", 1.5]}
