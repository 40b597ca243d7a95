"""A bandit with a softmax policy: K arms, one pull, the whole theory in closed form.

The policy is π(a) = exp(θₐ) / Σ_b exp(θ_b) with one logit θₐ for each arm; arm a pays rₐ. Chapter 1
is written on these few functions.
"""

import torch
from torch import Tensor

from nbcourse.functional.arguments import K, Positive, checked
from nbcourse.toys import enumeration


@checked
def expected_reward(logits: K, rewards: K) -> Tensor:
    """The objective, J(θ) = Σₐ π(a) rₐ.

    Args:
        logits: (K,).
        rewards: (K,).

    Returns:
        A scalar, differentiable in the logits.

    Raises:
        ValueError: if shapes differ.

    Book: equation (eq-bandit-objective).
    """
    return logits.softmax(dim=0) @ rewards


@checked
def score_vectors(logits: K) -> Tensor:
    """The score ∇_θ log π(a) of every arm: row a is eₐ − π.

    Args:
        logits: (K,).

    Returns:
        (K, K): arm by logit.

    Book: equation (eq-score).
    """
    return torch.eye(len(logits), dtype=logits.dtype) - logits.softmax(dim=0)


@checked
def gradient(logits: K, rewards: K) -> Tensor:
    """The exact policy gradient in closed form, ∂J/∂θₐ = π(a) (rₐ − J).

    Args:
        logits: (K,).
        rewards: (K,).

    Returns:
        (K,).

    Raises:
        ValueError: if shapes differ.

    Book: equation (eq-bandit-gradient).
    """
    probs = logits.softmax(dim=0)
    return probs * (rewards - probs @ rewards)


@checked
def gradient_estimates(logits: K, rewards: K, *, baseline: float | Tensor = 0.0) -> Tensor:
    """What one pull estimates the gradient to be, for every arm that could be pulled.

        ĝ(a) = (rₐ − b) ∇_θ log π(a)

    Args:
        logits: (K,).
        rewards: (K,).
        baseline: b, one number, or (K,) one for each logit.

    Returns:
        (K, K): row a is the estimate made from pulling arm a. Index it with sampled arms for Monte
        Carlo, or weigh it with π for the exact mean.

    Raises:
        ValueError: if shapes differ.

    Book: equation (eq-bandit-estimate).
    """
    baseline = torch.as_tensor(baseline, dtype=logits.dtype)
    if baseline.shape not in ((), logits.shape):
        raise ValueError(
            f"baseline has shape {tuple(baseline.shape)}, expected () or {tuple(logits.shape)}"
        )
    return (rewards[:, None] - baseline) * score_vectors(logits)


def gradient_variance(logits: K, rewards: K, *, baseline: float | Tensor = 0.0) -> Tensor:
    """Exact variance of the one-pull gradient estimate, summed over the logits.

    Returns:
        A scalar: the trace of the covariance matrix of `gradient_estimates`.

    Book: equation (eq-bandit-variance).
    """
    estimates = gradient_estimates(logits, rewards, baseline=baseline)
    return enumeration.variance(logits.softmax(dim=0), estimates).sum()


@checked
def kl_optimum(ref_logits: K, rewards: K, *, beta: Positive) -> Tensor:
    """The policy that maximises E[r] − β KL(π‖π_ref): π*(a) ∝ π_ref(a) exp(rₐ/β).

    Args:
        ref_logits: (K,) logits of the reference policy.
        rewards: (K,).
        beta: β > 0.

    Returns:
        (K,) probabilities.

    Raises:
        ValueError: if shapes differ or beta is not positive.

    Book: equation (eq-kl-optimum).
    """
    return (ref_logits.log_softmax(dim=0) + rewards / beta).softmax(dim=0)
