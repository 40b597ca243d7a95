"""Losses that are asked for many batches in one call, and those that cannot be."""

from types import SimpleNamespace

import pytest
import torch

from nbcourse.examine import known, worlds
from nbcourse.examine.remembered import Remembered, keeps_nothing
from nbcourse.examine.repairs import Spared
from nbcourse.examine.subject import Subject
from nbcourse.training.algorithms import ALGORITHMS
from tests.examine.parts import clipped, mean_of_sums, ratio_of

FRESH = worlds.fresh()
WORLDS = [*FRESH[2:4], *worlds.stale(reference_is_the_sampler=False, three=True)[2:4], FRESH[-2]]
LISTS = [*(world._as_sets.batches for world in WORLDS), WORLDS[0]._in_order.batches]
STATE = SimpleNamespace()


class Trebled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return 3 * gradient


def plain(log_probs, old_log_probs, advantages, mask):
    return mean_of_sums(clipped(ratio_of(log_probs, old_log_probs), advantages), mask)


def of_each_token(log_probs, rewards, mask):
    return -log_probs * (rewards - rewards.mean())[:, None] * mask


def free_of_log_probs_in_parts(log_probs, rewards, mask):
    return mean_of_sums(torch.zeros_like(log_probs) + 0 * log_probs.detach(), mask)


def divides_by_nothing(log_probs, rewards, mask):
    return mean_of_sums(-log_probs * ((rewards - rewards.mean()) / rewards.std())[:, None], mask)


def changes_its_arguments(log_probs, rewards, mask):
    rewards -= rewards.mean()
    return mean_of_sums(-log_probs * rewards[:, None], mask)


FOLLOWED = [
    plain,
    of_each_token,
    free_of_log_probs_in_parts,
    divides_by_nothing,
    changes_its_arguments,
]


def reads_a_number(log_probs, rewards, mask):
    return mean_of_sums(-log_probs * (rewards[:, None] - rewards.mean().item()), mask)


def chooses_by_a_mask(log_probs, rewards, mask):
    return -(log_probs * rewards[:, None])[mask].mean()


def asks_a_tensor(log_probs, rewards, mask):
    return mean_of_sums(log_probs, mask) if rewards.mean() > 0.5 else mean_of_sums(-log_probs, mask)


def draws(log_probs, rewards, mask):
    return mean_of_sums(torch.nn.functional.dropout(-log_probs * rewards[:, None]), mask)


def has_a_gradient_of_its_own(log_probs, rewards, mask):
    return mean_of_sums(Trebled.apply(-log_probs * rewards[:, None]), mask)


def asks_whether_it_learns(log_probs, rewards, mask):
    return mean_of_sums(
        (-2 if log_probs.requires_grad else -1) * log_probs * rewards[:, None], mask
    )


def has_a_running_mean(log_probs, rewards, mask):
    STATE.mean = 0.9 * getattr(STATE, "mean", 0.0) + 0.1 * rewards.mean()
    return mean_of_sums(-log_probs * (rewards - STATE.mean)[:, None], mask)


def has_a_running_mean_for_its_log(log_probs, rewards, mask):
    STATE.logged = 0.9 * getattr(STATE, "logged", 0.0) + 0.1 * rewards.mean()
    return mean_of_sums(-log_probs * rewards[:, None], mask)


def keeps_a_mask_for_each_shape(log_probs, rewards, mask):
    kept = STATE.masks.setdefault(mask.shape, torch.zeros_like(mask))
    return mean_of_sums(-log_probs * rewards[:, None], mask | kept)


ALONE = [
    reads_a_number,
    chooses_by_a_mask,
    asks_a_tensor,
    draws,
    has_a_gradient_of_its_own,
    asks_whether_it_learns,
    has_a_running_mean_for_its_log,
]


@pytest.fixture(autouse=True)
def _nothing_is_kept():
    vars(STATE).clear()
    STATE.masks = {}


def counted(loss):
    """It as a subject, the same that remembers, and a list that each call of it makes longer."""
    asked, subject = [], Subject.of(loss)

    def asking(**given):
        asked.append(None)
        return subject.function(**given)

    return subject, Remembered.by(Subject(subject.name, asking, subject.takes)), asked


def as_one_by_one(subject, remembered, lists):
    for listed in lists:
        expected = torch.stack([subject.weights(one) for one in listed.each])
        found = remembered.weights_of_each(listed)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-15, equal_nan=True)


@pytest.mark.parametrize("loss", [*FOLLOWED, *ALONE], ids=lambda loss: loss.__name__)
def test_many_batches_weigh_what_each_of_them_does(loss):
    """Of a loss that vmap follows all are asked for in one call, but three of each new shape."""
    subject, remembered, asked = counted(loss)
    as_one_by_one(subject, remembered, LISTS)
    assert all(remembered._follows.values()) == (loss in FOLLOWED)
    shapes = {listed.each[0].mask.shape for listed in LISTS}
    assert (len(asked) <= len(LISTS) + 3 * len(shapes)) == (loss in FOLLOWED)


@pytest.mark.parametrize("loss", [plain, asks_a_tensor], ids=lambda loss: loss.__name__)
def test_lists_that_will_be_asked_for_are_asked_for_together(loss):
    """One call for all of a shape and group size; a loss that vmap refuses is asked as before."""
    subject, remembered, asked = counted(loss)
    remembered.look_ahead(LISTS)
    calls = len(asked)
    as_one_by_one(subject, remembered, LISTS)
    kinds = {(listed.each[0].mask.shape, listed.each[0].group_size) for listed in LISTS}
    assert calls <= 4 * len(kinds)
    assert (len(asked) == calls) == (loss is plain)


@pytest.mark.parametrize("loss", [has_a_running_mean, keeps_a_mask_for_each_shape])
def test_what_a_loss_keeps_is_no_tensor_of_many_batches(loss):
    """Whoever met one later would be told that it has escaped."""
    subject = Remembered.by(Subject.of(loss))
    for listed in LISTS:
        subject.weights_of_each(listed)
    for kept in (getattr(STATE, "mean", torch.zeros(())), *STATE.masks.values()):
        kept.tolist()


def test_a_loss_that_keeps_something_is_told_from_one_that_does_not():
    one = LISTS[0].each[1]
    for loss in FOLLOWED:
        assert keeps_nothing(Subject.of(loss), one)
    for loss in (has_a_running_mean, has_a_running_mean_for_its_log, keeps_a_mask_for_each_shape):
        assert not keeps_nothing(Subject.of(loss), one)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_row_is_asked_at_once_with_the_advantages_that_it_makes_of_each_batch(name):
    remembered = Remembered.by(known.row(name))
    as_one_by_one(known.row(name), remembered, LISTS[1:4:2])
    assert all(remembered._follows.values())


def test_a_repaired_loss_is_repaired_for_each_batch():
    subject = Subject.of(divides_by_nothing)
    given = (subject.name, subject.function, subject.takes)
    repaired, again = (
        Spared(*given, whole=Remembered.by(subject), flat=True, padding=True) for _ in range(2)
    )
    for listed in LISTS[:2]:
        found = repaired.weights_of_each(listed)
        assert found.isfinite().all()
        torch.testing.assert_close(found, torch.stack([*map(again.weights, listed.each)]))
    assert all(repaired.whole._follows.values())
