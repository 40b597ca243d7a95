"""Worlds whose batches are listed once, and losses that are asked once about each of them."""

import pytest
import torch

from nbcourse.examine import worlds
from nbcourse.examine.remembered import Remembered
from nbcourse.examine.subject import Subject
from tests.examine.parts import clipped, mean_of_sums, ratio_of

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
