"""The model and the tokenizer that train while one watches."""

import pytest
import torch

from nbcourse.lm import tiny


def test_the_defaults_make_four_layers_of_four_heads_and_about_a_million_weights():
    made = tiny.model(tiny.tokenizer())
    config = made.config
    assert (config.num_hidden_layers, config.num_attention_heads, config.hidden_size) == (4, 4, 128)
    assert config.max_position_embeddings == 128
    assert sum(p.numel() for p in made.parameters()) == pytest.approx(1e6, rel=0.1)


@pytest.mark.parametrize(("width", "heads"), [(12, 4), (36, 8), (4, 4)])
def test_a_width_that_heads_cannot_share_is_refused(width, heads):
    expected = f"width is {width}, expected a multiple of 2 \\* heads = {2 * heads}"
    with pytest.raises(ValueError, match=expected):
        tiny.model(tiny.tokenizer(), layers=1, width=width, heads=heads)


def test_a_seed_makes_the_weights_and_leaves_other_draws_alone():
    tokenizer = tiny.tokenizer()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, again, other = (
        tiny.model(tokenizer, layers=1, width=16, heads=2, seed=seed) for seed in (1, 1, 2)
    )
    assert torch.equal(torch.rand(3), expected)
    first, same, different = (x.model.embed_tokens.weight for x in (one, again, other))
    assert torch.equal(first, same)
    assert not torch.equal(first, different)


def test_a_character_stands_once():
    with pytest.raises(ValueError, match="characters is 'aba', expected each character once"):
        tiny.tokenizer("aba")
