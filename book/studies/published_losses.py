"""Published losses, each on its own in plain torch: what `book.studies.mutations` changes.

The rows of the table of algorithms are made of shared functions; here one loss is one function, so
that a change of it is a change of nothing else. `examine` finds no mistake in any of them.
"""

import torch


def reinforce(log_probs, advantages, mask):
    losses = (-log_probs * advantages.detach()).masked_fill(~mask, 0.0)
    return losses.sum(dim=1).mean()


def rloo(log_probs, ref_log_probs, rewards, mask, group_size):
    d = (log_probs - ref_log_probs).detach().masked_fill(~mask, 0.0)
    paid = rewards - 0.1 * d.sum(dim=1)
    groups = paid.view(-1, group_size)
    others = (groups.sum(dim=1, keepdim=True) - groups) / (group_size - 1)
    advantages = (groups - others).view(-1, 1)
    return (-log_probs * advantages).masked_fill(~mask, 0.0).sum(dim=1).mean()


def grpo(log_probs, old_log_probs, ref_log_probs, rewards, mask, group_size):
    groups = rewards.view(-1, group_size)
    centred = groups - groups.mean(dim=1, keepdim=True)
    advantages = (centred / (groups.std(dim=1, keepdim=True) + 1e-4)).view(-1, 1)
    ratio = (log_probs - old_log_probs.detach()).masked_fill(~mask, 0.0).exp()
    clipped = torch.clamp(ratio, 0.8, 1.2)
    objective = torch.min(ratio * advantages, clipped * advantages)
    d = (log_probs - ref_log_probs.detach()).masked_fill(~mask, 0.0)
    losses = -objective + 0.1 * (torch.expm1(-d) + d)
    return (losses.masked_fill(~mask, 0.0).sum(dim=1) / mask.sum(dim=1).clamp(min=1)).mean()


def dapo(log_probs, old_log_probs, rewards, mask, group_size):
    groups = rewards.view(-1, group_size)
    centred = groups - groups.mean(dim=1, keepdim=True)
    advantages = (centred / (groups.std(dim=1, keepdim=True) + 1e-4)).view(-1, 1)
    ratio = (log_probs - old_log_probs.detach()).masked_fill(~mask, 0.0).exp()
    losses = torch.max(-ratio * advantages, -torch.clamp(ratio, 0.8, 1.28) * advantages)
    return losses.masked_fill(~mask, 0.0).sum() / mask.sum()


def gspo(log_probs, old_log_probs, rewards, mask, group_size):
    groups = rewards.view(-1, group_size)
    centred = groups - groups.mean(dim=1, keepdim=True)
    advantages = (centred / (groups.std(dim=1, keepdim=True) + 1e-4)).view(-1)
    change = (log_probs - old_log_probs.detach()).masked_fill(~mask, 0.0).sum(dim=1)
    ratio = (change / mask.sum(dim=1).clamp(min=1)).exp()
    clipped = torch.clamp(ratio, 0.9997, 1.0004)
    return -torch.min(ratio * advantages, clipped * advantages).mean()


def cispo(log_probs, old_log_probs, rewards, mask, group_size):
    groups = rewards.view(-1, group_size)
    centred = groups - groups.mean(dim=1, keepdim=True)
    advantages = (centred / (groups.std(dim=1, keepdim=True) + 1e-4)).view(-1, 1)
    ratio = (log_probs - old_log_probs).masked_fill(~mask, 0.0).exp()
    weight = torch.clamp(ratio.detach(), max=5.0)
    losses = -weight * advantages * log_probs
    return losses.masked_fill(~mask, 0.0).sum() / mask.sum()


def prefix_weighted(log_probs, old_log_probs, ref_log_probs, advantages, mask):
    change = (log_probs - old_log_probs.detach()).masked_fill(~mask, 0.0)
    d = (log_probs - ref_log_probs.detach()).masked_fill(~mask, 0.0)
    prefix = torch.clamp(change.cumsum(dim=1), max=60.0).exp()
    losses = -change.exp() * advantages + 0.1 * prefix * d
    return losses.masked_fill(~mask, 0.0).sum(dim=1).mean()


def ppo(log_probs, old_log_probs, values, rewards, mask):
    """With γ = λ = 1: what was earned less what the critic expected, whitened."""
    surprise = (rewards.unsqueeze(1) - values.detach()).masked_fill(~mask, 0.0)
    mean = surprise.sum() / mask.sum()
    spread = ((surprise - mean).square() * mask).sum() / mask.sum()
    advantages = (surprise - mean) / (spread + 1e-8).sqrt()
    ratio = (log_probs - old_log_probs).masked_fill(~mask, 0.0).exp()
    objective = torch.min(ratio * advantages, torch.clamp(ratio, 0.8, 1.2) * advantages)
    return -objective.masked_fill(~mask, 0.0).sum() / mask.sum()


