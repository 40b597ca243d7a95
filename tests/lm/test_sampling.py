"""Cached, batched, padded sampling against one full forward pass for each response on its own."""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch.testing import assert_close

from nbcourse.lm import engines, rollouts, sampling, tiny
from nbcourse.lm.log_probs import rollout_log_probs

PROMPTS = ["12+34=", "7+8=", "99*1=", "1-100="]


@pytest.fixture(scope="module")
def tokenizer():
    return tiny.tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer):
    """Random weights, larger than usual: neither uniform nor certain, and some responses end."""
    model = tiny.model(tokenizer, layers=2, width=32)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 2:
                weight.normal_(0, 0.3, generator=generator)
    return model


def draw(model, tokenizer, prompts=PROMPTS, *, seed=0, **options):
    options = {"max_new_tokens": 12, "group_size": 3} | options
    generator = torch.Generator().manual_seed(seed)
    return sampling.sample(model, tokenizer, prompts, generator=generator, **options)


def alone(model, rollout, row, temperature):
    """Log-probs of one response from a forward pass without padding, cache or batch: the oracle."""
    prompt = rollout.prompt_ids[row][rollout.prompt_mask[row]]
    response = rollout.tokens[row][rollout.mask[row]]
    with torch.no_grad():
        logits = model(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1]
    distribution = (logits.double() / temperature).log_softmax(dim=-1)
    return distribution.gather(1, response[:, None]).squeeze(1).float()


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.5])
def test_what_the_sampler_recorded_is_what_a_full_forward_says(model, tokenizer, temperature):
    rollout = draw(model, tokenizer, temperature=temperature)
    assert len(set(rollout.mask.sum(dim=1).tolist())) > 1  # rows did end at different times
    for row in range(len(rollout.tokens)):
        expected = alone(model, rollout, row, temperature)
        assert_close(rollout.log_probs[row][rollout.mask[row]], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("chunked", [False, True])
def test_the_learner_agrees_with_the_sampler(model, tokenizer, chunked):
    rollout = draw(model, tokenizer, temperature=0.8)
    log_probs = rollout_log_probs(model, rollout, temperature=0.8, chunked=chunked)
    assert log_probs.requires_grad
    assert_close(log_probs[rollout.mask], rollout.log_probs[rollout.mask], atol=1e-5, rtol=1e-5)


def test_another_temperature_is_another_policy(model, tokenizer):
    rollout = draw(model, tokenizer, temperature=0.8)
    wrong = rollout_log_probs(model, rollout, temperature=1.0)
    assert (wrong - rollout.log_probs)[rollout.mask].abs().mean() > 0.05


def test_padding_and_batch_order_change_nothing(model, tokenizer):
    """The same responses, scored in another order and beside a prompt that forces more padding."""
    short = sampling.sample(model, tokenizer, PROMPTS, max_new_tokens=8, greedy=True)
    longer = ["1234567890+1234567890=", *reversed(PROMPTS)]
    mixed = sampling.sample(model, tokenizer, longer, max_new_tokens=8, greedy=True)
    assert mixed.texts(tokenizer)[:0:-1] == short.texts(tokenizer)
    for row, other in enumerate(reversed(range(1, len(longer)))):
        assert_close(
            short.log_probs[row][short.mask[row]],
            mixed.log_probs[other][mixed.mask[other]],
            atol=1e-5,
            rtol=1e-5,
        )


def test_samples_follow_the_model(model, tokenizer):
    """First tokens of 6,000 draws: each frequency within five standard errors of its mean."""
    draws = 6_000
    rollout = draw(model, tokenizer, ["7+8="], max_new_tokens=1, group_size=draws)
    with torch.no_grad():
        ids = torch.tensor([tokenizer("7+8=").input_ids])
        probs = model(ids).logits[0, -1].softmax(dim=-1)
    frequency = torch.bincount(rollout.tokens[:, 0], minlength=len(probs)) / draws
    assert ((frequency - probs).abs() < 5 * (probs * (1 - probs) / draws).sqrt() + 1e-9).all()


def test_one_number_a_row_draws_each_token_as_often_as_it_is_likely(monkeypatch):
    """All sixteen numbers (i + ½)/16 in turn: a token of probability k/16 comes k times."""
    probs = torch.tensor([0, 1, 0, 5, 8, 0, 2, 0]) / 16
    middles = (torch.arange(16, dtype=torch.float64)[:, None] + 0.5) / 16
    monkeypatch.setattr(engines, "LARGE_VOCABULARY", 1)
    monkeypatch.setattr(torch, "rand", lambda *_, **__: middles)
    tokens = engines.draw(probs.log().expand(16, 8), None)
    assert torch.bincount(tokens, minlength=8).tolist() == [0, 1, 0, 5, 8, 0, 2, 0]


def test_samples_from_a_large_vocabulary_follow_the_model(model, tokenizer, monkeypatch):
    monkeypatch.setattr(engines, "LARGE_VOCABULARY", 1)
    monkeypatch.setattr(torch.Tensor, "exponential_", None)  # or nothing else was tried
    test_samples_follow_the_model(model, tokenizer)


def test_groups_stand_side_by_side(model, tokenizer):
    rollout = draw(model, tokenizer)
    prompts = [
        tokenizer.decode(row[mask])
        for row, mask in zip(rollout.prompt_ids, rollout.prompt_mask, strict=True)
    ]
    assert prompts == [prompt for prompt in PROMPTS for _ in range(3)]


def test_the_mask_holds_the_end_and_nothing_behind_it(model, tokenizer):
    rollout, eos = draw(model, tokenizer), tokenizer.eos_token_id
    assert rollout.truncated.any()
    assert not rollout.truncated.all()
    for tokens, mask, truncated in zip(
        rollout.tokens, rollout.mask, rollout.truncated, strict=True
    ):
        length = int(mask.sum())
        assert mask.tolist() == [t < length for t in range(len(mask))]
        assert (tokens[:length] == eos).tolist() == [False] * (length - 1) + [not truncated]
        assert (tokens[length:] == eos).all()
    assert rollout.log_probs[~rollout.mask].abs().sum() == 0


def test_the_end_is_trained_although_padding_is_the_same_token(model, tokenizer):
    """Pushing up what was said raises the chance to stop where the response stopped."""
    eos = tokenizer.eos_token_id
    assert tokenizer.pad_token_id == eos
    rollout = draw(model, tokenizer)
    row = int((~rollout.truncated).nonzero()[0])
    end = int(rollout.mask[row].sum()) - 1
    assert rollout.tokens[row, end] == eos

    def gradient(mask):
        loss = -(rollout_log_probs(model, rollout) * mask)[row].sum()
        weight = model.get_output_embeddings().weight
        return torch.autograd.grad(loss, weight)[0][eos]

    from_values = rollout.mask & (rollout.tokens != eos)  # the mask that one must not build
    assert not torch.allclose(gradient(rollout.mask), gradient(from_values))


def test_texts_leave_out_the_end_but_not_what_a_truncated_response_said(model, tokenizer):
    rollout = draw(model, tokenizer)
    for text, length, truncated in zip(
        rollout.texts(tokenizer), rollout.mask.sum(1).tolist(), rollout.truncated, strict=True
    ):
        assert tiny.EOS not in text
        assert len(tokenizer(text).input_ids) == length - (not truncated)


def test_a_response_that_occurs_often_is_decoded_once(model, tokenizer, monkeypatch):
    rollout = draw(model, tokenizer)
    rows = torch.tensor([0, 1, 0, 2, 1, 0])
    repeated = replace(rollout, **{name: t[rows] for name, t in vars(rollout).items()})
    expected = rollout.texts(tokenizer)
    told, decode = [], tokenizer.decode

    def counted(ids):
        told.append(tuple(ids))
        return decode(ids)

    monkeypatch.setattr(tokenizer, "decode", counted)
    assert repeated.texts(tokenizer) == [expected[row] for row in rows.tolist()]
    assert len({*expected[:3]}) == len(told) == len({*told}) == 3


def test_what_stands_behind_the_end_is_not_said(model, tokenizer):
    """Two responses of the same tokens, of which one ended earlier: two texts."""
    rollout = rollouts.from_texts(tokenizer, ["1+1=", "1+1="], ["22", "2"])
    padding = torch.where(rollout.mask, rollout.tokens, rollout.tokens[0])
    assert replace(rollout, tokens=padding).texts(tokenizer) == ["22", "2"]


def test_greedy_takes_the_likeliest_token(model, tokenizer):
    rollout = sampling.sample(model, tokenizer, ["7+8="], max_new_tokens=4, greedy=True)
    ids = tokenizer("7+8=").input_ids
    for token in rollout.tokens[0][rollout.mask[0]].tolist():
        with torch.no_grad():
            assert model(torch.tensor([ids])).logits[0, -1].argmax().item() == token
        ids.append(token)


def test_the_same_generator_gives_the_same_samples(model, tokenizer):
    one, two, other = (draw(model, tokenizer, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.tokens, two.tokens)
    assert one.tokens.shape != other.tokens.shape or not torch.equal(one.tokens, other.tokens)


def test_no_gradient_is_recorded_while_sampling(model, tokenizer):
    assert not draw(model, tokenizer).log_probs.requires_grad


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompts": []}, "prompts is empty"),
        ({"prompts": ["1+1=", ""]}, r"prompts\[1\] has no token"),
        ({"prompts": ["1+x="]}, r"'1\+x=' holds characters that the tokenizer does not know"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"max_new_tokens": 0}, "max_new_tokens=0"),
        ({"group_size": 0}, "group_size=0"),
    ],
    ids=str,
)
def test_mistakes_are_named(model, tokenizer, options, message):
    with pytest.raises(ValueError, match=message):
        draw(model, tokenizer, **options)


