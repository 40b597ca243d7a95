"""A step of GRPO on SmolLM2 where it was fetched, and elsewhere on a random model of its shape."""

import pytest
import torch
from torch.testing import assert_close

from nbcourse.lm import places
from nbcourse.training.experience import Draws, Experience, collect
from nbcourse.training.recipe import check
from nbcourse.training.update import Update, backward
from tests import hub, small

GROUP = 3


def random_model(folder) -> str:
    """A Llama as SmolLM2 is one, with all its tokens, but narrower and with two layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    path = hub.checkpoint(folder)  # for its tokenizer, chat template and two ends
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=49_152,
            hidden_size=72,
            intermediate_size=192,
            num_hidden_layers=2,
            num_attention_heads=9,
            num_key_value_heads=3,
            max_position_embeddings=512,
            tie_word_embeddings=True,
        )
        LlamaForCausalLM(config).save_pretrained(folder)
    return str(path)


@pytest.fixture(scope="module")
def step(tmp_path_factory):
    """A learner and what it sampled, scored at random, so that there is something to learn."""
    real = places.located("smollm2") is not None
    recipe = check(
        {
            "steps": 1,
            "algorithm": {"name": "grpo"},
            "task": {"name": "word-problems", "max_steps": 1, "distractors": 0.0},
            "prompt": {"style": "chat"},
            "model": {
                "source": "smollm2" if real else random_model(tmp_path_factory.mktemp("hub") / "m")
            },
            "rollouts": {"prompts": 2, "group_size": GROUP, "max_new_tokens": 12},
            "optimiser": {"prompts_at_once": 1},
        }
    )
    learner = small.learner(recipe)
    return learner, collect(learner, Draws(recipe), small.ALONE)


def one_by_one(learner, experience: Experience, advantages: torch.Tensor) -> None:
    """The gradient of −Σ_i A_i · mean_t log π / N, each answer by itself, unpadded."""
    rollout = experience.rollout
    for i, advantage in enumerate(advantages.tolist()):
        prompt = rollout.prompt_ids[i][rollout.prompt_mask[i]]
        answer = rollout.tokens[i][rollout.mask[i]]
        logits = learner.policy(torch.cat([prompt, answer])[None]).logits[0, len(prompt) - 1 : -1]
        log_probs = logits.log_softmax(dim=-1).gather(1, answer[:, None])
        (-advantage * log_probs.mean() / len(advantages)).backward()


def test_the_sampler_tells_the_log_probs_that_the_learner_has(step):
    learner, experience = step
    rollout = experience.rollout
    found = learner.log_probs(rollout, group_size=GROUP)
    assert_close(found[rollout.mask], rollout.log_probs[rollout.mask], atol=1e-3, rtol=1e-3)


def test_the_gradient_of_a_step_is_that_of_its_answers_one_by_one(step):
    learner, experience = step
    scores = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 0.0])
    groups = scores.view(-1, GROUP)
    advantages = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
    learner.optimiser.zero_grad()
    one_by_one(learner, experience, advantages.flatten())
    expected = {name: parameter.grad.clone() for name, parameter in learner.trained()}

    recipe, mask = learner.recipe, experience.rollout.mask
    ends = mask.sum(dim=1, keepdim=True) - 1
    rewards = torch.zeros(mask.shape).scatter_(1, ends, scores[:, None])
    estimate = recipe.row.estimate(recipe.settings, rewards=rewards, mask=mask, group_size=GROUP)
    update = Update(learner, experience, estimate, recipe.penalty, small.ALONE)
    backward(update, torch.arange(2), first=True)
    largest = max(gradient.abs().max().item() for gradient in expected.values())
    assert largest > 0
    for name, parameter in learner.trained():
        assert_close(parameter.grad, expected[name], rtol=1e-3, atol=1e-4 * largest)
