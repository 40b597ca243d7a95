"""A causal transformer small enough to train while you watch, from the classes that load real ones.

Nothing here is special to small models: the architecture is Qwen2 as transformers implements it,
and the tokenizer is a `PreTrainedTokenizerFast`, so that whatever runs with these two runs with a
checkpoint from the hub.
"""

from typing import TYPE_CHECKING

import torch

from nbcourse.lm.attention import attend_without_cudnn
from nbcourse.lm.importing import without_collection

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

CHARACTERS = "0123456789+-*= "
EOS = "<eos>"
UNKNOWN = "<unk>"


@without_collection()
def tokenizer(characters: str = CHARACTERS) -> "PreTrainedTokenizerBase":
    """One token for each character, and an end-of-sequence token that also serves as padding.

    Sharing the two is what many real checkpoints do. A mask that is built from token *values* then
    hides the real end of a sequence too, and the model never learns to stop; this package builds
    masks from positions.

    Args:
        characters: the vocabulary, each character once.

    Returns:
        A tokenizer that pads on the left.

    Raises:
        ValueError: if a character occurs twice.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    if len(set(characters)) != len(characters):
        raise ValueError(f"characters is {characters!r}, expected each character once")
    vocabulary = {token: i for i, token in enumerate([EOS, UNKNOWN, *characters])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=EOS,
        pad_token=EOS,
        unk_token=UNKNOWN,
        padding_side="left",
    )


@without_collection()
def model(
    tokenizer: "PreTrainedTokenizerBase",
    *,
    layers: int = 4,
    width: int = 128,
    heads: int = 4,
    max_positions: int = 128,
    seed: int = 0,
) -> "PreTrainedModel":
    """A decoder of the Qwen2 architecture with random weights; about a million with the defaults.

    Args:
        tokenizer: for the size of the vocabulary and the end-of-sequence token.
        layers: number of blocks.
        width: size of the hidden states, a multiple of twice the heads.
        heads: attention heads.
        max_positions: longest sequence.
        seed: of the initial weights; the global random state is left as it was.

    Returns:
        The model in evaluation mode, in float32.

    Raises:
        ValueError: if width is not a multiple of twice the heads.
    """
    from transformers import AutoModelForCausalLM, Qwen2Config

    if width % (2 * heads):
        raise ValueError(f"width is {width}, expected a multiple of 2 * heads = {2 * heads}")
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=max_positions,
        # The usual 0.02 is made for wide models. Here the residual stream would start so small that
        # its normalisation magnifies every step, and reinforcement learning could not hold course.
        initializer_range=width**-0.5,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    attend_without_cudnn()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
