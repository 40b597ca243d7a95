"""Every row of the table against the paper's formula, written out with loops over plain numbers.

Nothing of `nbcourse.functional` is called here: losses, slopes and advantages are sums over lists.
Under the mask stand NaN and garbage. A new row of the package joins by its formula in `PAPERS`,
with the defaults of its settings as the paper has them; all other tests take it as it is.
"""

import math
from itertools import cycle, pairwise, product

import pytest
import torch
from torch.testing import assert_close

from nbcourse.functional import surrogates
from nbcourse.functional.arguments import Share
from nbcourse.lm.rollouts import Rollout
from nbcourse.training.algorithms import (
    ALGORITHMS,
    ROW,
    Algorithm,
    Estimate,
    Penalty,
    Tokens,
    per_response,
    policy_loss,
)
from nbcourse.training.experience import Experience
from tests.effort import swept

GROUP, WIDTH, MAX_LENGTH, BETA = 3, 5, 7, 0.3

# Two prompts with three responses each; column 5 is padding in every row.
SCORES = [1.0, 0.0, 0.3, 0.2, 0.9, 0.4]
GREEDY = [0.5, 0.5, 0.5, 0.1, 0.1, 0.1]
OLD = [[-1.0, -2.0, -0.5], [-1.5], [-0.7, -2.2, -3.0, -0.1], [-1.1, -0.4], [-0.9, -1.3, -2.5, -0.6]]
OLD += [[-2.0, -0.8]]
# log ρ: within and beyond every interval; the means of rows 2 and 4 lie within GSPO's.
LOG_RATIO = [[0.22, -0.5, 0.1], [0.6], [0.4, 0.3, -0.2, -0.5002], [-0.1, -0.4]]
LOG_RATIO += [[0.3, -0.3, 1.8, -1.7998], [-1.2, 0.15]]
# log π_old − log π_sampler: tokens and products within and beyond the bounds of every weight, and
# probabilities that rose or fell by more than DPPO's bounds, with A > 0 and with A < 0.
TO_SAMPLER = [[-0.15, -0.8, 2.1], [0.3], [-0.2, 0.1, 1.7, -0.3], [0.05, -0.35]]
TO_SAMPLER += [[0.4, -0.8, 0.2, 0.3], [4.3, 0.2]]
# log π − log π_ref
TO_REF = [[0.2, -0.3, 0.05], [1.0], [-0.8, 0.4, 0.1, -0.2], [0.6, -0.6], [0.3, 0.2, -1.1, 0.7]]
TO_REF += [[-0.05, 0.9]]
# (last token, reward) of each step; the last step is the answer, which earns the score
STEPS = [[(0, 1.0), (2, 1.0)], [(0, 0.0)], [(1, 0.5), (2, 0.0), (3, 0.3)], [(1, 0.2)]]
STEPS += [[(0, 0.0), (3, 0.9)], [(0, 1.0), (1, 0.4)]]
VALUES = [[0.4, 0.5, 0.8], [0.3], [0.1, 0.2, 0.2, 0.4], [0.6, -0.1], [0.3, 0.7, 0.5, 0.8]]
VALUES += [[0.0, 0.2]]


def rows_of(start, change):
    return [[a + b for a, b in zip(x, y, strict=True)] for x, y in zip(start, change, strict=True)]


NEW = rows_of(OLD, LOG_RATIO)
REF = rows_of(NEW, [[-d for d in row] for row in TO_REF])
SAMPLER = rows_of(OLD, [[-d for d in row] for row in TO_SAMPLER])
LENGTHS = [len(row) for row in OLD]
ROWS = range(len(OLD))


def padded(rows, garbage=math.nan):
    """(B, T) in float64 with garbage behind the end of each row."""
    return torch.tensor(
        [[*row, *[garbage] * (WIDTH - len(row))] for row in rows], dtype=torch.float64
    )


MASK = torch.arange(WIDTH) < torch.tensor(LENGTHS)[:, None]


def experience(scores=SCORES, log_probs=OLD, garbage=math.nan):
    tokens = torch.zeros(len(scores), WIDTH, dtype=torch.long)
    rollout = Rollout(
        prompt_ids=tokens[:, :1],
        prompt_mask=torch.ones_like(tokens[:, :1], dtype=torch.bool),
        tokens=tokens,
        mask=MASK,
        log_probs=padded(log_probs, garbage),
        truncated=torch.zeros(len(scores), dtype=torch.bool),
    )
    scores = torch.tensor(scores, dtype=torch.float64)
    return Experience(rollout, scores, scores, ref_log_probs=padded(REF, garbage))


# ---------------------------------------------------------------- advantages, from the papers
# Each takes a list of rewards for every token of every response.


def totals(rewards):
    return [sum(row) for row in rewards]


