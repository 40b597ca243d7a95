"""Models with random weights in the shape of published ones."""

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, Qwen2Config

from nbcourse.budget.shapes import Shape

HALF_BILLION = Shape(24, 896, 14, 2, 4864, 151_936, tied=True)  # Qwen2.5-0.5B
SMOLLM2 = Shape(30, 576, 9, 3, 1536, 49_152, tied=True, biased=False)  # SmolLM2-135M


def random_model(shape: Shape, *, end: int = 0, dtype=torch.float32) -> PreTrainedModel:
    """Weights drawn with seed 0; `end` is the token that ends a text, and pads it."""
    config = (Qwen2Config if shape.biased else LlamaConfig)(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        tie_word_embeddings=shape.tied,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=end,
    )
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