def reinforce_plus_plus(log_probs, old_log_probs, ref_log_probs, rewards, mask):
    d = (old_log_probs - ref_log_probs).masked_fill(~mask, 0.0)
    to_go = rewards.unsqueeze(1) - 0.1 * d.flip(1).cumsum(dim=1).flip(1)
    earned = to_go.masked_fill(~mask, 0.0)
    mean = earned.sum() / mask.sum()
    spread = ((earned - mean).square() * mask).sum() / mask.sum()
    advantages = (earned - mean) / (spread + 1e-8).sqrt()
    ratio = (log_probs - old_log_probs).masked_fill(~mask, 0.0).exp()
    objective = torch.min(ratio * advantages, torch.clamp(ratio, 0.8, 1.2) * advantages)
    return -objective.masked_fill(~mask, 0.0).sum() / mask.sum()


def dr_grpo(log_probs, old_log_probs, rewards, mask, group_size):
    groups = rewards.view(-1, group_size)
    advantages = (groups - groups.mean(dim=1, keepdim=True)).view(-1, 1)
    ratio = (log_probs - old_log_probs).masked_fill(~mask, 0.0).exp()
    objective = torch.min(ratio * advantages, torch.clamp(ratio, 0.8, 1.2) * advantages)
    return -objective.masked_fill(~mask, 0.0).sum(dim=1).mean() / 8.0


def icepop(log_probs, old_log_probs, sampler_log_probs, rewards, mask, group_size):
    groups = rewards.view(-1, group_size)
    centred = groups - groups.mean(dim=1, keepdim=True)
    advantages = (centred / (groups.std(dim=1, keepdim=True) + 1e-4)).view(-1, 1)
    weight = (old_log_probs - sampler_log_probs).masked_fill(~mask, 0.0).exp()
    weight = weight.masked_fill((weight < 0.5) | (weight > 5.0), 0.0)
    ratio = (log_probs - old_log_probs).masked_fill(~mask, 0.0).exp()
    objective = torch.min(ratio * advantages, torch.clamp(ratio, 0.8, 1.2) * advantages)
    losses = (-weight * objective).masked_fill(~mask, 0.0)
    return (losses.sum(dim=1) / mask.sum(dim=1).clamp(min=1)).mean()


def gmpo(log_probs, old_log_probs, rewards, mask, group_size):
    groups = rewards.view(-1, group_size)
    centred = groups - groups.mean(dim=1, keepdim=True)
    advantages = (centred / (groups.std(dim=1, keepdim=True) + 1e-4)).view(-1, 1)
    change = (log_probs - old_log_probs).masked_fill(~mask, 0.0)
    sign = advantages.sign()
    held = sign * torch.min(sign * change, sign * torch.clamp(change, -0.4, 0.4))
    ratio = (held.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)).exp()
    return -(ratio * advantages).mean()


def sapo(log_probs, old_log_probs, rewards, mask, group_size):
    groups = rewards.view(-1, group_size)
    centred = groups - groups.mean(dim=1, keepdim=True)
    advantages = (centred / (groups.std(dim=1, keepdim=True) + 1e-4)).view(-1, 1)
    ratio = (log_probs - old_log_probs).masked_fill(~mask, 0.0).exp()
    tau = torch.where(advantages > 0, 1.0, 1.05)
    gate = 4.0 / tau * torch.sigmoid(tau * (ratio - 1.0))
    losses = (-gate * advantages).masked_fill(~mask, 0.0)
    return (losses.sum(dim=1) / mask.sum(dim=1).clamp(min=1)).mean()


def dppo(log_probs, sampler_log_probs, rewards, mask, group_size):
    groups = rewards.view(-1, group_size)
    centred = groups - groups.mean(dim=1, keepdim=True)
    advantages = (centred / (groups.std(dim=1, keepdim=True) + 1e-4)).view(-1, 1)
    moved = (log_probs.exp() - sampler_log_probs.exp()).detach()
    out = torch.where(advantages > 0, moved > 0.2, moved < -0.2)
    ratio = (log_probs - sampler_log_probs).detach().masked_fill(~mask, 0.0).exp()
    weight = torch.clamp(ratio, max=20.0).masked_fill(out, 0.0)
    losses = (-weight * advantages * log_probs).masked_fill(~mask, 0.0)
    return losses.sum() / mask.sum()


ORIGINALS = (
    reinforce,
    rloo,
    ppo,
    reinforce_plus_plus,
    grpo,
    dr_grpo,
    dapo,
    gspo,
    gmpo,
    cispo,
    sapo,
    icepop,
    dppo,
    prefix_weighted,
)