def along(per_response):
    return [[a] * length for a, length in zip(per_response, LENGTHS, strict=True)]


def mean(numbers):
    return sum(numbers) / len(numbers)


def deviation(numbers):
    """Unbiased."""
    return math.sqrt(sum((x - mean(numbers)) ** 2 for x in numbers) / (len(numbers) - 1))


def members(i):
    first = i - i % GROUP
    return range(first, first + GROUP)


def whitened(rows):
    """Standard scores over all tokens; 1e-8 is added to the variance."""
    flat = [x for row in rows for x in row]
    scale = math.sqrt(deviation(flat) ** 2 + 1e-8)
    return [[(x - mean(flat)) / scale for x in row] for row in rows]


def less_the_batch_mean(rewards):
    r = totals(rewards)
    return along([x - mean(r) for x in r])


def less_the_average(rewards):
    return along([x - 0.25 for x in totals(rewards)])


def less_the_greedy_score(rewards):
    return along([x - b for x, b in zip(totals(rewards), GREEDY, strict=True)])


def less_the_others(rewards):
    r = totals(rewards)
    return along([r[i] - mean([r[j] for j in members(i) if j != i]) for i in ROWS])


def less_the_group_mean(rewards):
    r = totals(rewards)
    return along([r[i] - mean([r[j] for j in members(i)]) for i in ROWS])


def group_score(rewards):
    r = totals(rewards)
    groups = [[r[j] for j in members(i)] for i in ROWS]
    return along([(r[i] - mean(groups[i])) / (deviation(groups[i]) + 1e-4) for i in ROWS])


def later_steps(rewards):
    """Standard scores over all steps of the group, those that end here or later added up."""
    standard = []
    for i in ROWS:
        pool = [reward for j in members(i) for _, reward in STEPS[j]]
        standard.append([(end, (r - mean(pool)) / (deviation(pool) + 1e-4)) for end, r in STEPS[i]])
    return [
        [sum(score for end, score in standard[i] if end >= t) for t in range(LENGTHS[i])]
        for i in ROWS
    ]


def gae(rewards, gamma=1.0, lam=0.95):
    """Aₜ = Σₖ (γλ)ᵏ δₜ₊ₖ, as the sum it is and not as a recursion."""
    advantages = []
    for r, v in zip(rewards, VALUES, strict=True):
        following = [*v[1:], 0.0]
        delta = [a + gamma * b - c for a, b, c in zip(r, following, v, strict=True)]
        advantages.append(
            [
                sum((gamma * lam) ** (k - t) * delta[k] for k in range(t, len(r)))
                for t in range(len(r))
            ]
        )
    return advantages


def whitened_gae(rewards):
    return whitened(gae(rewards))


def whitened_to_go(rewards):
    return whitened([[sum(row[t:]) for t in range(len(row))] for row in rewards])


# ---------------------------------------------------------------- losses, from the papers
# Each takes a response's log π, log π_old, advantages and log π_sampler, and gives (loss,
# d loss / d log π) of each token. For a ratio ρ = π/π_old the second is ρ · d loss / dρ.


def vanilla(new, old, advantages, sampler):
    return [(-a * x, -a) for x, a in zip(new, advantages, strict=True)]


def clipped_at(low, high):
    def ppo(new, old, advantages, sampler):
        tokens = []
        for x, y, a in zip(new, old, advantages, strict=True):
            ratio = math.exp(x - y)
            bound = min(max(ratio, 1 - low), 1 + high)
            if ratio * a <= bound * a:  # the minimum of the two objectives
                tokens.append((-ratio * a, -ratio * a))
            else:
                tokens.append((-bound * a, 0.0))
        return tokens

    return ppo


def sequence_clipped(new, old, advantages, sampler, low=3e-4, high=4e-4):
    ratio = math.exp(mean([x - y for x, y in zip(new, old, strict=True)]))
    bound = min(max(ratio, 1 - low), 1 + high)
    return [(-ratio * a, -ratio * a) if ratio * a <= bound * a else (-bound * a, 0.0)
            for a in advantages]  # fmt: skip


def weight_clipped(lowest, highest):
    def cispo(new, old, advantages, sampler):
        weights = [
            min(max(math.exp(x - y), lowest), highest) for x, y in zip(new, old, strict=True)
        ]
        return [(-w * a * x, -w * a) for w, a, x in zip(weights, advantages, new, strict=True)]

    return cispo


def geometric_mean(new, old, advantages, sampler):
    """GMPO: ratios are held between e^−0.4 and e^0.4, on PPO's side, before their mean is taken."""
    inside, held = [], []
    for x, y, a in zip(new, old, advantages, strict=True):
        passes = (x - y <= 0.4) if a > 0 else (x - y >= -0.4)
        inside.append(passes)
        held.append(math.exp(x - y) if passes else math.exp(0.4 if a > 0 else -0.4))
    g = math.prod(held) ** (1 / len(held))
    return [
        (-g * a, -g * a if passes else 0.0) for a, passes in zip(advantages, inside, strict=True)
    ]


