"""The tabular language model, against a walk through its tree in plain Python."""

import math
from itertools import product

import pytest
import torch
from torch.testing import assert_close

from nbcourse.toys import enumeration, sequences
from nbcourse.toys.sequences import SequenceSpace

SPACES = [SequenceSpace(3, 3), SequenceSpace(3, 3, eos=0), SequenceSpace(2, 4, eos=1)]


def random_case(space: SequenceSpace):
    generator = torch.Generator().manual_seed(7)
    logits = space.random_logits(generator)
    rewards = torch.randn(space.tokens.shape, generator=generator, dtype=torch.float64)
    return logits, rewards


def walk(space: SequenceSpace, logits: torch.Tensor):
    """Every complete answer with its probability, by recursion: the independent oracle."""
    rows = dict(zip(space.prefixes, logits.tolist(), strict=True))

    def extend(prefix: tuple[int, ...], prob: float):
        if len(prefix) == space.length or (prefix and prefix[-1] == space.eos):
            yield prefix, prob
            return
        total = sum(map(math.exp, rows[prefix]))
        for token, logit in enumerate(rows[prefix]):
            yield from extend((*prefix, token), prob * math.exp(logit) / total)

    return dict(extend((), 1.0))


def answers(space: SequenceSpace) -> list[tuple[int, ...]]:
    return [
        tuple(row[:length])
        for row, length in zip(space.tokens.tolist(), space.mask.sum(1).tolist(), strict=True)
    ]


def test_the_sizes_by_hand():
    """3³ = 27 answers and 1 + 3 + 9 prefixes; with EOS = 0: (0), 2·(·0), 4·3 = 15 and 1 + 2 + 4."""
    assert (len(SPACES[0].tokens), len(SPACES[0].prefixes)) == (27, 13)
    assert (len(SPACES[1].tokens), len(SPACES[1].prefixes)) == (15, 7)


def test_answers_of_a_hundred_tokens_can_be_listed_if_a_wrong_one_ends_them():
    """Of 2¹⁰⁰ strings only 101 are different once they are cut behind the first 0."""
    space = SequenceSpace(2, 100, eos=0)
    assert space.mask.sum(dim=1).tolist() == [*range(1, 101), 100]
    assert space.tokens.sum(dim=1).tolist() == list(range(101))
    assert space.prefixes == tuple((1,) * t for t in range(100))


@pytest.mark.parametrize(("size", "length", "eos"), [(3, 4, None), (3, 4, 1), (2, 5, 0), (1, 3, 0)])
def test_answers_stand_in_the_order_of_the_alphabet(size, length, eos):
    """Recorded runs draw a reward for each row: the order is part of the problem."""
    whole = product(range(size), repeat=length)
    cut = [s[: s.index(eos) + 1] if eos in s else s for s in whole]
    space = SequenceSpace(size, length, eos)
    listed = zip(space.tokens.tolist(), space.mask.sum(dim=1).tolist(), strict=True)
    assert [tuple(row[:count]) for row, count in listed] == list(dict.fromkeys(cut))


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_every_answer_is_listed_once_with_its_probability(space):
    logits, _ = random_case(space)
    listed = dict(zip(answers(space), space.probs(logits).tolist(), strict=True))
    expected = walk(space, logits)
    assert listed.keys() == expected.keys()
    for answer, prob in expected.items():
        assert listed[answer] == pytest.approx(prob, rel=1e-12)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_the_states_are_the_prefixes_and_the_mask_includes_eos(space):
    for row, answer in enumerate(answers(space)):
        for t in range(len(answer)):
            assert space.prefixes[space.states[row, t]] == answer[:t]
        assert space.mask[row].tolist() == [t < len(answer) for t in range(space.length)]
        if space.eos is not None and len(answer) < space.length:
            assert answer[-1] == space.eos


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_reinforce_averages_to_the_exact_gradient(space):
    logits, rewards = random_case(space)
    rewards = torch.where(space.mask, rewards, torch.nan)  # behind the end: garbage
    total = rewards.nansum(dim=1)
    exact = sequences.exact_gradient(space, logits, rewards)
    assert_close(exact, sequences.exact_gradient(space, logits, total))

    estimates = sequences.gradient_estimates(space, logits, total[:, None].expand_as(rewards))
    assert_close(enumeration.mean(space.probs(logits), estimates), exact)


def test_an_estimate_is_the_autograd_gradient_of_its_own_sequence():
    space = SPACES[1]
    logits, weights = random_case(space)
    for row, estimate in enumerate(sequences.gradient_estimates(space, logits, weights)):
        theta = logits.clone().requires_grad_()
        loss = (weights[row] * space.log_probs(theta)[row])[space.mask[row]].sum()
        (expected,) = torch.autograd.grad(loss, theta)
        assert_close(estimate, expected)


def test_group_estimates_are_means_over_the_members():
    space = SPACES[1]
    logits, _ = random_case(space)
    scores = sequences.gradient_estimates(space, logits, torch.ones_like(space.tokens).double())
    members = torch.tensor([[0, 3, 3], [5, 1, 2]])
    weights = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]], dtype=torch.float64)
    got = sequences.group_estimates(scores, weights, members)
    for m in range(2):
        by_hand = sum(weights[m, i] * scores[members[m, i]] for i in range(3)) / 3
        assert_close(got[m], by_hand)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_values_are_conditional_expectations_of_what_is_to_come(space):
    logits, rewards = random_case(space)
    values = sequences.state_values(space, logits, rewards)
    probs = walk(space, logits)
    listed = answers(space)
    for state, prefix in enumerate(space.prefixes):
        through = [y for y in listed if y[: len(prefix)] == prefix and len(y) > len(prefix)]
        reach = sum(probs[y] for y in through)
        to_go = sum(
            probs[y] * rewards[listed.index(y), len(prefix) : len(y)].sum().item() for y in through
        )
        assert values[state].item() == pytest.approx(to_go / reach, rel=1e-10)


def test_samples_follow_the_probabilities():
    """20,000 draws: each frequency within five standard errors of its probability."""
    space = SPACES[0]
    logits, _ = random_case(space)
    probs = space.probs(logits)
    draws = space.sample(logits, 20_000, torch.Generator().manual_seed(1))
    frequency = torch.bincount(draws, minlength=27) / 20_000
    assert ((frequency - probs).abs() < 5 * (probs * (1 - probs) / 20_000).sqrt()).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocab_size": 0, "length": 3}, "expected at least 1"),
        ({"vocab_size": 3, "length": 3, "eos": 3}, "eos is 3"),
        ({"vocab_size": 10, "length": 9}, "1,000,000,000 sequences, expected at most 100,000"),
        ({"vocab_size": 3, "length": 17, "eos": 0}, "make 262,143 sequences"),
    ],
)
def test_impossible_spaces_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        SequenceSpace(**arguments)


def test_logits_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"logits has shape \(3, 13\), expected \(13, 3\)"):
        SPACES[0].log_probs(torch.zeros(3, 13))
