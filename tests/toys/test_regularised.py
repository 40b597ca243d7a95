"""Reward against KL: the known optimum, and where each way to write the KL is drawn instead.

The oracles are gradients of functions that are summed over all sequences in plain view; nothing of
`functional.kl` is called here.
"""

import math

import pytest
import torch
from torch.testing import assert_close

from nbcourse.toys import regularised
from nbcourse.toys.regularised import FORMS
from nbcourse.toys.sequences import SequenceSpace
from tests.effort import swept

SPACES = [SequenceSpace(3, 3), SequenceSpace(3, 3, eos=0), SequenceSpace(2, 4, eos=1)]
BETA = 0.7
RIGHT = {
    "k1 in reward",
    "k1 in reward, recomputed",
    "k2 of the sequence in loss",
    "k3, prefix weight",
    "exact, prefix weight",
}
EXACT = {"k1 in reward, recomputed", "k3, prefix weight", "exact, prefix weight"}  # when stale, too


def random_case(space: SequenceSpace):
    """Reference, another two policies, rewards."""
    generator = torch.Generator().manual_seed(5)
    policies = [space.random_logits(generator) for _ in range(3)]
    rewards = torch.randn(len(space.tokens), generator=generator, dtype=torch.float64)
    return *policies, rewards


def logs(space, logits):
    """(N,) log-probability of each sequence."""
    return space.log_probs(logits).sum(dim=1)


def between(space, logits, other):
    """KL(π‖π') over sequences."""
    log_p, log_q = logs(space, logits), logs(space, other)
    return (log_p.exp() * (log_p - log_q)).sum()


def state_by_state(space, logits, other, visited, *, reverse):
    """Σ_s d(s) KL_s, with d frozen at the states that `visited` visits."""
    reach = torch.zeros(len(space.prefixes), dtype=torch.float64)
    for row, prob in enumerate(space.probs(visited).tolist()):
        for t in range(int(space.mask[row].sum())):
            reach[space.states[row, t]] += prob
    p, q = logits.log_softmax(dim=1), other.log_softmax(dim=1)
    first, second = (p, q) if reverse else (q, p)
    return reach @ (first.exp() * (first - second)).sum(dim=1)


def slope(function, logits):
    logits = logits.clone().requires_grad_()
    value = function(logits)
    return torch.autograd.grad(value, logits)[0] if value.requires_grad else 0 * logits


def earned(space, logits, rewards):
    return space.probs(logits) @ rewards


def pull(space, logits, old, ref, rewards, form, shares=None):
    shares = space.probs(old) if shares is None else shares
    return regularised.gradient(space, logits, old, ref, rewards, shares, form=form, beta=BETA)