def gated(new, old, advantages, sampler):
    """SAPO: the slope is the paper's weight, 4 p (1 − p) times the ratio."""
    tokens = []
    for x, y, a in zip(new, old, advantages, strict=True):
        ratio, tau = math.exp(x - y), 1.0 if a > 0 else 1.05
        p = 1 / (1 + math.exp(-tau * (ratio - 1)))
        tokens.append((-4 / tau * p * a, -4 * p * (1 - p) * ratio * a))
    return tokens


def probability_masked(far, two_sided, cap):
    def masked(new, old, advantages, sampler):
        tokens = []
        for x, s, a in zip(new, sampler, advantages, strict=True):
            moved = math.exp(x) - math.exp(s)
            out = abs(moved) > far if two_sided else (moved if a > 0 else -moved) > far
            weight = 0.0 if out else min(math.exp(x - s), cap)
            tokens.append((-weight * a * x, -weight * a))
        return tokens

    return masked


def icepop(new, old, advantages, sampler):
    """M(k) = k within [0.5, 5], else 0, of each token; PPO's clip otherwise."""
    ratios = [math.exp(y - s) for y, s in zip(old, sampler, strict=True)]
    return weighed(new, old, advantages, ratios, 0.5, 5.0)


def response_masked(new, old, advantages, sampler):
    """The ratio of the whole response, on each of its tokens; 0 above 3."""
    product = math.exp(sum(old) - sum(sampler))
    return weighed(new, old, advantages, [product] * len(new), 0.0, 3.0)


def weighed(new, old, advantages, weights, least, most):
    plain = clipped_at(0.2, 0.2)(new, old, advantages, None)
    kept = [w if least <= w <= most else 0.0 for w in weights]
    return [(w * loss, w * slope) for w, (loss, slope) in zip(kept, plain, strict=True)]


WEIGHTS = {
    "every token the same": lambda i: 1 / sum(LENGTHS),
    "every response the same": lambda i: 1 / len(LENGTHS) / LENGTHS[i],
    "sum": lambda i: 1 / len(LENGTHS),
    "sum by a constant": lambda i: 1 / len(LENGTHS) / MAX_LENGTH,
}

PAPERS = {
    "reinforce": (less_the_batch_mean, vanilla, "sum", "reward"),
    "reinforce-ema": (less_the_average, vanilla, "sum", "reward"),
    "remax": (less_the_greedy_score, vanilla, "sum", "reward"),
    "rloo": (less_the_others, vanilla, "sum", "reward"),
    "ppo": (whitened_gae, clipped_at(0.2, 0.2), "every token the same", "reward"),
    "grpo": (group_score, clipped_at(0.2, 0.2), "every response the same", "loss"),
    "grpo-process": (later_steps, clipped_at(0.2, 0.2), "every response the same", "loss"),
    "dr-grpo": (less_the_group_mean, clipped_at(0.2, 0.2), "sum by a constant", "none"),
    "dapo": (group_score, clipped_at(0.2, 0.28), "every token the same", "none"),
    "gspo": (group_score, sequence_clipped, "every response the same", "none"),
    "cispo": (group_score, weight_clipped(0.0, 5.0), "every token the same", "none"),
    "cispo-two-sided": (group_score, weight_clipped(0.8, 1.2), "every token the same", "none"),
    "gmpo": (group_score, geometric_mean, "every response the same", "none"),
    "sapo": (group_score, gated, "every response the same", "none"),
    "dppo": (group_score, probability_masked(0.2, False, 20.0), "every token the same", "none"),
    "ipo": (
        less_the_group_mean,
        probability_masked(0.1, True, math.inf),
        "every token the same",
        "none",
    ),
    "icepop": (group_score, icepop, "every response the same", "loss"),
    "grpo-sequence-mask": (group_score, response_masked, "every response the same", "loss"),
    "reinforce++": (whitened_to_go, clipped_at(0.2, 0.2), "every token the same", "reward"),
}

