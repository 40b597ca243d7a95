"""The third batch of strangers' losses: what their verdicts say of gradients, by enumeration.

Nothing here asks `examine`. The policies are listed whole (`book.studies.listed`), and the verdicts
were written from what this finds.
"""

from dataclasses import replace

import pytest
import torch

from book.studies import strangers_third as third
from book.studies.listed import EASY, RUBBISH, Listing, away, cosine

FRESH = Listing([EASY])
STALE = replace(FRESH, moved=0.3)
VERL = {"log_prob": "log_probs", "old_log_prob": "old_log_probs", "response_mask": "mask"}
TRL = {
    "per_token_logps": "log_probs",
    "old_per_token_logps": "old_log_probs",
    "ref_per_token_logps": "ref_log_probs",
    "completion_mask": "mask",
}


def step(listing, loss):
    """The expected step of a loss whose arguments have the names of some library."""
    named = {case.fault: case.convention for case in third.CASES} | {
        case.mended: case.convention for case in third.CASES
    }
    names = {"verl": VERL, "trl": TRL, "book": {}}[named[loss]]

    def of_ours(log_probs, old_log_probs, ref_log_probs, advantages, rewards, mask, group_size):
        given = locals()
        taken = loss.__code__.co_varnames[: loss.__code__.co_argcount]
        chosen = {name: given[names.get(name, name)] for name in taken}
        if names is TRL:
            chosen["advantages"] = advantages[:, 0]
        return loss(**chosen)

    return listing.expected_step(of_ours)


@pytest.mark.parametrize(
    ("fault", "mended", "right_when_fresh"),
    [
        (third.a_weight_with_a_gradient, third.a_weight_that_is_a_constant, False),
        (third.a_policy_over_itself, third.a_policy_over_the_sampler, True),
        (third.a_cap_on_the_surrogate, third.a_cap_on_the_weight, True),
        (third.a_kl_for_the_reward_in_the_loss, third.a_kl_for_the_loss, False),
        (third.answers_as_one_token, third.a_ratio_for_each_token, False),
        (third.one_advantage_too_many, third.an_advantage_for_each_token, False),
    ],
)
def test_a_fault_turns_the_expected_step_of_its_mended_twin(fault, mended, right_when_fresh):
    assert (cosine(step(FRESH, fault), step(FRESH, mended)) > 0.9999) == right_when_fresh
    assert cosine(step(STALE, fault), step(STALE, mended)) < 0.998


def test_what_is_in_the_padding_reaches_the_step_of_the_fault_alone():
    for loss, alike in (
        (third.tokens_under_the_mask_are_charged, True),
        (third.every_place_is_charged, False),
    ):
        other = replace(FRESH, beyond=RUBBISH)
        assert torch.allclose(step(FRESH, loss), step(other, loss)) == alike


def test_padding_itself_is_not_trained_by_the_charge_on_every_place():
    now = torch.full((1, 3), -1.0, requires_grad=True)
    mask = torch.tensor([[1, 1, 0]])
    old = torch.full((1, 3), -1.0)
    third.every_place_is_charged(now, old, old - 1, torch.ones(1), mask).backward()
    assert now.grad[0, 2] == 0


def test_a_good_token_less_likely_than_1_over_e_becomes_rarer():
    now = torch.tensor([[-2.0, -0.5]], requires_grad=True)
    third.a_weight_with_a_gradient(now, now.detach(), torch.ones(1, 2), torch.ones(1, 2)).backward()
    expected = -(1 + now.detach()) / 2  # the derivative of −A w log π, over two tokens
    torch.testing.assert_close(now.grad, expected)
    assert now.grad[0, 0] > 0


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_beyond_the_cap_of_the_surrogate_there_is_no_gradient_whatever_the_sign(sign):
    now = torch.tensor([[-1.0, -1.0]], requires_grad=True)
    old = now.detach() - torch.tensor([[0.2, 0.3]])  # ratios of 1.22 and 1.35
    third.a_cap_on_the_surrogate(now, old, torch.full((1, 2), sign), torch.ones(1, 2)).backward()
    assert now.grad[0, 0] != 0
    assert now.grad[0, 1] == 0


def kl_part(loss):
    """The part of the step that goes with the reference."""
    return step(FRESH, loss) - step(replace(FRESH, reference=0.0), loss)


def test_k3_of_whole_answers_descends_the_forward_kl_and_that_of_tokens_nearly():
    logits = EASY.logits.clone().requires_grad_()
    reference = EASY.log_probs(away(EASY, FRESH.reference, 2)).sum(1)
    forward = (reference.exp() * (reference - EASY.log_probs(logits).sum(1))).sum()
    descent = -torch.autograd.grad(forward, logits)[0]
    start = step(replace(FRESH, reference=0.0), third.answers_as_one_token)
    assert start.norm() > 0  # the part that the rewards have is taken away
    for loss, least, most in (
        (third.answers_as_one_token, 0.9999, 1.0001),
        (third.a_ratio_for_each_token, 0.95, 0.999),
        (third.a_policy_over_the_sampler, 0.95, 0.999),
        (third.a_kl_for_the_loss, 0.95, 0.999),
    ):
        assert least < cosine(kl_part(loss), descent) < most
    assert kl_part(third.a_kl_for_the_reward_in_the_loss).norm() == 0


def test_a_product_of_ratios_overflows_and_a_ratio_of_tokens_does_not():
    now = torch.full((1, 4000), -1.0)
    for loss, finite in (
        (third.answers_as_one_token, False),
        (third.a_ratio_for_each_token, True),
    ):
        value = loss(now, now - 0.05, now, torch.tensor([-1.0]), torch.ones(1, 4000))
        assert bool(value.isfinite()) == finite


def test_the_order_of_the_answers_matters_where_a_pack_has_an_advantage_too_many():
    now = torch.full((4, 3), -1.0)
    rewards, mask = torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.ones(4, 3)
    for loss, moved in (
        (third.one_advantage_too_many, True),
        (third.an_advantage_for_each_token, False),
    ):
        weights = []
        for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
            known = now.clone().requires_grad_()
            loss(known, now, rewards[order], mask, 4).backward()
            weights.append(known.grad[order])
        assert (not torch.equal(*weights)) == moved
