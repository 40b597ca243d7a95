"""What bounds memory changes nothing else: activations computed twice, logits never whole."""

import copy
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from nbcourse.experiments.run import keep_model
from nbcourse.lm import log_probs, sampling
from nbcourse.training import learner as module
from nbcourse.training.algorithms import ALGORITHMS
from nbcourse.training.experience import Draws, add_reference_and_values, collect
from nbcourse.training.learner import Learner
from nbcourse.training.loop import begin, learn, one_step
from nbcourse.training.recipe import check
from nbcourse.training.update import Update, backward
from tests.effort import swept
from tests.small import ALONE, learner, recipe, tables, weights

KINDS = {
    **{name: {"algorithm": {"name": name}} for name in ALGORITHMS},
    "ppo, own critic": {"algorithm": {"name": "ppo"}, "critic": {"shared": False}},
    "grpo, KL": {"algorithm": {"name": "grpo"}, "kl": {"beta": 0.1}},
    "ppo, bfloat16": {"algorithm": {"name": "ppo"}, "model": {"precision": "bfloat16"}},
}


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """A folder with a model of three layers that gives the right answer now and then."""
    folder = tmp_path_factory.mktemp("warm")
    model = {"layers": 3, "width": 32, "heads": 4}
    made = learner(recipe(model=model, warm_start={"steps": 30, "batch_size": 32}))
    keep_model(folder, made.tokenizer, made.policy)
    return str(folder / "model")


@pytest.fixture
def both(warm):
    """both(kind): two learners that differ in nothing but how often they compute activations."""

    def make(kind):
        made = []
        for twice in (False, True):
            content = tables(**KINDS[kind])
            precision = KINDS[kind].get("model", {})
            model = {"source": warm, "gradient_checkpointing": twice, **precision}
            made.append(learner(check({**content, "model": model})))
        for critic in (one.critic for one in made if one.critic is not None):
            with torch.no_grad():  # a head of zeros would pass no gradient on
                critic.head.linear.weight.normal_(generator=torch.Generator().manual_seed(1))
        return made

    return make


def loss_of(made: Learner, rollout):
    """A sum with random weights of all that the learner computes of a rollout."""
    log_probs, values = made.log_probs_and_values(rollout, group_size=4)
    source = torch.Generator().manual_seed(2)
    total = torch.zeros(())
    for x in (log_probs, values):
        if x is not None:
            factors = torch.randn(x.shape, generator=source)
            total = total + (factors * x)[rollout.mask].sum()
    return total


def sampled(made: Learner):
    problems = made.recipe.task.build().draw(
        5, split="train", generator=torch.Generator().manual_seed(0)
    )
    return sampling.sample(
        made.policy,
        made.tokenizer,
        made.prompts(problems),
        max_new_tokens=6,
        group_size=4,
        generator=torch.Generator().manual_seed(0),
    )


@contextmanager
def counted():
    """How many numbers autograd keeps for the way back, each tensor once."""
    kept = {}

    def pack(tensor):
        kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield kept


# ---------------------------------------------------------------- activations computed twice


# No critic and no ratio, each kind of critic, a ratio of tokens and of responses, a reference, low
# precision: what a learner computes twice does not depend on the rest of a row.
OF_EACH_KIND = ("reinforce", "ppo", "grpo", "gspo", *(kind for kind in KINDS if "," in kind))


@pytest.mark.parametrize("kind", swept(KINDS, keep=OF_EACH_KIND))
def test_an_update_is_the_same(both, kind):
    """Gradient and numbers of a batch whose sampler was another policy, in two slices.

    Prompts are not shared within a group then, so float32 sums in another order; bfloat16 has eight
    bits.
    """
    learners = both(kind)
    made = learners[0]
    experience = collect(made, Draws(made.recipe), ALONE)
    noise = 0.2 * torch.randn(
        experience.rollout.mask.shape, generator=torch.Generator().manual_seed(0)
    )
    rollout = replace(experience.rollout, log_probs=experience.rollout.log_probs + noise)
    experience = replace(
        experience,
        rollout=rollout,
        scores=torch.arange(24.0) % 5,
        greedy_scores=torch.ones(24),
        old_log_probs=rollout.log_probs,
    )
    penalty = made.recipe.penalty
    asked = penalty.placement != "none"
    experience = add_reference_and_values(made, experience, ALONE, reference=asked)
    estimate = made.recipe.row.estimate(
        made.recipe.settings,
        rewards=experience.rewards(penalty),
        mask=rollout.mask,
        values=experience.values,
        group_size=4,
        greedy_scores=experience.greedy_scores,
        average=0.0,
        **experience.rewards_of_steps(),
    )
    found = [
        backward(
            Update(one, experience, estimate, penalty, ALONE), torch.arange(6), first=True
        ).result()
        for one in learners
    ]
    tolerance = 0.05 if "bfloat16" in kind else 1e-4
    assert found[1] == pytest.approx(found[0], rel=tolerance, abs=tolerance)
    gradients = [{name: p.grad for name, p in one.trained()} for one in learners]
    largest = max(gradient.abs().max().item() for gradient in gradients[0].values())
    assert largest > 0
    for name, ours in gradients[0].items():
        assert_close(gradients[1][name], ours, rtol=tolerance, atol=tolerance * largest)


@pytest.mark.parametrize("kind", ["grpo", "ppo", "ppo, own critic"])
def test_fewer_numbers_are_kept_for_the_way_back(both, kind):
    """Of a layer only what comes in; three layers of a critic of its own count too."""
    kept = []
    for made in both(kind):
        rollout = sampled(made)
        with counted() as found:
            loss_of(made, rollout)
        parameters = {p.data_ptr() for _, p in made.trained()}
        kept.append(sum(n for place, n in found.items() if place not in parameters))
    assert kept[1] < 0.5 * kept[0]


