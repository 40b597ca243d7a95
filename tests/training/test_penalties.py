"""What each place of the KL does on average: sums over all responses of a policy that is a table.

"The decision card" of chapter 11, row by row. Scores are added, since the KL has to be right beside
them; everything is float64, so that what is exact is exact to 1e-10.
"""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from nbcourse.functional import advantages, kl
from nbcourse.toys import enumeration, regularised
from nbcourse.toys.sequences import SequenceSpace, exact_gradient
from nbcourse.training.algorithms import ALGORITHMS, ROW, Penalty, Tokens, policy_loss

BETA = 0.7
ENDING = SequenceSpace(vocab_size=3, length=3, eos=0)
SCORES = torch.linspace(-1.0, 2.0, len(ENDING.tokens), dtype=torch.float64).sin()

FROZEN = Penalty("advantage", beta=BETA, weight=ROW)
UNCLIPPED = Penalty("advantage", beta=BETA, weight="token")
RECOMPUTED = Penalty("advantage", beta=BETA, weight=ROW, recomputed=True)
PREFIX = Penalty("advantage", beta=BETA, weight="prefix", recomputed=True)
SEQUENCE = Penalty("advantage", beta=BETA, weight="sequence", recomputed=True)
FRESH = {
    "k1 in the advantage, frozen": FROZEN,
    "k1 in the advantage, frozen, without the clip": UNCLIPPED,
    "k1 in the advantage, recomputed": RECOMPUTED,
}
ALWAYS = {
    "k1 in the advantage, recomputed, prefix": PREFIX,
    "k1 in the advantage, recomputed, sequence": SEQUENCE,
    "k1, prefix": Penalty("surrogate", "k1", BETA),
    "k3, prefix": Penalty("surrogate", "k3", BETA),
    "k3, sequence": Penalty("surrogate", "k3", BETA, "sequence"),
    "exact divergences": Penalty("surrogate", "exact", BETA),
}
NEVER = {
    "k1 in the loss": Penalty("loss", "k1", BETA),
    "k2 in the loss": Penalty("loss", "k2", BETA),
    "k3 in the loss": Penalty("loss", "k3", BETA),
}
HERE = {"k3, token": Penalty("surrogate", "k3", BETA, "token")}
WIDE = {"clip_low": 1.0, "clip_high": 1e9}  # a clip that clips nothing


@dataclass(frozen=True)
class World:
    """A policy that learns, the one that sampled, and the reference, each (S, V) logits."""

    space: SequenceSpace
    theta: Tensor
    old: Tensor
    ref: Tensor

    @property
    def to_ref(self) -> Tensor:
        return gradient(lambda x: regularised.divergence(self.space, x, self.ref), self.theta)

    @property
    def to_old(self) -> Tensor:
        return gradient(lambda x: regularised.divergence(self.space, x, self.old), self.theta)


def gradient(function, logits):
    logits = logits.detach().requires_grad_()
    return torch.autograd.grad(function(logits), logits)[0]


def world(stale, space=ENDING):
    draws = [space.random_logits(torch.Generator().manual_seed(seed)) for seed in range(3)]
    theta, ref = draws[0], draws[0] + 0.5 * draws[1]
    return World(space, theta, theta + 0.4 * draws[2] if stale else theta, ref)


def mean_gradient(world, penalty, scores, row="rloo", **settings):
    """Σ_y π_old(y) ∇ loss(y): what a batch gives on average, where every response is its own."""
    space, chosen = world.space, ALGORITHMS[row]
    old, ref = space.log_probs(world.old), space.log_probs(world.ref)
    per_token = scores[:, None].expand(space.mask.shape)

    def loss(logits):
        own = space.log_probs(logits)
        divergences = kl.exact(logits, world.ref)[space.states]
        losses = [
            policy_loss(
                chosen,
                {**chosen.all_settings, **settings},
                penalty,
                Tokens(*(x[i : i + 1] for x in (own, old, ref, per_token, space.mask))),
                divergences=divergences[i : i + 1],
                max_length=1,
            )
            for i in range(len(space.tokens))
        ]
        return space.probs(world.old) @ torch.stack(losses)

    return gradient(loss, world.theta)


def error(found, truth):
    return ((found - truth).norm() / truth.norm()).item()


def of_the_penalty(world, penalty, **options):
    """What the penalty adds to the mean gradient; β taken out."""
    with_it, without = (mean_gradient(world, p, SCORES, **options) for p in (penalty, Penalty()))
    return (with_it - without) / penalty.beta


@pytest.mark.parametrize("form", {**FRESH, **ALWAYS})
def test_on_fresh_samples_score_and_kl_are_both_right(form):
    here = world(stale=False)
    found = mean_gradient(here, {**FRESH, **ALWAYS}[form], SCORES)
    wanted = BETA * here.to_ref - exact_gradient(here.space, here.theta, SCORES)
    assert error(found, wanted) < 1e-10


