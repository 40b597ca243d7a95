"""The KL divergence: its value, its place in the reward, and above all its gradient.

Expectations are sums over all responses of a tiny policy. "Exact gradient" is autograd of
Σ_y π(y) log π(y)/π_ref(y); "partial gradient" freezes the distribution over states:
Σ_s d(s) ∇KL_s.
"""

import math
from fractions import Fraction

import pytest
import torch

from nbcourse.functional.aggregation import aggregate
from nbcourse.functional.kl import (
    AdaptiveKL,
    FixedKL,
    estimate,
    exact,
    exact_surrogate,
    gradient_surrogate,
    penalty_to_go,
    rewards_with_kl,
)
from nbcourse.functional.returns import discounted_returns
from nbcourse.functional.surrogates import policy_gradient

from .enumeration import Responses, gradient, relative_error

EXACT = 1e-10  # relative error
INF, NAN = math.inf, math.nan
either_ending = pytest.mark.parametrize("eos", [None, 0], ids=["fixed length", "eos"])
either_sampler = pytest.mark.parametrize("stale", [False, True], ids=["on-policy", "off-policy"])


def doubles(rows) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def kl_of_table(logits, ref_logits) -> torch.Tensor:
    """KL_s for each state, Σ_a π(a|s) log π(a|s)/π_ref(a|s), written out."""
    log_probs, ref = logits.log_softmax(-1), ref_logits.log_softmax(-1)
    return (log_probs.exp() * (log_probs - ref)).sum(-1)


class World:
    """Three policies over the same responses: current π, old (the sampler) and the reference."""

    def __init__(self, eos):
        self.responses = Responses(eos)
        self.mask = self.responses.mask
        self.logits, self.old, self.ref = (self.responses.logits(seed) for seed in (1, 2, 3))
        self.old_log_probs = self.responses.log_probs(self.old).detach()
        self.ref_log_probs = self.responses.log_probs(self.ref).detach()

    @property
    def log_probs(self):
        return self.responses.log_probs(self.logits)

    @property
    def kl(self) -> torch.Tensor:
        log_ratio = (self.log_probs - self.ref_log_probs).sum(dim=1)
        return (self.responses.probs(self.logits) * log_ratio).sum()

    @property
    def exact(self) -> torch.Tensor:
        return gradient(self.kl, self.logits)

    def partial(self, sampler) -> torch.Tensor:
        visits = self.responses.visits(sampler)
        return gradient((visits * kl_of_table(self.logits, self.ref.detach())).sum(), self.logits)

    @property
    def conditional_kl(self) -> torch.Tensor:
        """KL_s of the state of each token, NaN behind the end."""
        table = kl_of_table(self.logits, self.ref.detach())
        return torch.where(self.mask, table[self.responses.state], NAN)

    def of_loss(self, loss_of, sampler=None) -> torch.Tensor:
        sampler = self.logits if sampler is None else sampler
        return self.responses.expected_gradient(loss_of, sampler, self.logits)


