"""Surrogates against closed forms, autograd of the direct objective, enumeration and TRL.

A surrogate is right if its value and its gradient are: `value_and_slope` returns both, the slope
being d loss / d log π, which for a ratio ρ is ρ · d loss / dρ.
"""

import math

import pytest
import torch

from nbcourse.functional.aggregation import aggregate
from nbcourse.functional.surrogates import (
    cispo,
    clip_fraction,
    dppo,
    gmpo,
    gspo,
    importance_weights,
    policy_gradient,
    ppo_clip,
    sapo,
)

from .enumeration import Responses, gradient


def doubles(rows) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def random(*shape: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def value_and_slope(surrogate, ratio: float, advantage: float, **clips) -> tuple[float, float]:
    log_probs = doubles([math.log(ratio) - 1.0]).requires_grad_()
    loss = surrogate(log_probs, doubles([-1.0]), doubles([advantage]), **clips)
    (slope,) = torch.autograd.grad(loss.sum(), log_probs)
    return loss.item(), slope.item()


class TestPolicyGradient:
    def test_literal(self):
        log_probs = doubles([[-1.0, -2.0]]).requires_grad_()
        loss = policy_gradient(log_probs, doubles([[3.0, -0.5]]))
        torch.testing.assert_close(loss.detach(), doubles([[3.0, -1.0]]))  # −A log π
        loss.sum().backward()
        torch.testing.assert_close(log_probs.grad, doubles([[-3.0, 0.5]]))  # −A

    @pytest.mark.parametrize("eos", [None, 2])
    def test_descends_the_gradient_of_the_expected_return(self, eos):
        world = Responses(eos)
        logits = world.logits(seed=1)
        scores = random(len(world.tokens), seed=2)
        truth = gradient((world.probs(logits) * scores).sum(), logits)
        advantages = scores[:, None] * world.mask

        def loss_of(i):
            per_token = policy_gradient(world.log_probs(logits)[i], advantages[i])
            return aggregate(per_token, world.mask[i], "seq-mean-token-sum")

        found = world.expected_gradient(loss_of, logits, logits)
        torch.testing.assert_close(found, -truth, rtol=1e-10, atol=1e-12)

    def test_a_reward_to_go_that_drops_the_past_leaves_the_expectation_alone(self):
        world = Responses(eos=0)
        logits = world.logits(seed=3)
        rewards = random(len(world.prefixes), 3, seed=4)[world.state, world.action] * world.mask
        to_go = rewards.flip(1).cumsum(1).flip(1)
        truth = gradient((world.probs(logits) * rewards.sum(1)).sum(), logits)
        found = world.expected_gradient(
            lambda i: policy_gradient(world.log_probs(logits)[i], to_go[i]).sum(), logits, logits
        )
        torch.testing.assert_close(found, -truth, rtol=1e-10, atol=1e-12)


# ρ, A, loss and d loss / d log π with clips at .8 and 1.2
CLIP_CASES = [
    pytest.param(0.5, 1.0, -0.5, -0.5, id="A>0, low: pushed back up"),
    pytest.param(1.1, 1.0, -1.1, -1.1, id="A>0, inside"),
    pytest.param(1.5, 1.0, -1.2, 0.0, id="A>0, high: clipped"),
    pytest.param(0.5, -1.0, 0.8, 0.0, id="A<0, low: clipped"),
    pytest.param(0.9, -1.0, 0.9, 0.9, id="A<0, inside"),
    pytest.param(1.5, -1.0, 1.5, 1.5, id="A<0, high: pushed back down"),
    pytest.param(0.5, 2.0, -1.0, -1.0, id="A=2, low"),
    pytest.param(1.5, 2.0, -2.4, 0.0, id="A=2, high: clipped"),
    pytest.param(0.5, 0.0, 0.0, 0.0, id="A=0"),
]


class TestPpoClip:
    @pytest.mark.parametrize(("ratio", "advantage", "loss", "slope"), CLIP_CASES)
    def test_cases(self, ratio, advantage, loss, slope):
        found = value_and_slope(ppo_clip, ratio, advantage)
        assert found == pytest.approx((loss, slope), abs=1e-12)

    @pytest.mark.parametrize(
        ("ratio", "advantage", "loss", "slope"),
        [
            (1.25, 1.0, -1.25, -1.25),  # inside .8 … 1.28, outside .8 … 1.2
            (1.5, 1.0, -1.28, 0.0),
            (0.75, -1.0, 0.8, 0.0),  # the low side keeps its own distance
            (0.75, 1.0, -0.75, -0.75),
        ],
    )
    def test_clip_higher(self, ratio, advantage, loss, slope):
        found = value_and_slope(ppo_clip, ratio, advantage, clip_low=0.2, clip_high=0.28)
        assert found == pytest.approx((loss, slope), abs=1e-12)

    def test_clip_high_follows_clip_low_unless_it_is_given(self):
        assert value_and_slope(ppo_clip, 1.5, 1.0, clip_low=0.3)[0] == pytest.approx(-1.3)
        assert value_and_slope(ppo_clip, 0.5, -1.0, clip_low=0.3)[0] == pytest.approx(0.7)
        only_high = value_and_slope(ppo_clip, 0.5, -1.0, clip_high=0.3)
        assert only_high[0] == pytest.approx(0.8)
        assert value_and_slope(ppo_clip, 1.5, 1.0, clip_high=0.0)[0] == pytest.approx(-1.0)

    @pytest.mark.parametrize(
        ("ratio", "advantage", "loss", "slope"),
        [
            (4.0, -1.0, 3.0, 0.0),  # beyond c = 3: loss c |A|, no gradient
            (4.0, -2.0, 6.0, 0.0),
            (2.0, -1.0, 2.0, 2.0),  # below c: as without
            (0.5, -1.0, 0.8, 0.0),
            (4.0, 1.0, -1.2, 0.0),  # never for A > 0
            (0.1, 1.0, -0.1, -0.1),
            (4.0, 0.0, 0.0, 0.0),
        ],
    )
    def test_dual_clip(self, ratio, advantage, loss, slope):
        found = value_and_slope(ppo_clip, ratio, advantage, dual_clip=3.0)
        assert found == pytest.approx((loss, slope), abs=1e-12)

    @pytest.mark.parametrize("advantage", [1.0, -1.0, 0.3])
    @pytest.mark.parametrize("side", ["low", "high"])
    def test_on_the_bound_itself_the_gradient_is_whole(self, side, advantage):
        # clips chosen so that 1 ± clip is the ratio to the last bit
        log_ratio = doubles([math.log(0.8 if side == "low" else 1.25)]).requires_grad_()
        ratio = log_ratio.detach().exp()
        distance = abs(ratio.item() - 1)
        assert (1 - distance if side == "low" else 1 + distance) == ratio.item()
        clips = {"clip_low": 0.5, "clip_high": 0.5} | {f"clip_{side}": distance}
        loss = ppo_clip(log_ratio, doubles([0.0]), doubles([advantage]), **clips)
        loss.sum().backward()
        torch.testing.assert_close(loss.detach(), -ratio * advantage)
        torch.testing.assert_close(log_ratio.grad, -ratio * advantage)

    def test_at_ratio_one_it_is_the_vanilla_gradient(self):
        old, advantages = random(3, 4, seed=1), random(3, 4, seed=2)
        log_probs = old.clone().requires_grad_()
        loss = ppo_clip(log_probs, old, advantages, dual_clip=3.0)
        torch.testing.assert_close(loss.detach(), -advantages)
        (found,) = torch.autograd.grad(loss.sum(), log_probs)
        (vanilla,) = torch.autograd.grad(policy_gradient(log_probs, advantages).sum(), log_probs)
        torch.testing.assert_close(found, vanilla)

    def test_the_minimum_of_objectives_is_the_maximum_of_losses_for_either_sign(self):
        # A published variant takes the maximum of objectives where A < 0, which turns the clip
        # inside out: it stops the harmless tokens and lets the harmful ones go.
        log_ratio, advantages = random(50, 4, seed=3), random(50, 4, seed=4)
        ratio = log_ratio.exp()
        plain, clipped = -ratio * advantages, -ratio.clamp(0.8, 1.2) * advantages
        found = ppo_clip(log_ratio, torch.zeros_like(ratio), advantages)
        torch.testing.assert_close(found, torch.maximum(plain, clipped))
        inside_out = torch.where(advantages >= 0, found, torch.minimum(plain, clipped))
        assert (found - inside_out).abs().max() > 0.1

    def test_without_clipping_it_is_the_importance_weighted_objective(self):
        # E_old[ρ A] as a function of the logits is E_π[A], for a single decision
        logits, old = random(4, seed=5).requires_grad_(), random(4, seed=6).softmax(0)
        advantages = random(4, seed=7)
        log_probs = logits.log_softmax(0)
        loss = ppo_clip(log_probs, old.log(), advantages, clip_low=1.0, clip_high=math.inf)
        found = gradient((old * loss).sum(), logits)
        truth = gradient((logits.softmax(0) * advantages).sum(), logits)
        torch.testing.assert_close(found, -truth)

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("clip_low", -0.1),
            ("clip_low", 1.1),
            ("clip_high", -0.1),
            ("clip_low", math.nan),
            ("dual_clip", 1.0),
            ("dual_clip", 0.5),
            ("dual_clip", math.nan),
        ],
    )
    def test_refuses_clips_that_make_no_sense(self, option, value):
        x = torch.zeros(2)
        with pytest.raises(ValueError, match=option):
            ppo_clip(x, x, x, **{option: value})


