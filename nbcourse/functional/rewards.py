"""What is added to a verifier's reward."""

from typing import Annotated

from torch import Tensor

from nbcourse.functional.arguments import Axes, checked


@checked
def overlong_penalty(
    lengths: Annotated[Tensor, Axes("B", "integers")], *, max_length: int, buffer: int
) -> Tensor:
    """DAPO's soft punishment of length: 0 up to max_length − buffer, then down to −1 on a line.

    Args:
        lengths: (B,) integers, tokens in each response.
        max_length: where sampling stops.
        buffer: tokens before that over which the penalty grows, from 1 to `max_length`.

    Returns:
        (B,) between −1 and 0.

    Raises:
        ValueError: if lengths is not (B,) or not of integers, or buffer out of range.

    Book: equation (eq-overlong). Source: Yu et al. 2025 (DAPO), equation 13.

    >>> from torch import tensor
    >>> overlong_penalty(tensor([5, 8, 10]), max_length=10, buffer=4)  # 6 to 10: (6 − length) / 4
    tensor([ 0.0000, -0.5000, -1.0000])
    """
    if not 1 <= buffer <= max_length:
        raise ValueError(f"buffer is {buffer}, expected 1 to max_length, which is {max_length}")
    return ((max_length - buffer - lengths) / buffer).clamp(-1.0, 0.0)