class TestEstimate:
    @pytest.mark.parametrize(
        ("kind", "expected"),
        [
            # d = ln 2 and −ln 2, that is e^{−d} = ½ and 2
            ("k1", [math.log(2), -math.log(2)]),
            ("k2", [math.log(2) ** 2 / 2] * 2),
            ("k3", [0.5 - 1 + math.log(2), 2 - 1 - math.log(2)]),
            ("abs", [math.log(2)] * 2),
        ],
    )
    def test_literals(self, kind, expected):
        log_probs = doubles([math.log(0.5), math.log(0.25)])
        found = estimate(log_probs, log_probs.flip(0), kind)
        torch.testing.assert_close(found, doubles(expected))

    @pytest.mark.parametrize(
        ("kind", "slope"),
        [
            ("k1", lambda d: 1.0),
            ("k2", lambda d: d),
            ("k3", lambda d: 1 - math.exp(-d)),
            ("abs", lambda d: math.copysign(1.0, d)),
        ],
    )
    @pytest.mark.parametrize("d", [-2.0, -0.1, 0.3, 3.0])
    def test_slopes(self, kind, slope, d):
        log_probs = doubles([d - 1]).requires_grad_()
        estimate(log_probs, doubles([-1.0]), kind).sum().backward()
        torch.testing.assert_close(log_probs.grad, doubles([slope(d)]))

    @either_ending
    def test_k1_and_k3_are_unbiased_and_k2_is_not(self, eos):
        world = World(eos)
        probs = world.responses.probs(world.logits)

        def mean(kind):
            per_token = estimate(world.log_probs, world.ref_log_probs, kind)
            return (probs * (per_token * world.mask).sum(dim=1)).sum().item()

        kl = world.kl.item()
        assert mean("k1") == pytest.approx(kl, rel=1e-12)
        assert mean("k3") == pytest.approx(kl, rel=1e-12)
        assert abs(mean("k2") / kl - 1) > 0.01

    @either_ending
    def test_differentiating_an_estimator_of_the_value_gives_something_else(self, eos):
        # Why `gradient_surrogate` exists. Summed over tokens and averaged over fresh samples:
        # k1 gives 0; k2 the partial gradient; k3 the partial gradient of the *other* divergence.
        world = World(eos)

        def found(kind):
            return world.of_loss(
                lambda i: estimate(world.log_probs[i], world.ref_log_probs[i], kind)[
                    world.mask[i]
                ].sum()
            )

        visits = world.responses.visits(world.logits)
        forward = kl_of_table(world.ref.detach(), world.logits)
        assert found("k1").norm() < 1e-12
        assert relative_error(found("k2"), world.partial(world.logits)) < EXACT
        assert relative_error(found("k3"), gradient((visits * forward).sum(), world.logits)) < EXACT
        assert relative_error(found("k2"), world.exact) > 0.05
        assert relative_error(found("k3"), world.exact) > 0.3

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
    def test_k3_is_never_negative(self, dtype):
        generator = torch.Generator().manual_seed(1)
        sizes = 10 ** torch.linspace(-9, 1.9, 200_001)
        sign = torch.randint(0, 2, sizes.shape, generator=generator) * 2 - 1
        log_probs = (sign * sizes).to(dtype)
        for ref in (0.0, -0.5, -7.0):
            found = estimate(log_probs + ref, torch.full_like(log_probs, ref), "k3")
            assert found.isfinite().all()
            assert found.min() >= 0

    @pytest.mark.parametrize("sign", [1, -1])
    @pytest.mark.parametrize("d", [1e-2, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8])
    def test_k3_keeps_its_digits_where_policy_and_reference_almost_agree(self, d, sign):
        # The true value is the series Σ_{n≥2} (−d)ⁿ/n!, here in exact fractions. The textbook form
        # exp(−d) − 1 + d is off by one rounding of 1 (6·10⁻⁸ in float32, more than the value
        # itself at d = 10⁻⁴); expm1(−d) + d by one rounding of d.
        log_probs = torch.tensor([sign * d])
        minus_d = -Fraction(log_probs.item())
        truth = float(sum(minus_d**n / math.factorial(n) for n in range(2, 12)))
        found = estimate(log_probs, torch.zeros(1), "k3")
        assert abs(found.item() - truth) <= torch.finfo(torch.float32).eps * d
        found = estimate(log_probs.double(), torch.zeros(1, dtype=torch.float64), "k3")
        assert found.item() == pytest.approx(truth, abs=2 * torch.finfo(torch.float64).eps * d)

    @pytest.mark.parametrize("bad", [NAN, INF, -INF])
    @pytest.mark.parametrize("argument", [0, 1])
    @pytest.mark.parametrize("kind", ["k1", "k2", "k3", "abs"])
    def test_what_is_not_finite_is_nan_with_zero_gradient(self, kind, argument, bad):
        arguments = [doubles([-1.0, -1.0]), doubles([-2.0, -2.0])]
        arguments[argument][0] = bad
        arguments[0].requires_grad_()
        found = estimate(*arguments, kind)
        assert found.isnan().tolist() == [True, False]
        found[1].backward()
        assert arguments[0].grad[0] == 0
        assert arguments[0].grad[1] != 0

    @pytest.mark.parametrize(("kind", "expected"), [("k1", -100.0), ("k2", 5000.0), ("abs", 100.0)])
    def test_an_estimate_that_is_finite_comes_out(self, kind, expected):
        # at d = −100 only k3 = e^100 − 101 leaves float32
        log_probs, ref_log_probs = torch.tensor([-100.0]), torch.zeros(1)
        found = estimate(log_probs, ref_log_probs, kind)
        torch.testing.assert_close(found, torch.tensor([expected]))
        assert estimate(log_probs, ref_log_probs, "k3").isnan()

    def test_an_unknown_kind_is_answered_with_the_known_ones(self):
        with pytest.raises(ValueError, match="kind is 'k4', expected one of 'k1', 'k2', 'k3'"):
            estimate(torch.zeros(1), torch.zeros(1), "k4")

    @pytest.mark.peer
    def test_k3_and_its_gradient_agree_with_trl(self, trl_grpo_loss):
        generator = torch.Generator().manual_seed(1)
        draw = {"generator": generator, "dtype": torch.float64}
        log_probs = torch.randn(3, 4, **draw).requires_grad_()
        ref_log_probs, scores = torch.randn(3, 4, **draw), torch.zeros(3, dtype=torch.float64)
        mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=torch.bool)
        theirs, metrics = trl_grpo_loss(
            log_probs,
            log_probs.detach(),
            scores,
            mask,
            loss_type="bnpo",
            beta=0.3,
            ref_log_probs=ref_log_probs,
        )
        ours = aggregate(estimate(log_probs, ref_log_probs, "k3"), mask, "token-mean")
        torch.testing.assert_close(0.3 * ours, theirs)
        torch.testing.assert_close(gradient(0.3 * ours, log_probs), gradient(theirs, log_probs))
        assert ours.item() == pytest.approx(metrics["kl"])


