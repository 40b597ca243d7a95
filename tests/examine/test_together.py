"""Several mistakes in one loss: each is named, and nothing is invented."""

import itertools

import pytest
import torch

from nbcourse.examine import examine
from nbcourse.functional.advantages import leave_one_out
from tests.effort import swept
from tests.examine.parts import k3, mistakes


def loss_with(*faults):
    """A right loss, rloo with a ratio and k3, but for these mistakes."""

    def loss(log_probs, old_log_probs, ref_log_probs, rewards, mask, group_size):
        if "in-place" in faults:
            rewards *= 2
        groups = rewards.view(-1, group_size)
        advantages = leave_one_out(rewards, group_size=group_size)[:, None]
        if "flat-nan" in faults:
            spread = groups.std(dim=1, keepdim=True)
            advantages = ((groups - groups.mean(dim=1, keepdim=True)) / spread).view(-1, 1)
        if "mixed-groups" in faults:
            dealt = rewards.view(group_size, -1)
            advantages = (dealt - dealt.mean(dim=0)).reshape(-1, 1)
        change = log_probs - old_log_probs.detach()
        if "inverted-ratio" in faults:
            change = old_log_probs.detach() - log_probs
        if "trained-padding" not in faults:
            change = change.masked_fill(~mask, 0.0)
        ratio, sign = change.exp(), 1 if "inverted-ratio" in faults else -1
        held = ratio.clamp(0.8, 1.2)
        losses = sign * (held if "clip-without-min" in faults else ratio) * advantages
        if "flipped-loss" in faults:
            losses = -losses
        d = log_probs - ref_log_probs.detach()
        if "trained-padding" not in faults:
            d = d.masked_fill(~mask, 0.0)
        penalty = 0.1 * k3(d)
        losses = losses + (-penalty if "kl-sign" in faults else penalty)
        kept = mask
        if "masked-eos" in faults:
            columns = torch.arange(mask.shape[1])
            kept = mask & (columns < mask.sum(dim=1, keepdim=True) - 1)
        if "trained-padding" not in faults:
            losses = losses.masked_fill(~kept, 0.0)
        if "padding-in-denominator" in faults:
            return losses.mean()
        return losses.sum(dim=1).mean()

    loss.__name__ = "_".join(faults).replace("-", "_")
    return loss


FAULTS = [
    "flipped-loss",
    "masked-eos",
    "flat-nan",
    "padding-in-denominator",
    "inverted-ratio",
    "clip-without-min",
    "kl-sign",
    "in-place",
    "mixed-groups",
    "trained-padding",
]
# one of them replaces what the other changes
OVERRULED = [
    {"flat-nan", "mixed-groups"},
    {"masked-eos", "trained-padding"},
    {"inverted-ratio", "clip-without-min"},
]
PAIRS = [" + ".join(two) for two in itertools.combinations(FAULTS, 2) if {*two} not in OVERRULED]
TRIPLES = [
    " + ".join(three)
    for three in itertools.combinations(FAULTS, 3)
    if not any(both <= {*three} for both in OVERRULED)
]
KEPT = ["masked-eos + flat-nan", "padding-in-denominator + mixed-groups"]
KEPT_TRIPLES = ["flipped-loss + flat-nan + clip-without-min"]


def seen(faults):
    return mistakes(examine(loss_with(*faults)))


def test_the_loss_without_any_is_not_accused():
    assert seen(()) == set()


@pytest.mark.sweep  # test_mistakes has each of them alone
@pytest.mark.parametrize("fault", FAULTS)
def test_each_is_named_alone(fault):
    assert seen([fault]) == {fault}


@pytest.mark.parametrize("faults", swept(PAIRS, keep=KEPT))
def test_both_of_two_are_named_and_nothing_else(faults):
    assert seen(faults.split(" + ")) == {*faults.split(" + ")}


@pytest.mark.parametrize("faults", swept(TRIPLES, keep=KEPT_TRIPLES))
def test_all_of_three_are_named_and_nothing_else(faults):
    assert seen(faults.split(" + ")) == {*faults.split(" + ")}