class TestWhatIsNotFinite:
    """Every input that is not finite gives NaN, and neither it nor its neighbour a NaN gradient."""

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize(
        ("surrogate", "argument"),
        [
            (policy_gradient, 0),
            (policy_gradient, 1),
            *((f, i) for f in (ppo_clip, cispo) for i in range(3)),
        ],
    )
    @pytest.mark.parametrize("advantage", [1.0, -1.0])
    def test_comes_out_as_nan_with_zero_gradient(self, surrogate, argument, bad, advantage):
        arguments = [doubles([-1.0, -1.1]), doubles([-1.2, -1.0]), doubles([advantage] * 2)]
        if surrogate is policy_gradient:
            del arguments[1]
        (clean_slope,) = torch.autograd.grad(
            surrogate(arguments[0].requires_grad_(), *arguments[1:]).sum(), arguments[0]
        )
        arguments = [x.detach().clone() for x in arguments]
        arguments[argument][0] = bad
        arguments[0].requires_grad_()
        loss = surrogate(*arguments)
        assert loss.isnan().tolist() == [True, False]
        loss[1].backward()
        torch.testing.assert_close(arguments[0].grad, torch.stack([doubles(0.0), clean_slope[1]]))

    def test_a_large_ratio_on_the_side_without_a_clip_stays_exact(self):
        # A < 0 and ρ = e^60 ≈ 10²⁶, well inside float32: loss and slope are both ρ |A|
        log_probs = torch.tensor([0.0]).requires_grad_()
        loss = ppo_clip(log_probs, torch.tensor([-60.0]), torch.tensor([-1.0]))
        loss.sum().backward()
        assert loss.item() == pytest.approx(math.exp(60), rel=1e-5)
        assert log_probs.grad.item() == pytest.approx(math.exp(60), rel=1e-5)

    def test_a_huge_but_finite_ratio_is_clipped_like_any_other(self):
        # log ρ = 100 overflows exp in float32; the clipped branch −1.2 does not need it
        log_probs = torch.tensor([0.0]).requires_grad_()
        loss = ppo_clip(log_probs, torch.tensor([-100.0]), torch.tensor([1.0]))
        loss.sum().backward()
        assert loss.item() == pytest.approx(-1.2)
        assert log_probs.grad.item() == 0.0