def test_dropout_stays_off_where_activations_are_computed_twice(both):
    """Transformers' layers take the word of training mode for both, and we want one of them."""
    once, twice = both("ppo, own critic")
    rollout = sampled(once)
    for made in (once, twice):
        for part in (made.policy, made.critic):
            for layer in part.modules():
                if hasattr(layer, "attention_dropout"):
                    layer.attention_dropout = 0.5
    losses = [loss_of(made, rollout) for made in (once, twice)]
    assert losses[1].item() == pytest.approx(losses[0].item(), rel=1e-4)
    gradients = []
    for made, loss in zip((once, twice), losses, strict=True):
        loss.backward()
        gradients.append([p.grad for _, p in made.trained()])
    for ours, theirs in zip(*gradients, strict=True):
        assert_close(theirs, ours, rtol=1e-3, atol=1e-3 * ours.abs().max().item())


def test_afterwards_the_models_are_as_they_were(both):
    """Sampling between the updates uses the cache, which layers that compute twice do not."""
    _, twice = both("ppo, own critic")
    rollout = sampled(twice)
    loss_of(twice, rollout).backward()
    for part in (twice.policy, twice.critic.backbone):
        assert not any(layer.training for layer in part.modules())
    assert torch.equal(sampled(twice).tokens, rollout.tokens)


@pytest.mark.filterwarnings("error")
def test_no_layer_is_asked_for_a_cache_that_it_does_not_keep(both, caplog):
    _, twice = both("grpo, KL")
    one_step(twice, begin(twice.recipe), ALONE)
    assert "incompatible" not in caplog.text


# ---------------------------------------------------------------- logits that are never whole


@pytest.mark.parametrize("kind", ["grpo", "grpo, KL", "ppo, own critic"])
def test_a_large_vocabulary_changes_nothing(both, kind, monkeypatch):
    """The policy of an update, the reference, and the gradient of both ways."""
    made, _ = both(kind)
    experience = collect(made, Draws(made.recipe), ALONE)
    rollout = experience.rollout
    found = []
    for threshold in (10_000, made.policy.config.vocab_size):
        monkeypatch.setattr(module, "CHUNKED_VOCABULARY", threshold)
        one = copy.deepcopy(made)
        loss_of(one, rollout).backward()
        seen = add_reference_and_values(one, experience, ALONE, reference=True)
        found.append((one, seen.ref_log_probs))
    assert_close(found[1][1][rollout.mask], found[0][1][rollout.mask], rtol=1e-5, atol=1e-5)
    (small, _), (large, _) = found
    for (name, ours), (other, theirs) in zip(small.trained(), large.trained(), strict=True):
        assert name == other
        assert_close(theirs.grad, ours.grad, rtol=1e-4, atol=1e-4 * ours.grad.abs().max().item())


def test_from_there_on_no_tensor_has_a_number_for_every_token_of_the_vocabulary(monkeypatch):
    """Kept for the way back; the output matrix has one too, and is a parameter."""
    monkeypatch.setattr(log_probs, "KEPT", 0)
    made = learner(recipe("grpo"))
    rollout = sampled(made)
    width = made.policy.config.vocab_size
    shapes = []

    def pack(tensor):
        shapes.append(tuple(tensor.shape))
        return tensor

    for threshold, whole in ((width + 1, True), (width, False)):
        monkeypatch.setattr(module, "CHUNKED_VOCABULARY", threshold)
        shapes.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss_of(made, rollout)
        assert any(s[-1:] == (width,) and s[0] != 32 for s in shapes) == whole


# ---------------------------------------------------------------- a critic's own learning rate


@pytest.mark.parametrize("shared", [True, False])
def test_the_critics_own_parameters_move_at_their_own_rate(shared):
    """AdamW's first step has the length of the learning rate, wherever there is a gradient."""
    chosen = recipe(
        "ppo",
        critic={"shared": shared, "learning_rate": 1e-2},
        optimiser={"learning_rate": 1e-4, "warm_up": 1},
        warm_start={"steps": 30, "batch_size": 32},
    )
    made = learner(chosen)
    before = weights(made)
    state = begin(chosen)
    experience = add_reference_and_values(
        made, collect(made, Draws(chosen), ALONE), ALONE, reference=False
    )
    experience = replace(experience, scores=torch.arange(24.0) % 5)
    estimate = chosen.row.estimate(
        chosen.settings,
        rewards=experience.rewards(chosen.penalty),
        mask=experience.rollout.mask,
        values=experience.values,
        group_size=4,
    )
    learn(Update(made, experience, estimate, chosen.penalty, ALONE), state.step)
    policy = {id(p) for p in made.policy.parameters()}
    for name, parameter in made.trained():
        rate = 1e-4 if id(parameter) in policy else 1e-2
        moved = (parameter.detach() - before[name]).abs().max().item()
        assert moved <= 1.001 * rate / 2  # half of it: the first of two steps of the warm-up
        if name.endswith(("head.linear.weight", "norm.weight")) and moved:
            assert moved > 0.9 * rate / 2
    rates = sorted(group["lr"] for group in made.optimiser.param_groups)
    assert rates == pytest.approx([0.5e-4, 0.5e-2])


def test_without_one_there_is_one_rate_for_all():
    made = learner(recipe("ppo", critic={"shared": False}))
    assert [group["lr"] for group in made.optimiser.param_groups] == [3e-4]
