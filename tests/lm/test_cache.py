"""The sampler's cache against transformers' own, bit for bit."""

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from nbcourse.lm import cache, sampling, tiny
from nbcourse.lm.rollouts import with_room

PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16}


def autocast(dtype):
    return torch.autocast("cpu", dtype, enabled=dtype is not None)


@pytest.mark.parametrize("dtype", PRECISIONS.values(), ids=PRECISIONS)
def test_the_same_tokens_and_log_probs(dtype, monkeypatch):
    """Heads that share keys, prompts that are padded, rows that end early, room made twice."""
    tokenizer = tiny.tokenizer()
    config = tiny.model(tokenizer, layers=2, width=32, heads=4).config
    config.num_key_value_heads = 2
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()

    def draw():
        with autocast(dtype):
            return sampling.sample(
                model,
                tokenizer,
                ["12+34=", "7+8="],
                max_new_tokens=80,
                group_size=8,
                generator=torch.Generator().manual_seed(0),
            )

    ours = draw()
    monkeypatch.setattr(cache, "empty_cache", lambda model: DynamicCache(config=model.config))
    theirs = draw()
    lengths = ours.mask.sum(dim=1)
    assert lengths.min() < 32 < 64 < lengths.max()
    assert torch.equal(ours.tokens, theirs.tokens)
    assert torch.equal(ours.log_probs, theirs.log_probs)


@pytest.mark.parametrize("dtype", PRECISIONS.values(), ids=PRECISIONS)
def test_each_operation_leaves_what_transformers_layer_holds(dtype):
    """A prompt, its group, tokens one by one, rows that leave: as a sampler does it."""
    generator = torch.Generator().manual_seed(0)
    ours, theirs = cache.RoomyLayer(), DynamicLayer()

    def both(name: str, *arguments: object) -> None:
        with autocast(dtype):
            for layer in (ours, theirs):
                getattr(layer, name)(*arguments)
        for mine, other in ((ours.keys, theirs.keys), (ours.values, theirs.values)):
            assert torch.equal(mine, other.to(mine.dtype))
        assert ours.get_seq_length() == theirs.get_seq_length()
        assert ours.get_mask_sizes(1) == theirs.get_mask_sizes(1)

    def new(rows: int, columns: int) -> tuple[Tensor, Tensor]:
        drawn = torch.randn(2, rows, 3, columns, 4, generator=generator)
        return drawn[0], drawn[1]

    both("update", *new(2, 30))
    both("batch_repeat_interleave", 3)
    for _ in range(9):
        both("update", *new(6, 1))
    both("batch_select_indices", torch.tensor([0, 2, 5]))
    both("update", *new(3, 1))
    assert ours.keys.dtype == (dtype or torch.float32)
    assert [x.shape[2] for x in ours.room] == [with_room(40)] * 2


def test_a_layer_that_keeps_a_window_stays_what_it_was():
    model = tiny.model(tiny.tokenizer(), layers=2, width=32)
    config = model.config
    config.layer_types, config.sliding_window = ["full_attention", "sliding_attention"], 8
    kinds = [type(layer) for layer in cache.empty_cache(model).layers]
    assert kinds == [cache.RoomyLayer, DynamicSlidingWindowLayer]


@pytest.mark.parametrize(
    ("columns", "room"), [(1, 8), (8, 8), (9, 16), (16, 16), (17, 24)], ids=str
)
def test_room_is_made_in_blocks(columns, room):
    assert with_room(columns) == room
