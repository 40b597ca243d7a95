"""GRPO on one page: prompts → rollouts → rewards → advantages → loss → step → numbers.

What `nbcourse train arithmetic-grpo` does, without anything that another algorithm, task or machine
would need; its numbers are the same, bit for bit, by a test. Book: chapter 10, "GRPO on one page".
"""

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nbcourse.functional import advantages, aggregation, masking, surrogates
from nbcourse.lm import tiny
from nbcourse.lm.log_probs import rollout_log_probs
from nbcourse.lm.rollouts import Rollout, group_rows, select
from nbcourse.lm.sampling import sample
from nbcourse.lm.warm_start import warm_start
from nbcourse.seeds import generator
from nbcourse.tasks.arithmetic import Arithmetic

if TYPE_CHECKING:
    from transformers import PreTrainedModel as Model
    from transformers import PreTrainedTokenizerBase as Tokenizer

TASK = Arithmetic(digits=2, operations="+")
TEACHERS = [(800, 0.0, 5e-3), (60, 0.9, 1e-3)]  # steps, share of careless answers, learning rate
STEPS, PROMPTS, GROUP_SIZE, MAX_NEW_TOKENS = 80, 128, 8, 8
EPS = 1e-4  # added to the standard deviation
CLIP, AGGREGATION = 0.2, "seq-mean-token-mean"
LEARNING_RATE, WARM_UP, MAX_GRAD_NORM = 5e-4, 5, 1.0
EVERY, HELD_OUT = 10, 512  # after how many steps, how many problems are asked
Numbers = dict[str, float]


def warmed_up(seed: int) -> tuple["Tokenizer", "Model"]:
    """A tokenizer, and a model that learned to add from a careful and then a careless teacher."""
    tokenizer = tiny.tokenizer()
    policy = tiny.model(tokenizer, layers=2, width=64, heads=16, seed=seed)
    source = generator(seed, "warm start")
    for steps, share, rate in TEACHERS:

        def lesson(count: int, share: float = share) -> list[tuple[str, str]]:
            shown, said = TASK.demonstrate(count, generator=source, careless_share=share)
            return [(problem.prompt, text) for problem, text in zip(shown, said, strict=True)]

        warm_start(policy, tokenizer, lesson, steps=steps, learning_rate=rate)
    return tokenizer, policy


def collect(
    tokenizer: "Tokenizer", policy: "Model", seed: int, step: int
) -> tuple[Rollout, Tensor]:
    """A group of responses to each prompt, side by side, and what each of them earned: (B,)."""
    problems = TASK.draw(PROMPTS, split="train", generator=generator(seed, "problems", step))
    rollout = sample(
        policy,
        tokenizer,
        [problem.prompt for problem in problems],
        max_new_tokens=MAX_NEW_TOKENS,
        group_size=GROUP_SIZE,
        generator=generator(seed, "sampling", step, 0),
    )
    asked = [problem for problem in problems for _ in range(GROUP_SIZE)]
    right = TASK.rewards(rollout.texts(tokenizer), asked)
    return rollout, right.masked_fill(rollout.truncated, 0.0)  # an unfinished answer is wrong


