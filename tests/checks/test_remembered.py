"""Functions that remember return what they would, and are not asked twice."""

import pytest
import torch

from tests.checks import remembered


@pytest.fixture
def counted():
    """A pure function that remembers, and the arguments with which it was really called."""
    asked = []

    def double(x, generator=None):
        asked.append(x)
        drawn = 0.0 if generator is None else torch.rand(1, generator=generator)
        return {"twice": 2 * x + drawn}

    return remembered.remembering(double), asked


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        (torch.zeros(2), torch.zeros(2, 1)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),  # the same bytes
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0]).flip(0)),
    ],
)
def test_what_is_not_the_same_is_not_remembered(counted, one, other):
    double, asked = counted
    for x in (one, other, one, other):
        double(x)
    assert len(asked) == 2


def test_a_result_that_is_changed_is_remembered_as_it_was(counted):
    double, asked = counted
    x = torch.tensor([1.0, 2.0])
    double(x)["twice"].zero_()
    assert double(x.clone())["twice"].tolist() == [2.0, 4.0]
    assert len(asked) == 1


def test_a_gradient_always_flows(counted):
    double, asked = counted
    for _ in range(2):
        x = torch.ones(2, requires_grad=True)
        double(x)["twice"].sum().backward()
        assert x.grad.tolist() == [2.0, 2.0]
    assert len(asked) == 2


def test_a_generator_goes_on_as_if_it_had_been_drawn_from(counted):
    double, asked = counted
    results, behind = [], []
    for seed in (1, 1, 2):
        generator = torch.Generator().manual_seed(seed)
        results.append(float(double(torch.ones(1), generator)["twice"]))
        behind.append(float(torch.rand(1, generator=generator)))
    fresh = torch.rand(2, generator=torch.Generator().manual_seed(1))
    assert results[0] == results[1] == pytest.approx(2 + float(fresh[0]))
    assert behind[0] == behind[1] == float(fresh[1]) != behind[2]
    assert len(asked) == 2


def test_only_a_modules_own_private_functions_are_its_helpers():
    names = {"_kept": torch.zeros, "_number": 1}
    exec("def _own(x): return x\ndef shown(x): return x", names)
    assert list(remembered.helpers(names)) == ["_own"]