class TestGspo:
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 1, 1], [0, 0, 0, 0]], dtype=torch.bool)
    rewards = doubles([1.0, -2.0, 0.5, 3.0])

    def inputs(self, spread: float, seed: int = 1):
        log_probs = random(4, 4, seed=seed) - 2.0
        old_log_probs = log_probs + spread * random(4, 4, seed=seed + 1)
        return log_probs.requires_grad_(), old_log_probs, self.rewards[:, None].repeat(1, 4)

    def direct(self, log_probs, old_log_probs, low, high):
        """−(1/N) Σ_i min(s_i A_i, clip(s_i) A_i), s_i the geometric mean of the token ratios."""
        losses = []
        for i, kept in enumerate(self.mask):
            if kept.any():
                s = (log_probs[i, kept] - old_log_probs[i, kept]).mean().exp()
                a = self.rewards[i]
                losses.append(-torch.minimum(s * a, s.clamp(1 - low, 1 + high) * a))
        return torch.stack(losses).mean()

    @pytest.mark.parametrize("clips", [(0.1, 0.2), (3e-4, 4e-4), (1.0, 9.0)])
    @pytest.mark.parametrize("spread", [0.0, 0.1, 1.0])
    @pytest.mark.parametrize("seed", [1, 5])
    def test_under_seq_mean_token_mean_it_is_the_sequence_objective(self, seed, spread, clips):
        log_probs, old_log_probs, advantages = self.inputs(spread, seed)
        per_token = gspo(
            log_probs, old_log_probs, advantages, self.mask, clip_low=clips[0], clip_high=clips[1]
        )
        loss = aggregate(per_token, self.mask, "seq-mean-token-mean")
        truth = self.direct(log_probs, old_log_probs, *clips)
        torch.testing.assert_close(loss, truth)
        torch.testing.assert_close(gradient(loss, log_probs), gradient(truth, log_probs))

    def test_under_token_mean_it_is_something_else(self):
        log_probs, old_log_probs, advantages = self.inputs(0.1)
        clips = {"clip_low": 1.0, "clip_high": 9.0}
        per_token = gspo(log_probs, old_log_probs, advantages, self.mask, **clips)
        found = gradient(aggregate(per_token, self.mask, "token-mean"), log_probs)
        truth = gradient(self.direct(log_probs, old_log_probs, 1.0, 9.0), log_probs)
        assert (found - truth).norm() > 0.1 * truth.norm()

    @pytest.mark.parametrize(
        ("log_ratio", "advantage", "loss", "slope"),
        [
            # two tokens with log-ratios that average to x: s = eˣ on both of them
            (1e-4, 1.0, -math.exp(1e-4), -math.exp(1e-4)),  # inside
            (1e-3, 1.0, -(1 + 4e-4), 0.0),  # the default clip above is 4·10⁻⁴ …
            (-1e-3, -1.0, 1 - 3e-4, 0.0),  # … and 3·10⁻⁴ below
            (-1e-3, 1.0, -math.exp(-1e-3), -math.exp(-1e-3)),
            (1e-3, -1.0, math.exp(1e-3), math.exp(1e-3)),
        ],
    )
    def test_a_response_is_clipped_as_a_whole(self, log_ratio, advantage, loss, slope):
        # token ratios e^{x+1} and e^{x−1}: far outside on their own
        log_probs = doubles([[log_ratio + 1, log_ratio - 1, 55.0]]).requires_grad_()
        zeros, mask = torch.zeros(1, 3, dtype=torch.float64), torch.tensor([[True, True, False]])
        per_token = gspo(log_probs, zeros, zeros + advantage, mask)
        per_token.sum().backward()
        torch.testing.assert_close(per_token.detach(), doubles([[loss, loss, 0.0]]))
        torch.testing.assert_close(log_probs.grad, doubles([[slope, slope, 0.0]]))

    @pytest.mark.parametrize("log_ratio", [2e-4, math.log1p(4e-4)])  # inside, and at the end
    def test_all_tokens_have_one_ratio_to_the_last_bit(self, log_ratio):
        log_probs = (-10 * random(4, 200, seed=0).abs()).float().requires_grad_()
        ones = torch.ones(4, 200)
        per_token = gspo(log_probs, log_probs.detach() - log_ratio, ones, ones > 0)
        per_token.sum().backward()
        assert per_token.equal(per_token[:, :1].expand(4, 200))
        assert log_probs.grad.equal(log_probs.grad[:, :1].expand(4, 200))

    def test_clip_high_none_means_the_same_distance_on_both_sides(self):
        zeros, mask = torch.zeros(1, 1, dtype=torch.float64), torch.tensor([[True]])
        found = gspo(zeros + 1, zeros, zeros + 1, mask, clip_low=0.3, clip_high=None)
        torch.testing.assert_close(found, doubles([[-1.3]]))

    @pytest.mark.parametrize(("option", "value"), [("clip_low", -0.1), ("clip_high", -0.1)])
    def test_refuses_clips_that_make_no_sense(self, option, value):
        x = torch.zeros(1, 2)
        with pytest.raises(ValueError, match=option):
            gspo(x, x, x, x == 0, **{option: value})


