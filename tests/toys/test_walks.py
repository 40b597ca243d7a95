"""Walks of a table: sampled as often as the exact chances say, and read by the task itself."""

import math
from itertools import product

import pytest
import torch

from nbcourse.tasks.walk import Walk
from nbcourse.toys import walks

TASK = Walk(crossings=3, blocks=2)


def source(seed=0):
    return torch.Generator().manual_seed(seed)


def uneven(seed=3):
    """A table whose twelve logits all differ."""
    return torch.randn(3, 2, 2, generator=source(seed), dtype=torch.float64)


def spelled(batch, row):
    """The text of a sampled walk on the route NNN: `E` for a wrong turn."""
    found = batch.positions[row] < batch.mask.shape[1]
    rounds, turns = [1], ""
    for logit, chosen in zip(
        batch.logits[row][found].tolist(), batch.chosen[row][found].tolist(), strict=True
    ):
        if logit % 2:
            turns += "N" if chosen else "E"
            rounds.append(1)
        else:
            rounds[-1] += chosen
    return TASK.walk(turns, rounds[:3])


def test_a_sampled_walk_is_the_tasks_token_by_token():
    batch = walks.sample(uneven(), 200, generator=source(), blocks=2, max_length=400)
    assert not batch.truncated.any()
    for row in range(200):
        text = spelled(batch, row)
        assert batch.lengths[row] == len(text) + 1  # the end of the sequence
        assert batch.right[row] == float(TASK.read(text) == "NNN")
        decided = batch.positions[row][batch.positions[row] < 400].tolist()
        forks = [i for i, c in enumerate(text) if c == ":" or (i and text[i - 1] in "0:")]
        again = [i for i in forks if text[i] not in ":NE"]
        assert decided == sorted(again + [i for i in forks if text[i] in ":NE"])
        wrong, behind = False, 0
        for i, token in enumerate(text + "$"):
            assert batch.states[row, i] == 2 * behind + wrong, (text, i)
            if token in "NE":
                behind, wrong = behind + 1, wrong or token == "E"


def test_sampled_walks_are_as_frequent_as_the_exact_chances():
    """Every number of rounds, right and wrong, within four standard errors."""
    table, count = uneven(), 20_000
    batch = walks.sample(table, count, generator=source(), blocks=2, max_length=800)
    rounds = (batch.lengths - 7) // 4
    right, wrong = walks.outcomes(table, rounds=200)
    assert (right.sum() + wrong.sum()).item() == pytest.approx(1.0, abs=1e-9)
    for verdict, chances in ((1, right), (0, wrong)):
        for n in range(3, 12):
            share = ((rounds == n) & (batch.right == verdict)).double().mean().item()
            chance = chances[n].item()
            assert share == pytest.approx(chance, abs=4 * math.sqrt(chance / count) + 1e-9)


def test_the_exact_chances_are_sums_over_all_walks():
    """Two crossings, up to five rounds at each: product of every choice's probability."""
    table, expected = uneven()[:2], torch.zeros(2, 7, dtype=torch.float64)
    again, right_turn = table.sigmoid().unbind(-1)
    for one, two, turn, next_turn in product(range(1, 6), range(1, 6), (0, 1), (0, 1)):
        chance = again[0, 0] ** (one - 1) * (1 - again[0, 0])
        chance = chance * (1 - right_turn[0, 0] if turn else right_turn[0, 0])
        chance = chance * again[1, turn] ** (two - 1) * (1 - again[1, turn])
        chance = chance * (1 - right_turn[1, turn] if next_turn else right_turn[1, turn])
        if one + two <= 6:  # of more rounds some walks are not listed here
            expected[int(turn or next_turn), one + two] += chance
    found = walks.outcomes(table, rounds=6)
    torch.testing.assert_close(torch.stack(found), expected)


