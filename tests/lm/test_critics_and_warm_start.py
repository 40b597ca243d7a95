"""Critics, reward model and warm start, on models small enough to check by hand."""

import copy
import math

import pytest
import torch
from torch.testing import assert_close

from nbcourse.lm import rollouts, sampling, tiny
from nbcourse.lm.actor_critic import ActorCritic, Critic
from nbcourse.lm.log_probs import rollout_log_probs
from nbcourse.lm.reward_model import RewardModel, bradley_terry_loss, fit
from nbcourse.lm.warm_start import imitation_loss, warm_start
from nbcourse.tasks import arithmetic

PROMPTS, RESPONSES = ["1+2=", "12+34=", "5-9="], ["3", "46", "-4"]


@pytest.fixture(scope="module")
def tokenizer():
    return tiny.tokenizer()


@pytest.fixture
def model(tokenizer):
    return tiny.model(tokenizer, layers=2, width=32)


@pytest.fixture
def rollout(tokenizer):
    return rollouts.from_texts(tokenizer, PROMPTS, RESPONSES)


def lift(head):
    """Give a head weights that are not zero."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        head.linear.weight.normal_(generator=generator)


def alone(tokenizer, row):
    return rollouts.from_texts(tokenizer, PROMPTS[row : row + 1], RESPONSES[row : row + 1])


def test_texts_that_others_wrote_end_with_eos_under_the_mask(tokenizer, rollout):
    assert rollout.texts(tokenizer) == RESPONSES
    assert rollout.mask.sum(dim=1).tolist() == [2, 3, 3]
    last = rollout.mask.sum(dim=1) - 1
    assert (rollout.tokens[torch.arange(3), last] == tokenizer.eos_token_id).all()
    with pytest.raises(ValueError, match="responses has 1 entries, expected 3"):
        rollouts.from_texts(tokenizer, PROMPTS, ["1"])
    with pytest.raises(ValueError, match="'x' holds characters that the tokenizer does not know"):
        rollouts.from_texts(tokenizer, ["1="], ["x"])


def test_values_start_at_zero_and_leave_the_policy_as_it_was(model, rollout):
    log_probs, values = ActorCritic(model)(rollout, temperature=0.9)
    assert (values == 0).all()
    expected = rollout_log_probs(model, rollout, temperature=0.9)
    assert_close(log_probs[rollout.mask], expected[rollout.mask], atol=1e-6, rtol=1e-5)
    assert (Critic(model)(rollout) == 0).all()


def test_values_alone_are_those_beside_the_log_probs(model, rollout):
    critic = ActorCritic(model)
    lift(critic.head)
    assert torch.equal(critic.values(rollout), critic(rollout)[1])


def test_a_value_belongs_to_the_state_before_the_token(model, tokenizer, rollout):
    """Change token t of a response: the values up to and including column t must not move."""
    critic = Critic(model)
    lift(critic.head)
    changed = rollout.tokens.clone()
    changed[1, 1] = tokenizer("9").input_ids[0]
    other = rollouts.Rollout(**{**vars(rollout), "tokens": changed})
    before, after = critic(rollout)[1], critic(other)[1]
    assert_close(before[:2], after[:2])
    assert (before[2] - after[2]).abs() > 1e-6


@pytest.mark.parametrize("kind", ["actor-critic", "critic", "reward model"])
def test_padding_moves_no_value_and_no_score(model, tokenizer, rollout, kind):
    if kind == "reward model":
        judge = RewardModel(model)
        lift(judge.head)
        together = judge(rollout)
        apart = torch.cat([judge(alone(tokenizer, row)) for row in range(3)])
        assert_close(together, apart, atol=1e-5, rtol=1e-5)
        return
    critic = ActorCritic(model) if kind == "actor-critic" else Critic(model)
    lift(critic.head)
    read = (lambda r: critic(r)[1]) if kind == "actor-critic" else critic
    for row in range(3):
        single = alone(tokenizer, row)
        assert_close(read(rollout)[row][rollout.mask[row]], read(single)[0], atol=1e-5, rtol=1e-5)


def test_garbage_in_the_padding_moves_nothing(model, tokenizer, rollout):
    """Padding repeats EOS and so looks like the end; here it does not."""
    tokens = rollout.tokens.masked_fill(~rollout.mask, tokenizer("7").input_ids[0])
    garbage = rollouts.Rollout(**{**vars(rollout), "tokens": tokens})
    judge, critic = RewardModel(model), Critic(model)
    lift(judge.head)
    lift(critic.head)
    assert_close(judge(garbage), judge(rollout))
    kept = rollout.mask
    assert_close(critic(garbage)[kept], critic(rollout)[kept])
    assert_close(rollout_log_probs(model, garbage)[kept], rollout_log_probs(model, rollout)[kept])


def test_a_shared_backbone_learns_from_the_critic_and_a_separate_one_does_not(model, rollout):
    shared, separate = ActorCritic(model), Critic(copy.deepcopy(model))
    for critic in (shared, separate):
        lift(critic.head)
    model.zero_grad()
    separate(rollout)[rollout.mask].sum().backward()
    assert all(p.grad is None for p in model.parameters())
    shared(rollout)[1][rollout.mask].sum().backward()
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_the_bradley_terry_loss_by_hand():
    """Differences 2 and −1: −log σ(2) = 0.126928, −log σ(−1) = 1.313262, mean 0.720095."""
    chosen, rejected = torch.tensor([3.0, 0.0]).double(), torch.tensor([1.0, 1.0]).double()
    assert bradley_terry_loss(chosen, rejected).item() == pytest.approx(0.720095, abs=1e-6)
    assert bradley_terry_loss(chosen + 7, rejected + 7).item() == pytest.approx(0.720095, abs=1e-6)
    same = torch.zeros(2).double()
    assert bradley_terry_loss(same, same).item() == pytest.approx(math.log(2))
    with pytest.raises(ValueError, match=r"rejected has shape \(1,\), expected \(2,\)"):
        bradley_terry_loss(chosen, rejected[:1])


def test_the_bradley_terry_gradient_is_the_probability_of_being_wrong():
    """∂L/∂s_chosen = −σ(s_rejected − s_chosen) / B."""
    chosen = torch.tensor([3.0, 0.0, -2.0], dtype=torch.float64, requires_grad=True)
    rejected = torch.tensor([1.0, 1.0, 4.0], dtype=torch.float64)
    bradley_terry_loss(chosen, rejected).backward()
    assert_close(chosen.grad, -(rejected - chosen.detach()).sigmoid() / 3)


def test_a_reward_model_learns_to_prefer_right_answers(model, tokenizer):
    judge = RewardModel(model)
    right = rollouts.from_texts(tokenizer, PROMPTS, RESPONSES)
    wrong = rollouts.from_texts(tokenizer, PROMPTS, ["4", "45", "4"])
    optimiser = torch.optim.AdamW(judge.parameters(), lr=3e-3)
    losses = []
    for _ in range(40):
        loss = bradley_terry_loss(judge(right), judge(wrong))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(2), abs=1e-6)  # the head starts at zero
    assert losses[-1] < 0.1


def comparisons(tokenizer, count):
    """An answer from 5 to 9 is preferred to one from 0 to 4, whatever the prompt."""
    generator = torch.Generator().manual_seed(3)
    drawn = torch.randint(5, (4, count), generator=generator).tolist()
    prompts = [f"{a}+{b}=" for a, b in zip(*drawn[:2], strict=True)]
    sides = ([str(5 + x) for x in drawn[2]], [str(x) for x in drawn[3]])
    return [rollouts.from_texts(tokenizer, prompts, side) for side in sides]


def test_fitting_separates_what_can_be_separated(model, tokenizer):
    """From log 2 to nearly nothing, on comparisons never seen as well."""
    preferred, others = comparisons(tokenizer, 80)
    seen = [rollouts.select(side, torch.arange(60)) for side in (preferred, others)]
    judge = RewardModel(model)
    losses = fit(
        judge,
        *seen,
        steps=60,
        batch_size=20,
        learning_rate=3e-3,
        generator=torch.Generator().manual_seed(0),
        progress=False,
    )
    assert len(losses) == 60
    assert losses[0] == pytest.approx(math.log(2), abs=1e-6)
    assert sum(losses[-5:]) / 5 < 0.1
    with torch.no_grad():
        new = [judge(rollouts.select(side, torch.arange(60, 80))) for side in (preferred, others)]
    assert (new[0] > new[1]).float().mean() >= 0.95


def test_fitting_goes_through_all_comparisons_before_it_repeats_one(model, tokenizer, monkeypatch):
    """Seven comparisons, batches of three: the first seven rows asked for are all different."""
    from nbcourse.lm import reward_model

    preferred, others = comparisons(tokenizer, 7)
    asked, whole = [], reward_model.select

    def select(side, rows):
        asked.append((side is preferred, rows.tolist()))
        return whole(side, rows)

    monkeypatch.setattr(reward_model, "select", select)
    options = {"steps": 7, "batch_size": 3, "progress": False}
    fit(
        RewardModel(model), preferred, others, generator=torch.Generator().manual_seed(0), **options
    )
    rows = {side: [r for which, part in asked if which == side for r in part] for side in (0, 1)}
    assert rows[0] == rows[1]  # row by row, on both sides
    assert all(sorted(rows[0][i : i + 7]) == list(range(7)) for i in (0, 7, 14))


def test_what_cannot_be_fitted_is_refused(model, tokenizer):
    preferred, others = comparisons(tokenizer, 4)
    generator = torch.Generator()
    judge = RewardModel(model)
    fewer = rollouts.select(others, torch.arange(3))
    with pytest.raises(ValueError, match="others has 3 rows, expected 4 as preferred has"):
        fit(judge, preferred, fewer, steps=1, generator=generator, progress=False)
    for wrong in ({"steps": 0}, {"batch_size": 0}, {"learning_rate": 0.0}):
        options = {"steps": 1, "batch_size": 2, "learning_rate": 1e-3} | wrong
        ((name, value),) = wrong.items()
        with pytest.raises(ValueError, match=f"{name}={value}.*: expected positive numbers"):
            fit(judge, preferred, others, generator=generator, progress=False, **options)
    with torch.no_grad():
        judge.head.linear.bias.fill_(math.nan)
    with pytest.raises(FloatingPointError, match="reward model: the loss of step 1 is nan"):
        fit(judge, preferred, others, steps=1, generator=generator, progress=False)


def test_the_first_loss_of_a_warm_start_is_the_mean_over_response_tokens(model, tokenizer):
    pairs = list(zip(PROMPTS, RESPONSES, strict=True))
    total, count = 0.0, 0
    for prompt, response in pairs:
        ids = tokenizer(prompt).input_ids
        answer = [*tokenizer(response).input_ids, tokenizer.eos_token_id]
        with torch.no_grad():
            logits = model(torch.tensor([ids + answer])).logits[0, len(ids) - 1 : -1]
        total -= logits.double().log_softmax(-1)[range(len(answer)), answer].sum().item()
        count += len(answer)
    losses = warm_start(model, tokenizer, lambda _: pairs, steps=1, batch_size=3, progress=False)
    assert losses == [pytest.approx(total / count, rel=1e-5)]


@pytest.mark.slow
def test_a_warm_start_teaches_to_answer_and_to_stop(tokenizer):
    """One-digit sums: a small model gets most of them right in a few seconds."""
    model = tiny.model(tokenizer, layers=2, width=64)
    generator = torch.Generator().manual_seed(0)

    def examples(count):
        drawn = arithmetic.problems(count, split="train", generator=generator, digits=1)
        return [(problem.prompt, problem.answer) for problem in drawn]

    losses = warm_start(
        model, tokenizer, examples, steps=100, batch_size=64, learning_rate=5e-3, progress=False
    )
    assert losses[-1] < 0.2 * losses[0]
    asked = arithmetic.problems(200, split="train", generator=generator, digits=1)
    rollout = sampling.sample(
        model, tokenizer, [p.prompt for p in asked], max_new_tokens=4, greedy=True
    )
    rewards = arithmetic.rewards(rollout.texts(tokenizer), [p.answer for p in asked])
    assert rewards.mean() > 0.8
    assert not rollout.truncated.any()


def test_a_warm_start_that_breaks_says_where(model, tokenizer):
    with torch.no_grad():
        model.base_model.embed_tokens.weight.fill_(math.nan)
    pairs = [("1+2=", "3")]
    with pytest.raises(FloatingPointError, match="the loss of step 1 is nan"):
        warm_start(model, tokenizer, lambda _: pairs, steps=2, batch_size=1, progress=False)
    with pytest.raises(ValueError, match="steps=0"):
        warm_start(model, tokenizer, lambda _: pairs, steps=0)


def test_a_warm_start_asks_for_128_examples_unless_told_otherwise(model, tokenizer):
    asked = []

    def examples(count):
        asked.append(count)
        return [("1+2=", "3")]

    warm_start(model, tokenizer, examples, steps=2, progress=False)
    assert asked == [128, 128]


def test_parts_of_a_batch_add_up_to_its_loss(model, rollout):
    """Each row's share is its tokens: they have 2, 3 and 3, EOS counted."""
    parts = [imitation_loss(model, rollout, torch.tensor([row])) for row in range(3)]
    together = imitation_loss(model, rollout, torch.tensor([2, 0]))
    assert_close(sum(parts), imitation_loss(model, rollout))
    assert_close(together, parts[2] + parts[0])
    assert min(parts) > 0
