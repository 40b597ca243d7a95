"""A token's step in few operations: the numbers of transformers' step, and whose it takes."""

from itertools import product

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from nbcourse.lm import lora, sampling, tiny
from nbcourse.lm.packed import Packed
from nbcourse.lm.static import Static
from tests.effort import swept
from tests.lm.test_engines import PADDED, assert_same, taped, write

SIZES = {
    **{"hidden_size": 36, "intermediate_size": 50, "num_hidden_layers": 3},
    **{"num_attention_heads": 6, "num_key_value_heads": 2},
}
SHAPES = {
    "own keys": (Qwen2Config, {"num_attention_heads": 3, "num_key_value_heads": 3}),
    "shared keys": (Qwen2Config, {}),
    "one key": (LlamaConfig, {"num_key_value_heads": 1}),
    "wide heads": (LlamaConfig, {"head_dim": 16, "rms_norm_eps": 0.1}),
    "biases": (LlamaConfig, {"attention_bias": True, "mlp_bias": True}),
}


@pytest.fixture(scope="module")
def tokenizer():
    return tiny.tokenizer()


def model_of(kind, tokenizer, **sizes):
    """Random weights, norms and biases too, which start at one and zero."""
    end = tokenizer.eos_token_id
    vocabulary = {"vocab_size": len(tokenizer), "pad_token_id": end, "eos_token_id": end}
    config = kind(**SIZES | vocabulary | sizes)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def shaped(name, tokenizer, **sizes):
    kind, own = SHAPES[name]
    return model_of(kind, tokenizer, **own | sizes)


@pytest.mark.parametrize("shape", SHAPES)
def test_it_draws_what_transformers_step_draws(shape, tokenizer):
    """In float32 the same tokens, with log-probs that are rounded otherwise at most."""
    model = shaped(shape, tokenizer)
    plain, packed = (write(model, tokenizer, engine) for engine in ("static", "packed"))
    lengths = plain.mask.sum(dim=1)
    assert lengths.min() < 32 < lengths.max()
    assert torch.equal(packed.tokens, plain.tokens)
    assert torch.equal(packed.mask, plain.mask)
    assert_close(packed.log_probs, plain.log_probs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", swept(SHAPES, keep=["shared keys"]))
def test_in_bfloat16_the_likeliest_tokens_differ_by_rounding_at_most(shape, tokenizer):
    """Where the two part, the log-probs of what they took differ by what bfloat16 rounds."""
    model = shaped(shape, tokenizer)
    options = {"dtype": torch.bfloat16, "greedy": True, "group_size": 1}
    plain, packed = (write(model, tokenizer, e, **options) for e in ("static", "packed"))
    width = min(plain.tokens.shape[1], packed.tokens.shape[1])
    for row in range(len(PADDED)):
        parted = (plain.tokens[row, :width] != packed.tokens[row, :width]).nonzero()
        until = int(parted[0]) + 1 if len(parted) else width
        gap = (plain.log_probs[row, :until] - packed.log_probs[row, :until]).abs()
        assert gap.max() <= 4 * 2**-6


class Operations(TorchFunctionMode):
    """Counts what computes: calls of torch but those that only look at memory otherwise."""

    VIEWS = frozenset(
        {
            *("view", "reshape", "transpose", "unsqueeze", "expand", "chunk", "split", "unflatten"),
            *("size", "dim", "to", "float", "__get__", "__getitem__", "__len__", "contiguous"),
        }
    )

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.count += getattr(function, "__name__", "") not in self.VIEWS
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("shape", ["shared keys", "biases"])
def test_it_takes_half_the_operations_of_a_layer(shape, tokenizer):
    """A token more in two depths; what is outside of layers falls out."""
    counts = {}
    for engine, layers, tokens in product(("static", "packed"), (1, 3), (4, 5)):
        model = shaped(shape, tokenizer, num_hidden_layers=layers)
        with Operations() as seen:
            write(model, tokenizer, engine, max_new_tokens=tokens)
        counts[engine, layers, tokens] = seen.count
    of_a_layer = {
        engine: (
            (counts[engine, 3, 5] - counts[engine, 3, 4])
            - (counts[engine, 1, 5] - counts[engine, 1, 4])
        )
        / 2
        for engine in ("static", "packed")
    }
    assert of_a_layer["packed"] <= 18
    assert of_a_layer["packed"] < 0.55 * of_a_layer["static"]


def test_a_recorded_step_writes_what_the_step_writes(tokenizer):
    model = shaped("shared keys", tokenizer)
    plain = write(model, tokenizer, Static(8, columns=16, decoder=Packed))
    recorded = write(model, tokenizer, Static(8, columns=16, decoder=Packed, prepare=taped([])))
    assert_same(recorded, plain)


def test_it_reads_the_weights_as_they_are_when_it_is_asked(tokenizer):
    model = shaped("shared keys", tokenizer)
    first = write(model, tokenizer, "packed")
    with torch.no_grad():
        model.model.layers[2].self_attn.k_proj.weight.mul_(3)
    again, plain = (write(model, tokenizer, engine) for engine in ("packed", "static"))
    assert not torch.equal(again.tokens, first.tokens)
    assert torch.equal(again.tokens, plain.tokens)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a CUDA graph needs CUDA")
@pytest.mark.parametrize("dtype", [None, torch.bfloat16], ids=["float32", "bfloat16"])
def test_a_cuda_graph_writes_what_the_step_writes(tokenizer, dtype):
    model = shaped("shared keys", tokenizer).cuda()
    assert_same(*(write(model, tokenizer, e, dtype=dtype) for e in ("packed", "packed-graphs")))


def test_what_it_does_not_compute_is_refused(tokenizer):
    other = model_of(Qwen3Config, tokenizer)
    with pytest.raises(ValueError, match="type 'qwen3', expected llama or qwen2 for packed"):
        write(other, tokenizer, "packed")
    other = model_of(LlamaConfig, tokenizer, hidden_act="gelu")
    with pytest.raises(ValueError, match="activation is 'gelu', expected 'silu'"):
        write(other, tokenizer, "packed")
    other = model_of(LlamaConfig, tokenizer)
    lora.add(other, rank=2, seed=0)
    with pytest.raises(
        ValueError, match=r"q_proj of the model is a peft\S+\.Linear, expected a plain linear"
    ):
        write(other, tokenizer, "packed")
    assert sampling.ENGINES["packed-graphs"].decoder is Packed
