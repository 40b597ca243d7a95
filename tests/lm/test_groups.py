"""Rows that share a prompt: run once for the group, cut out, put together; nothing must move."""

import copy
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from nbcourse.lm import rollouts, tiny
from nbcourse.lm.actor_critic import ActorCritic, Critic
from nbcourse.lm.log_probs import rollout_log_probs, rollout_states

PROMPTS = ["1+2=", "123+45678=", "9="]
RESPONSES = ["3", "46", "", "5", "12345", "0", "7", "-4-4", "99"]
GROUP = 3
FIELDS = ("prompt_ids", "prompt_mask", "tokens", "mask", "log_probs", "truncated")


@pytest.fixture(scope="module")
def tokenizer():
    return tiny.tokenizer()


def test_a_tokenizer_that_begins_every_text_with_a_bos_begins_neither_part_with_one(tokenizer):
    """A response goes on where its prompt ends, and a template has the BOS in its own text."""
    from tokenizers.processors import TemplateProcessing

    beginning = tiny.tokenizer()
    bos = (beginning.eos_token, beginning.eos_token_id)
    beginning.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{bos[0]} $A", special_tokens=[bos]
    )
    plain = tokenizer("1+2=").input_ids
    assert beginning("1+2=").input_ids == [bos[1], *plain]
    made = rollouts.from_texts(beginning, ["1+2="], ["3"])
    assert made.prompt_ids.tolist() == [plain]
    assert made.tokens.tolist() == [[*tokenizer("3").input_ids, beginning.eos_token_id]]
    assert rollouts.encode(beginning, ["1+2="])[0].tolist() == [plain]


@pytest.fixture(scope="module")
def model(tokenizer):
    """In double precision, but for the norms, which Qwen2 takes in float32."""
    return tiny.model(tokenizer, layers=2, width=32).double()


def with_garbage(rollout, seed=0):
    """Padding of prompts and responses filled with tokens at random, alike within a group."""
    generator = torch.Generator().manual_seed(seed)
    prompts = torch.randint(2, 17, rollout.prompt_ids[::GROUP].shape, generator=generator)
    prompts = prompts.repeat_interleave(GROUP, dim=0)
    tokens = torch.randint(2, 17, rollout.tokens.shape, generator=generator)
    return replace(
        rollout,
        prompt_ids=torch.where(rollout.prompt_mask, rollout.prompt_ids, prompts),
        tokens=torch.where(rollout.mask, rollout.tokens, tokens),
        log_probs=rollout.log_probs.masked_fill(~rollout.mask, torch.nan),
    )


@pytest.fixture(params=["clean", "garbage"])
def rollout(tokenizer, request):
    made = rollouts.from_texts(tokenizer, [p for p in PROMPTS for _ in range(GROUP)], RESPONSES)
    return with_garbage(made) if request.param == "garbage" else made


@pytest.fixture
def one_token(tokenizer):
    """Every response is its end alone: there is no second pass through the model."""
    return rollouts.from_texts(tokenizer, [p for p in PROMPTS for _ in range(GROUP)], [""] * 9)


def lifted(critic):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        critic.head.linear.weight.normal_(generator=generator)
        critic.head.linear.bias.fill_(0.3)
    return critic.double()


READERS = {
    "log-probs": lambda model: (
        model,
        lambda r, g: [rollout_log_probs(model, r, temperature=0.7, group_size=g)],
    ),
    "log-probs, chunked": lambda model: (
        model,
        lambda r, g: [rollout_log_probs(model, r, temperature=0.7, chunked=True, group_size=g)],
    ),
    "states": lambda model: (model, lambda r, g: [rollout_states(model, r, group_size=g)]),
    "critic": lambda model: both(lifted(Critic(model)), lambda c, r, g: [c(r, group_size=g)]),
    "actor-critic": lambda model: both(
        lifted(ActorCritic(model)), lambda c, r, g: list(c(r, temperature=0.7, group_size=g))
    ),
}


def both(module, read):
    return module, lambda rollout, group: read(module, rollout, group)


def value_and_gradient(reader, model, rollout, group):
    """What is read, and the gradient of a sum with random weights over the response tokens."""
    module, read = READERS[reader](copy.deepcopy(model))
    found = read(rollout, group)
    generator = torch.Generator().manual_seed(2)
    total = 0.0
    for x in found:
        weights = torch.randn(x.shape, generator=generator, dtype=torch.float64)
        total = total + (x * weights)[rollout.mask].sum()
    total.backward()
    gradient = {n: p.grad for n, p in module.named_parameters() if p.grad is not None}
    return [x.detach()[rollout.mask] for x in found], gradient


def same(one, two):
    for ours, theirs in zip(one[0], two[0], strict=True):
        assert_close(ours, theirs, rtol=1e-5, atol=1e-6)  # values come in float32
    assert one[1].keys() == two[1].keys()
    assert one[1]
    largest = max(gradient.abs().max().item() for gradient in one[1].values())
    for name, gradient in one[1].items():
        assert_close(gradient, two[1][name], rtol=1e-5, atol=1e-6 * largest)


@pytest.mark.parametrize("reader", READERS)
def test_a_prompt_that_runs_once_gives_the_same_numbers_and_gradients(reader, model, rollout):
    same(
        value_and_gradient(reader, model, rollout, GROUP),
        value_and_gradient(reader, model, rollout, 1),
    )