KL = {
    "k1": (lambda d: d, lambda d: 1.0),
    "k2": (lambda d: d * d / 2, lambda d: d),
    "k3": (lambda d: math.exp(-d) - 1 + d, lambda d: 1 - math.exp(-d)),
}
PENALTIES = {
    "none": Penalty(),
    "reward": Penalty("reward", beta=BETA),
    **{f"loss {kind}": Penalty("loss", kind, BETA) for kind in KL},
    "advantage": Penalty("advantage", beta=BETA, weight=ROW),
    "advantage, recomputed": Penalty("advantage", beta=BETA, weight=ROW, recomputed=True),
    "advantage, token": Penalty("advantage", beta=BETA, weight="token"),
    "advantage, prefix": Penalty("advantage", beta=BETA, weight_cap=1.3, recomputed=True),
    "advantage, sequence": Penalty("advantage", beta=BETA, weight="sequence", recomputed=True),
    "surrogate": Penalty("surrogate", beta=BETA),
    "surrogate, k1, capped": Penalty("surrogate", "k1", BETA, weight_cap=1.3),
    "surrogate, exact": Penalty("surrogate", "exact", BETA, weight_cap=1.3),
    "surrogate, sequence": Penalty("surrogate", beta=BETA, weight="sequence"),
    "surrogate, token": Penalty("surrogate", beta=BETA, weight="token"),
}
WEIGHED = {
    "prefix": lambda t, length: range(t + 1),
    "sequence": lambda t, length: range(length),
    "token": lambda t, length: [t],
}


DIVERGENCES = [[0.1, 0.4, 0.2], [0.3], [0.2, 0.1, 0.6, 0.05], [0.5, 0.1], [0.3, 0.2, 0.7, 0.1]]
DIVERGENCES += [[0.05, 0.4]]


def ratios(penalty, i):
    """The weight of each token of response i."""
    products = [
        math.exp(sum(LOG_RATIO[i][s] for s in WEIGHED[penalty.weight](t, LENGTHS[i])))
        for t in range(LENGTHS[i])
    ]
    return [min(w, penalty.weight_cap or math.inf) for w in products]


def charges(penalty, i):
    """β Pₜ: what the tokens of response i are charged for themselves and for what follows."""
    before = [a - b for a, b in zip(OLD[i], REF[i], strict=True)]
    d, tokens = TO_REF[i] if penalty.recomputed else before, range(LENGTHS[i])
    if penalty.weight == ROW:
        return [penalty.beta * sum(d[t:]) for t in tokens]
    w = ratios(penalty, i)
    if penalty.weight == "token":
        return [penalty.beta * w[t] * sum(d[t:]) for t in tokens]
    return [penalty.beta * sum(a * b for a, b in zip(w[t:], d[t:], strict=True)) for t in tokens]


def expected_rewards(penalty):
    """The score on the last token; in the reward, k1 of the policy that sampled on each token."""
    beta = penalty.beta if penalty.placement == "reward" else 0.0
    rewards = [
        [-beta * (a - b) for a, b in zip(x, y, strict=True)] for x, y in zip(OLD, REF, strict=True)
    ]
    for row, score in zip(rewards, SCORES, strict=True):
        row[-1] += score
    return rewards


def expected_loss(name, penalty, advantages):
    """The loss, and its slope for each token."""
    _, surrogate, average, _ = PAPERS[name]
    value, slopes = 0.0, []
    for i in ROWS:
        weight = WEIGHTS[average](i)
        seen, charged = advantages[i], [0.0] * LENGTHS[i]
        if penalty.placement == "advantage":
            charged = charges(penalty, i)
            if penalty.weight == ROW:
                seen = [a - c for a, c in zip(seen, charged, strict=True)]
                charged = [0.0] * LENGTHS[i]
        tokens = surrogate(NEW[i], OLD[i], seen, SAMPLER[i])
        value += weight * sum(loss for loss, _ in tokens)
        value += weight * sum(c * x for c, x in zip(charged, NEW[i], strict=True))
        slope = [weight * (s + c) for (_, s), c in zip(tokens, charged, strict=True)]
        if penalty.placement == "loss":
            k, dk = KL[penalty.estimator]
            value += weight * penalty.beta * sum(map(k, TO_REF[i]))
            slope = [
                s + weight * penalty.beta * dk(d) for s, d in zip(slope, TO_REF[i], strict=True)
            ]
        if penalty.placement == "surrogate":
            # (β/N) Σₜ wₜ kₜ, wₜ a product of ratios: token s moves kₛ and the weights it is in.
            k, dk = KL["k1" if penalty.estimator == "k1" else "k3"]
            tokens, scale = range(LENGTHS[i]), penalty.beta / len(OLD)
            w, costs = ratios(penalty, i), [k(d) for d in TO_REF[i]]
            steep = [a * dk(d) for a, d in zip(w, TO_REF[i], strict=True)]
            within = [WEIGHED[penalty.weight](t, LENGTHS[i]) for t in tokens]
            if penalty.estimator == "exact":  # weighed by the tokens before; of constants here
                within = [range(t) for t in tokens]
                before = [math.exp(sum(LOG_RATIO[i][:t])) for t in tokens]
                w, costs = [min(x, penalty.weight_cap) for x in before], DIVERGENCES[i]
                steep = [0.0] * LENGTHS[i]
            terms = [a * c for a, c in zip(w, costs, strict=True)]
            value += scale * sum(terms)
            for s in tokens:
                inside = sum(a for a, tokens in zip(terms, within, strict=True) if s in tokens)
                slope[s] += scale * (inside + steep[s])
        slopes.append(slope)
    return value, slopes


