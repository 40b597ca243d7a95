"""The penalty on length, by hand."""

import pytest
import torch

from nbcourse.functional.rewards import overlong_penalty


def test_the_overlong_penalty_is_a_line():
    """Limit 10, buffer 4: nothing up to 6, then a quarter for each token, −1 at the limit."""
    lengths = torch.tensor([1, 5, 6, 7, 8, 9, 10, 13])
    found = overlong_penalty(lengths, max_length=10, buffer=4)
    assert found.tolist() == [0.0, 0.0, 0.0, -0.25, -0.5, -0.75, -1.0, -1.0]


def test_a_buffer_as_long_as_the_response_may_be_punishes_from_the_first_token():
    found = overlong_penalty(torch.tensor([0, 1, 4]), max_length=4, buffer=4)
    assert found.tolist() == [0.0, -0.25, -1.0]


@pytest.mark.parametrize("buffer", [0, -1, 11])
def test_a_buffer_out_of_range_is_refused(buffer):
    with pytest.raises(ValueError, match=rf"buffer is {buffer}, expected 1 to max_length.* 10"):
        overlong_penalty(torch.tensor([3]), max_length=10, buffer=buffer)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (torch.tensor([[3, 4]]), r"lengths has shape \(1, 2\), expected \(B,\)"),
        (torch.tensor([3.0]), "lengths has dtype torch.float32, expected integers"),
        ([3], "lengths is a list"),
    ],
)
def test_what_is_not_a_vector_of_counts_is_refused(lengths, message):
    with pytest.raises(ValueError, match=message):
        overlong_penalty(lengths, max_length=10, buffer=4)
