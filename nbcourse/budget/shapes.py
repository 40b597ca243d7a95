"""How large a model is, known without a single weight: from its configuration alone."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from nbcourse.errors import UserError
from nbcourse.lm import loading, tiny
from nbcourse.training.models import load_tokenizer
from nbcourse.training.recipe import Pretraining, Recipe

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


_NAMES = {  # a shape's, and those in a configuration of transformers
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "key_value_heads": "num_key_value_heads",
    "feed_forward": "intermediate_size",
    "vocabulary": "vocab_size",
    "tied": "tie_word_embeddings",
}


@dataclass(frozen=True)
class Shape:
    """The numbers that fix the size of a decoder of the Qwen2 or the Llama architecture.

    Attributes:
        layers: blocks.
        width: W, size of the hidden states.
        heads: of the queries.
        key_value_heads: of keys and values; each serves heads / key_value_heads query heads.
        feed_forward: F, width inside the feed-forward network.
        vocabulary: V, rows of the embedding.
        tied: the output matrix is the embedding.
        biased: queries, keys and values have biases, as Qwen2's have and Llama's have not.
        rank: r of an adapter that learns beside every matrix of the layers, in place of the
            weights; 0 if there is none.

    Source: Yang et al. 2024, "Qwen2.5 Technical Report", section 2.
    """

    layers: int
    width: int
    heads: int
    key_value_heads: int
    feed_forward: int
    vocabulary: int
    tied: bool
    biased: bool = True
    rank: int = 0

    @classmethod
    def of(cls, config: "PreTrainedConfig") -> "Shape":
        """The shape that a configuration of transformers describes.

        Raises:
            ValueError: if it is of another architecture.
        """
        if config.model_type not in ("qwen2", "llama"):
            raise UserError(
                f"config has model_type {config.model_type!r}, expected 'qwen2' or 'llama'"
            )
        named = {ours: getattr(config, theirs) for ours, theirs in _NAMES.items()}
        return cls(**named, biased=config.model_type == "qwen2")

    def config(self, *, end: int | None = None) -> "PreTrainedConfig":
        """A configuration of transformers with this shape, but for an adapter.

        Args:
            end: the token that ends a text, and pads it; None if texts do not end.
        """
        from transformers import LlamaConfig, Qwen2Config

        named: dict[str, Any] = {theirs: getattr(self, ours) for ours, theirs in _NAMES.items()}
        named |= {"bos_token_id": None, "eos_token_id": end, "pad_token_id": end}
        return (Qwen2Config if self.biased else LlamaConfig)(**named)

    @property
    def keys(self) -> int:
        """Numbers in the key of one token in one layer, and as many in the value."""
        return self.width // self.heads * self.key_value_heads

    @property
    def layer_matrices(self) -> int:
        """Weights in the matrices of one layer: each is used once for every token."""
        attention = 2 * self.width * (self.width + self.keys)
        return attention + 3 * self.width * self.feed_forward

    @property
    def layer_packed(self) -> int:
        """Weights of one layer that `lm.packed` lays side by side: those with one input."""
        return self.width * (self.width + 2 * self.keys) + 2 * self.width * self.feed_forward

    @property
    def layer_adapter(self) -> int:
        """Weights of the adapter in one layer: r (m + n) beside a matrix (m, n)."""
        attention = 2 * (2 * self.width + self.width + self.keys)
        return self.rank * (attention + 3 * (self.width + self.feed_forward))

    @property
    def output_matrix(self) -> int:
        """Weights in the matrix that turns a hidden state into logits."""
        return self.vocabulary * self.width

    @property
    def matrices(self) -> int:
        """Weights that are factors of a matrix product: all but biases, norms and look-ups."""
        return self.layers * self.layer_matrices + self.output_matrix

    @property
    def parameters(self) -> int:
        """All parameters but an adapter's, tied ones counted once."""
        biases = self.width + 2 * self.keys if self.biased else 0
        vectors = self.layers * (biases + 2 * self.width) + self.width
        return self.matrices + vectors + (0 if self.tied else self.output_matrix)

    @property
    def adapter(self) -> int:
        """Parameters of the adapter."""
        return self.layers * self.layer_adapter

    @property
    def learning(self) -> int:
        """Parameters that learn: all, or those of the adapter alone."""
        return self.adapter if self.rank else self.parameters


PUBLISHED = {
    "Qwen/Qwen2.5-0.5B-Instruct": Shape(24, 896, 14, 2, 4864, 151_936, tied=True),
    "Qwen/Qwen2.5-1.5B-Instruct": Shape(28, 1536, 12, 2, 8960, 151_936, tied=True),
    "qwen2.5-coder-0.5b": Shape(24, 896, 14, 2, 4864, 151_936, tied=True),
    "smollm2": Shape(30, 576, 9, 3, 1536, 49_152, tied=True, biased=False),
}
"""Shapes by the names that recipes use (config.json there), so that no prediction needs a download.

`smollm2` and `qwen2.5-coder-0.5b` are what `nbcourse model` fetches by these names.
"""


def random_model(
    shape: Shape, *, end: int | None = None, dtype: torch.dtype = torch.float32
) -> "PreTrainedModel":
    """A model of this shape with random weights, made of the classes of the hub.

    The weights are drawn with seed 0; the global random state is left as it was.

    Args:
        shape: of the model; an adapter is left out.
        end: the token that ends a text, and pads it; None if texts do not end.
        dtype: of the weights.

    Book: appendix L, "While sampling: keys and values".
    """
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(shape.config(end=end), dtype=dtype).eval()


def shape_of(recipe: Recipe | Pretraining) -> Shape:
    """The shape of the model that a recipe trains; no weight is allocated or read.

    A published name is looked up in `PUBLISHED`; a folder is asked for its config.json, and so is
    the hub, or what was downloaded from it, for any other name.

    Raises:
        ValueError: if the model is of another architecture.
        FileNotFoundError: if the model is to come from a folder that is not there.
        OSError: if the hub does not know or does not answer.
    """
    source = recipe.model.source
    if source == "tiny":
        tokenizer, settings = load_tokenizer(recipe), recipe.model
        with torch.device("meta"):
            made = tiny.model(
                tokenizer, layers=settings.layers, width=settings.width, heads=settings.heads
            )
        return Shape.of(made.config)
    if source in PUBLISHED:
        return PUBLISHED[source]
    return Shape.of(loading.config(source))