class TestExact:
    def test_literal(self):
        # .9 ln(.9/.5) + .1 ln(.1/.5)
        found = exact(doubles([0.9, 0.1]).log(), doubles([0.5, 0.5]).log())
        by_hand = doubles(0.9 * math.log(1.8) + 0.1 * math.log(0.2))
        torch.testing.assert_close(found, by_hand)
        torch.testing.assert_close(found, doubles(0.368064), rtol=0, atol=5e-7)

    def test_is_the_expectation_of_k1_at_each_position(self):
        generator = torch.Generator().manual_seed(1)
        logits, ref = torch.randn(2, 4, 3, 5, generator=generator, dtype=torch.float64)
        log_probs, ref_log_probs = logits.log_softmax(-1), ref.log_softmax(-1)
        found = exact(logits, ref)
        assert found.shape == (4, 3)
        for kind in ("k1", "k3"):
            samples = estimate(log_probs, ref_log_probs, kind)
            torch.testing.assert_close(found, (log_probs.exp() * samples).sum(-1))

    def test_logits_need_not_be_normalised(self):
        generator = torch.Generator().manual_seed(2)
        logits, ref = torch.randn(2, 3, 5, generator=generator, dtype=torch.float64)
        torch.testing.assert_close(exact(logits + 50, ref - 7), exact(logits, ref))

    def test_is_zero_with_zero_gradient_where_the_policies_agree(self):
        logits = doubles([[1.0, 2.0, -1.0]]).requires_grad_()
        found = exact(logits, logits.detach() + 3)
        found.sum().backward()
        torch.testing.assert_close(found.detach(), doubles([0.0]))
        torch.testing.assert_close(logits.grad, torch.zeros(1, 3, dtype=torch.float64))

    @pytest.mark.parametrize("ref", [0.0, -INF])
    def test_an_impossible_token_adds_nothing_and_gets_no_gradient(self, ref):
        # π = (.9, .1, 0); the reference (½, ½, 0) or (⅓, ⅓, ⅓), with logit 0 for the third token
        logits = torch.cat([doubles([0.9, 0.1]).log(), doubles([-INF])]).requires_grad_()
        found = exact(logits, doubles([0.0, 0.0, ref]))
        found.backward()
        share = 0.5 if ref == -INF else 1 / 3
        by_hand = 0.9 * math.log(0.9 / share) + 0.1 * math.log(0.1 / share)
        torch.testing.assert_close(found.detach(), doubles(by_hand))
        # ∂KL/∂logit_a = π(a) (log π/π_ref − KL)
        slopes = [
            0.9 * (math.log(0.9 / share) - by_hand),
            0.1 * (math.log(0.1 / share) - by_hand),
            0.0,
        ]
        torch.testing.assert_close(logits.grad, doubles(slopes))

    def test_a_token_that_the_reference_never_says_makes_it_infinite(self):
        found = exact(doubles([[0.0, 0.0], [0.0, 0.0]]), doubles([[0.0, -INF], [0.0, 0.0]]))
        torch.testing.assert_close(found, doubles([INF, 0.0]))

    @pytest.mark.parametrize("argument", [0, 1], ids=["logits", "ref_logits"])
    def test_a_nan_stays_in_its_position_and_has_no_gradient(self, argument):
        generator = torch.Generator().manual_seed(4)
        logits, ref = torch.randn(2, 3, 5, generator=generator, dtype=torch.float64)
        clean = exact(logits, ref)
        poisoned = [logits.clone(), ref.clone()]
        poisoned[argument][1, 2] = NAN
        poisoned[0].requires_grad_()
        found = exact(*poisoned)
        torch.testing.assert_close(found[[0, 2]], clean[[0, 2]])
        assert found[1].isnan()
        found[[0, 2]].sum().backward()
        assert poisoned[0].grad.isfinite().all()
        assert poisoned[0].grad[1].eq(0).all()

    def test_a_token_too_unlikely_for_a_float_is_not_nan(self):
        # π(a) = e^−1000 rounds to 0, the reference excludes it: nothing, or infinite, but a number
        found = exact(torch.tensor([0.0, -1000.0]), torch.tensor([0.0, -INF]))
        assert not found.isnan()

    @pytest.mark.peer
    def test_agrees_with_trl(self):
        losses = pytest.importorskip("trl.experimental.sdpo.loss_utils")
        generator = torch.Generator().manual_seed(3)
        logits, ref = torch.randn(2, 4, 6, 11, generator=generator, dtype=torch.float64)
        theirs = losses.compute_divergence(logits.log_softmax(-1), ref.log_softmax(-1), alpha=1.0)
        torch.testing.assert_close(exact(logits, ref), theirs)


class TestRewardsWithKl:
    def test_literal(self):
        # d = (.5, −.25, 1) and β = .1: penalties −.05, .025, −.1; the score 2 joins the last token
        log_probs = doubles([[-1.0, -2.0, -0.5]])
        ref_log_probs = doubles([[-1.5, -1.75, -1.5]])
        mask = torch.ones(1, 3, dtype=torch.bool)
        found = rewards_with_kl(doubles([2.0]), log_probs, ref_log_probs, mask, beta=0.1)
        torch.testing.assert_close(found, doubles([[-0.05, 0.025, 1.9]]))

    def test_the_score_stands_once_on_the_last_token_that_counts(self):
        mask = torch.tensor(
            [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0]], dtype=torch.bool
        )
        d = torch.where(mask, doubles([[1, 2, 3, 4]]), NAN)
        scores = doubles([10, 20, 30, 40])
        found = rewards_with_kl(scores, d, torch.where(mask, 0.0 * d, INF), mask, beta=1.0)
        expected = [[-1, -2, -3, 6], [-1, 18, 0, 0], [-1, 0, 27, 0], [0, 38, 0, 0]]
        torch.testing.assert_close(found, doubles(expected))

    def test_without_a_penalty_only_the_score_is_left(self):
        d, mask = doubles([[1, 2], [3, 4]]), torch.tensor([[True, True], [True, False]])
        found = rewards_with_kl(doubles([5, -6]), d, 0 * d, mask, beta=0.0)
        torch.testing.assert_close(found, doubles([[0, 5], [-6, 0]]))

    @either_ending
    @pytest.mark.parametrize("to_go", [True, False], ids=["reward to go", "whole return"])
    def test_its_policy_gradient_is_that_of_score_minus_beta_kl(self, eos, to_go):
        world, beta = World(eos), 0.3
        scores = torch.linspace(-1, 1, len(world.mask), dtype=torch.float64).roll(7)
        probs = world.responses.probs(world.logits)
        truth = gradient((probs * scores).sum() - beta * world.kl, world.logits)
        rewards = rewards_with_kl(
            scores, world.log_probs, world.ref_log_probs, world.mask, beta=beta
        )
        returns = discounted_returns(rewards, world.mask)
        if not to_go:
            returns = returns[:, :1] * world.mask
        found = world.of_loss(lambda i: policy_gradient(world.log_probs[i], returns[i]).sum())
        assert relative_error(-found, truth) < EXACT

    @pytest.mark.parametrize("beta", [-0.1, NAN])
    def test_refuses_a_negative_beta(self, beta):
        x = torch.zeros(1, 2)
        with pytest.raises(ValueError, match="beta"):
            rewards_with_kl(torch.zeros(1), x, x, x == 0, beta=beta)

    def test_refuses_a_response_without_a_token(self):
        x, mask = torch.zeros(3, 2), torch.tensor([[True, True], [False, False], [True, False]])
        with pytest.raises(ValueError, match=r"mask\[1\] is False everywhere.*scores\[1\]"):
            rewards_with_kl(torch.zeros(3), x, x, mask, beta=0.1)