QUANTITIES = {
    "mask": MASK,
    "group_size": GROUP,
    "values": padded(VALUES),
    "greedy_scores": torch.tensor(GREEDY, dtype=torch.float64),
    "average": 0.25,
    "step_rewards": torch.tensor(
        [[*(r for _, r in row), *[math.nan] * (3 - len(row))] for row in STEPS],
        dtype=torch.float64,
    ),
    "step_ends": torch.tensor([[*(e for e, _ in row), *[-1] * (3 - len(row))] for row in STEPS]),
}


def estimate(name, penalty, **settings):
    row = ALGORITHMS[name]
    return row.estimate(
        {**row.all_settings, **settings}, rewards=experience().rewards(penalty), **QUANTITIES
    )


def loss_and_slope(name, penalty, advantages, rows=None, **settings):
    row, log_probs = ALGORITHMS[name], padded(NEW).requires_grad_()
    take = (lambda x: x) if rows is None else (lambda x: x[rows])
    loss = policy_loss(
        row,
        {**row.all_settings, **settings},
        penalty,
        Tokens(
            take(log_probs),
            old_log_probs=take(padded(OLD)),
            ref_log_probs=take(padded(REF)),
            advantages=take(advantages),
            mask=take(MASK),
            values=take(padded(VALUES)),
            sampler_log_probs=take(padded(SAMPLER)),
        ),
        divergences=take(padded(DIVERGENCES)),
        max_length=MAX_LENGTH,
        batch_mask=None if rows is None else MASK,
    )
    (slope,) = torch.autograd.grad(loss, log_probs)
    return loss.detach(), slope


def test_there_is_a_formula_for_every_row():
    missing = set(ALGORITHMS) - set(PAPERS)
    assert not missing, f"write the formulas of {sorted(missing)} into PAPERS"


def test_the_batch_reaches_every_branch():
    """Ratios on each side of each interval, for either sign of the advantage."""
    seen = {
        (math.copysign(1, a), ratio < 0.8, ratio > 1.2, ratio > 1.28, ratio > 5)
        for row, advantages in zip(LOG_RATIO, group_score(expected_rewards(Penalty())), strict=True)
        for ratio, a in zip(map(math.exp, row), advantages, strict=True)
    }
    for sign in (-1.0, 1.0):
        assert (sign, True, False, False, False) in seen
        assert (sign, False, True, True, False) in seen
        assert (sign, False, False, False, False) in seen
    assert (1.0, False, True, False, False) in seen  # between 1.2 and 1.28: DAPO goes on
    assert (1.0, False, True, True, True) in seen
    moved = {
        (a > 0, change < -0.2, change < -0.1, change > 0.1, change > 0.2)
        for new, sampler, row in zip(NEW, SAMPLER, SCORES, strict=True)
        for change, a in [
            (math.exp(n) - math.exp(s), row - 0.47) for n, s in zip(new, sampler, strict=True)
        ]
    }
    for good in (True, False):
        assert {(good, True, True, False, False), (good, False, False, True, True)} <= moved
        assert (good, False, False, False, False) in moved
    pairs = [zip(x, y, strict=True) for x, y in zip(NEW, SAMPLER, strict=True)]
    assert any(n - s > math.log(20) for pair in pairs for n, s in pair)
    to_sampler = [math.exp(d) for row in TO_SAMPLER for d in row]
    assert min(to_sampler) < 0.5
    assert max(to_sampler) > 5
    products = [math.exp(sum(row)) > 3 for row in TO_SAMPLER]
    assert products == [True, False, True, False, False, True]
    sequences = [math.exp(mean(row)) - 1 for row in LOG_RATIO]
    assert [x > 4e-4 for x in sequences] == [False, True, False, False, False, False]
    assert [x < -3e-4 for x in sequences] == [True, False, False, True, False, True]


@pytest.mark.parametrize("placement", ["none", "reward"])
@pytest.mark.parametrize("name", PAPERS)
def test_the_advantages_are_the_papers(name, placement):
    penalty = PENALTIES[placement]
    found = estimate(name, penalty)
    expected = PAPERS[name][0](expected_rewards(penalty))
    assert_close(found.advantages, padded(expected, 0.0), rtol=1e-10, atol=1e-12)
    assert not found.advantages.requires_grad


def test_the_critics_targets_are_taken_before_whitening():
    rewards = expected_rewards(PENALTIES["reward"])
    expected = padded(rows_of(gae(rewards), VALUES), 0.0)
    assert_close(estimate("ppo", PENALTIES["reward"]).returns, expected, rtol=1e-10, atol=1e-12)
    plain = estimate("ppo", PENALTIES["reward"], whiten=False, gamma=0.9, lam=0.7)
    expected = padded(gae(rewards, 0.9, 0.7), 0.0)
    assert_close(plain.advantages, expected, rtol=1e-10, atol=1e-12)


