"""Weights that are cast once: counted, the same to the last bit, and put back."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nbcourse.lm import lora, sampling, tiny
from nbcourse.lm.casting import cast_once
from nbcourse.training import held_out
from nbcourse.training.experience import Draws, collect
from tests import small


@pytest.fixture(params=["trained", "adapted"])
def model(request):
    """All weights are trained, or none but those of an adapter."""
    made = tiny.model(tiny.tokenizer(), layers=2, width=32, heads=4)
    if request.param == "adapted":
        lora.add(made, rank=3, seed=1)
    return made


def autocast():
    return torch.autocast("cpu", torch.bfloat16)


class Casts(TorchDispatchMode):
    """Counts copies in bfloat16 of tensors of some shapes."""

    def __init__(self, shapes):
        super().__init__()
        self.shapes, self.count = shapes, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._to_copy.default and args[0].shape in self.shapes:
            self.count += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("engine", sampling.ENGINES)
def test_each_matrix_is_cast_once_for_all_tokens_that_are_sampled(model, engine):
    """Two layers of three matrices, the middle one of other shape; and not one for each token."""
    if engine.startswith("packed") and any("lora" in name for name, _ in model.named_modules()):
        pytest.skip("a packed engine takes no adapter")
    weights = {p.shape for n, p in lora.own_parameters(model) if "mlp" in n}
    assert len(weights) == 2
    with autocast(), Casts(weights) as casts:
        sampling.sample(
            model,
            tiny.tokenizer(),
            ["1+2="] * 3,
            max_new_tokens=5,
            generator=torch.Generator().manual_seed(0),
            engine=engine,
        )
    assert casts.count == 2 * 3


@pytest.mark.parametrize("rank", [None, 3])
def test_all_parts_of_a_step_and_of_an_evaluation_share_one_cast(rank):
    """Three parts of two prompts each, and nine held-out problems, four at a time."""
    made = small.learner(
        small.recipe(
            model={"precision": "bfloat16", "lora_rank": rank},
            rollouts={"prompts": 6, "prompts_at_once": 2},
        )
    )
    weights = {p.shape for n, p in lora.own_parameters(made.policy) if "mlp" in n}
    with Casts(weights) as casts:
        collect(made, Draws(made.recipe), small.ALONE)
    assert casts.count == 3
    asked = ["1+2="] * 9
    with Casts(weights) as casts:
        held_out.ask(
            made.policy,
            made.tokenizer,
            asked,
            max_new_tokens=3,
            precision=made.precision(),
            at_once=4,
        )
    assert casts.count == 3


def test_the_logits_are_those_of_autocast_to_the_last_bit(model):
    ids = torch.arange(2, 10).view(2, 4)
    with torch.no_grad(), autocast():
        plain = model(ids).logits
        with cast_once(model):
            assert torch.equal(model(ids).logits, plain)
            head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
            assert head.weight.dtype == torch.bfloat16
            assert embedding.weight.dtype == torch.float32


def test_afterwards_the_parameters_are_the_ones_there_were(model):
    before = {name: (id(p), p.requires_grad) for name, p in model.named_parameters()}
    with pytest.raises(KeyError), autocast(), cast_once(model):
        raise KeyError
    assert {n: (id(p), p.requires_grad) for n, p in model.named_parameters()} == before
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_without_autocast_nothing_happens(model):
    before = {name: id(p) for name, p in model.named_parameters()}
    with cast_once(model):
        assert {name: id(p) for name, p in model.named_parameters()} == before
