"""Low-rank adapters: matrices stay as they are, and a small product learns beside each of them.

    W' = W + (α/r) B A,   A: (r, n),  B: (m, r), and B = 0 at first

With the product switched off the model is what it was before it learned: its own reference.

Book: equation (eq-lora).
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

ALPHA = 32  # Source: Schulman et al. 2025, "LoRA Without Regret"
NAME = "default"  # of the adapter, as peft calls it


def add(model: "PreTrainedModel", *, rank: int, seed: int) -> None:
    """Put an adapter beside every matrix but the embeddings; from now on it alone is trained.

    Args:
        model: a causal language model of transformers, changed in place.
        rank: r, rows of A.
        seed: of A; the global random state is left as it was.

    Source: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models".
    """
    from peft import LoraConfig, inject_adapter_in_model

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = LoraConfig(r=rank, lora_alpha=ALPHA, target_modules="all-linear")
        # not by the model's own add_adapter: transformers 5.24 takes a peft that is not out yet
        inject_adapter_in_model(config, model, NAME)
    model.eval()


def is_on(model: nn.Module) -> bool:
    """Whether the model has an adapter."""
    return any("lora_" in name for name, _ in model.named_parameters())


@contextmanager
def off(model: "PreTrainedModel") -> Iterator[None]:
    """A context in which the model is what it was before its adapter learned."""
    layers = _layers(model).values()
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def _layers(model: nn.Module) -> dict[str, Any]:
    """The matrices with an adapter beside them, by name."""
    from peft.tuners.lora import LoraLayer

    return {name: layer for name, layer in model.named_modules() if isinstance(layer, LoraLayer)}


def own_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters of a model under the names that they have without an adapter."""
    for name, parameter in model.named_parameters():
        if "lora_" not in name:
            yield name.replace(".base_layer", ""), parameter


def as_peft(model: "PreTrainedModel") -> "PeftModel":
    """The same model, adapter and weights in the class that other trainers know adapters by.

    Args:
        model: that has an adapter. It stays the model inside, and whatever trains the one changes
            the other.
    """
    from peft import LoraConfig, PeftModelForCausalLM

    config = cast(LoraConfig, model.peft_config[NAME])
    tables = [table for layer in _layers(model).values() for table in (layer.lora_A, layer.lora_B)]
    kept = [table[NAME] for table in tables]
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Already found a `peft_config`")
        whole = PeftModelForCausalLM(model, config)  # with matrices of its own, drawn anew
    for table, module in zip(tables, kept, strict=True):
        table[NAME] = module
    return whole.eval()


def inside(model: "PreTrainedModel | PeftModel") -> "PreTrainedModel":
    """The model of transformers that peft's class has in it, adapter and all; any other itself."""
    plain: Any = model
    return plain.get_base_model() if hasattr(plain, "get_base_model") else plain


@torch.no_grad()
def merged(model: "PreTrainedModel") -> "PreTrainedModel":
    """The same function in a model without an adapter; the model itself if it has none."""
    if not is_on(model):
        return model
    plain = type(model)(model.config).to(model.device).eval()  # type: ignore[arg-type]
    for name, parameter in own_parameters(model):
        plain.get_parameter(name).copy_(parameter)
    for name, layer in _layers(model).items():
        plain.get_parameter(f"{name}.weight").add_(layer.get_delta_weight(NAME))
    plain.generation_config = model.generation_config
    return plain