@pytest.mark.parametrize("reader", READERS)
def test_responses_of_one_token(reader, model, one_token):
    same(
        value_and_gradient(reader, model, one_token, GROUP),
        value_and_gradient(reader, model, one_token, 1),
    )


@pytest.mark.parametrize("group", [1, GROUP])
@pytest.mark.parametrize("reader", READERS)
def test_each_row_as_if_it_were_alone(reader, model, rollout, group):
    _, read = READERS[reader](copy.deepcopy(model))
    together = read(rollout, group)
    for row in range(len(rollout.tokens)):
        single = rollouts.select(rollout, torch.tensor([row]))
        for x, y in zip(together, read(single, 1), strict=True):
            assert_close(x[row][rollout.mask[row]], y[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("rows", "group"),
    [(range(9), 2), (range(9), 9), (range(8), 3), ([0, 1, 3, 2, 4, 5], 3), (range(1, 7), 3)],
    ids=["no divisor", "other prompts", "a row short", "a row astray", "shifted by one"],
)
def test_rows_that_are_no_groups_are_refused(reader, model, rollout, rows, group):
    _, read = READERS[reader](model if "critic" not in reader else copy.deepcopy(model))
    part = rollouts.select(rollout, torch.tensor(list(rows)))
    expected = rf"^group_size is {group}, expected rollouts in which the prompt changes only at "
    with pytest.raises(ValueError, match=expected):
        read(part, group)


# ---------------------------------------------------------------- cutting out, putting together


def test_the_rows_of_groups():
    assert rollouts.group_rows(torch.tensor([2, 0]), 3).tolist() == [6, 7, 8, 0, 1, 2]
    assert rollouts.group_rows(torch.tensor([3, 1, 2]), 1).tolist() == [3, 1, 2]
    nothing = rollouts.group_rows(torch.tensor([], dtype=torch.long), 4)
    assert nothing.tolist() == []
    assert nothing.dtype == torch.long


def content(rollout):
    """Rows as they are without padding."""
    return [
        (
            rollout.prompt_ids[i][rollout.prompt_mask[i]].tolist(),
            rollout.tokens[i][rollout.mask[i]].tolist(),
            rollout.log_probs[i][rollout.mask[i]].tolist(),
            bool(rollout.truncated[i]),
        )
        for i in range(len(rollout.tokens))
    ]


def numbered(rollout):
    """Log-probs that tell each token from every other, and some truncated rows."""
    numbers = -torch.arange(rollout.mask.numel(), dtype=torch.float32).view_as(rollout.mask)
    return replace(
        rollout,
        log_probs=torch.where(rollout.mask, numbers, rollout.log_probs),
        truncated=torch.tensor([i % 4 == 1 for i in range(len(rollout.mask))]),
    )


@pytest.mark.parametrize("rows", [[0], [4], [8, 0, 3], [2, 2], list(range(9)), [6, 7, 8]], ids=str)
def test_rows_are_cut_out_in_the_order_wanted_without_idle_padding(rollout, rows):
    rollout = numbered(rollout)
    part = rollouts.select(rollout, torch.tensor(rows))
    whole = content(rollout)
    assert content(part) == [whole[row] for row in rows]
    assert part.prompt_ids.shape[1] == max(len(whole[row][0]) for row in rows)
    assert part.tokens.shape[1] == max(len(whole[row][1]) for row in rows)
    for name in FIELDS:
        assert getattr(part, name).dtype == getattr(rollout, name).dtype
    # Prompts end, and responses begin, at the seam.
    assert part.prompt_mask[:, -1].all()
    assert part.mask[:, 0].all()


@pytest.mark.parametrize(
    "split", [[[0, 1, 2], [3, 4, 5], [6, 7, 8]], [[8], [0, 4], [1, 2, 3, 5, 6, 7]]], ids=str
)
def test_what_was_cut_up_can_be_put_together(rollout, split):
    rollout = numbered(rollout)
    whole = content(rollout)
    joined = rollouts.concatenate([rollouts.select(rollout, torch.tensor(rows)) for rows in split])
    assert content(joined) == [whole[row] for rows in split for row in rows]
    order = torch.tensor([row for rows in split for row in rows])
    for name in ("prompt_mask", "mask", "truncated"):
        assert torch.equal(getattr(joined, name), getattr(rollout, name)[order])
    assert joined.tokens.shape == rollout.tokens.shape
    again = rollouts.select(joined, order.argsort())
    assert content(again) == whole


def test_putting_together_one_is_that_one(rollout):
    joined = rollouts.concatenate([rollout])
    for name in FIELDS:
        assert_close(getattr(joined, name), getattr(rollout, name), equal_nan=True)


def test_a_model_reads_the_same_before_and_after(model, rollout):
    parts = [rollouts.select(rollout, torch.tensor(rows)) for rows in ([5, 1], [0, 7, 8])]
    joined = rollouts.concatenate(parts)
    with torch.no_grad():
        whole, found = rollout_log_probs(model, rollout), rollout_log_probs(model, joined)
    for row, origin in enumerate([5, 1, 0, 7, 8]):
        kept = rollout.mask[origin]
        assert_close(found[row][joined.mask[row]], whole[origin][kept], rtol=1e-6, atol=1e-7)