def expected_gradient(surrogate, world, second, stale, **options) -> torch.Tensor:
    """Mean gradient of a surrogate over responses of the old policy, or of the current one."""
    old = world.old_log_probs if stale else None
    return world.of_loss(
        lambda i: surrogate(
            world.log_probs[i],
            second[i],
            world.mask[i],
            old_log_probs=None if old is None else old[i],
            **options,
        ),
        world.old if stale else world.logits,
    )


class TestGradientSurrogate:
    kinds = pytest.mark.parametrize("kind", ["k1", "k3"])
    weights = pytest.mark.parametrize("weight", ["prefix", "sequence", "token"])
    whole_weights = pytest.mark.parametrize("weight", ["prefix", "sequence"])

    def found(self, world, stale, **options) -> torch.Tensor:
        return expected_gradient(gradient_surrogate, world, world.ref_log_probs, stale, **options)

    @either_ending
    @either_sampler
    @kinds
    @whole_weights
    def test_prefix_and_sequence_weights_give_the_exact_gradient(self, weight, kind, stale, eos):
        world = World(eos)
        found = self.found(world, stale, weight=weight, kind=kind)
        assert relative_error(found, world.exact) < EXACT

    @either_ending
    @either_sampler
    @kinds
    def test_token_weights_give_the_partial_gradient_and_no_more(self, kind, stale, eos):
        # the states stay those of the policy that sampled
        world = World(eos)
        found = self.found(world, stale, weight="token", kind=kind)
        partial = world.partial(world.old if stale else world.logits)
        assert relative_error(found, partial) < EXACT
        assert relative_error(found, world.exact) > 0.05

    def test_the_default_is_exact_for_stale_samples(self):
        world = World(0)
        assert relative_error(self.found(world, stale=True), world.exact) < EXACT

    def test_the_defaults_are_prefix_and_k3(self):
        world = World(0)
        arguments = world.log_probs, world.ref_log_probs, world.mask
        old = {"old_log_probs": world.old_log_probs}
        default = gradient_surrogate(*arguments, **old)
        named = gradient_surrogate(*arguments, **old, weight="prefix", kind="k3")
        others = [
            gradient_surrogate(*arguments, **old, weight=weight, kind=kind)
            for weight in ("prefix", "sequence", "token")
            for kind in ("k1", "k3")
            if (weight, kind) != ("prefix", "k3")
        ]
        torch.testing.assert_close(default, named)
        assert all((default - other).abs() > 1e-3 for other in others)

    @pytest.mark.parametrize(("kind", "error"), [("k1", 1.0), ("k3", None)])
    @whole_weights
    def test_a_detached_weight_would_fail(self, weight, kind, error):
        # the mistake that the docstring warns of: k1 then has no gradient at all on average
        world = World(0)

        def detached(i):
            log_ratio = (world.log_probs - world.old_log_probs)[i].detach()
            logs = log_ratio.cumsum(1) if weight == "prefix" else log_ratio.sum(1, keepdim=True)
            k = estimate(world.log_probs[i], world.ref_log_probs[i], kind)
            return (logs.exp() * k * world.mask[i]).sum()

        wrong = relative_error(world.of_loss(detached, world.old), world.exact)
        assert wrong == pytest.approx(error, abs=1e-10) if error else wrong > 0.3

    @either_sampler
    @kinds
    @weights
    def test_a_hole_has_ratio_one(self, weight, kind, stale):
        # the same responses with a tool's output put between their tokens
        world = World(0)

        def with_hole(x, fill):
            hole = torch.full((len(x), 1), fill, dtype=x.dtype)
            return torch.cat([x[:, :1], hole, x[:, 1:], hole], dim=1)

        log_probs = world.log_probs
        old = world.old_log_probs if stale else None
        plain = gradient_surrogate(
            log_probs, world.ref_log_probs, world.mask, old_log_probs=old, weight=weight, kind=kind
        )
        holed = gradient_surrogate(
            with_hole(log_probs, 3.0),
            with_hole(world.ref_log_probs, -2.0),
            with_hole(world.mask, False),
            old_log_probs=with_hole(old, NAN) if stale else None,
            weight=weight,
            kind=kind,
        )
        torch.testing.assert_close(holed, plain)
        torch.testing.assert_close(gradient(holed, world.logits), gradient(plain, world.logits))

    @kinds
    @weights
    def test_slices_add_up_to_the_batch(self, weight, kind):
        world = World(0)
        options = {"weight": weight, "kind": kind}
        whole = gradient_surrogate(
            world.log_probs,
            world.ref_log_probs,
            world.mask,
            old_log_probs=world.old_log_probs,
            **options,
        )
        slices = sum(
            gradient_surrogate(
                world.log_probs[i],
                world.ref_log_probs[i],
                world.mask[i],
                old_log_probs=world.old_log_probs[i],
                batch_mask=world.mask,
                **options,
            )
            for i in (slice(0, 4), slice(4, 5), slice(5, None))
        )
        torch.testing.assert_close(slices, whole)
        torch.testing.assert_close(gradient(slices, world.logits), gradient(whole, world.logits))

    @kinds
    @weights
    def test_literal(self, weight, kind):
        # Two tokens, ratios ½ and 4 to the old policy; d = ln 2 and −ln 2.
        # k1 = ±ln 2; k3 = ln 2 − ½ and 1 − ln 2. Weights: prefix (½, 2), sequence (2, 2),
        # token (½, 4). A second response of one token has ratio 1 and d = 0: it adds 0, but counts.
        log_probs = doubles([[math.log(0.2), math.log(0.4)], [math.log(0.7), NAN]])
        old = doubles([[math.log(0.4), math.log(0.1)], [math.log(0.7), NAN]])
        ref = doubles([[math.log(0.1), math.log(0.8)], [math.log(0.7), NAN]])
        mask = torch.tensor([[True, True], [True, False]])
        ln2 = math.log(2)
        w = {"prefix": (0.5, 2), "sequence": (2, 2), "token": (0.5, 4)}[weight]
        k = {"k1": (ln2, -ln2), "k3": (ln2 - 0.5, 1 - ln2)}[kind]
        found = gradient_surrogate(
            log_probs, ref, mask, old_log_probs=old, weight=weight, kind=kind
        )
        torch.testing.assert_close(found, doubles((w[0] * k[0] + w[1] * k[1]) / 2))

    @either_ending
    @kinds
    @weights
    def test_on_fresh_samples_its_mean_value_is_the_kl_of_a_response(self, weight, kind, eos):
        world = World(eos)
        probs = world.responses.probs(world.logits)
        value = sum(
            probs[i]
            * gradient_surrogate(
                world.log_probs[i : i + 1],
                world.ref_log_probs[i : i + 1],
                world.mask[i : i + 1],
                weight=weight,
                kind=kind,
            )
            for i in range(len(probs))
        )
        assert value.item() == pytest.approx(world.kl.item(), rel=1e-12)

    @weights
    def test_leaving_out_the_old_policy_means_that_it_is_the_current_one(self, weight):
        world = World(0)
        arguments = world.log_probs, world.ref_log_probs, world.mask
        default = gradient_surrogate(*arguments, weight=weight)
        named = gradient_surrogate(*arguments, weight=weight, old_log_probs=world.log_probs)
        torch.testing.assert_close(default, named)
        torch.testing.assert_close(gradient(default, world.logits), gradient(named, world.logits))
        assert gradient(default, world.logits).norm() > 0.01

    def test_is_a_mean_over_responses_and_not_over_rows(self):
        world = World(0)
        arguments = [world.log_probs, world.ref_log_probs, world.mask]
        padded = [torch.cat([x, torch.zeros_like(x)]) for x in arguments]
        torch.testing.assert_close(gradient_surrogate(*padded), gradient_surrogate(*arguments))
        twice = [torch.cat([x, x]) for x in arguments]
        torch.testing.assert_close(gradient_surrogate(*twice), gradient_surrogate(*arguments))

    def test_of_no_token_is_zero(self):
        x = doubles([[NAN, 1e30]]).requires_grad_()
        loss = gradient_surrogate(x, x, torch.zeros(1, 2, dtype=torch.bool))
        loss.backward()
        assert loss.item() == 0
        assert x.grad.eq(0).all()

    @pytest.mark.parametrize(
        ("option", "value"), [("weight", "row"), ("kind", "k2"), ("kind", "abs")]
    )
    def test_refuses_unknown_options(self, option, value):
        x = torch.zeros(1, 2)
        with pytest.raises(ValueError, match=f"{option} is '{value}', expected one of"):
            gradient_surrogate(x, x, x == 0, **{option: value})

    @pytest.mark.peer
    def test_token_weights_agree_with_trls_bias_correction(self, trl_grpo_loss):
        world = World(0)
        log_probs = world.log_probs
        zeros = torch.zeros(len(world.mask), dtype=torch.float64)
        theirs, _ = trl_grpo_loss(
            log_probs,
            world.old_log_probs,
            zeros,
            world.mask,
            loss_type="luspo",
            beta=1.0,
            ref_log_probs=world.ref_log_probs,
            bias_correction=True,
        )
        ours = gradient_surrogate(
            log_probs,
            world.ref_log_probs,
            world.mask,
            old_log_probs=world.old_log_probs,
            weight="token",
            kind="k3",
        )
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(gradient(ours, world.logits), gradient(theirs, world.logits))