class TestCispo:
    @pytest.mark.parametrize("advantage", [1.0, -1.0, 2.0])
    @pytest.mark.parametrize(
        ("ratio", "weight"), [(0.5, 0.8), (0.9, 0.9), (1.0, 1.0), (1.1, 1.1), (1.5, 1.2)]
    )
    def test_clips_the_weight_and_keeps_every_gradient(self, ratio, weight, advantage):
        log_prob = math.log(ratio) - 1.0  # value_and_slope has −1 as the old log-probability
        found = value_and_slope(cispo, ratio, advantage)
        expected = -weight * advantage * log_prob, -weight * advantage
        assert found == pytest.approx(expected)

    def test_bounds_are_set_apart(self):
        clips = {"clip_low": 1.0, "clip_high": 4.0}  # none below, 5 above
        assert value_and_slope(cispo, 0.01, 1.0, **clips)[1] == pytest.approx(-0.01)
        assert value_and_slope(cispo, 7.0, 1.0, **clips)[1] == pytest.approx(-5.0)
        assert value_and_slope(cispo, 7.0, 1.0, clip_low=0.3)[1] == pytest.approx(-1.3)

    def test_at_ratio_one_it_is_the_vanilla_surrogate(self):
        old, advantages = random(3, 4, seed=1), random(3, 4, seed=2)
        torch.testing.assert_close(cispo(old, old, advantages), policy_gradient(old, advantages))

    @pytest.mark.parametrize(("option", "value"), [("clip_low", 1.1), ("clip_high", -0.1)])
    def test_refuses_clips_that_make_no_sense(self, option, value):
        x = torch.zeros(2)
        with pytest.raises(ValueError, match=option):
            cispo(x, x, x, **{option: value})