def test_rewards_can_be_scaled_without_losing_their_mean():
    rewards = expected_rewards(PENALTIES["reward"])
    flat = [x for row in rewards for x in row]
    centred = whitened(rewards)
    scaled = [[x + mean(flat) for x in row] for row in centred]
    found = estimate("ppo", PENALTIES["reward"], whiten=False, whiten_rewards=True)
    assert_close(found.advantages, padded(gae(scaled), 0.0), rtol=1e-10, atol=1e-12)


def test_the_returns_to_go_are_discounted_on_request():
    rewards = expected_rewards(PENALTIES["reward"])
    to_go = [
        [sum(0.9 ** (k - t) * row[k] for k in range(t, len(row))) for t in range(len(row))]
        for row in rewards
    ]
    found = estimate("reinforce++", PENALTIES["reward"], gamma=0.9)
    assert_close(found.advantages, padded(whitened(to_go), 0.0), rtol=1e-10, atol=1e-12)


def test_one_response_has_no_mean_to_be_compared_with():
    one = {"rewards": torch.ones(1, 3), "mask": torch.ones(1, 3, dtype=torch.bool)}
    with pytest.raises(ValueError, match=r"^the batch has one response, expected at least 2"):
        ALGORITHMS["reinforce"].estimate({}, **one)


def test_one_number_a_response_makes_a_row_whose_settings_are_those_not_fixed():
    def shifted(rewards, *, group_size, by: Share = 0.5, times=2.0):
        """What a reader may write."""
        return times * (rewards - by) + group_size

    row = Algorithm(
        per_response(shifted, times=10.0), surrogates.policy_gradient, "token-mean", "a reader"
    )
    assert row.all_settings == {"by": 0.5}
    assert row.needs("group_size")
    with pytest.raises(ValueError, match="a name in settings is 'times', expected one of 'by'"):
        row.with_settings(times=2.0)
    assert (row.advantage.__name__, row.advantage.__doc__) == (
        "shifted",
        "What a reader may write.",
    )
    rewards, mask = (
        torch.tensor([[1.0, 2.0], [4.0, 0.0]]),
        torch.tensor([[True] * 2, [True, False]]),
    )
    found = row.estimate({"by": 0.25}, rewards=rewards, mask=mask, group_size=3)
    assert found.advantages.tolist() == [[30.5, 30.5], [40.5, 0.0]]  # 10 · (3 − .25) + 3, (4 − .25)


def test_the_running_mean_moves_after_the_batch():
    """0.9 · 0.25 + 0.1 · mean of the scores; 0.7 where a recipe says so."""
    average = mean(SCORES)
    assert estimate("reinforce-ema", Penalty()).average == pytest.approx(0.225 + 0.1 * average)
    moved = estimate("reinforce-ema", Penalty(), decay=0.7)
    assert moved.average == pytest.approx(0.175 + 0.3 * average)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_row_gives_back_what_has_to_be_kept_for_what_it_asks_for(name):
    """Targets where it has a critic, the running mean where it is told one, and no others."""
    row, found = ALGORITHMS[name], estimate(name, Penalty())
    assert (found.returns is not None) == row.needs("values")
    assert (found.average is not None) == row.needs("average")