def test_a_limit_cuts_off_as_many_walks_as_the_exact_chances_say():
    table, count, limit = uneven(), 20_000, 27  # five rounds, of four tokens each, and 7 more
    batch = walks.sample(table, count, generator=source(), blocks=2, max_length=limit)
    right, wrong = walks.outcomes(table, rounds=200)
    arrived = (right + wrong)[:6].sum().item()
    for found, chance in ((batch.truncated, 1 - arrived), (batch.right, right[:6].sum().item())):
        error = math.sqrt(chance * (1 - chance) / count)
        assert found.double().mean().item() == pytest.approx(chance, abs=4 * error)


def test_the_score_function_of_sampled_walks_estimates_the_exact_gradient():
    """E[R(y) ∇ log π(y)] = ∇ P(right), within four standard errors in each of the logits."""
    table, count = uneven().requires_grad_(), 20_000
    batch = walks.sample(table, count, generator=source(), blocks=2, max_length=800)
    leaves = table.detach().expand(count, 3, 2, 2).clone().requires_grad_()
    logits = leaves.flatten(1).gather(1, batch.logits)
    signs = torch.where(batch.chosen, 1.0, -1.0) * (batch.positions < 800)
    by_hand = (torch.nn.functional.logsigmoid(logits * signs) * (signs != 0)).sum(dim=1)
    torch.testing.assert_close(by_hand, batch.log_probs(table).sum(dim=1))
    (scores,) = torch.autograd.grad(by_hand.sum(), leaves)
    votes = scores * batch.right[:, None, None, None]
    (exact,) = torch.autograd.grad(walks.outcomes(table, rounds=200)[0].sum(), table)
    error = votes.std(dim=0) / math.sqrt(count)
    assert ((votes.mean(dim=0) - exact).abs() <= 4 * error + 1e-9).all()


def test_the_table_of_the_reference_has_the_tasks_numbers():
    right, wrong = walks.outcomes(walks.table())
    assert right.sum().item() == pytest.approx(0.7**5, abs=1e-12)
    rounds = torch.arange(61.0, dtype=torch.float64)
    mean = ((right + wrong) @ rounds).item()
    assert mean == pytest.approx(10, abs=1e-6)


def test_log_probs_are_those_of_what_was_drawn_and_the_gradient_reaches_the_table():
    table = uneven().requires_grad_()
    batch = walks.sample(table, 50, generator=source(), blocks=2, max_length=60)
    log_probs = batch.log_probs(table)
    assert log_probs.shape == batch.mask.shape == (50, 60)
    assert (log_probs[~batch.mask] == 0).all()
    flat = table.detach().flatten().sigmoid()
    for row in range(50):
        found = batch.positions[row] < 60
        chances = flat[batch.logits[row][found]]
        drawn = torch.where(batch.chosen[row][found], chances, 1 - chances).log()
        torch.testing.assert_close(log_probs[row, batch.positions[row][found]].detach(), drawn)
        assert (log_probs[row] != 0).sum() == found.sum()
    (gradient,) = torch.autograd.grad(log_probs.sum(), table)
    reached = torch.ones_like(gradient).bool()
    reached[0, 1] = False  # at the first crossing no turn can have been wrong
    assert torch.equal(gradient != 0, reached)


def test_a_walk_that_is_cut_off_is_wrong():
    sure = walks.table(3, again=0.9, right=1.0)
    batch = walks.sample(sure, 400, generator=source(), blocks=2, max_length=40)
    assert 0 < batch.truncated.double().mean() < 1
    assert (batch.right == (~batch.truncated).double()).all()
    assert (batch.lengths[batch.truncated] == 40).all()
    assert (batch.lengths <= 40).all()


def test_the_same_generator_gives_the_same_walks():
    one, two, other = (
        walks.sample(uneven(), 30, generator=source(seed)).log_probs(uneven()) for seed in (1, 1, 2)
    )
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("chance", [{"again": 1.5}, {"right": -0.1}])
def test_a_chance_out_of_range_is_refused_by_name(chance):
    (name,) = chance
    with pytest.raises(ValueError, match=name):
        walks.table(**chance)