class TestImportanceWeights:
    def test_is_the_ratio_up_to_the_cap(self):
        log_ratio = torch.tensor([0.5, 1.0, 2.0, 4.0], dtype=torch.float64).log()
        sampler = torch.full((4,), -3.0, dtype=torch.float64)
        for cap, expected in ((2.0, [0.5, 1.0, 2.0, 2.0]), (1.0, [0.5, 1.0, 1.0, 1.0])):
            found = importance_weights(sampler + log_ratio, sampler, cap=cap)
            torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))

    def test_is_a_constant(self):
        log_probs = torch.zeros(2, requires_grad=True)
        assert not importance_weights(log_probs, torch.zeros(2)).requires_grad

    def test_a_ratio_too_large_for_a_float_is_the_cap(self):
        found = importance_weights(torch.tensor([0.0]), torch.tensor([-1000.0]), cap=3.0)
        torch.testing.assert_close(found, torch.tensor([3.0]))

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("argument", [0, 1])
    def test_what_is_not_finite_is_nan(self, argument, bad):
        arguments = [torch.zeros(2), torch.zeros(2)]
        arguments[argument][0] = bad
        assert importance_weights(*arguments).isnan().tolist() == [True, False]

    def test_with_it_the_samplers_tokens_stand_for_the_learners(self):
        """E_sampler[min(ρ, C) f] = E_learner[f] if no ratio exceeds C, and less if one does."""
        generator = torch.Generator().manual_seed(0)
        learner, sampler = torch.randn(2, 9, generator=generator, dtype=torch.float64).log_softmax(
            1
        )
        f = torch.rand(9, generator=generator, dtype=torch.float64)
        cap = (learner - sampler).exp().max().item()
        assert cap > 2
        wide, tight = (
            (sampler.exp() * importance_weights(learner, sampler, cap=c) * f).sum()
            for c in (cap, 1.5)
        )
        torch.testing.assert_close(wide, (learner.exp() * f).sum())
        assert tight < wide

    def test_the_product_over_a_response_corrects_its_prefix_too(self):
        """Two tokens, the second drawn by the first: only the product gives the learner's mean."""
        generator = torch.Generator().manual_seed(1)
        first = torch.randn(2, 3, generator=generator, dtype=torch.float64).log_softmax(-1)
        then = torch.randn(2, 3, 3, generator=generator, dtype=torch.float64).log_softmax(-1)
        pairs = torch.cartesian_prod(torch.arange(3), torch.arange(3))
        a, b = pairs.unbind(1)
        learner, sampler = (torch.stack([first[i, a], then[i, a, b]], dim=1) for i in (0, 1))
        f = torch.rand(9, generator=generator, dtype=torch.float64)
        cap = (learner - sampler).sum(dim=1).exp().max().item()
        weights = importance_weights(learner, sampler, level="sequence", cap=cap)
        assert (weights[:, 0] == weights[:, 1]).all()
        chance = sampler.sum(dim=1).exp()
        expected = (learner.sum(dim=1).exp() * f).sum()
        torch.testing.assert_close((chance * weights[:, 1] * f).sum(), expected)
        by_token = importance_weights(learner, sampler, cap=100.0)[:, 1]
        assert abs((chance * by_token * f).sum() - expected) > 0.005

    def test_outside_the_bounds_a_weight_is_cut_or_masked(self):
        """Ratios 0.25, 0.5, 2, 4 within [0.5, 2]; by response, 0.25 · 2 and 4 · 1."""
        log_ratio = doubles([[0.25, 2.0], [4.0, 1.0]]).log()
        bounds = {"floor": 0.4, "cap": 2.5}
        for outside, token, sequence in (
            ("truncate", [[0.4, 2.0], [2.5, 1.0]], [[0.5, 0.5], [2.5, 2.5]]),
            ("mask", [[0.0, 2.0], [0.0, 1.0]], [[0.5, 0.5], [0.0, 0.0]]),
        ):
            for level, expected in (("token", token), ("sequence", sequence)):
                found = importance_weights(
                    log_ratio, log_ratio * 0, **bounds, level=level, outside=outside
                )
                torch.testing.assert_close(found, doubles(expected))

    def test_padding_is_no_part_of_a_response(self):
        mask = torch.tensor([[True, True, False]])
        found = importance_weights(
            doubles([[2.0, 0.75, math.nan]]).log(), torch.zeros(1, 3), mask, level="sequence"
        )
        torch.testing.assert_close(found, doubles([[1.5, 1.5, 0.0]]))

    @pytest.mark.parametrize("option", ["level", "outside"])
    def test_refuses_an_unknown_choice(self, option):
        with pytest.raises(ValueError, match=f"{option} is 'none', expected one of "):
            importance_weights(torch.zeros(1), torch.zeros(1), **{option: "none"})

    @pytest.mark.parametrize("cap", [0.99, 0.0, math.nan])
    def test_refuses_a_cap_below_one(self, cap):
        with pytest.raises(ValueError, match="expected a number of at least 1"):
            importance_weights(torch.zeros(1), torch.zeros(1), cap=cap)