@pytest.mark.parametrize("placement", PENALTIES)
@pytest.mark.parametrize("name", PAPERS)
def test_the_loss_and_its_gradient_are_the_papers(name, placement):
    """From scores to slopes, off-policy, with NaN behind the end of every response."""
    penalty = PENALTIES[placement]
    value, slope = loss_and_slope(name, penalty, estimate(name, penalty).advantages)
    expected_value, expected_slope = expected_loss(
        name, penalty, PAPERS[name][0](expected_rewards(penalty))
    )
    assert value.item() == pytest.approx(expected_value, rel=1e-10)
    assert_close(slope, padded(expected_slope, 0.0), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", PAPERS)
def test_the_published_place_of_the_kl(name):
    assert ALGORITHMS[name].kl == PAPERS[name][3]
    assert ALGORITHMS[name].kl_estimator == "k3"


@pytest.mark.parametrize("behind", [math.nan, -1.0])
@pytest.mark.parametrize("name", PAPERS)
def test_weights_for_the_samplers_rounding_multiply_the_loss_of_each_token(name, behind):
    """A KL in the loss included; NaN behind the end of a response does no harm.

    Of the weights alone too: a log-prob that is NaN itself has no gradient to be spoiled.
    """
    row, penalty = ALGORITHMS[name], PENALTIES["loss k2"]
    advantages = estimate(name, penalty).advantages
    weights = [[0.5 + 0.1 * t + 0.2 * i for t in range(LENGTHS[i])] for i in ROWS]
    log_probs = padded(NEW, behind).requires_grad_()
    loss = policy_loss(
        row,
        row.all_settings,
        penalty,
        Tokens(
            log_probs,
            padded(OLD, behind),
            padded(REF, behind),
            advantages,
            MASK,
            sampler_log_probs=padded(SAMPLER, behind),
        ),
        max_length=MAX_LENGTH,
        sampler_weights=padded(weights),
    )
    (slope,) = torch.autograd.grad(loss, log_probs)
    _, plain = loss_and_slope(name, penalty, advantages)
    assert_close(slope, plain * padded(weights, 0.0), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("weight", ["prefix", "sequence"])
@pytest.mark.parametrize("placement", ["surrogate", "advantage"])
def test_a_cap_keeps_the_loss_of_a_long_stale_response_finite(placement, weight):
    """2,000 tokens, each e^0.05 times as likely as before: a product of e^100."""
    log_probs = torch.full((1, 2000), -1.0).requires_grad_()
    old, ref = log_probs.detach() - 0.05, log_probs.detach() + 0.1
    row, mask = ALGORITHMS["grpo"], torch.ones(1, 2000, dtype=torch.bool)
    for cap, finite in ((None, False), (2.0, True)):
        penalty = Penalty(placement, "k3", 0.1, weight, cap, placement == "advantage")
        loss = policy_loss(
            row,
            row.all_settings,
            penalty,
            Tokens(log_probs, old, ref, torch.ones(1, 2000), mask),
            max_length=2000,
        )
        assert loss.isfinite() == finite


def test_an_exact_penalty_asks_for_divergences():
    with pytest.raises(ValueError, match=r"divergences is None, expected \(B, T\)"):
        Penalty("surrogate", "exact", BETA).of_the_batch(
            Tokens(padded(NEW), padded(OLD), padded(REF), padded(VALUES), MASK),
            divergences=None,
            batch_mask=None,
        )


@pytest.mark.parametrize("garbage", [math.inf, -1e300, 7.0])
def test_no_garbage_behind_the_end_reaches_a_loss(garbage):
    for name in ALGORITHMS:
        row = ALGORITHMS[name]
        penalty = Penalty("loss", "k3", BETA)
        log_probs = padded(NEW, garbage).requires_grad_()
        loss = policy_loss(
            row,
            row.all_settings,
            penalty,
            Tokens(
                log_probs,
                old_log_probs=padded(OLD, garbage),
                ref_log_probs=padded(REF, 3.0),
                advantages=estimate(name, penalty).advantages,
                mask=MASK,
                sampler_log_probs=padded(SAMPLER, garbage),
            ),
            max_length=MAX_LENGTH,
        )
        (slope,) = torch.autograd.grad(loss, log_probs)
        value, expected = loss_and_slope(name, penalty, estimate(name, penalty).advantages)
        assert_close(loss.detach(), value)
        assert_close(slope, expected)


SPLITS = {
    "groups": [[0, 1, 2], [3, 4, 5]],
    "groups reversed": [[3, 4, 5], [0, 1, 2]],
    "rows": [[i] for i in ROWS],
    "any": [[5, 0], [1, 4, 3], [2]],
}


@pytest.mark.parametrize(
    ("name", "placement", "split"),
    swept(
        product(ALGORITHMS, PENALTIES, SPLITS),
        keep=[
            *((name, placement, "any") for name, placement in zip(ALGORITHMS, cycle(PENALTIES))),
            *(("grpo", placement, "any") for placement in PENALTIES),
            *(("ppo", "reward", split) for split in SPLITS),
        ],
    ),
)
def test_slices_add_up_to_the_batch(name, placement, split):
    """Advantages are made from the whole batch; after that every row goes its own way."""
    penalty = PENALTIES[placement]
    advantages = estimate(name, penalty).advantages
    value, slope = loss_and_slope(name, penalty, advantages)
    parts = [
        loss_and_slope(name, penalty, advantages, torch.tensor(rows)) for rows in SPLITS[split]
    ]
    assert_close(torch.stack([part for part, _ in parts]).sum(), value, rtol=1e-12, atol=1e-14)
    total = torch.stack([part for _, part in parts]).sum(dim=0)
    assert_close(total, slope, rtol=1e-12, atol=1e-14)


def test_a_recipes_settings_reach_the_surrogate():
    """Token 0 of response 0 has ratio e^0.22 = 1.246 and a positive advantage."""
    advantages = estimate("grpo", Penalty()).advantages
    assert advantages[0, 0] > 0
    clipped = loss_and_slope("grpo", Penalty(), advantages)[1][0, 0]
    wider = loss_and_slope("grpo", Penalty(), advantages, clip_high=0.3)[1][0, 0]
    assert clipped == 0
    weight = WEIGHTS["every response the same"](0)
    expected = -weight * math.exp(0.22) * advantages[0, 0].item()
    assert wider.item() == pytest.approx(expected)
    # Response 1: one token, ratio e^0.6 = 1.822, A < 0. A dual clip at 1.5 takes its gradient.
    assert advantages[1, 0] < 0
    assert loss_and_slope("grpo", Penalty(), advantages)[1][1, 0] > 0
    assert loss_and_slope("grpo", Penalty(), advantages, dual_clip=1.5)[1][1, 0] == 0


@pytest.mark.parametrize(
    ("name", "needed", "others"),
    [
        ("ppo", {"values", "old_log_probs"}, {"group_size", "greedy_scores", "average", "lam"}),
        ("grpo", {"group_size", "old_log_probs"}, {"values", "greedy_scores", "clip_low"}),
        ("remax", {"greedy_scores"}, {"group_size", "values", "old_log_probs"}),
        ("reinforce-ema", {"average"}, {"group_size", "decay"}),
    ],
)
def test_a_row_says_what_it_needs(name, needed, others):
    row = ALGORITHMS[name]
    assert all(row.needs(quantity) for quantity in {"rewards", "mask", "log_probs", *needed})
    assert not any(row.needs(quantity) for quantity in others)  # a setting is no need


def test_only_dapo_replaces_prompts_without_spread():
    assert {name for name in PAPERS if ALGORITHMS[name].dynamic_sampling} == {"dapo"}


GOOD = {
    "advantage": ALGORITHMS["grpo"].advantage,
    "surrogate": surrogates.ppo_clip,
    "aggregation": "token-mean",
    "source": "nobody",
}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"aggregation": "mean"}, "aggregation is 'mean', expected one of 'token-mean', 'seq-"),
        (
            {"kl": "everywhere"},
            "kl is 'everywhere', expected one of 'none', 'reward', 'advantage', ",
        ),
        ({"kl_estimator": "k4"}, "kl_estimator is 'k4', expected one of 'k1', 'k2', 'k3'"),
    ],
    ids=["aggregation", "kl", "estimator"],
)
def test_a_bad_row_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Algorithm(**{**GOOD, **wrong})


