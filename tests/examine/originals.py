"""Right losses, each on its own, that the tests mutate."""

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


ORIGINALS = (reinforce, rloo, grpo, dapo, gspo, cispo, prefix_weighted)
