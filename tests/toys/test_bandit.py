"""The closed forms of chapter 1, against finite differences and plain loops."""

import math

import pytest
import torch
from torch.testing import assert_close

from nbcourse.toys import bandit

LOGITS = torch.tensor([0.3, -1.2, 0.8, 0.1], dtype=torch.float64)
REWARDS = torch.tensor([1.0, 2.0, -0.5, 5.0], dtype=torch.float64)


def objective(logits: list[float], rewards: list[float]) -> float:
    weights = [math.exp(x) for x in logits]
    return sum(w * r for w, r in zip(weights, rewards, strict=True)) / sum(weights)


def test_the_objective_is_the_mean_reward():
    expected = objective(LOGITS.tolist(), REWARDS.tolist())
    assert bandit.expected_reward(LOGITS, REWARDS).item() == pytest.approx(expected, rel=1e-14)


def test_the_gradient_agrees_with_central_differences():
    step, slopes = 1e-5, []
    for i in range(4):
        up, down = LOGITS.tolist(), LOGITS.tolist()
        up[i] += step
        down[i] -= step
        slopes.append((objective(up, REWARDS.tolist()) - objective(down, REWARDS.tolist())) / 2e-5)
    assert bandit.gradient(LOGITS, REWARDS).tolist() == pytest.approx(slopes, rel=1e-7)


def test_the_scores_are_the_gradients_of_the_log_probabilities():
    jacobian = torch.autograd.functional.jacobian(lambda x: x.log_softmax(dim=0), LOGITS)
    assert_close(bandit.score_vectors(LOGITS), jacobian)


@pytest.mark.parametrize("baseline", [0.0, 3.7, torch.tensor([1.0, -2.0, 0.5, 9.0]).double()])
def test_the_estimates_average_to_the_gradient_whatever_the_baseline(baseline):
    probs = LOGITS.softmax(dim=0)
    estimates = bandit.gradient_estimates(LOGITS, REWARDS, baseline=baseline)
    by_loop = sum(probs[a] * estimates[a] for a in range(4))
    assert_close(by_loop, bandit.gradient(LOGITS, REWARDS))
    assert not torch.allclose(estimates[0], estimates[1])


def test_the_variance_for_two_arms_by_hand():
    """π = (½, ½), r = (1, 0): estimates (½, −½) and (0, 0); each logit has variance 1/16."""
    value = bandit.gradient_variance(torch.zeros(2).double(), torch.tensor([1.0, 0.0]).double())
    assert value.item() == pytest.approx(1 / 8)


def test_the_kl_optimum_beats_every_other_policy_and_has_its_value_in_closed_form():
    beta, ref = 0.7, LOGITS.softmax(dim=0)
    optimum = bandit.kl_optimum(LOGITS, REWARDS, beta=beta)

    def value(policy: torch.Tensor) -> torch.Tensor:
        return policy @ REWARDS - beta * (policy * (policy / ref).log()).sum(dim=-1)

    log_z = (ref * (REWARDS / beta).exp()).sum().log()
    assert_close(value(optimum), beta * log_z)
    generator = torch.Generator().manual_seed(0)
    nearby = (optimum.log() + 0.1 * torch.randn(500, 4, generator=generator).double()).softmax(1)
    others = nearby @ REWARDS - beta * (nearby * (nearby / ref).log()).sum(dim=1)
    assert (others < value(optimum)).all()


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"rewards has shape \(3,\), expected \(4,\)"):
        bandit.gradient(LOGITS, REWARDS[:3])
    with pytest.raises(ValueError, match=r"logits has shape \(1, 4\), expected \(K,\)"):
        bandit.gradient(LOGITS[None], REWARDS[None])
    with pytest.raises(ValueError, match=r"baseline has shape \(2,\)"):
        bandit.gradient_estimates(LOGITS, REWARDS, baseline=torch.zeros(2))
    with pytest.raises(ValueError, match=r"beta is 0"):
        bandit.kl_optimum(LOGITS, REWARDS, beta=0)