# ---------------------------------------------------------------- the optimum


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_the_optimum_is_the_reference_tilted_by_the_reward(space):
    ref, _, _, rewards = random_case(space)
    tilted = [
        math.exp(log_prob + reward / BETA)
        for log_prob, reward in zip(logs(space, ref).tolist(), rewards.tolist(), strict=True)
    ]
    star = regularised.optimum(space, ref, rewards, beta=BETA)
    expected = torch.tensor([weight / sum(tilted) for weight in tilted], dtype=torch.float64)
    assert_close(space.probs(star), expected, rtol=1e-12, atol=0)
    assert_close(star.exp().sum(dim=1), torch.ones(len(star)).double(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_nothing_near_or_far_is_better_than_the_optimum(space):
    ref, _, _, rewards = random_case(space)
    star = regularised.optimum(space, ref, rewards, beta=BETA)

    def value(logits):
        return regularised.objective(space, logits, ref, rewards, beta=BETA)

    assert slope(value, star).abs().max() < 1e-14
    generator = torch.Generator().manual_seed(0)
    for spread in (0.01, 0.1, 1.0, 10.0):
        for _ in range(50):
            other = star + space.random_logits(generator, spread=spread)
            assert value(other) < value(star)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_what_a_policy_misses_is_its_divergence_from_the_optimum(space):
    """J_β(π*) − J_β(π) = β KL(π‖π*), and the objective is its own definition."""
    ref, other, _, rewards = random_case(space)
    star = regularised.optimum(space, ref, rewards, beta=BETA)
    best, value = (
        regularised.objective(space, logits, ref, rewards, beta=BETA) for logits in (star, other)
    )
    by_hand = earned(space, other, rewards) - BETA * between(space, other, ref)
    assert_close(value, by_hand, rtol=1e-12, atol=0)
    missed = BETA * regularised.divergence(space, other, star)
    assert (best - value).item() == pytest.approx(missed.item(), rel=1e-12)
    assert missed > 0.1


def test_a_batch_holds_nothing_behind_the_end_of_a_sequence():
    """Sums over tokens in the book have no mask: what stands behind the end has to be 0."""
    space = SPACES[1]
    ref, old, logits, _ = random_case(space)
    batch = regularised.Batch.of(space, logits, old, ref)
    for found in (batch.log_probs, batch.old_log_probs, batch.ref_log_probs, batch.conditional_kl):
        assert (found[~space.mask] == 0).all()
        assert (found[space.mask] != 0).all()
    by_hand = (space.probs(logits)[:, None] * batch.conditional_kl).sum()
    assert_close(by_hand, between(space, logits, ref), rtol=1e-12, atol=0)


# ---------------------------------------------------------------- where each form pulls


def what_each_form_ascends(space, old, ref, rewards):
    """Functions of the policy: the gradient of each is the mean pull of a form on stale batches."""
    log_old, log_ref = logs(space, old), logs(space, ref)

    def states(logits, *, reverse):
        return state_by_state(space, logits, ref, old, reverse=reverse)

    def token_sum_in_reward(logits):
        d = space.log_probs(old) - space.log_probs(ref)
        k3 = (torch.exp(-d) - 1 + d).sum(dim=1)
        return earned(space, logits, k3)

    def frozen_square(logits):
        return log_old.exp() @ (logs(space, logits) - log_ref).square() / 2

    def unweighted_k3(logits):
        d = space.log_probs(logits) - space.log_probs(ref)
        return log_old.exp() @ (torch.exp(-d) - 1 + d).sum(dim=1)

    def unweighted_k2(logits):
        d = space.log_probs(logits) - space.log_probs(ref)
        return log_old.exp() @ d.square().sum(dim=1) / 2

    penalties = {
        "none": lambda logits: 0 * logits.sum(),
        # k1 of the policy that sampled: a second KL comes in with the wrong sign
        "k1 in reward": lambda x: between(space, x, ref) - between(space, x, old),
        "k1 in reward, recomputed": lambda x: between(space, x, ref),
        "k3 in reward": token_sum_in_reward,
        "k1 in loss": lambda x: -between(space, old, x),
        "k2 in loss": unweighted_k2,
        "k3 in loss": unweighted_k3,
        "k2 of the sequence in loss": frozen_square,
        "k3, token weight": lambda x: states(x, reverse=True),
        "k3, prefix weight": lambda x: between(space, x, ref),
        "exact, prefix weight": lambda x: between(space, x, ref),
    }
    return {
        form: lambda logits, penalty=penalty: (
            earned(space, logits, rewards) - BETA * penalty(logits)
        )
        for form, penalty in penalties.items()
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("space", SPACES, ids=str)
def test_the_mean_pull_of_a_form_on_a_stale_batch(space, form):
    ref, old, logits, rewards = random_case(space)
    expected = slope(what_each_form_ascends(space, old, ref, rewards)[form], logits)
    found = pull(space, logits, old, ref, rewards, form)
    assert_close(found, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("form", ["k2 in loss", "k3 in loss", "k3, token weight"])
def test_token_sums_on_fresh_samples_have_the_states_frozen(form):
    space = SPACES[1]
    ref, logits, _, rewards = random_case(space)

    def ascended(x):
        states = state_by_state(space, x, ref, logits, reverse=form != "k3 in loss")
        return earned(space, x, rewards) - BETA * states

    found = pull(space, logits, logits, ref, rewards, form)
    assert_close(found, slope(ascended, logits), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("space", SPACES, ids=str)
def test_at_the_optimum_only_the_right_forms_are_at_rest(space, form):
    ref, _, _, rewards = random_case(space)
    star = regularised.optimum(space, ref, rewards, beta=BETA)
    force = pull(space, star, star, ref, rewards, form).norm()
    assert force < 1e-14 if form in RIGHT else force > 1e-3


def test_k1_in_the_reward_has_no_noise_at_the_optimum_and_the_exact_kl_has():
    """R − β log(π*/π_ref) is the same number for every sequence, so each response pulls by 0."""
    space = SPACES[1]
    ref, _, _, rewards = random_case(space)
    star = regularised.optimum(space, ref, rewards, beta=BETA)

    def loudest(form):
        shares = torch.eye(len(space.tokens), dtype=torch.float64)
        return max(pull(space, star, star, ref, rewards, form, row).norm() for row in shares)

    assert loudest("k1 in reward") < 1e-13
    assert loudest("k1 in reward, recomputed") < 1e-13
    assert loudest("exact, prefix weight") > 0.1


@pytest.mark.parametrize(
    ("form", "steps", "factor"),
    [
        ("k1 in reward", 4, lambda x: 1 - 4 * x),
        ("k1 in reward", 30, lambda x: 1 - 30 * x),  # away from the optimum, without noise
        ("k1 in reward, recomputed", 30, lambda x: (1 - x) ** 30),
        ("exact, prefix weight", 30, lambda x: (1 - x) ** 30),
    ],
)
def test_what_a_batch_makes_of_a_small_distance_from_the_optimum(form, steps, factor):
    """In direction v with F v = λ v, F the Fisher information at π*, and x = step size · β λ."""
    space = SPACES[1]
    ref, _, _, rewards = random_case(space)
    star = regularised.optimum(space, ref, rewards, beta=BETA)
    scores = torch.autograd.functional.jacobian(lambda x: logs(space, x), star).flatten(1)
    eigenvalues, vectors = torch.linalg.eigh(scores.T @ (space.probs(star)[:, None] * scores))
    largest, off = eigenvalues[-1].item(), 1e-6 * vectors[:, -1].view_as(star)
    logits = star + off
    for _ in range(steps):
        logits = logits + 0.5 * pull(space, logits, star + off, ref, rewards, form)
    expected = factor(0.5 * BETA * largest)
    assert (abs(expected) > 1) == ((form, steps) == ("k1 in reward", 30))
    assert_close(logits - star, expected * off, rtol=1e-3, atol=1e-10)


# ---------------------------------------------------------------- training


def settings(**changes):
    chosen = {"form": "k3, prefix weight", "beta": BETA, "learning_rate": 0.5, "iterations": 6}
    return {**chosen, "inner_steps": 3, **changes}


@pytest.mark.parametrize("form", [form for form in FORMS if form in EXACT])
def test_without_noise_the_corrected_forms_walk_up_the_objective(form):
    """The same path as plain gradient ascent on J_β, whatever the number of inner steps."""
    space = SPACES[1]
    ref, _, _, rewards = random_case(space)
    path = regularised.optimise(space, ref, rewards, **settings(form=form))
    logits = ref
    for iteration in range(6):
        assert_close(path[iteration], logits, rtol=1e-10, atol=1e-12)
        for _ in range(3):
            logits = logits + 0.5 * (1 - iteration / 6) * slope(
                lambda x: earned(space, x, rewards) - BETA * between(space, x, ref), logits
            )
    assert_close(path[6], logits, rtol=1e-10, atol=1e-12)


def test_a_sampled_batch_is_the_mean_over_its_responses():
    """One step, against a loop over the drawn responses."""
    space = SPACES[1]
    ref, _, _, rewards = random_case(space)
    drawn = space.sample(ref, 50, torch.Generator().manual_seed(9))
    mean_reward = earned(space, ref, rewards)

    def on_the_batch(logits):
        new, old = space.log_probs(logits), space.log_probs(ref)
        total = 0.0
        for y in drawn.tolist():
            ratio = (new[y] - old[y]).sum().exp()
            total = total + ratio * (rewards[y] - mean_reward)
            for t in range(space.length):
                d = new[y, t] - old[y, t]
                total = total - BETA * (new[y] - old[y])[: t + 1].sum().exp() * (
                    torch.exp(-d) - 1 + d
                )
        return total / 50

    expected, start = ref.clone(), 0.5
    for _ in range(2):
        expected = expected + start * slope(on_the_batch, expected)
    path = regularised.optimise(
        space,
        ref,
        rewards,
        **settings(iterations=1, inner_steps=2),
        batch_size=50,
        generator=torch.Generator().manual_seed(9),
    )
    assert_close(path[1], expected, rtol=1e-10, atol=1e-12)


def test_a_seed_gives_the_same_path_again_and_another_seed_another():
    space = SPACES[0]
    ref, _, _, rewards = random_case(space)
    paths = [
        regularised.optimise(
            space,
            ref,
            rewards,
            **settings(),
            batch_size=16,
            generator=torch.Generator().manual_seed(seed),
        )
        for seed in (1, 1, 2)
    ]
    assert paths[0].shape == (7, *ref.shape)
    assert torch.equal(paths[0], paths[1])
    assert not torch.allclose(paths[1], paths[2])


@pytest.mark.parametrize("eos", swept([None, 0], keep=[0]))
def test_what_the_right_forms_find_is_the_optimum(eos):
    space = SequenceSpace(2, 2, eos=eos)
    ref, _, _, rewards = random_case(space)
    star = regularised.optimum(space, ref, rewards, beta=BETA)
    for form in FORMS:
        path = regularised.optimise(
            space, ref, rewards, **settings(form=form, learning_rate=2.0, iterations=100)
        )
        distance = regularised.divergence(space, path[-1], star)
        assert distance < 1e-6 if form in RIGHT else distance > 1e-4, form


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"form": "k4"}, "form is 'k4', expected one of 'none'"),
        ({"iterations": 0}, "iterations is 0, expected a number of at least 1"),
        ({"inner_steps": 0}, "inner_steps is 0, expected a number of at least 1"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0, expected a number above 0"),
        ({"batch_size": 8}, "batch_size is 8 and generator is None: expected both or neither"),
    ],
)
def test_settings_out_of_range_are_named(changes, message):
    ref, _, _, rewards = random_case(SPACES[1])
    with pytest.raises(ValueError, match=message):
        regularised.optimise(SPACES[1], ref, rewards, **settings(**changes))


@pytest.mark.parametrize(("beta", "message"), [(0.0, "beta is 0.0"), (1e-4, "beta is 0.0001")])
def test_a_beta_without_an_optimum_is_named(beta, message):
    ref, _, _, rewards = random_case(SPACES[1])
    with pytest.raises(ValueError, match=message):
        regularised.optimum(SPACES[1], ref, rewards, beta=beta)