class TestPenaltyToGo:
    """Its loss is Pₜ log π, summed over the tokens of a response."""

    def found(self, world, stale, **options):
        def loss(i):
            log_probs, old = world.log_probs[i], world.old_log_probs[i]
            charged = penalty_to_go(
                log_probs,
                world.ref_log_probs[i],
                world.mask[i],
                old_log_probs=old if stale else None,
                **options,
            )
            assert not charged.requires_grad
            return (charged * log_probs).sum()

        return world.of_loss(loss, world.old if stale else None)

    @either_ending
    @pytest.mark.parametrize("frozen", [False, True])
    @pytest.mark.parametrize("weight", [None, "prefix", "sequence", "token"])
    def test_on_fresh_samples_every_form_gives_the_exact_gradient(self, weight, frozen, eos):
        world = World(eos)
        found = self.found(world, stale=False, weight=weight, frozen=frozen)
        assert relative_error(found, world.exact) < EXACT

    @either_ending
    @pytest.mark.parametrize("weight", ["prefix", "sequence"])
    def test_recomputed_under_a_product_of_ratios_it_is_exact_on_stale_samples_too(
        self, weight, eos
    ):
        world = World(eos)
        assert relative_error(self.found(world, True, weight=weight), world.exact) < EXACT

    @either_ending
    def test_frozen_it_leaves_out_how_far_the_policy_has_moved(self, eos):
        world = World(eos)
        moved = (world.log_probs - world.old_log_probs).sum(dim=1)
        to_old = gradient((world.responses.probs(world.logits) * moved).sum(), world.logits)
        found = self.found(world, stale=True, weight="sequence", frozen=True)
        assert relative_error(found, world.exact - to_old) < EXACT
        assert relative_error(found, world.exact) > 0.1

    @either_ending
    @pytest.mark.parametrize("frozen", [False, True])
    @pytest.mark.parametrize("weight", [None, "token"])
    def test_the_ratio_of_a_single_token_does_not_make_stale_samples_fresh(
        self, weight, frozen, eos
    ):
        world = World(eos)
        found = self.found(world, stale=True, weight=weight, frozen=frozen)
        assert relative_error(found, world.exact) > 0.1

    @pytest.mark.parametrize(
        ("weight", "frozen", "expected"),
        [
            # d = 1, 2, −1 now and 0.5, 1.5, −2 before; ρ = e^{1/2}, e^{1/2}, e^1
            (None, False, [2.0, 1.0, -1.0]),
            (None, True, [0.0, -0.5, -2.0]),
            ("token", False, [2 * math.exp(0.5), math.exp(0.5), -math.exp(1)]),
            (
                "prefix",
                False,
                [
                    math.exp(0.5) + 2 * math.exp(1) - math.exp(2),
                    2 * math.exp(1) - math.exp(2),
                    -math.exp(2),
                ],
            ),
            ("sequence", True, [0.0, -0.5 * math.exp(2), -2 * math.exp(2)]),
        ],
    )
    def test_literals(self, weight, frozen, expected):
        log_probs, old = doubles([[0.0, 0.0, NAN, 0.0]]), doubles([[-0.5, -0.5, 3.0, -1.0]])
        ref = doubles([[-1.0, -2.0, INF, 1.0]])
        mask = torch.tensor([[True, True, False, True]])
        found = penalty_to_go(log_probs, ref, mask, old_log_probs=old, weight=weight, frozen=frozen)
        torch.testing.assert_close(found, doubles([[*expected[:2], 0.0, expected[2]]]))

    @pytest.mark.parametrize(
        ("weight", "weights"),
        [("token", [2.0, 0.5]), ("prefix", [2.0, 1.5]), ("sequence", [1.5, 1.5])],
    )
    def test_a_cap_limits_each_weight(self, weight, weights):
        """Ratios 3 and ½, their product 1.5, a cap of 2; d = 1 and 10."""
        log_probs = doubles([[math.log(3.0), math.log(0.5)]])
        found = penalty_to_go(
            log_probs,
            log_probs - doubles([[1.0, 10.0]]),
            torch.ones(1, 2, dtype=torch.bool),
            old_log_probs=torch.zeros(1, 2, dtype=torch.float64),
            weight=weight,
            weight_cap=2.0,
        )
        first, second = weights
        begun = first * 11.0 if weight == "token" else first + second * 10.0
        torch.testing.assert_close(found, doubles([[begun, second * 10.0]]))

    def test_a_product_too_large_for_a_float_is_capped(self):
        log_probs = torch.full((1, 2000), 0.05)
        mask = torch.ones(1, 2000, dtype=torch.bool)
        options = {"old_log_probs": torch.zeros(1, 2000), "weight": "prefix"}
        arguments = (log_probs, log_probs - 1.0, mask)
        assert penalty_to_go(*arguments, **options).isinf().any()
        found = penalty_to_go(*arguments, **options, weight_cap=2.0)
        assert found[0, -1] == pytest.approx(2.0)
        assert found.isfinite().all()

    def test_an_unknown_weight_is_answered_with_the_known_ones(self):
        zeros, mask = torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool)
        with pytest.raises(ValueError, match="weight is 'row', expected one of 'none', 'prefix'"):
            penalty_to_go(zeros, zeros, mask, weight="row")
        with pytest.raises(
            ValueError, match=r"weight_cap is 0\.5, expected a number of at least 1"
        ):
            penalty_to_go(zeros, zeros, mask, weight="token", weight_cap=0.5)


