"""Hidden states in few operations: the numbers and the gradients of transformers' layers."""

import copy
from functools import partial
from itertools import product

import pytest
import torch
from torch.testing import assert_close
from transformers import LlamaConfig, Qwen2Config, Qwen3Config

from nbcourse.lm import forwards, lora, tiny
from nbcourse.lm.log_probs import rollout_states, state_log_probs
from nbcourse.lm.rollouts import Rollout
from tests.effort import swept
from tests.lm.test_packed import SHAPES, model_of, shaped

PROMPTS, GROUP = 2, 3


@pytest.fixture(scope="module")
def tokenizer():
    return tiny.tokenizer()


@pytest.fixture(autouse=True)
def nothing_compiled():
    forwards._compiled.cache_clear()
    torch.compiler.reset()
    yield
    forwards._compiled.cache_clear()


def rollout(model, *, prompt=7, width=9):
    """Prompts padded on the left, responses padded on the right, tokens at random."""
    source = torch.Generator().manual_seed(3)
    draw = partial(torch.randint, generator=source)
    rows, vocabulary = PROMPTS * GROUP, model.config.vocab_size
    lengths = draw(1, prompt + 1, (PROMPTS, 1))
    mask = torch.arange(width) < draw(1, width + 1, (rows, 1))
    made = (
        draw(vocabulary, (PROMPTS, prompt)).repeat_interleave(GROUP, dim=0),
        (torch.arange(prompt) >= prompt - lengths).repeat_interleave(GROUP, dim=0),
        draw(vocabulary, (rows, width)),
    )
    return Rollout(*made, mask, torch.zeros(rows, width), ~mask[:, -1])


def log_probs_and_gradients(forward, model, batch, group):
    model = copy.deepcopy(model)
    states = rollout_states(model, batch, group_size=group, forward=forwards.FORWARDS[forward])
    found = state_log_probs(states, model.get_output_embeddings().weight, batch)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(4))
    (found * weights).sum().backward()
    return found.detach(), {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize(
    ("shape", "group"),
    swept(
        list(product(SHAPES, (1, GROUP))),
        keep=[("shared keys", 1), ("shared keys", GROUP), ("wide heads", GROUP), ("biases", 1)],
    ),
)
def test_log_probs_and_gradients_are_those_of_transformers(shape, group, tokenizer):
    """But for the norms, which transformers computes in float32 whatever the model is."""
    model = shaped(shape, tokenizer).double()
    batch = rollout(model)
    plain, packed = (
        log_probs_and_gradients(forward, model, batch, group)
        for forward in ("transformers", "packed")
    )
    assert_close(packed[0], plain[0], atol=1e-6, rtol=1e-6)
    assert packed[1].keys() == plain[1].keys()
    for name, gradient in plain[1].items():
        assert (packed[1][name] - gradient).norm() < 1e-6 * gradient.norm(), name


@pytest.mark.parametrize("group", [1, GROUP])
def test_in_bfloat16_they_differ_by_rounding(group, tokenizer):
    """No further from the exact numbers than those of transformers are, but for a quarter."""
    model = shaped("shared keys", tokenizer)
    batch = rollout(model)
    exact, _ = log_probs_and_gradients("transformers", copy.deepcopy(model).double(), batch, group)
    with torch.autocast("cpu", torch.bfloat16):
        plain, packed = (
            log_probs_and_gradients(forward, model, batch, group)[0]
            for forward in ("transformers", "packed")
        )
    errors = [(found - exact).abs().max() for found in (plain, packed)]
    assert 1e-4 < errors[1] < 1.25 * errors[0]


def test_a_token_reads_those_before_it_and_padding_reads_itself():
    """Kernels differ in what they make of a row that may read nothing: some say NaN."""
    mask = torch.tensor([[0, 1, 1, 1], [0, 0, 1, 0]])
    expected = [
        [[1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 1]],
        [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]],
    ]
    for queries in (4, 2):
        found = forwards._attended(mask, queries)
        assert found.dtype == torch.bool
        assert found[:, 0].int().tolist() == [rows[-queries:] for rows in expected]


def test_two_functions_are_compiled_however_many_layers_there_are(tokenizer, monkeypatch):
    """And however many rows and tokens: for the first sizes, and for those that change."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    counted = {}
    for count in (2, 6):
        torch.compiler.reset()
        forwards._compiled.cache_clear()
        torch._dynamo.utils.counters.clear()
        model = shaped("shared keys", tokenizer, num_hidden_layers=count)
        for prompt, width in ((7, 9), (5, 12), (11, 4)):
            batch = rollout(model, prompt=prompt, width=width)
            plain, packed = (
                log_probs_and_gradients(forward, model, batch, GROUP)
                for forward in ("packed", "packed-compiled")
            )
            assert_close(packed, plain)
        counted[count] = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert 2 <= counted[2] == counted[6] <= 6


@pytest.mark.parametrize("dtype", swept([torch.float32, torch.bfloat16], keep=[]))
def test_compiled_layers_differ_by_rounding(dtype, tokenizer):
    """By the compiler that is the default, which takes a minute."""
    model = shaped("biases", tokenizer)
    batch = rollout(model)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        plain, packed = (
            log_probs_and_gradients(forward, model, batch, GROUP)
            for forward in ("packed", "packed-compiled")
        )
    size = 1e-5 if dtype == torch.float32 else 4 * 2**-6
    assert_close(packed[0], plain[0], atol=size, rtol=size)
    for name, gradient in plain[1].items():
        apart = (packed[1][name] - gradient).norm() / gradient.norm()
        assert apart < 10 * size, name


def test_what_it_does_not_compute_is_refused(tokenizer):
    adapted = model_of(LlamaConfig, tokenizer)
    lora.add(adapted, rank=2, seed=0)
    windows = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
    for model, message in (
        (model_of(Qwen3Config, tokenizer), "type 'qwen3', expected llama or qwen2 for packed"),
        (adapted, r"q_proj of the model is a peft\S+\.Linear, expected a plain linear"),
        (model_of(Qwen2Config, tokenizer, **windows), "layer 1 of the model reads a window"),
    ):
        with pytest.raises(ValueError, match=message):
            rollout_states(model, rollout(model), forward=forwards.packed)