def grpo(tokenizer: "Tokenizer", policy: "Model", seed: int, steps: int) -> Iterator[Numbers]:
    """Train the policy in place; after each step, yield its numbers."""
    reference = copy.deepcopy(policy)
    optimiser = torch.optim.AdamW(policy.parameters(), weight_decay=0.0, fused=True)
    for step in range(steps):
        rollout, rewards = collect(tokenizer, policy, seed, step)
        A = advantages.group_relative(rewards, group_size=GROUP_SIZE, eps=EPS)  # eq-group-relative

        # A zero-variance group has the gradient 0 and is left out. The order of the others decides
        # nothing but the last bits of sums: the real loop shuffles them, for minibatches, and puts
        # those of similar length together, for little padding.
        groups = torch.randperm(PROMPTS, generator=generator(seed, "minibatches", step, 0))
        active = (A.view(-1, GROUP_SIZE) != 0).any(dim=1)
        groups = groups[active[groups]] if active.any() else groups[:1]  # one, of gradient 0
        longest = rollout.mask.sum(dim=1).view(-1, GROUP_SIZE).amax(dim=1)
        rows = group_rows(groups[longest[groups].argsort(stable=True)], GROUP_SIZE)
        batch = select(rollout, rows)
        A_tokens = A[rows, None].expand(batch.mask.shape)

        # eq-ppo-clip, and eq-aggregation over all responses, those without spread included.
        log_probs = rollout_log_probs(policy, batch, group_size=GROUP_SIZE)
        # A batch is good for one step, so the policy that learns is the one that sampled.
        old_log_probs = log_probs.detach()
        losses = surrogates.ppo_clip(log_probs, old_log_probs, A_tokens, clip_low=CLIP)
        loss = aggregation.aggregate(losses, batch.mask, AGGREGATION, batch_mask=rollout.mask)

        optimiser.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRAD_NORM)
        optimiser.param_groups[0]["lr"] = LEARNING_RATE * min(1.0, (step + 1) / (WARM_UP + 1))
        optimiser.step()

        numbers = {"step": step + 1, "updates": 1} | measured(rollout, rewards)
        numbers |= {"policy_loss": loss.item(), "grad_norm": norm.item()}
        gap = (old_log_probs - batch.log_probs)[batch.mask].abs().max()  # by rounding
        numbers |= {"gap": gap.item(), "kl_old": 0.0, "clip_low": 0.0, "clip_high": 0.0}
        evaluates = (step + 1) % EVERY == 0 or step + 1 == steps
        if evaluates or step == 0:  # the loss has no need of the reference
            numbers["kl_ref"] = kl_to_reference(rollout, reference)
        if evaluates:
            numbers["held_out"] = held_out_accuracy(tokenizer, policy, seed)
        yield numbers


@torch.no_grad()
def kl_to_reference(rollout: Rollout, reference: "Model") -> float:
    """Mean log-ratio of the policy to the reference, over one response of each group."""
    some = select(rollout, torch.arange(0, len(rollout.mask), GROUP_SIZE))
    log_ratios = some.log_probs - rollout_log_probs(reference, some)
    return log_ratios.masked_fill(~some.mask, 0.0).sum(dim=1).mean().item()


def measured(rollout: Rollout, rewards: Tensor) -> Numbers:
    """What the responses were like."""
    lengths = rollout.mask.sum(dim=1).float()
    return {
        "reward": rewards.mean().item(),
        "accuracy": rewards.mean().item(),  # the reward is the verdict
        "no_spread": (rewards.view(-1, GROUP_SIZE).std(dim=1) == 0).float().mean().item(),
        "truncated": rollout.truncated.float().mean().item(),
        "length": lengths.mean().item(),
        "length_right": lengths[rewards == 1].mean().item(),
        "length_wrong": lengths[rewards == 0].mean().item(),
        "entropy": -masking.masked_mean(rollout.log_probs, rollout.mask).item(),
        "responses": len(rewards),
        "tokens": int(rollout.mask.sum()),
    }


def held_out_accuracy(tokenizer: "Tokenizer", policy: "Model", seed: int) -> float:
    """Share of right answers, of the likeliest tokens, to problems that are never trained on."""
    problems = TASK.draw(HELD_OUT, split="test", generator=generator(seed, "evaluation"))
    asked = [problem.prompt for problem in problems]
    said = sample(policy, tokenizer, asked, max_new_tokens=MAX_NEW_TOKENS, greedy=True)
    right = TASK.rewards(said.texts(tokenizer), problems)
    return right.masked_fill(said.truncated, 0.0).mean().item()


if __name__ == "__main__":
    for row in grpo(*warmed_up(seed=0), seed=0, steps=STEPS):
        shown = ("step", "reward", "length", "entropy", "kl_ref", "grad_norm", "held_out")
        print("  ".join(f"{name} {row[name]:.4g}" for name in shown if name in row))