@pytest.mark.parametrize("name", ["lam", "clip_hihg", "group_size"])
def test_a_setting_that_no_function_of_the_row_has_is_refused(name):
    """`group_size` is something the loop provides, so it is none either."""
    message = f"a name in settings is {name!r}, expected one of 'eps', 'clip_low', 'clip_high'"
    with pytest.raises(ValueError, match=message):
        Algorithm(**GOOD, settings={name: 0.9})


def test_a_row_in_five_lines_runs(monkeypatch):
    """The reader's own estimator: rewards above a threshold, and a surrogate with a temperature."""
    from nbcourse.experiments.run import train
    from nbcourse.training.recipe import check

    def threshold(rewards, mask, *, level: float = 0.5):
        return Estimate((rewards.sum(1, keepdim=True) - level) * mask)

    def tempered(log_probs, old_log_probs, advantages, *, clip_low: float = 2.0):
        return -(log_probs - old_log_probs).exp() * advantages / clip_low

    row = Algorithm(threshold, tempered, "token-mean", "the reader", settings={"clip_low": 0.5})
    assert row.all_settings == {"level": 0.5, "clip_low": 0.5}
    monkeypatch.setitem(ALGORITHMS, "mine", row)
    recipe = check(
        {
            "steps": 2,
            "algorithm": {"name": "mine", "clip_low": 0.25},
            "task": {"digits": 1},
            "model": {"layers": 1, "width": 32, "heads": 4},
            "rollouts": {"prompts": 2, "group_size": 1, "max_new_tokens": 2},
            "evaluation": {"problems": 2},
        }
    )
    assert recipe.settings == {"level": 0.5, "clip_low": 0.25}
    _, history = train(recipe, progress=False)
    assert [line["step"] for line in history] == [1, 2]
    # Nothing is right yet, so A = r − 0.5 = −0.5 everywhere, and L = −ρ A / 0.25 = 2 at ρ = 1.
    assert history[0]["accuracy"] == 0
    assert history[0]["policy_loss"] == pytest.approx(2.0, rel=1e-5)


def test_the_table_names_its_papers():
    """Each with its year, and no two rows alike."""
    assert all(row.source.rstrip()[-4:].isdigit() for row in ALGORITHMS.values())
    kinds = [
        (row.advantage, row.surrogate, row.aggregation, str(row.settings))
        for row in ALGORITHMS.values()
    ]
    assert all(one != two for one, two in pairwise(sorted(kinds, key=str)))