class TestGMPO:
    def test_the_gradient_is_that_of_the_geometric_mean(self):
        """Of the objective as it stands, for either sign, with tokens clipped on both sides."""
        mask = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 1]], dtype=torch.bool)
        change = doubles([[0.9, -0.9, 0.1], [-0.6, 0.6, 0.0], [0.2, -0.1, 0.3]])
        new = (change - 1).requires_grad_()
        A = doubles([[0.5], [-0.8], [1.0]])
        ratio = (new + 1).exp()
        low, high = math.exp(-0.4), math.exp(0.4)
        held = torch.where(A > 0, ratio.clamp(max=high), ratio.clamp(min=low))
        product = torch.where(mask, held, 1.0).prod(dim=1)
        whole = -(A[:, 0] * product ** (1 / mask.sum(dim=1))).mean()
        per_token = gmpo(new, torch.full_like(new, -1.0).detach(), A.expand(3, 3), mask)
        loss = aggregate(per_token, mask, "seq-mean-token-mean")
        torch.testing.assert_close(loss, whole)
        wanted, got = (torch.autograd.grad(x, new, retain_graph=True)[0] for x in (whole, loss))
        torch.testing.assert_close(got, wanted)
        assert (got[0, 0], got[1, 0]) == (0, 0)  # clipped
        assert (got[0, 1] != 0) & (got[1, 1] != 0)  # on the side that PPO leaves open


class TestSAPO:
    def test_the_weight_is_the_ratio_through_a_gate(self):
        """ρ / cosh²(τ (ρ − 1) / 2), for another temperature on either side."""
        taus = {"tau_positive": 2.0, "tau_negative": 3.0}
        for ratio in (0.3, 1.0, 2.5):
            for sign, tau in ((1.0, 2.0), (-1.0, 3.0)):
                slope = value_and_slope(sapo, ratio, sign, **taus)[1]
                expected = -sign * ratio / math.cosh(tau * (ratio - 1) / 2) ** 2
                assert slope == pytest.approx(expected)

    def test_far_off_a_token_counts_nothing(self):
        assert value_and_slope(sapo, 1e30, 1.0)[1] == 0
        assert value_and_slope(sapo, 1e30, -1.0)[1] == 0


