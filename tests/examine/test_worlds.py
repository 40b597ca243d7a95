"""Worlds whose batches are listed once, and losses that are asked once about each of them."""

import pytest
import torch

from nbcourse.examine import batches, conventions, penalty, worlds
from nbcourse.examine.remembered import Remembered
from nbcourse.examine.subject import Subject
from tests.examine.parts import clipped, mean_of_sums, ratio_of, with_kl

FRESH = worlds.fresh()[2:4]
STALE = worlds.stale(reference_is_the_sampler=False)[2:4]


def reinforce(log_probs, advantages, mask):
    return mean_of_sums(-log_probs * advantages, mask)


def ppo(log_probs, old_log_probs, advantages, mask):
    return mean_of_sums(clipped(ratio_of(log_probs, old_log_probs), advantages), mask)


# to a loss that takes no old log-probs, stale samples are the fresh ones
@pytest.mark.parametrize(("loss", "anew"), [(reinforce, False), (ppo, True)])
def test_a_loss_is_asked_once_about_equal_batches_and_all_sums_stay_the_same(loss, anew):
    asked = []

    def counted(**given):
        asked.append(None)
        return loss(**given)

    plain = Subject.of(loss)
    remembered = Remembered.by(Subject(plain.name, counted, plain.takes))
    calls = []
    for listed in (FRESH, STALE, FRESH):
        for world in listed:
            for ordered in (False, True):
                found, right = (world.expected(s, ordered=ordered) for s in (remembered, plain))
                torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-15)
        calls.append(len(asked))
    first, second, third = calls
    assert (second > first) == anew
    assert third == second


def test_one_order_of_a_group_stands_for_all_where_order_does_not_matter():
    for world in FRESH:
        one, every = (world.expected(Subject.of(ppo), ordered=ordered) for ordered in (False, True))
        torch.testing.assert_close(one, every)
        for ordered in (False, True):
            chances = [chance for chance, *_ in world.batches(Subject.of(ppo), ordered=ordered)]
            assert sum(chances) == pytest.approx(1)


def test_a_reference_is_the_policy_that_learns_or_the_one_that_sampled():
    for same in (False, True):
        for world in worlds.stale(reference_is_the_sampler=same):
            for prompt in world.prompts:
                assert not torch.equal(prompt.old_logits, prompt.logits)
                reference = prompt.old_logits if same else prompt.logits
                assert torch.equal(prompt.ref_logits, reference)


def test_a_loss_that_draws_is_asked_with_the_same_numbers_unless_told_otherwise():
    def noisy(log_probs, advantages, mask):
        return mean_of_sums(-log_probs * advantages * torch.rand(mask.shape), mask)

    subject = Subject.of(noisy)
    batch = FRESH[0]._in_order.batches.each[3]
    quantities = subject.quantities(batch)
    assert subject.loss(quantities) == subject.loss(quantities, seed=0)
    assert subject.loss(quantities) != subject.loss(quantities, seed=1)
    assert torch.equal(subject.weights(batch), subject.plain(batch, seed=0))


@pytest.mark.parametrize("told", [lambda loss: (loss, loss * 0 + 7), lambda loss: {"loss": loss}])
def test_the_loss_comes_first_of_what_a_function_returns(told):
    plain = Subject.of(reinforce)
    other = Subject(plain.name, lambda **given: told(reinforce(**given)), plain.takes)
    batch = FRESH[0]._in_order.batches.each[3]
    quantities = plain.quantities(batch)
    assert other.loss(quantities) == plain.loss(quantities) != 7


def test_a_penalty_s_beta_is_beside_what_stands_before_the_reward():
    def loss(log_probs, ref_log_probs, advantages, mask):
        d = (log_probs - ref_log_probs.detach()).masked_fill(~mask, 0.0)
        return with_kl(log_probs, advantages, mask, d**2 / 2)

    for factor in (1, 3):
        subject = Subject.of(loss)
        scaled = Subject("scaled", lambda f=factor, **g: f * loss(**g), subject.takes)
        found = penalty.descent(scaled, ordered=False)
        assert (found.descends, found.beta) == ("token", pytest.approx(0.1))


def test_packed_rows_stand_end_to_end_without_their_padding():
    """A place within a response that is masked, such as a tool's answer, stays."""
    mask = torch.tensor([[1, 0, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]]).bool()
    numbers = torch.arange(12.0).view(3, 4)
    given = {"mask": mask, "log_probs": numbers}
    packed = conventions.CONVENTIONS["packed"]

    def made(name):
        return packed[name].value(given).tolist()

    assert made("log_probs") == [[0, 1, 2, 4, 5, 6, 7, 8]]
    assert made("mask") == [[True, False, True, True, True, True, True, True]]
    assert made("cu_seqlens") == [0, 3, 7, 8]
    assert made("position_ids") == [[0, 1, 2, 0, 1, 2, 3, 0]]
    assert made("segment_ids") == [[1, 1, 1, 2, 2, 2, 2, 3]]


def test_without_a_reference_it_is_the_policy_that_learns_unless_the_sampler_is_asked_for():
    one = STALE[0]._in_order.batches.each[0]
    assert not torch.equal(one.log_probs, one.old_log_probs)
    for options, policy in (({}, one.log_probs), ({"sampler": True}, one.old_log_probs)):
        assert torch.equal(batches.without_reference(one, **options).ref_log_probs, policy)