def test_sampling_needs_a_generator(model, tokenizer):
    with pytest.raises(ValueError, match="generator is None"):
        sampling.sample(model, tokenizer, PROMPTS, max_new_tokens=2)


def test_the_tiny_model_is_what_it_says(tokenizer):
    model = tiny.model(tokenizer)
    assert 1.0e6 < sum(p.numel() for p in model.parameters()) < 1.2e6
    state = torch.random.get_rng_state()
    again = tiny.model(tokenizer)
    assert torch.equal(torch.random.get_rng_state(), state)
    for one, two in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, two)


def test_the_tokenizer_reads_and_writes_every_character(tokenizer):
    for text in ("12+34=46", "9*9=81", "5-17=-12", " "):
        assert tokenizer.decode(tokenizer(text).input_ids) == text
    lines = tiny.tokenizer("ab\n")
    assert lines.decode(lines("a\n\n\nb").input_ids) == "a\n\n\nb"
    assert len(lines("a\n\n\nb").input_ids) == 5
    with pytest.raises(ValueError, match="each character once"):
        tiny.tokenizer("112")


def test_a_checkpoint_on_disk_samples_the_same(model, tokenizer, tmp_path):
    """The path that a real checkpoint takes: config, safetensors and tokenizer in a folder."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert not list(tmp_path.glob("*.bin"))  # no pickle
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    one, two = (
        draw(m, t)
        for m, t in ((model, tokenizer), (loaded, AutoTokenizer.from_pretrained(tmp_path)))
    )
    assert torch.equal(one.tokens, two.tokens)
    assert_close(one.log_probs, two.log_probs)


def test_every_pair_of_prompt_lengths_gets_its_own_positions():
    for left, right in product(range(1, 4), repeat=2):
        width = max(left, right)
        mask = torch.arange(width) >= torch.tensor([[width - left], [width - right]])
        got = rollouts.positions(mask)
        for row, length in zip(got, (left, right), strict=True):
            assert row[-length:].tolist() == list(range(length))