class TestExactSurrogate:
    def found(self, world, stale, **options) -> torch.Tensor:
        return expected_gradient(exact_surrogate, world, world.conditional_kl, stale, **options)

    @either_ending
    @either_sampler
    def test_its_expected_gradient_is_that_of_the_divergence(self, stale, eos):
        world = World(eos)
        assert relative_error(self.found(world, stale), world.exact) < EXACT

    @either_ending
    @either_sampler
    def test_its_mean_value_is_the_kl_of_a_response(self, stale, eos):
        world = World(eos)
        probs = world.responses.probs(world.old if stale else world.logits)
        old = world.old_log_probs if stale else None
        value = sum(
            probs[i]
            * exact_surrogate(
                world.log_probs[i : i + 1],
                world.conditional_kl[i : i + 1],
                world.mask[i : i + 1],
                old_log_probs=None if old is None else old[i : i + 1],
            )
            for i in range(len(probs))
        )
        assert value.item() == pytest.approx(world.kl.item(), rel=1e-12)

    @either_ending
    def test_without_the_weight_it_would_be_the_partial_gradient(self, eos):
        # the mistake that the docstring warns of
        world = World(eos)
        naive = world.of_loss(lambda i: world.conditional_kl[i][world.mask[i]].sum())
        assert relative_error(naive, world.partial(world.logits)) < EXACT
        assert relative_error(naive, world.exact) > 0.05

    @either_sampler
    def test_has_the_least_variance_of_the_exact_surrogates(self, stale):
        world = World(0)
        old = world.old_log_probs if stale else None
        probs = world.responses.probs(world.old if stale else world.logits).detach()

        def variance(loss_of):
            rows = [slice(i, i + 1) for i in range(len(probs))]
            votes = torch.stack([gradient(loss_of(row), world.logits) for row in rows])
            mean = torch.einsum("n,nsv->sv", probs, votes)
            return (probs @ (votes - mean).square().sum(dim=(1, 2))).item()

        def sampled(kind):
            return lambda i: gradient_surrogate(
                world.log_probs[i],
                world.ref_log_probs[i],
                world.mask[i],
                old_log_probs=None if old is None else old[i],
                kind=kind,
            )

        least = variance(
            lambda i: exact_surrogate(
                world.log_probs[i],
                world.conditional_kl[i],
                world.mask[i],
                old_log_probs=None if old is None else old[i],
            )
        )
        assert least < variance(sampled("k3"))
        assert least < variance(sampled("k1"))

    def test_literal(self):
        # Ratios ½, 4, · in the first response: the states of its tokens have weights 1, ½, 2, and
        # with divergences 3, 5, 7 that makes 3 + 2.5 + 14. Alone in the second: 11.
        ratios = doubles([[0.5, 4, 9], [9, NAN, NAN]])
        log_probs = (0.05 * ratios).log()
        divergences = doubles([[3, 5, 7], [11, NAN, NAN]])
        mask = torch.tensor([[True, True, True], [True, False, False]])
        found = exact_surrogate(
            log_probs, divergences, mask, old_log_probs=torch.full_like(ratios, math.log(0.05))
        )
        torch.testing.assert_close(found, doubles((3 + 2.5 + 14 + 11) / 2))

    def test_literal_gradients(self):
        # as above: ∂L/∂ log π of a token is the weighted sum of the divergences *after* it,
        # ∂L/∂KLₜ is the weight before it; the last token leads nowhere
        ratios = doubles([[0.5, 4, 9]])
        log_probs = (0.05 * ratios).log().requires_grad_()
        divergences = doubles([[3, 5, 7]]).requires_grad_()
        mask = torch.ones(1, 3, dtype=torch.bool)
        old = torch.full_like(ratios, math.log(0.05))
        exact_surrogate(log_probs, divergences, mask, old_log_probs=old).backward()
        torch.testing.assert_close(log_probs.grad, doubles([[2.5 + 14, 14, 0]]))
        torch.testing.assert_close(divergences.grad, doubles([[1, 0.5, 2]]))

    @either_sampler
    def test_a_hole_has_ratio_one_and_no_divergence(self, stale):
        world = World(0)

        def with_hole(x, fill):
            hole = torch.full((len(x), 1), fill, dtype=x.dtype)
            return torch.cat([x[:, :1], hole, x[:, 1:], hole], dim=1)

        old = world.old_log_probs if stale else None
        plain = exact_surrogate(
            world.log_probs, world.conditional_kl, world.mask, old_log_probs=old
        )
        holed = exact_surrogate(
            with_hole(world.log_probs, 3.0),
            with_hole(world.conditional_kl, 2.0),
            with_hole(world.mask, False),
            old_log_probs=with_hole(old, NAN) if stale else None,
        )
        torch.testing.assert_close(holed, plain)
        torch.testing.assert_close(gradient(holed, world.logits), gradient(plain, world.logits))

    def test_nan_logits_under_the_mask_leave_no_trace(self):
        # from the logits of a padded batch to the gradient of the table
        world = World(0)
        padding = torch.where(world.mask[..., None], 0.0, NAN)
        logits = world.logits[world.responses.state] + padding
        divergences = exact(logits, world.ref.detach()[world.responses.state] + padding)
        found = exact_surrogate(world.log_probs, divergences, world.mask)
        clean = exact_surrogate(world.log_probs, world.conditional_kl, world.mask)
        torch.testing.assert_close(found, clean)
        torch.testing.assert_close(gradient(found, world.logits), gradient(clean, world.logits))

    def test_slices_add_up_to_the_batch(self):
        world = World(0)
        whole = exact_surrogate(
            world.log_probs, world.conditional_kl, world.mask, old_log_probs=world.old_log_probs
        )
        slices = sum(
            exact_surrogate(
                world.log_probs[i],
                world.conditional_kl[i],
                world.mask[i],
                old_log_probs=world.old_log_probs[i],
                batch_mask=world.mask,
            )
            for i in (slice(0, 4), slice(4, 5), slice(5, None))
        )
        torch.testing.assert_close(slices, whole)
        torch.testing.assert_close(gradient(slices, world.logits), gradient(whole, world.logits))

    def test_leaving_out_the_old_policy_means_that_it_is_the_current_one(self):
        world = World(0)
        arguments = world.log_probs, world.conditional_kl, world.mask
        default = exact_surrogate(*arguments)
        named = exact_surrogate(*arguments, old_log_probs=world.log_probs)
        torch.testing.assert_close(default, named)
        torch.testing.assert_close(gradient(default, world.logits), gradient(named, world.logits))

    def test_of_no_token_is_zero(self):
        x = doubles([[NAN, 1e30]]).requires_grad_()
        loss = exact_surrogate(x, x, torch.zeros(1, 2, dtype=torch.bool))
        loss.backward()
        assert loss.item() == 0
        assert x.grad.eq(0).all()


