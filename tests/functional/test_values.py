"""The critic's loss and its clip, by hand and against the closed form of the gradient."""

import math

import pytest
import torch

from nbcourse.functional.returns import token_gae
from nbcourse.functional.values import explained_variance, value_loss

# TRL 1.16 has no critic and exports no value loss: no parity to check here.


def doubles(rows) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def random(*shape: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def loss_and_slope(value, old, target, clip) -> tuple[float, float]:
    leaf = doubles([[value]]).requires_grad_()
    loss = value_loss(leaf, doubles([[old]]), doubles([[target]]), leaf == leaf, clip=clip)
    loss.backward()
    return loss.item(), leaf.grad.item()


@pytest.mark.parametrize(
    ("value", "old", "target", "clip", "loss", "slope"),
    [
        # ½ (1.5 − 2)² and its derivative v − R
        pytest.param(1.5, 1.0, 2.0, None, 0.125, -0.5, id="no clip"),
        # clipped prediction 1.2, error .8² = .64 > .25: no push further towards R
        pytest.param(1.5, 1.0, 2.0, 0.2, 0.32, 0.0, id="moved too far towards R"),
        pytest.param(0.5, 1.0, 0.0, 0.2, 0.32, 0.0, id="moved too far towards R, downwards"),
        # clipped prediction 1.2, error .2² < .5²: moving away is punished in full
        pytest.param(1.5, 1.0, 1.0, 0.2, 0.125, 0.5, id="moved away from R"),
        pytest.param(0.5, 1.0, 2.0, 0.2, 1.125, -1.5, id="moved away from R, downwards"),
        pytest.param(1.1, 1.0, 2.0, 0.2, 0.405, -0.9, id="inside the clip"),
        # past R = 1.3 by .7 while 1.2 misses it by .1: pulled back
        pytest.param(2.0, 1.0, 1.3, 0.2, 0.245, 0.7, id="overshot"),
    ],
)
def test_literals(value, old, target, clip, loss, slope):
    assert loss_and_slope(value, old, target, clip) == pytest.approx((loss, slope))


@pytest.mark.parametrize("clip", [None, 0.05, 0.5, 5.0])
def test_value_and_gradient_follow_the_closed_form(clip):
    values, old, targets = (random(6, 7, seed=s) for s in (1, 2, 3))
    mask = random(6, 7, seed=4) > 0
    loss, slopes, count = 0.0, torch.zeros_like(values), int(mask.sum())
    for i, j in mask.nonzero().tolist():
        v, o, target = (x[i, j].item() for x in (values, old, targets))
        error, slope = (v - target) ** 2, v - target
        if clip is not None:
            bounded = min(max(v, o - clip), o + clip)
            if (bounded - target) ** 2 > error:  # then v is outside, and bounded is a constant
                error, slope = (bounded - target) ** 2, 0.0
        loss += 0.5 * error / count
        slopes[i, j] = slope / count
    values.requires_grad_()
    found = value_loss(values, old, targets, mask, clip=clip)
    found.backward()
    torch.testing.assert_close(found.detach(), doubles(loss))
    torch.testing.assert_close(values.grad, slopes)


def test_is_a_mean_over_the_tokens_that_count():
    values = doubles([[3.0, 1.0, 9.0], [5.0, 9.0, 9.0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]], dtype=torch.bool)
    zeros = torch.zeros_like(values)
    # ½ (9 + 1 + 25) / 3
    torch.testing.assert_close(value_loss(values, zeros, zeros, mask), doubles(35 / 6))


def test_the_old_values_are_not_read_without_a_clip():
    values, targets = random(2, 3, seed=1), random(2, 3, seed=2)
    mask = torch.ones(2, 3, dtype=torch.bool)
    found = value_loss(values, torch.full_like(values, math.nan), targets, mask)
    torch.testing.assert_close(found, 0.5 * (values - targets).square().mean())


def test_no_token_gives_zero_with_zero_gradient():
    values = doubles([[math.nan, 2.0]]).requires_grad_()
    zeros = torch.zeros_like(values)
    loss = value_loss(values, zeros, zeros, zeros != 0, clip=0.2)
    loss.backward()
    torch.testing.assert_close(loss.detach(), doubles(0.0))
    torch.testing.assert_close(values.grad, torch.zeros(1, 2, dtype=torch.float64))


@pytest.mark.parametrize("clip", [0.0, -0.2, math.nan])
def test_refuses_a_clip_that_is_not_positive(clip):
    x = torch.zeros(1, 2)
    with pytest.raises(ValueError, match=r"clip is .*, expected a number above 0"):
        value_loss(x, x, x, x == 0, clip=clip)


# ---------------------------------------------------------------- explained variance


def test_the_explained_variance_by_hand():
    """Returns 1, 2, 3: variance 2/3. Errors 0.5, 0, −0.5: variance 1/6. 1 − 1/4."""
    returns, mask = (
        doubles([[1.0, 2.0], [3.0, math.nan]]),
        torch.tensor([[True, True], [True, False]]),
    )
    assert explained_variance(doubles([[0.5, 2.0], [3.5, 9.0]]), returns, mask) == 0.75
    assert explained_variance(returns.nan_to_num(5.0), returns, mask) == 1.0
    mean = torch.full_like(returns, 2.0)
    assert explained_variance(mean, returns, mask) == 0.0
    assert explained_variance(mean + 7.0, returns, mask) == 0.0  # a constant offset is no variance
    assert explained_variance(-returns.nan_to_num(5.0), returns, mask) == pytest.approx(-3.0)


def test_where_nothing_varies_there_is_nothing_to_explain():
    same = torch.ones(2, 2)
    assert math.isnan(explained_variance(torch.randn(2, 2), same, same.bool()))


@pytest.mark.parametrize("score", [0.0, 1.0, -0.1])
@pytest.mark.parametrize("length", [8, 1000])
def test_rounding_is_nothing_to_explain(score, length):
    """With λ = 1 every target is the score: (score − V) + V, up to the rounding of that sum."""
    values, rewards = random(16, length, seed=0).float(), torch.zeros(16, length)
    rewards[:, -1] = score
    mask = torch.ones(16, length, dtype=torch.bool)
    _, targets = token_gae(rewards, values, mask, lam=1.0)
    torch.testing.assert_close(targets, torch.full_like(values, score), rtol=0, atol=1e-5)
    assert math.isnan(explained_variance(values, targets, mask))
    assert math.isnan(explained_variance(values, torch.full_like(values, score), mask))


def test_a_small_spread_is_explained_all_the_same():
    """Returns 1 and 1 + 2⁻¹³, exact in float32: 1000 times its rounding."""
    returns = torch.tensor([[1.0, 1 + 2**-13]])
    assert explained_variance(returns, returns, returns > 0) == 1.0


def test_the_explained_variance_refuses_what_does_not_fit():
    values, mask = torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"^returns has shape \(2, 1\), expected \(2, 3\) as val"):
        explained_variance(values, torch.zeros(2, 1), mask)
    with pytest.raises(ValueError, match=r"^mask has dtype torch\.int64, expected torch\.bool$"):
        explained_variance(values, values, mask.long())
    with pytest.raises(ValueError, match=r"^mask has shape \(2, 1\), expected \(2, 3\) as values"):
        explained_variance(values, values, mask[:, :1])
