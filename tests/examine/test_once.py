"""What an examination does not do twice, and does not look at: the answers stay what they were."""

import math
import random

import pytest
import torch

from nbcourse.examine import direction, known, ratio
from nbcourse.examine.batches import MIXED, batch
from nbcourse.examine.remembered import Remembered, Watched
from nbcourse.examine.subject import LossInputs
from nbcourse.functional.advantages import leave_one_out
from nbcourse.training.algorithms import ALGORITHMS


def test_noting_shapes_needs_no_compiler():
    """Which torch would import, in over a second, to leave a mode of one's own out of it."""
    assert not hasattr(Watched.__torch_dispatch__, "__wrapped__")


@pytest.mark.parametrize("seed", range(20))
def test_the_row_that_is_found_is_the_first_of_those_that_agree_most(seed, monkeypatch):
    source = random.Random(seed)
    table = {name: {key: source.randrange(2) for key in known.FEATURES} for name in ALGORITHMS}
    ours = dict.fromkeys(known.FEATURES, 0)
    read = set()

    def feature(name, key, handed):
        read.add((name, key))
        return table[name][key]

    def likeness(name):
        return sum(known.LESS.get(key, 1) * (table[name][key] == 0) for key in ours)

    monkeypatch.setattr(known, "_feature_of_row", feature)
    assert known._likest(ours, handed=False) == max(table, key=likeness)
    assert len(read) < 0.9 * len(table) * len(ours)


@pytest.mark.parametrize("loss", ["grpo", "ppo"])
def test_the_worst_world_is_the_same_however_many_are_tried_at_once(loss):
    subject = known.row(loss, beta=0.0)
    one, other = map(direction.worst, (subject, Remembered.by(subject)))
    assert other.cosine == pytest.approx(one.cosine, rel=1e-12)
    assert other.probs == pytest.approx(one.probs)
    assert other.rewards == pytest.approx(one.rewards)


EDGE = math.log(1.2)


@pytest.mark.parametrize(
    ("guess", "looks"),
    [
        (None, ratio.HALVINGS),
        (EDGE, 2),
        (EDGE + 1e-9, 2),
        (EDGE + 1e-3, 2 + ratio.HALVINGS),
        (EDGE - 1e-3, 2 + ratio.HALVINGS),
        (math.nan, 2 + ratio.HALVINGS),
    ],
)
def test_a_guess_saves_looks_and_changes_no_edge(guess, looks):
    seen = []

    def kept(log):
        seen.append(log)
        return log <= EDGE

    found = ratio._last(0.1, 0.25, kept, guess=guess)
    assert found == ratio._halved(0.1, 0.25, lambda log: log <= EDGE)[0]
    assert found <= EDGE < found + 2 * 0.15 / 2**ratio.HALVINGS
    assert len(seen) <= looks


def test_a_guess_where_nothing_changes_is_not_believed():
    assert ratio._last(0.0, 1.0, lambda log: log < 0.5, guess=0.25) == pytest.approx(0.5, abs=1e-5)
    assert ratio._last(0.0, 1.0, lambda log: log < 0.5, guess=0.75) == pytest.approx(0.5, abs=1e-5)


def test_what_rewards_make_is_that_of_the_batch_at_hand():
    """Copies share it until one of them has other rewards, another mask or other groups."""
    one = batch([2] * 6, MIXED, group_size=3)
    fewer = one.mask.clone()
    fewer[0, 1] = False
    changes = [
        {"log_probs": one.log_probs - 1},
        {"rewards": one.rewards.flip(0) + torch.arange(6)},
        {"mask": fewer},
        {"group_size": 2},
    ]
    for change in changes:
        for other in (one.with_(**change), one.with_(**change).without_rewards()):
            alone = leave_one_out(other.rewards, group_size=other.group_size)
            (found,) = other.offered(["advantages"]).values()
            assert torch.equal(found, alone[:, None] * other.mask)
    assert not one.without_rewards().rewards.any()
    assert torch.equal(one.rewards, torch.tensor(MIXED, dtype=torch.float64))


def test_advantages_that_are_given_stay_where_nothing_is_earned():
    given = torch.ones(2, 1)
    one = LossInputs(given, given, given, given > 0, torch.ones(2), 2, advantages=given)
    assert torch.equal(one.without_rewards().offered(["advantages"])["advantages"], given)


def test_a_batch_is_made_once_and_what_is_offered_of_it_can_be_changed():
    one = batch([2, 2], [1.0, 0.0], group_size=2)
    one.offered(["log_probs"])["log_probs"].zero_()
    again = batch([2, 2], [1, 0], group_size=2, width=2)
    assert again is one
    assert again.log_probs.all()


def test_a_row_makes_its_advantages_anew_where_the_kl_is_in_its_rewards():
    """Everywhere else they are those of equal rewards."""
    one = batch([2, 2, 2], [1.0, 0.0, 0.5], group_size=3)
    other = one.with_(ref_log_probs=one.ref_log_probs - torch.tensor([[0.5, 0.0]]))
    for name, moved in (("rloo", True), ("dr-grpo", False)):
        subject = known.row(name)
        first, second, third = (subject.weights(x) for x in (one, other, one))
        assert torch.equal(first, third)
        assert torch.equal(first, second) != moved
