"""What a run tells about itself: one flat line of numbers for each step.

reward              mean score, penalties included
accuracy            share of responses the verifier accepts
no_spread           share of groups whose responses all earned the same
                    These three are of all that was sampled; where dynamic sampling replaces prompts
                    without spread, the following are of the responses that it keeps.
truncated           share of responses that did not end themselves
length              mean tokens in a response
length_right/length_wrong  the same over those that the verifier accepts, refuses; NaN for none
entropy             mean −log π(token) of the sampled tokens, nats
kl_ref              mean over responses of log π − log π_ref, nats a response; where learning does
                    not ask the reference, in the first step only and in those that evaluate
kl_old              KL(old‖new), old: before the first update; nats a token (k3), while learning;
                    groups without spread are left out where nothing is computed for them
clip_low/clip_high  share of all tokens whose gradient the clip takes, by the side of the interval
gap                 largest |learner − sampler| log-prob before the first update
kl_sampler          KL(sampler‖learner) then, which rounding alone makes; nats a token (k3)
half_cosine         of the gradients of even and odd slices, in the first update; not in one slice
grad_norm           before clipping; infinite where float16 overflowed and an update was left out
loss_scale          by which the loss is multiplied in float16
policy_loss, value_loss
explained_variance  of the critic's targets, which for λ < 1 are made of its own values
monte_carlo_explained_variance  of the returns that were paid, which no critic has a part in
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from nbcourse.functional.kl import estimate
from nbcourse.functional.masking import masked_mean
from nbcourse.functional.returns import discounted_returns
from nbcourse.functional.values import explained_variance
from nbcourse.lm.rollouts import Rollout, select
from nbcourse.training.algorithms import Algorithm, Estimate, Penalty, Tokens
from nbcourse.training.experience import Experience
from nbcourse.training.learner import Learner


def of_experience(experience: Experience) -> dict[str, float]:
    """What can be said before learning, by the responses alone."""
    rollout, correct = experience.rollout, experience.correct
    lengths = rollout.mask.sum(dim=1).float()
    return {
        "reward": experience.sampled.reward,
        "accuracy": experience.sampled.accuracy,
        "no_spread": experience.sampled.no_spread,
        "truncated": rollout.truncated.float().mean().item(),
        "length": lengths.mean().item(),
        "length_right": lengths[correct == 1].mean().item(),
        "length_wrong": lengths[correct == 0].mean().item(),
        "entropy": -masked_mean(rollout.log_probs, rollout.mask).item(),
    }


def kl_to_reference(learner: Learner, experience: Experience) -> float:
    """Mean log-ratio to the reference, in nats a response.

    Where the algorithm does not ask the reference, one response of each group is looked up, as many
    prompts at a time as there are in a backward pass: that needs less memory than learning.
    """
    rollout, ref_log_probs = experience.rollout, experience.ref_log_probs
    if ref_log_probs is not None:
        return _log_ratios(rollout, ref_log_probs).mean().item()
    settings, optimiser = learner.recipe.rollouts, learner.recipe.optimiser
    size = optimiser.prompts_at_once or -(-settings.prompts // optimiser.minibatches)
    rows = torch.arange(0, len(rollout.mask), settings.group_size, device=rollout.mask.device)
    ratios = []
    for part in (select(rollout, some) for some in rows.split(size)):
        with learner.precision():
            ratios.append(_log_ratios(part, learner.ref_log_probs(part, group_size=1)))
    return torch.cat(ratios).mean().item()


def _log_ratios(rollout: Rollout, ref_log_probs: Tensor) -> Tensor:
    """log π − log π_ref of each response: (B,)."""
    return (rollout.log_probs - ref_log_probs).masked_fill(~rollout.mask, 0.0).sum(dim=1)


def of_critic(
    learner: Learner, experience: Experience, estimate: Estimate, penalty: Penalty
) -> dict[str, float]:
    """How much the critic explained when the responses were sampled; nothing without a critic.

    Of its targets, and of what was really paid from each token on. The second number knows nothing
    of λ, nor of a mistake in the targets; it is in the units of the rewards as they were paid.
    """
    values, mask = experience.values, experience.rollout.mask
    if values is None or estimate.returns is None:
        return {}
    gamma = learner.recipe.settings.get("gamma", 1.0)
    paid = discounted_returns(experience.rewards(penalty), mask, gamma=gamma)
    return {
        "explained_variance": explained_variance(values, estimate.returns, mask),
        "monte_carlo_explained_variance": explained_variance(values, paid, mask),
    }


class Means:
    """Running means over the tokens of a step, with the largest of some numbers beside them."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = defaultdict(float)
        self.counts: dict[str, float] = defaultdict(float)
        self.largest: dict[str, float] = {}

    def add(self, name: str, total: Tensor | float, count: Tensor | float = 1.0) -> None:
        """Count a total of `count` numbers."""
        self.sums[name] += float(total)
        self.counts[name] += float(count)

    def peak(self, name: str, value: Tensor | float) -> None:
        """Keep the largest."""
        self.largest[name] = max(self.largest.get(name, -math.inf), float(value))

    def merge(self, other: "Means") -> None:
        """Take over what another process counted."""
        for name in other.sums:
            self.add(name, other.sums[name], other.counts[name])
        for name, value in other.largest.items():
            self.peak(name, value)

    def mean(self, name: str) -> float:
        """One mean; 0 if nothing was counted."""
        return self.sums[name] / max(self.counts[name], 1)

    def result(self) -> dict[str, float]:
        """The means and the peaks."""
        return {**{name: self.mean(name) for name in self.sums}, **self.largest}


@torch.no_grad()
def of_tokens(
    means: Means,
    algorithm: Algorithm,
    settings: Mapping[str, Any],
    tokens: Tokens,
    *,
    sampler_log_probs: Tensor | None = None,
) -> None:
    """Count the tokens of a slice: how far the policy has moved, and where it was clipped.

    A token counts as clipped if its advantage is not 0 and the surrogate gives it no gradient:
    that can be said of whatever surrogate a row brings along.

    Args:
        means: where they are counted.
        algorithm: the row.
        settings: its settings.
        tokens: what the row's surrogate is offered.
        sampler_log_probs: (B, T), if no update has been made since sampling.
    """
    log_probs, old_log_probs, advantages = tokens.log_probs, tokens.old_log_probs, tokens.advantages
    mask = tokens.mask
    count = mask.sum()
    log_ratio = (log_probs - old_log_probs).masked_fill(~mask, 0.0)
    # The old policy sampled, so it comes first.
    means.add("kl_old", estimate(old_log_probs, log_probs, "k3")[mask].sum(), count)
    if sampler_log_probs is not None:
        means.peak("gap", (log_probs - sampler_log_probs).masked_fill(~mask, 0.0).abs().max())
        means.add("kl_sampler", estimate(sampler_log_probs, log_probs, "k3")[mask].sum(), count)
    if not algorithm.has_ratio:
        return
    with torch.enable_grad():
        leaf = log_probs.detach().requires_grad_()
        per_token = algorithm.per_token_loss(settings, **tokens._replace(log_probs=leaf).offered())
        (gradient,) = torch.autograd.grad(per_token[mask].sum(), leaf)
    clipped = mask & (advantages != 0) & (gradient == 0)
    dual_clip = settings.get("dual_clip") or math.inf
    high = clipped & ((advantages > 0) | (log_ratio >= math.log(dual_clip)))
    means.add("clip_high", high.sum(), count)
    means.add("clip_low", (clipped & ~high).sum(), count)
