"""The third batch of strangers' losses: what their verdicts say of gradients, by enumeration.

Nothing here asks `examine`. A policy over five answers, of one token or of two, is listed with all
pairs of answers that it can draw. The verdicts were written from this.
"""

import itertools

import pytest
import torch

from book.studies import strangers_third as third

PLACES = [slice(0, 3), slice(3, 5), slice(5, 7)]  # the logits of the start, after a, and after b
ANSWERS = [[(0, 2)], [(0, 0), (1, 0)], [(0, 0), (1, 1)], [(0, 1), (2, 0)], [(0, 1), (2, 1)]]
REWARDS = torch.tensor([0.0, 1.0, 0.2, 0.6, 0.0], dtype=torch.float64)
MASK = torch.tensor([[1, 0], [1, 1], [1, 1], [1, 1], [1, 1]]).bool()
SAMPLER = torch.tensor([-0.2, 0.4, -0.9, 0.3, -0.5, -1.0, 0.2], dtype=torch.float64)
REFERENCE = SAMPLER + torch.tensor([0.5, -0.3, 0.2, 0.4, -0.2, -0.6, 0.3], dtype=torch.float64)
FRESH = torch.zeros(7, dtype=torch.float64)
STALE = torch.tensor([0.3, -0.2, 0.1, -0.3, 0.25, 0.4, -0.2], dtype=torch.float64)


def log_probs_of(logits):
    """Log-probs of the tokens of each answer, (5, 2); padding has 0."""
    known = [logits[place].log_softmax(0) for place in PLACES]
    rows = [[known[state][token] for state, token in answer] for answer in ANSWERS]
    return torch.stack(
        [torch.stack([*row, *[known[0].sum() * 0] * (2 - len(row))]) for row in rows]
    )


def chances(logits):
    return (log_probs_of(logits) * MASK).sum(1).exp()


TAKES = {
    "verl": lambda now, old, ref, r, better: (now, old, better),
    "tokens": lambda now, old, ref, r, better: (now, old, ref, better),
    "plain": lambda now, old, ref, r, better: (now, old, better),
    "returns": lambda now, old, ref, r, better: (now, old, ref, r),
    "answers": lambda now, old, ref, r, better: (now, old, ref, better[:, 0]),
    "groups": lambda now, old, ref, r, better: (now, old, r),
}
GROUPS = {"groups": (2,)}


def step_of(loss, takes, moved, reference=REFERENCE, padding=(0.0, 0.0)):
    """The expected step, against the gradient, over all pairs of answers to one prompt."""
    logits = (SAMPLER + moved).requires_grad_()
    chance, old, ref = chances(SAMPLER), log_probs_of(SAMPLER), log_probs_of(reference)
    mean = chance @ REWARDS
    total = torch.zeros(7, dtype=torch.float64)
    for pair in itertools.product(range(5), repeat=2):
        pair = torch.tensor(pair)
        mask, now, rewards = MASK[pair], log_probs_of(logits)[pair], REWARDS[pair]
        olds, refs = (
            known[pair].masked_fill(~mask, beyond)
            for known, beyond in zip((old, ref), padding, strict=True)
        )
        better = (rewards - mean)[:, None].expand_as(now)
        given = TAKES[takes](now, olds, refs, rewards, better)
        value = loss(*given, mask, *GROUPS.get(takes, ()))
        total += chance[pair].prod() * torch.autograd.grad(value, logits)[0]
    return -total


def cosine(one, other):
    return float(one @ other / (one.norm() * other.norm()))


@pytest.mark.parametrize(
    ("fault", "mended", "takes", "fresh", "stale"),
    [
        (third.a_weight_with_a_gradient, third.a_weight_that_is_a_constant, "verl", -0.03, 0.25),
        (third.a_policy_over_itself, third.a_policy_over_the_sampler, "tokens", 1.0, 0.995),
        (third.a_cap_on_the_surrogate, third.a_cap_on_the_weight, "plain", 1.0, 0.898),
        (third.a_kl_for_the_reward_in_the_loss, third.a_kl_for_the_loss, "tokens", 0.9988, 0.9966),
        (third.answers_as_one_token, third.a_ratio_for_each_token, "answers", 0.977, 0.871),
        (third.one_advantage_too_many, third.an_advantage_for_each_token, "groups", 0.488, 0.38),
    ],
)
def test_the_cosine_of_a_fault_with_its_mended_twin(fault, mended, takes, fresh, stale):
    for moved, expected in ((FRESH, fresh), (STALE, stale)):
        found = cosine(step_of(fault, takes, moved), step_of(mended, takes, moved))
        assert found == pytest.approx(expected, abs=0.006)


def test_what_is_in_the_padding_reaches_the_step_of_the_fault_alone():
    for loss, same in (
        (third.tokens_under_the_mask_are_charged, True),
        (third.every_place_is_charged, False),
    ):
        clean = step_of(loss, "returns", FRESH)
        dirty = step_of(loss, "returns", FRESH, padding=(-1.0, -4.0))
        assert torch.allclose(clean, dirty) == same


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


def kl_part(loss, takes):
    """The part of the step that goes with the reference."""
    return step_of(loss, takes, FRESH) - step_of(loss, takes, FRESH, reference=SAMPLER)


def test_k3_of_whole_answers_descends_the_forward_kl_and_that_of_tokens_nearly():
    logits = SAMPLER.clone().requires_grad_()
    reference = chances(REFERENCE)
    forward = (reference * (reference.log() - chances(logits).log())).sum()
    descent = -torch.autograd.grad(forward, logits)[0]
    assert cosine(kl_part(third.answers_as_one_token, "answers"), descent) == pytest.approx(1)
    for loss, takes in (
        (third.a_ratio_for_each_token, "answers"),
        (third.a_policy_over_the_sampler, "tokens"),
        (third.a_kl_for_the_loss, "tokens"),
    ):
        assert cosine(kl_part(loss, takes), descent) == pytest.approx(0.986, abs=0.001)
    assert kl_part(third.a_kl_for_the_reward_in_the_loss, "tokens").norm() == 0


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
