"""Low-rank adapters: matrices stay as they are, and a small product learns beside each of them.

    W' = W + (α/r) B A,   A: (r, n),  B: (m, r), and B = 0 at first

With the product switched off the model is what it was before it learned: its own reference.

Book: equation (eq-lora).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ALPHA = 32  # Source: Schulman et al. 2025, "LoRA Without Regret"


def add(model: "PreTrainedModel", *, rank: int, seed: int) -> None:
    """Put an adapter beside every matrix but the embeddings; from now on it alone is trained.

    Args:
        model: a causal language model of transformers, changed in place.
        rank: r, rows of A.
        seed: of A; the global random state is left as it was.

    Source: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models".
    """
    from peft import LoraConfig

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model.add_adapter(LoraConfig(r=rank, lora_alpha=ALPHA, target_modules="all-linear"))
    model.eval()


def is_on(model: nn.Module) -> bool:
    """Whether the model has an adapter."""
    return any("lora_" in name for name, _ in model.named_parameters())


@contextmanager
def off(model: "PreTrainedModel") -> Iterator[None]:
    """A context in which the model is what it was before its adapter learned."""
    model.disable_adapters()
    try:
        yield
    finally:
        model.enable_adapters()


def own_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters of a model under the names that they have without an adapter."""
    for name, parameter in model.named_parameters():
        if "lora_" not in name:
            yield name.replace(".base_layer", ""), parameter


@torch.no_grad()
def merged(model: "PreTrainedModel") -> "PreTrainedModel":
    """The same function in a model without an adapter; the model itself if it has none."""
    if not is_on(model):
        return model
    from peft.tuners.lora import Linear

    plain = type(model)(model.config).to(model.device).eval()  # type: ignore[arg-type]
    for name, parameter in own_parameters(model):
        plain.get_parameter(name).copy_(parameter)
    for name, module in model.named_modules():
        if isinstance(module, Linear):
            plain.get_parameter(f"{name}.weight").add_(module.get_delta_weight("default"))
    plain.generation_config = model.generation_config
    return plain
