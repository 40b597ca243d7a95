"""A hidden test gets the tensors that a stub declares, whatever an answer puts in their place."""

import numpy as np
import pytest
import torch

from nbcourse.classroom.declared import as_declared


def read(declared: str, value):
    return as_declared(lambda: value, f"def answer() -> {declared}:\n    return None", "answer")()


@pytest.mark.parametrize(
    ("declared", "value", "shape"),
    [
        ("Tensor", [1.0, 2.0], (2,)),
        ("torch.Tensor", (1, 2, 3), (3,)),
        ("Tensor", [[True], [False]], (2, 1)),
        ("Tensor", [torch.tensor(1.0), 2.0], (2,)),
        ("Tensor", np.ones((2, 3)), (2, 3)),
        ("Tensor", 0.5, ()),
        ("Tensor", torch.ones(4), (4,)),
    ],
)
def test_lists_arrays_and_numbers_are_tensors_where_one_is_declared(declared, value, shape):
    found = read(declared, value)
    assert isinstance(found, torch.Tensor)
    assert found.shape == shape


def test_so_are_the_parts_of_a_tuple_and_of_a_dict():
    pair = read("tuple[Tensor, int]", [[1.0, 2.0], 3])
    assert isinstance(pair[0], torch.Tensor)
    assert pair[1] == 3
    parts = read("dict[str, tuple[Tensor, Tensor]]", {"a": ([1.0], [2.0])})
    assert [part.tolist() for part in parts["a"]] == [[1.0], [2.0]]


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("list[float]", [1.0, 2.0]),
        ("tuple[float, float]", (1.0, 2.0)),
        ("float", 1.0),
        ("str | None", None),
        ("Tensor", "words"),
        ("Tensor", [[1.0], [2.0, 3.0]]),
        ("Tensor", None),
        ("tuple[Tensor, Tensor]", [1.0, 2.0, 3.0]),
    ],
)
def test_everything_else_is_left_as_it_is(declared, value):
    found = read(declared, value)
    assert type(found) is type(value)
    assert found == value


def test_a_gradient_flows_through_what_is_a_tensor_already():
    x = torch.ones(2, requires_grad=True)
    answer = as_declared(lambda x: 2 * x, "def answer(x) -> Tensor:\n    return 2 * x", "answer")
    answer(x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
