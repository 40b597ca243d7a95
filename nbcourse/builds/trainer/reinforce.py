"""Build 4, after chapter 7: sampler, log-probs, and a REINFORCE loop on a language model.

Difficulty ●●○ · 60 minutes · six functions, about 43 lines · given: `given.py`
Run it: `python reinforce.py` trains for a minute and prints the share of right answers.

A rollout is a dict of tensors with one row for each response:
    prompt, prompt_mask (B, P)   as `encode` gives them
    tokens (B, T)   sampled; after the end of a response there may be anything
    mask (B, T)     bool, True on the tokens of the response, the EOS that ends it included
    log_probs (B, T)   of the tokens, as they were sampled, where mask is True
    finished (B,)   bool, whether the response ended itself
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from estimator import leave_one_out, policy_gradient
from given import EOS, LONGEST, Policy, decode, draw, encode, warm

Rollout = dict[str, Tensor]


@torch.no_grad()
def sample(
    model: Policy, prompt: Tensor, prompt_mask: Tensor, generator: torch.Generator
) -> Rollout:
    """One response to each prompt, token by token, at temperature 1, of at most LONGEST tokens.

    Draw with `torch.multinomial(…, generator=generator)`. See section 7.5.
    """
    ### BEGIN SOLUTION
    tokens, mask, log_probs = prompt, prompt_mask, []
    running = torch.ones(len(prompt), dtype=torch.bool)
    for _ in range(LONGEST):
        distribution = model(tokens, mask)[:, -1].log_softmax(dim=-1)
        chosen = torch.multinomial(distribution.exp(), 1, generator=generator)
        log_probs.append(distribution.gather(1, chosen))
        tokens = torch.cat([tokens, chosen], dim=1)
        mask = torch.cat([mask, running[:, None]], dim=1)
        running = running & (chosen[:, 0] != EOS)
    P = prompt.shape[1]
    return {
        "prompt": prompt,
        "prompt_mask": prompt_mask,
        "tokens": tokens[:, P:],
        "mask": mask[:, P:],
        "log_probs": torch.cat(log_probs, dim=1),
        "finished": ~running,
    }
    ### END SOLUTION


def response_log_probs(model: Policy, rollout: Rollout) -> Tensor:
    """(B, T) log-probs of the sampled tokens, in one forward pass, with gradients.

    Outside the mask there may be anything finite. See section 7.3.
    """
    ### BEGIN SOLUTION
    tokens = torch.cat([rollout["prompt"], rollout["tokens"]], dim=1)
    mask = torch.cat([rollout["prompt_mask"], rollout["mask"]], dim=1)
    T = rollout["tokens"].shape[1]
    distribution = model(tokens, mask)[:, -T - 1 : -1].log_softmax(dim=-1)
    return distribution.gather(2, rollout["tokens"][..., None]).squeeze(2)
    ### END SOLUTION


def score(rollout: Rollout, answers: list[str]) -> Tensor:
    """(B,) rewards: 1.0 for a response that is the answer and ended itself, else 0.0."""
    ### BEGIN SOLUTION
    rows = zip(rollout["tokens"], rollout["mask"], rollout["finished"], answers, strict=True)
    return torch.tensor([float(end and decode(t[m]) == answer) for t, m, end, answer in rows])
    ### END SOLUTION


def collect(
    model: Policy, prompts: int, group_size: int, generator: torch.Generator
) -> tuple[Rollout, list[str], Tensor]:
    """What a step learns from: a rollout, the answers to its prompts, and the rewards (B,).

    `draw` problems, `sample` a group of responses to each (side by side: the rows of a group follow
    each other), and `score` them.
    """
    ### BEGIN SOLUTION
    rows = [row for row in draw(prompts, generator) for _ in range(group_size)]
    rollout = sample(model, *encode([prompt for prompt, _ in rows]), generator)
    answers = [answer for _, answer in rows]
    return rollout, answers, score(rollout, answers)
    ### END SOLUTION


def update(
    model: Policy,
    optimiser: torch.optim.Optimizer,
    rollout: Rollout,
    advantages: Tensor,
    micro_batch: int,
) -> None:
    """One step of the optimiser on the loss of the *whole* batch, `micro_batch` rows at a time.

    Gradients are added up over the micro-batches, of which the last may be smaller, and are the
    same whatever `micro_batch` is. See section 7.7.
    """
    ### BEGIN SOLUTION
    optimiser.zero_grad()
    for rows in torch.arange(len(advantages)).split(micro_batch):
        part = {name: value[rows] for name, value in rollout.items()}
        log_probs = response_log_probs(model, part)
        loss = policy_gradient(log_probs, advantages[rows], part["mask"])
        (loss * len(rows) / len(advantages)).backward()
    optimiser.step()
    ### END SOLUTION


def train(
    model: Policy,
    optimiser: torch.optim.Optimizer,
    steps: int,
    generator: torch.Generator,
    prompts: int = 64,
    group_size: int = 4,
) -> Iterator[dict]:
    """REINFORCE with leave-one-out. After each step, yield what it learned from.

    A step: `collect`, compute advantages, `update`. What is yielded is a dict with rollout, answers
    (a list of B strings), rewards (B,) and advantages (B,), as they were used.
    """
    ### BEGIN SOLUTION
    for _ in range(steps):
        rollout, answers, rewards = collect(model, prompts, group_size, generator)
        advantages = leave_one_out(rewards, group_size)
        update(model, optimiser, rollout, advantages, micro_batch=len(rewards))
        yield {
            "rollout": rollout, "answers": answers, "rewards": rewards, "advantages": advantages
        }  # fmt: skip
    ### END SOLUTION


if __name__ == "__main__":
    torch.set_num_threads(1)
    policy = warm()
    adam = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for step, batch in enumerate(train(policy, adam, 80, torch.Generator().manual_seed(0)), 1):
        if step % 5 == 0:
            print(f"step {step:3d}   right {batch['rewards'].mean():.2f}", flush=True)