class TestWeightCap:
    """Both surrogates: min(w, c) as a number, min(w, c) · ∇log w as a gradient."""

    mask = torch.ones(1, 3, dtype=torch.bool)
    old = torch.full((1, 3), math.log(0.05), dtype=torch.float64)

    def test_literal_of_exact_surrogate(self):
        # Ratios 2, 3, ·: weights 1, 2, 6 before each token, of which a cap of 4 leaves 1, 2, 4.
        log_probs = (0.05 * doubles([[2, 3, 9]])).log().requires_grad_()
        divergences = doubles([[3, 5, 7]]).requires_grad_()
        found = exact_surrogate(
            log_probs, divergences, self.mask, old_log_probs=self.old, weight_cap=4.0
        )
        found.backward()
        torch.testing.assert_close(found.detach(), doubles(3 + 10 + 28.0))
        torch.testing.assert_close(log_probs.grad, doubles([[10 + 28, 28, 0]]))
        torch.testing.assert_close(divergences.grad, doubles([[1, 2, 4]]))

    @pytest.mark.parametrize(
        ("weight", "capped"), [("prefix", (2, 4, 4)), ("sequence", (4, 4, 4)), ("token", (2, 3, 4))]
    )
    @pytest.mark.parametrize("kind", ["k1", "k3"])
    def test_literal_of_gradient_surrogate(self, weight, capped, kind):
        # ratios 2, 3, 9: prefix 2, 6, 54; sequence 54; token 2, 3, 9; the cap is 4
        log_probs = (0.05 * doubles([[2, 3, 9]])).log().requires_grad_()
        d = doubles([[0.5, -1, 2]])
        found = gradient_surrogate(
            log_probs,
            log_probs.detach() - d,
            self.mask,
            old_log_probs=self.old,
            weight=weight,
            kind=kind,
            weight_cap=4.0,
        )
        found.backward()
        k, slope = (d, d.abs() * 0 + 1) if kind == "k1" else (torch.exp(-d) - 1 + d, 1 - (-d).exp())
        w = doubles([capped])
        torch.testing.assert_close(found.detach(), (w * k).sum())
        through_weight = {
            "prefix": (w * k).flip(1).cumsum(1).flip(1),
            "sequence": (w * k).sum().expand(1, 3),
            "token": w * k,
        }[weight]
        torch.testing.assert_close(log_probs.grad, through_weight + w * slope)

    @pytest.mark.parametrize("cap", [1, 1.0, 7.5])
    def test_changes_nothing_on_fresh_samples(self, cap):
        world = World(0)
        for surrogate, second in (
            (exact_surrogate, world.conditional_kl),
            (gradient_surrogate, world.ref_log_probs),
        ):
            plain = surrogate(world.log_probs, second, world.mask)
            capped = surrogate(world.log_probs, second, world.mask, weight_cap=cap)
            torch.testing.assert_close(capped, plain)
            torch.testing.assert_close(
                gradient(capped, world.logits), gradient(plain, world.logits)
            )

    def test_a_weight_too_large_for_a_float_is_capped_too(self):
        log_probs = doubles([[0.0, 0.0, 0.0]]).requires_grad_()
        found = exact_surrogate(
            log_probs,
            doubles([[1, 1, 1]]),
            self.mask,
            old_log_probs=doubles([[-1e3, 0, 0]]),
            weight_cap=2.0,
        )
        found.backward()
        torch.testing.assert_close(found.detach(), doubles(5.0))
        torch.testing.assert_close(log_probs.grad, doubles([[4.0, 2, 0]]))

    @pytest.mark.parametrize("cap", [0.99, 0.0, -1.0, NAN])
    @pytest.mark.parametrize("surrogate", [exact_surrogate, gradient_surrogate])
    def test_below_one_is_refused(self, surrogate, cap):
        x = torch.zeros(1, 2)
        with pytest.raises(ValueError, match=r"weight_cap is .*, expected a number of at least 1"):
            surrogate(x, x, x == 0, weight_cap=cap)


