"""PPO on one page: prompts → rollouts → rewards, values → advantages → losses → steps → numbers.

What `nbcourse train arithmetic-ppo` does with a KL penalty and four updates on each batch (`--set
kl.beta=0.05 --set optimiser.epochs=2 --set optimiser.minibatches=2`), without anything that another
algorithm, task or machine would need; its numbers are the same, bit for bit, by a test. The warm
start, the responses and what is told of them are those of `grpo_on_one_page`.
Book: chapter 8, "The training loop".
"""

import copy
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nbcourse.functional import aggregation, kl, masking, returns, surrogates, values
from nbcourse.grpo_on_one_page import (
    EVERY,
    GROUP_SIZE,
    PROMPTS,
    STEPS,
    Numbers,
    collect,
    held_out_accuracy,
    measured,
    warmed_up,
)
from nbcourse.lm.actor_critic import Critic
from nbcourse.lm.log_probs import rollout_log_probs
from nbcourse.lm.rollouts import Rollout, group_rows, select
from nbcourse.seeds import generator

if TYPE_CHECKING:
    from transformers import PreTrainedModel as Model
    from transformers import PreTrainedTokenizerBase as Tokenizer

BETA, GAMMA, LAMBDA = 0.05, 1.0, 0.95
CLIP, AGGREGATION, VALUE_COEFFICIENT = 0.2, "token-mean", 0.5
EPOCHS, MINIBATCHES = 2, 2
LEARNING_RATE, WARM_UP, MAX_GRAD_NORM = 5e-4, 5, 1.0


def ppo(tokenizer: "Tokenizer", policy: "Model", seed: int, steps: int) -> Iterator[Numbers]:
    """Train the policy in place, and a critic beside it; after each step, yield its numbers."""
    reference = copy.deepcopy(policy).requires_grad_(False)
    critic = Critic(copy.deepcopy(policy))
    weights = [*policy.parameters(), *critic.parameters()]
    optimiser = torch.optim.AdamW(weights, weight_decay=0.0, fused=True)
    for step in range(steps):
        rollout, scores = collect(tokenizer, policy, seed, step)
        log_probs, mask = rollout.log_probs, rollout.mask
        with torch.no_grad():
            ref_log_probs = rollout_log_probs(reference, rollout, group_size=GROUP_SIZE)
            V = critic(rollout, group_size=GROUP_SIZE)
        # eq-kl-reward, eq-token-gae, and eq-whiten once the critic has its targets.
        r = kl.rewards_with_kl(scores, log_probs, ref_log_probs, mask, beta=BETA)
        A, targets = returns.token_gae(r, V, mask, gamma=GAMMA, lam=LAMBDA)
        A = masking.masked_whiten(A, mask)

        batches = minibatches(rollout, seed, step)
        old_log_probs = before_the_updates(policy, rollout, batches[:MINIBATCHES])
        optimiser.param_groups[0]["lr"] = LEARNING_RATE * min(1.0, (step + 1) / (WARM_UP + 1))
        seen = []
        for rows in batches:
            part = select(rollout, rows)
            width = part.mask.shape[1]  # without columns that are padding in all of them
            before = (x[rows, :width] for x in (old_log_probs, A, V, targets))
            old_part, A_part, V_part, targets_part = before

            # eq-ppo-clip, eq-value-loss: each a mean over the tokens of the minibatch.
            new = rollout_log_probs(policy, part, group_size=GROUP_SIZE)
            losses = surrogates.ppo_clip(new, old_part, A_part, clip_low=CLIP)
            policy_loss = aggregation.aggregate(losses, part.mask, AGGREGATION)
            predicted = critic(part, group_size=GROUP_SIZE)
            value_loss = values.value_loss(predicted, V_part, targets_part, part.mask)

            optimiser.zero_grad()
            (policy_loss + VALUE_COEFFICIENT * value_loss).backward()
            norm = torch.nn.utils.clip_grad_norm_(weights, MAX_GRAD_NORM)
            optimiser.step()
            told = {"policy_loss": policy_loss, "value_loss": value_loss, "grad_norm": norm}
            told |= moved(new.detach(), old_part, A_part, part.mask)
            seen.append({name: number.item() for name, number in told.items()})

        numbers = {"step": step + 1, "updates": len(seen), "beta": BETA} | averages(seen)
        numbers |= measured(rollout, scores) | explained(V, targets, r, mask)
        gap = (old_log_probs - log_probs)[batches[0]][mask[batches[0]]].abs().max()  # by rounding
        kl_ref = (log_probs - ref_log_probs).masked_fill(~mask, 0.0).sum(dim=1).mean()
        numbers |= {"gap": gap.item(), "kl_ref": kl_ref.item()}
        if (step + 1) % EVERY == 0 or step + 1 == steps:
            numbers["held_out"] = held_out_accuracy(tokenizer, policy, seed)
        yield numbers


def minibatches(rollout: Rollout, seed: int, step: int) -> list[Tensor]:
    """The rows of each minibatch, of one epoch after the other; a group is never split.

    That groups of similar length stand together decides nothing but the last bits of sums.
    """
    longest = rollout.mask.sum(dim=1).view(-1, GROUP_SIZE).amax(dim=1)
    found = []
    for epoch in range(EPOCHS):
        order = torch.randperm(PROMPTS, generator=generator(seed, "minibatches", step, epoch))
        for groups in order.tensor_split(MINIBATCHES):
            found.append(group_rows(groups[longest[groups].argsort(stable=True)], GROUP_SIZE))
    return found


@torch.no_grad()
def before_the_updates(policy: "Model", rollout: Rollout, epoch: list[Tensor]) -> Tensor:
    """(B, T) log-probs of the policy that sampled, computed as those that learn will be."""
    found = torch.zeros_like(rollout.log_probs)
    for rows in epoch:
        part = select(rollout, rows)
        found[rows, : part.mask.shape[1]] = rollout_log_probs(policy, part, group_size=GROUP_SIZE)
    return found


def moved(new: Tensor, old: Tensor, A: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Sums over tokens: how far the policy has moved, and where the clip takes the gradient."""
    ratio = (new - old).exp()
    return {
        "tokens_seen": mask.sum(),
        "kl_old": kl.estimate(old, new, "k3")[mask].sum(),  # the old policy sampled
        "clip_low": (mask & (A < 0) & (ratio < 1 - CLIP)).sum(),
        "clip_high": (mask & (A > 0) & (ratio > 1 + CLIP)).sum(),
    }


def averages(updates: list[Numbers]) -> Numbers:
    """The means over the updates of a step, or over their tokens where tokens were counted."""
    totals: Numbers = defaultdict(float)
    for numbers in updates:
        for name, number in numbers.items():
            totals[name] += number
    tokens, counted = totals.pop("tokens_seen"), ("kl_old", "clip_low", "clip_high")
    return {name: x / (tokens if name in counted else len(updates)) for name, x in totals.items()}


def explained(V: Tensor, targets: Tensor, r: Tensor, mask: Tensor) -> Numbers:
    """How much the critic explained of its targets, and of what was paid from each token on."""
    paid = returns.discounted_returns(r, mask, gamma=GAMMA)
    return {
        "explained_variance": values.explained_variance(V, targets, mask),
        "monte_carlo_explained_variance": values.explained_variance(V, paid, mask),
    }


if __name__ == "__main__":
    for row in ppo(*warmed_up(seed=0), seed=0, steps=STEPS):
        shown = ("step", "reward", "kl_ref", "kl_old", "explained_variance", "held_out")
        print("  ".join(f"{name} {row[name]:.4g}" for name in shown if name in row))
