"""The precision of products, and weights in it, once for all tokens that are sampled from them."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def product_dtype(x: Tensor) -> torch.dtype:
    """Of a product with x, which autocast may have in fewer bits."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def as_now(device: str, *, cache_enabled: bool | None = None) -> torch.autocast:
    """A context, for elsewhere, with autocast as it is where this is called.

    With `cache_enabled` False, autocast keeps nothing there of the weights that it rounds.
    """
    return torch.autocast(
        device,
        dtype=torch.get_autocast_dtype(device),
        enabled=torch.is_autocast_enabled(device),
        cache_enabled=cache_enabled,
    )


@contextmanager
def cast_once(model: nn.Module) -> Iterator[None]:
    """A context in which, under autocast, the weights of linear layers need no further cast.

    Autocast rounds a float32 weight for each product. It keeps what it has rounded of weights that
    ask for a gradient, and of those only; all others it rounds anew for each token. Here every
    linear layer gets its copy beforehand, and computes the same to the last bit. All else stays in
    float32: norms, the residual stream, and an embedding, even if the output layer shares its
    weight. Without autocast nothing happens. Contexts may be nested: the outermost one casts.
    """
    device = next(model.parameters()).device.type
    if not torch.is_autocast_enabled(device):
        yield
        return
    own = [
        (layer, name, parameter)
        for layer in model.modules()
        if isinstance(layer, nn.Linear)
        for name, parameter in layer.named_parameters(recurse=False)
    ]
    dtype = torch.get_autocast_dtype(device)
    for layer, name, parameter in own:
        setattr(layer, name, nn.Parameter(parameter.detach().to(dtype), requires_grad=False))
    try:
        yield
    finally:
        for layer, name, parameter in own:
            setattr(layer, name, parameter)