class TestControllers:
    # TRL 1.16 exports no KL controller: no parity to check here.

    def test_a_fixed_coefficient_stays(self):
        controller = FixedKL(0.05)
        assert controller.update(kl=99.0, responses=1000) == 0.05
        assert controller.beta == 0.05

    @pytest.mark.parametrize(
        ("kl", "beta"),
        [
            # β = .1, target 6, horizon 10 000, 256 responses: n/horizon = .0256
            (6.0, 0.1),  # on target
            (6.6, 0.1 * (1 + 0.1 * 0.0256)),  # 10 % too much
            (5.4, 0.1 * (1 - 0.1 * 0.0256)),
            (60.0, 0.1 * (1 + 0.2 * 0.0256)),  # the error is cut off at ± 20 %
            (0.0, 0.1 * (1 - 0.2 * 0.0256)),
            (-1.0, 0.1 * (1 - 0.2 * 0.0256)),  # an estimate can be negative
        ],
    )
    def test_an_adaptive_coefficient_moves_towards_the_target(self, kl, beta):
        controller = AdaptiveKL(beta=0.1, target=6.0, horizon=10_000)
        assert controller.update(kl, responses=256) == pytest.approx(beta, rel=1e-12)
        assert controller.beta == pytest.approx(beta, rel=1e-12)

    def test_updates_compound(self):
        controller = AdaptiveKL(beta=0.1, target=1.0, horizon=100)
        for _ in range(3):
            controller.update(kl=9.0, responses=50)
        assert controller.beta == pytest.approx(0.1 * 1.1**3)

    @pytest.mark.parametrize("value", [0.0, -1.0, NAN])
    @pytest.mark.parametrize("name", ["beta", "target", "horizon"])
    def test_refuses_what_is_not_positive(self, name, value):
        with pytest.raises(ValueError, match=f"{name} is"):
            AdaptiveKL(**{"beta": 0.1, "target": 6.0, "horizon": 100.0, name: value})

    @pytest.mark.parametrize("kl", [NAN, INF, -INF])
    def test_refuses_a_divergence_that_is_not_finite_and_keeps_its_coefficient(self, kl):
        controller = AdaptiveKL(beta=0.1, target=6.0, horizon=100.0)
        with pytest.raises(ValueError, match="kl is"):
            controller.update(kl, responses=8)
        assert controller.beta == 0.1

    @pytest.mark.parametrize("responses", [500, 1024])
    def test_a_step_that_would_turn_beta_negative_is_refused(self, responses):
        # β (1 − 0.2 · n / horizon) ≤ 0 from n = 5 · horizon on
        controller = AdaptiveKL(beta=0.1, target=6.0, horizon=100.0)
        with pytest.raises(ValueError, match=f"a fifth of responses={responses}"):
            controller.update(0.0, responses)
        assert controller.update(0.0, 499) > 0

    @pytest.mark.parametrize("responses", [0, -1])
    def test_an_update_without_responses_is_refused(self, responses):
        controller = AdaptiveKL(beta=0.1, target=6.0, horizon=100.0)
        with pytest.raises(ValueError, match=f"responses is {responses}, expected at least 1"):
            controller.update(6.0, responses)
