"""The models of a recipe, before any training: which tokenizer, which weights, which precision."""

import copy
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from nbcourse.lm import bpe, loading, lora, prompts, tiny
from nbcourse.seeds import generator
from nbcourse.training.recipe import Pretraining, Recipe
from nbcourse.training.recipe_sections import ModelSection, PromptSection

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


Model = TypeVar("Model", bound=nn.Module)
TEXTS = 4_000  # from which a tokenizer is learned


def load_model(
    recipe: Recipe | Pretraining, device: torch.device | str
) -> tuple["PreTrainedTokenizerBase", "PreTrainedModel"]:
    """The tokenizer and the model of a recipe, before any training.

    Raises:
        FileNotFoundError: if the model is to come from a folder that is not there.
    """
    settings = recipe.model
    if settings.source == "tiny":
        tokenizer = load_tokenizer(recipe)
        model = tiny.model(
            tokenizer,
            layers=settings.layers,
            width=settings.width,
            heads=settings.heads,
            max_positions=1024 if settings.vocabulary else 128,
            seed=recipe.seed,
        ).to(device)  # type: ignore[arg-type]
    else:
        tokenizer, model = loading.load(settings.source, device)
    if settings.lora_rank:
        lora.add(model, rank=settings.lora_rank, seed=recipe.seed)
    if settings.gradient_checkpointing:
        # transformers 5.23 renamed it; 6 will drop the old name
        renamed = getattr(model, "activation_checkpointing_enable", None)
        (renamed or model.gradient_checkpointing_enable)({"use_reentrant": False})
    return tokenizer, model


def load_tokenizer(
    recipe: Recipe | Pretraining, *, local: bool = False
) -> "PreTrainedTokenizerBase":
    """The tokenizer of a recipe, for which no weight is needed.

    Args:
        recipe: whose.
        local: ask no hub: only what is on this machine will do.

    Raises:
        FileNotFoundError: if it is to come from a folder that is not there.
        OSError: if it is not to be had.
    """
    source = recipe.model.source
    if source != "tiny":
        return loading.tokenizer(source, local=local)
    characters = recipe.task.build().characters
    if characters is not None:
        return tiny.tokenizer(characters)
    return copy.deepcopy(_learned(Reading.of(recipe)))  # its user may change how it pads


@dataclass(frozen=True)
class Reading:
    """A recipe, equal to all that draw the same problems and write them in the same tokens.

    Attributes:
        by: what both depend on.
        recipe: one of them.
    """

    by: tuple[Hashable, ...]
    recipe: Recipe | Pretraining = field(compare=False, repr=False)

    @classmethod
    def of(cls, recipe: Recipe | Pretraining) -> "Reading":
        shared = getattr(recipe, "gsm8k_share", 0.0)
        drawing = (type(recipe), recipe.seed, recipe.task)  # a base draws other problems
        return cls((*drawing, TEXTS, recipe.prompt, recipe.model, shared), recipe)

    @property
    def is_listed(self) -> bool:
        """Whether problems come from files, which may change."""
        return bool(self.by[-1]) or self.recipe.task.build().listed("train") is not None


@lru_cache(maxsize=4)  # learning takes half a second, and a plan asks several times
def _learned(reading: Reading) -> "PreTrainedTokenizerBase":
    recipe = reading.recipe
    assert recipe.model.vocabulary is not None  # the recipe has been checked
    drawn = recipe.examples(TEXTS, generator(recipe.seed, "tokenizer"))
    texts = (problem.prompt + problem.solution for problem in drawn)
    return bpe.train_tokenizer(texts, vocabulary=recipe.model.vocabulary)


def rendered(
    settings: PromptSection, tokenizer: "PreTrainedTokenizerBase", problems: Sequence[Any]
) -> list[str]:
    """What a model is given for each problem."""
    said = settings.said()
    return [
        prompts.render(tokenizer, problem.prompt, style=settings.style, **said)
        for problem in problems
    ]


def precision(settings: ModelSection, device: torch.device) -> AbstractContextManager:
    """A context in which matrix products are computed in the precision of these settings."""
    low = settings.precision != "float32"
    dtype = torch.float16 if settings.precision == "float16" else torch.bfloat16
    return torch.autocast(device.type, dtype, enabled=low)


def loss_scaler(settings: ModelSection, device: torch.device) -> torch.amp.GradScaler:
    """What scales the loss where products are in float16, and does nothing elsewhere.

    float16 has no number between 0 and 6e-8, and none above 65,504. The loss is multiplied by as
    much as the gradients bear; where one overflows, the update is left out and the factor halved.

    Source: Micikevicius et al. 2018, "Mixed Precision Training", section 3.2.
    """
    scaler = torch.amp.GradScaler(device.type, enabled=settings.precision == "float16")
    # It makes its factor when it first scales a loss; the first batch may have none.
    scaler.scale(torch.zeros((), device=device))
    return scaler


def frozen(model: Model) -> Model:
    """A copy that is never trained."""
    return copy.deepcopy(model).requires_grad_(False).eval()


def reference_of(policy: "PreTrainedModel") -> "PreTrainedModel":
    """The policy as it is now, to be asked later: a copy, or itself where an adapter will learn."""
    return policy if lora.is_on(policy) else frozen(policy)