class TestDPPO:
    @pytest.mark.parametrize(
        ("sampler", "new", "sign", "kept"),
        [
            (0.7, 0.95, 1.0, (False, False)),  # a ratio of 1.36, and a quarter of all mass
            (0.7, 0.95, -1.0, (True, False)),  # brought back, unless both sides are closed
            (0.7, 0.4, -1.0, (False, False)),
            (0.7, 0.4, 1.0, (True, False)),
            (0.001, 0.019, 1.0, (True, True)),  # nineteen times as likely, and nothing of all mass
            (0.5, 0.6, 1.0, (True, True)),
        ],
    )
    def test_a_token_is_left_out_by_how_far_its_probability_went(self, sampler, new, sign, kept):
        old = torch.tensor([sampler], dtype=torch.float64).log()
        for two_sided, stays in zip((False, True), kept, strict=True):
            leaf = torch.tensor([new], dtype=torch.float64).log().requires_grad_()
            loss = dppo(leaf, old, torch.full_like(old, sign), two_sided=two_sided)
            (slope,) = torch.autograd.grad(loss.sum(), leaf)
            assert slope.item() == pytest.approx(-sign * new / sampler if stays else 0.0)

    def test_bounds_and_cap_are_the_settings(self):
        old, new = doubles([0.5, 0.5, 0.001]).log(), doubles([0.65, 0.35, 0.05]).log()
        slopes = []
        for settings in ({"mask_low": 0.1, "mask_high": 0.2}, {"mask_low": 0.2, "mask_high": 0.1}):
            leaf = new.clone().requires_grad_()
            loss = dppo(leaf, old, doubles([1.0, -1.0, 1.0]), cap=7.0, **settings)
            slopes.append(torch.autograd.grad(loss.sum(), leaf)[0])
        torch.testing.assert_close(slopes[0], doubles([-1.3, 0.0, -7.0]))
        torch.testing.assert_close(slopes[1], doubles([0.0, 0.7, -7.0]))
        assert dppo(new, old, doubles([1.0, 1.0, 1.0]), cap=None)[2].item() == pytest.approx(
            -50 * math.log(0.05)
        )


class TestClipFraction:
    #           clipped  clipped  inside  wrong side   wrong side  A = 0   masked
    ratio = doubles([[1.5, 0.5, 1.1, 0.5, 1.5, 1.5, 1.5]])
    advantages = doubles([[1.0, -1.0, 1.0, 1.0, -1.0, 0.0, 1.0]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 1, 0]], dtype=torch.bool)

    def fraction(self, **options) -> torch.Tensor:
        zeros = torch.zeros_like(self.ratio)
        return clip_fraction(self.ratio.log(), zeros, self.advantages, self.mask, **options)

    @pytest.mark.parametrize(
        ("side", "expected"), [("both", 2 / 6), ("low", 1 / 6), ("high", 1 / 6)]
    )
    def test_counts_the_active_branch_by_side(self, side, expected):
        torch.testing.assert_close(self.fraction(side=side), doubles(expected))

    def test_counts_both_sides_by_default(self):
        torch.testing.assert_close(self.fraction(), doubles(2 / 6))

    @pytest.mark.parametrize(
        ("clips", "low", "high"),
        [
            ({"clip_low": 0.6}, 0, 0),  # .4 … 1.6
            ({"clip_high": 0.6}, 1 / 6, 0),  # .8 … 1.6
            ({"clip_low": 0.6, "clip_high": 0.05}, 0, 2 / 6),  # .4 … 1.05: also the 1.1
        ],
    )
    def test_uses_the_clip_of_each_side(self, clips, low, high):
        torch.testing.assert_close(self.fraction(side="low", **clips), doubles(low))
        torch.testing.assert_close(self.fraction(side="high", **clips), doubles(high))
        torch.testing.assert_close(self.fraction(**clips), doubles(low + high))

    def test_is_the_fraction_of_tokens_without_gradient(self):
        log_probs = random(20, 10, seed=1).requires_grad_()
        old, advantages = random(20, 10, seed=2), random(20, 10, seed=3)
        mask = random(20, 10, seed=4) > 0
        clips = {"clip_low": 0.2, "clip_high": 0.28}
        slopes = gradient(ppo_clip(log_probs, old, advantages, **clips).sum(), log_probs)
        expected = (slopes[mask] == 0).double().mean()
        found = clip_fraction(log_probs, old, advantages, mask, **clips)
        torch.testing.assert_close(found, expected)
        assert 0.1 < found < 0.9

    def test_a_ratio_on_the_bound_is_not_clipped(self):
        log_ratio = doubles([[math.log(1.25)]])
        bound = log_ratio.exp().item() - 1
        arguments = torch.zeros(1, 1, dtype=torch.float64), torch.ones_like(log_ratio)
        mask = torch.tensor([[True]])
        assert clip_fraction(log_ratio, *arguments, mask, clip_high=bound) == 0

    def test_without_a_mask_every_token_counts(self):
        zeros = torch.zeros_like(self.ratio)
        found = clip_fraction(self.ratio.log(), zeros, self.advantages)
        torch.testing.assert_close(found, doubles(3 / 7))  # the masked token is clipped too

    def test_of_no_token_is_zero(self):
        zeros = torch.zeros(1, 2)
        assert clip_fraction(zeros, zeros, zeros, zeros != 0) == 0

    @pytest.mark.parametrize(
        ("option", "value"), [("side", "left"), ("clip_low", -0.1), ("clip_high", -0.1)]
    )
    def test_refuses_options_that_make_no_sense(self, option, value):
        x = torch.zeros(1, 2)
        with pytest.raises(ValueError, match=option):
            clip_fraction(x, x, x, x == 0, **{option: value})