@pytest.mark.parametrize("form", ALWAYS)
def test_from_stale_samples_these_are_right_at_every_update(form):
    here = world(stale=True)
    assert error(of_the_penalty(here, ALWAYS[form]), here.to_ref) < 1e-10


# under "sum by a constant" the ratio of Dr. GRPO's row is per token, as PPO's and GRPO's
@pytest.mark.parametrize("form", {**FRESH, **HERE, **NEVER})
def test_from_stale_samples_these_are_not(form):
    here = world(stale=True)
    options = {"row": "dr-grpo", **WIDE}
    found = of_the_penalty(here, {**FRESH, **HERE, **NEVER}[form], **options)
    assert error(found, here.to_ref) > 0.1


@pytest.mark.parametrize("form", {**HERE, **NEVER})
def test_from_fresh_samples_these_are_not_right_either(form):
    here = world(stale=False)
    assert error(of_the_penalty(here, {**HERE, **NEVER}[form]), here.to_ref) > 0.05


def test_frozen_it_leaves_out_how_far_the_policy_has_moved():
    here, penalty = world(stale=True), Penalty("advantage", beta=BETA, weight="sequence")
    assert error(of_the_penalty(here, penalty), here.to_ref - here.to_old) < 1e-10


@pytest.mark.parametrize("recomputed", [False, True])
def test_without_a_clip_the_rows_ratio_is_the_weight_of_the_token(recomputed):
    here = world(stale=True)
    inside, outside = (
        Penalty("advantage", beta=BETA, weight=weight, recomputed=recomputed)
        for weight in (ROW, "token")
    )
    options = {"row": "dr-grpo", **WIDE}
    assert error(*(of_the_penalty(here, p, **options) for p in (inside, outside))) < 1e-10
    clipped = of_the_penalty(here, inside, row="dr-grpo", clip_low=0.05, clip_high=0.05)
    assert error(clipped, of_the_penalty(here, outside, **options)) > 0.1


@pytest.mark.parametrize("form", {**FRESH, **ALWAYS})
def test_at_the_reference_and_on_fresh_samples_no_response_moves_the_policy(form):
    """The test of a wrong form that needs no list: d = 0 for every token.

    But for k1 in the surrogate, whose own derivative is a score: noise of mean zero.
    """
    space, penalty = ENDING, {**FRESH, **ALWAYS}[form]
    logits = space.random_logits(torch.Generator().manual_seed(0))
    row = ALGORITHMS["rloo"]
    for i in range(len(space.tokens)):
        here = {"log_probs": space.log_probs(logits)[i : i + 1]}

        def loss(x, i=i, own=here["log_probs"]):
            return policy_loss(
                row,
                row.all_settings,
                penalty,
                Tokens(
                    space.log_probs(x)[i : i + 1],
                    old_log_probs=own,
                    ref_log_probs=own,
                    advantages=torch.zeros_like(own),
                    mask=space.mask[i : i + 1],
                ),
                divergences=kl.exact(x, logits)[space.states][i : i + 1],
                max_length=1,
            )

        assert (gradient(loss, logits).abs().max() < 1e-12) == (form != "k1, prefix")


# ---------------------------------------------------------------- beside divided advantages

GROUP = 4


def of_groups(penalty):
    """What the penalty adds to GRPO's mean gradient over all groups of four; β taken out."""
    space = SequenceSpace(vocab_size=2, length=2)
    here = world(stale=False, space=space)
    members = enumeration.groups(len(space.tokens), GROUP)
    probs = enumeration.group_probs(space.probs(here.theta), members)
    own, ref = space.log_probs(here.theta), space.log_probs(here.ref)
    right = (space.tokens.sum(dim=1) == 1).double()
    row = ALGORITHMS["rloo"]  # for its surrogate and its sum over tokens; the advantages are GRPO's

    def loss(logits, beta):
        total = 0.0
        for group, p in zip(members, probs, strict=True):
            rewards = right[group]
            if penalty.placement == "reward":
                rewards = rewards - beta * (own - ref)[group].sum(dim=1)
            A = advantages.group_relative(rewards, group_size=GROUP)
            in_group = Penalty(penalty.placement, beta=beta, weight=penalty.weight)
            total = total + p * policy_loss(
                row,
                row.all_settings,
                in_group,
                Tokens(
                    space.log_probs(logits)[group],
                    old_log_probs=own[group],
                    ref_log_probs=ref[group],
                    advantages=A[:, None].expand(-1, 2),
                    mask=space.mask[group],
                ),
                max_length=2,
            )
        return total

    with_it, without = (gradient(lambda x, b=b: loss(x, b), here.theta) for b in (0.01, 0.0))
    return (with_it - without) / 0.01, here.to_ref


def test_added_after_the_division_the_price_of_a_nat_is_what_it_says():
    found, truth = of_groups(Penalty("advantage", weight=ROW))
    assert error(found, truth) < 1e-10


def test_inside_of_the_division_it_is_another():
    """Groups that agree are divided by the spread of the penalty itself, however small it is."""
    found, truth = of_groups(Penalty("reward"))
    assert found.norm() / truth.norm() > 5
