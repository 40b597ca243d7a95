"""From a loss for each token to one number: four ways, four different objectives."""

from typing import Annotated

from torch import Tensor

from nbcourse.functional.arguments import BT, Axes, BTMask, checked, one_of

MODES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")
BatchMask = Annotated[Tensor, Axes("N T'", "bools")]


@checked
def aggregate(
    per_token: BT,
    mask: BTMask,
    mode: str,
    *,
    max_length: int | None = None,
    batch_mask: BatchMask | None = None,
) -> Tensor:
    """Reduce `(B, T)` losses to a scalar. With mᵢₜ the mask, |yᵢ| = Σₜ mᵢₜ and N responses:

        token-mean               Σᵢₜ Lᵢₜ mᵢₜ / Σᵢ |yᵢ|           every token weighs the same
        seq-mean-token-mean      (1/N) Σᵢ Σₜ Lᵢₜ mᵢₜ / |yᵢ|      every response weighs the same
        seq-mean-token-sum       (1/N) Σᵢ Σₜ Lᵢₜ mᵢₜ             the gradient of the expected return
        seq-mean-token-sum-norm  (1/N) Σᵢ Σₜ Lᵢₜ mᵢₜ / max_length   the same up to a constant

    Args:
        per_token: (B, T) losses; entries under a False mask may hold anything.
        mask: (B, T) bool. A row without any True is padding and does not count as a response.
        mode: one of `MODES`.
        max_length: the constant divisor of `seq-mean-token-sum-norm`, required there: one taken
            from the batch would change with the padding. The other modes do not look at it.
        batch_mask: (N, T') bool, the mask of the whole batch if `per_token` is a micro-batch. The
            losses of the micro-batches then add up to the loss of the batch, whatever the split.

    Returns:
        A scalar; 0 if there is no token at all.

    Raises:
        ValueError: if shapes differ, the mode is unknown, or max_length is missing where needed.

    Book: equation (eq-aggregation). Source: DAPO (Yu et al. 2025) for the token mean, Dr. GRPO
    (Liu et al. 2025) for the constant divisor; the names are verl's.

    >>> from torch import tensor
    >>> losses, mask = tensor([[3.0, 1.0], [8.0, 0.0]]), tensor([[True, True], [True, False]])
    >>> aggregate(losses, mask, "token-mean")  # (3 + 1 + 8) / 3 tokens
    tensor(4.)
    >>> aggregate(losses, mask, "seq-mean-token-mean")  # (4/2 + 8/1) / 2 responses
    tensor(5.)
    """
    one_of(mode, MODES, name="mode")
    divisor = 1
    if mode == "seq-mean-token-sum-norm":
        if max_length is None or max_length < 1:
            raise ValueError(
                f"max_length is {max_length}, expected at least 1: {mode!r} divides by it"
            )
        divisor = max_length
    whole = mask if batch_mask is None else batch_mask
    per_token = per_token.masked_fill(~mask, 0.0)
    if mode == "token-mean":
        return per_token.sum() / whole.sum().clamp(min=1)
    per_sequence = per_token.sum(dim=1)
    if mode == "seq-mean-token-mean":
        per_sequence = per_sequence / mask.sum(dim=1).clamp(min=1)
    return per_sequence.sum() / divisor / whole.any(dim=1).sum().clamp(min=1)