@pytest.mark.peer
class TestAgainstTrl:
    """TRL 1.16's GRPOTrainer.compute_loss on the same log-probabilities, value and gradient."""

    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]], dtype=torch.bool)
    clips = pytest.mark.parametrize("clips", [(0.2, 0.2), (0.2, 0.28), (0.05, 0.4)])

    def inputs(self, spread: float = 0.5):
        log_probs = (random(3, 5, seed=1) - 2).requires_grad_()
        old = log_probs.detach() + spread * random(3, 5, seed=2)
        return log_probs, old, doubles([1.0, -0.7, 0.4])

    def agree(self, per_token, mode, theirs, log_probs):
        ours = aggregate(per_token, self.mask, mode)
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(gradient(ours, log_probs), gradient(theirs, log_probs))

    @clips
    @pytest.mark.parametrize("dual_clip", [None, 1.5, 3.0])
    def test_ppo_clip(self, trl_grpo_loss, clips, dual_clip):
        log_probs, old, scores = self.inputs()
        low, high = clips
        theirs, metrics = trl_grpo_loss(
            log_probs,
            old,
            scores,
            self.mask,
            loss_type="bnpo",
            epsilon_low=low,
            epsilon_high=high,
            delta=dual_clip,
        )
        wide = scores[:, None].expand(3, 5)
        options = {"clip_low": low, "clip_high": high}
        per_token = ppo_clip(log_probs, old, wide, dual_clip=dual_clip, **options)
        self.agree(per_token, "token-mean", theirs, log_probs)
        for side, name in (("low", "low"), ("high", "high"), ("both", "region")):
            fraction = clip_fraction(log_probs, old, wide, self.mask, side=side, **options)
            assert fraction.item() == pytest.approx(metrics[f"clip_ratio/{name}_mean"])

    @clips
    def test_gspo(self, trl_grpo_loss, clips):
        log_probs, old, scores = self.inputs(spread=0.2)
        low, high = clips
        theirs, _ = trl_grpo_loss(
            log_probs,
            old,
            scores,
            self.mask,
            loss_type="grpo",
            importance_sampling_level="sequence",
            epsilon_low=low,
            epsilon_high=high,
        )
        wide = scores[:, None].expand(3, 5)
        per_token = gspo(log_probs, old, wide, self.mask, clip_low=low, clip_high=high)
        self.agree(per_token, "seq-mean-token-mean", theirs, log_probs)

    def test_cispo(self, trl_grpo_loss):
        # TRL caps the weight itself, at epsilon_high, and has no lower bound
        log_probs, old, scores = self.inputs()
        theirs, _ = trl_grpo_loss(
            log_probs,
            old,
            scores,
            self.mask,
            loss_type="cispo",
            epsilon_high=1.5,
        )
        per_token = cispo(log_probs, old, scores[:, None].expand(3, 5), clip_low=1.0, clip_high=0.5)
        self.agree(per_token, "token-mean", theirs, log_probs)
