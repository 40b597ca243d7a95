"""Four ways from token losses to one number, and their independence of padding and batch splits."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nbcourse.functional.aggregation import MODES, aggregate
from nbcourse.functional.surrogates import policy_gradient
from tests.effort import examples

from .enumeration import Responses, gradient, relative_error

NAN = math.nan
QUICK = examples(40)
each_mode = pytest.mark.parametrize("mode", MODES)


def doubles(rows) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def total(per_token, mask, mode, *, max_length=4, **options) -> torch.Tensor:
    """`aggregate` with the length that one of the modes asks for."""
    return aggregate(per_token, mask, mode, max_length=max_length, **options)


@st.composite
def batches(draw):
    """Losses and a mask of up to six rows and five columns, some rows perhaps empty."""
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    losses = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    bits = draw(st.lists(st.booleans(), min_size=rows * columns, max_size=rows * columns))
    return losses, torch.tensor(bits).view(rows, columns)


class TestLiterals:
    # one response with losses 1, 2, 3 and one with loss 4
    losses = doubles([[1, 2, 3, NAN], [4, NAN, NAN, NAN]])
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]], dtype=torch.bool)
    expected = pytest.mark.parametrize(
        ("mode", "value", "weights"),
        [
            ("token-mean", 2.5, [1 / 4, 1 / 4]),  # 10 over 4 tokens
            ("seq-mean-token-mean", 3.0, [1 / 6, 1 / 2]),  # (2 + 4) over 2 responses
            ("seq-mean-token-sum", 5.0, [1 / 2, 1 / 2]),  # (6 + 4) over 2 responses
            ("seq-mean-token-sum-norm", 1.25, [1 / 8, 1 / 8]),  # and over max_length = 4
        ],
    )

    def test_the_modes_are_these_four(self):
        assert MODES == (
            "token-mean",
            "seq-mean-token-mean",
            "seq-mean-token-sum",
            "seq-mean-token-sum-norm",
        )

    @expected
    def test_value(self, mode, value, weights):
        torch.testing.assert_close(total(self.losses, self.mask, mode), doubles(value))

    @expected
    def test_gradient_is_the_weight_of_each_token(self, mode, value, weights):
        losses = self.losses.clone().requires_grad_()
        total(losses, self.mask, mode).backward()
        torch.testing.assert_close(losses.grad, doubles(weights)[:, None] * self.mask)

    @expected
    def test_an_empty_row_is_padding_and_not_a_response(self, mode, value, weights):
        losses = torch.cat([self.losses, torch.full((2, 4), NAN, dtype=torch.float64)])
        mask = torch.cat([self.mask, torch.zeros(2, 4, dtype=torch.bool)])
        torch.testing.assert_close(total(losses, mask, mode), doubles(value))

    @expected
    def test_a_hole_in_a_response_is_not_a_token(self, mode, value, weights):
        losses = doubles([[1, NAN, 2, 3], [NAN, 4, NAN, NAN]])
        mask = torch.tensor([[1, 0, 1, 1], [0, 1, 0, 0]], dtype=torch.bool)
        torch.testing.assert_close(total(losses, mask, mode), doubles(value))

    @each_mode
    def test_no_token_at_all_is_zero_with_zero_gradient(self, mode):
        losses = doubles([[NAN, 1e30], [math.inf, 2.0]]).requires_grad_()
        loss = total(losses, torch.zeros(2, 2, dtype=torch.bool), mode)
        loss.backward()
        torch.testing.assert_close(loss.detach(), doubles(0.0))
        torch.testing.assert_close(losses.grad, torch.zeros(2, 2, dtype=torch.float64))

    def test_equal_lengths_make_all_four_the_same_up_to_a_constant(self):
        losses = doubles([[1, 2, 3], [4, 5, 9]])
        mask = torch.ones_like(losses, dtype=torch.bool)
        values = {mode: total(losses, mask, mode, max_length=12).item() for mode in MODES}
        expected = {  # the mean is 4, each response has 3 tokens, 3/12 of them count
            "token-mean": 4.0,
            "seq-mean-token-mean": 4.0,
            "seq-mean-token-sum": 12.0,
            "seq-mean-token-sum-norm": 1.0,
        }
        assert values == pytest.approx(expected)


class TestWhatMustNotMatter:
    @each_mode
    @given(batch=batches(), columns=st.integers(0, 3), rows=st.integers(0, 3), data=st.data())
    @QUICK
    def test_padding_and_the_order_of_responses(self, mode, batch, columns, rows, data):
        losses, mask = batch
        order = data.draw(st.permutations(range(len(mask) + rows)))
        padding = (0, columns, 0, rows)
        wide = torch.nn.functional.pad(losses, padding, value=NAN)[list(order)]
        wide_mask = torch.nn.functional.pad(mask, padding, value=False)[list(order)]
        torch.testing.assert_close(total(wide, wide_mask, mode), total(losses, mask, mode))

    @each_mode
    @given(batch=batches(), data=st.data())
    @QUICK
    def test_how_the_batch_is_split(self, mode, batch, data):
        losses, mask = batch
        cuts = data.draw(st.sets(st.integers(1, len(mask)), max_size=3))
        bounds = sorted({0, *cuts, len(mask)})
        whole_leaf, split_leaf = (losses.clone().requires_grad_() for _ in range(2))
        whole = total(whole_leaf, mask, mode)
        parts = []
        for start, stop in pairwise(bounds):
            rows = slice(start, stop)
            longest = max(1, int((mask[rows] * torch.arange(1, mask.shape[1] + 1)).max()))
            parts.append(  # a slice may be cut to its own longest response
                total(split_leaf[rows, :longest], mask[rows, :longest], mode, batch_mask=mask)
            )
        torch.testing.assert_close(sum(parts), whole)
        torch.testing.assert_close(
            torch.autograd.grad(sum(parts), split_leaf), torch.autograd.grad(whole, whole_leaf)
        )

    def test_the_mean_of_micro_batch_means_would_be_another_loss(self):
        # [[1, 2, 3], [4]] one response at a time: token means 2 and 4, whose mean is 3, not 2.5
        losses, mask = TestLiterals.losses, TestLiterals.mask
        halves = [total(losses[i : i + 1], mask[i : i + 1], "token-mean") for i in range(2)]
        torch.testing.assert_close(sum(halves) / 2, doubles(3.0))


class TestObjectives:
    @pytest.mark.parametrize("eos", [None, 1])
    def test_what_each_sequence_weight_optimises(self, eos):
        # with −R log π as token losses: the token sum ascends E[R], the token mean E[R / |y|]
        world = Responses(eos)
        logits = world.logits(seed=1)
        scores = torch.linspace(-1, 2, len(world.tokens), dtype=torch.float64).roll(4)
        lengths = world.mask.sum(dim=1)

        def found(mode):
            def loss_of(i):
                advantages = scores[i, None] * world.mask[i]
                per_token = policy_gradient(world.log_probs(logits)[i], advantages)
                return total(per_token, world.mask[i], mode)

            return -world.expected_gradient(loss_of, logits, logits)

        probs = world.probs(logits)
        by_return = gradient((probs * scores).sum(), logits)
        by_mean = gradient((probs * scores / lengths).sum(), logits)
        assert relative_error(found("seq-mean-token-sum"), by_return) < 1e-10
        assert relative_error(found("seq-mean-token-sum-norm"), by_return / 4) < 1e-10
        assert relative_error(found("seq-mean-token-mean"), by_mean) < 1e-10
        if eos is not None:  # and with lengths that vary, these are different directions
            assert torch.cosine_similarity(by_mean.flatten(), by_return.flatten(), dim=0) < 0.99


class TestMisuse:
    x = torch.zeros(2, 3)
    mask = x == 0

    @pytest.mark.parametrize("mode", MODES[:3])
    def test_a_length_that_is_not_used_changes_nothing(self, mode):
        losses = torch.tensor([[1.0, 2.0, 3.0], [4.0, 0.0, 0.0]])
        mask = losses > 0
        assert torch.equal(
            aggregate(losses, mask, mode, max_length=4), aggregate(losses, mask, mode)
        )

    def test_a_length_that_is_missing_is_refused(self):
        with pytest.raises(ValueError, match="max_length is None"):
            aggregate(self.x, self.mask, "seq-mean-token-sum-norm")

    @pytest.mark.parametrize("length", [0, -3])
    def test_a_length_below_one_is_refused(self, length):
        with pytest.raises(ValueError, match=f"max_length is {length}"):
            aggregate(self.x, self.mask, "seq-mean-token-sum-norm", max_length=length)

    def test_an_unknown_mode_is_answered_with_the_known_ones(self):
        with pytest.raises(ValueError, match="mode is 'mean', expected one of 'token-mean'"):
            aggregate(self.x, self.mask, "mean")

    @pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-sum"])
    @pytest.mark.parametrize(
        "batch_mask",
        [
            torch.ones(2, 3),
            torch.full((2, 3), 5),
            torch.ones(2, dtype=torch.bool),
            torch.ones(2, 3, 1, dtype=torch.bool),
        ],
        ids=["float", "integer", "one axis", "three axes"],
    )
    def test_a_batch_mask_that_is_no_mask_is_refused(self, mode, batch_mask):
        with pytest.raises(ValueError, match="batch_mask"):
            total(self.x, self.mask, mode, batch_mask=batch_mask)


@pytest.mark.peer
@pytest.mark.parametrize(
    ("mode", "loss_type"),
    [
        ("token-mean", "bnpo"),
        ("token-mean", "dapo"),
        ("seq-mean-token-mean", "grpo"),
        ("seq-mean-token-sum", "luspo"),
        ("seq-mean-token-sum-norm", "dr_grpo"),
    ],
)
def test_agrees_with_trl(trl_grpo_loss, mode, loss_type):
    # on-policy with A = 1 the token loss is −1 and its gradient −1: what is left is the weighting
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)
    log_probs = torch.linspace(-3, -1, 12, dtype=torch.float64).view(3, 4).requires_grad_()
    scores = doubles([1.0, -2.0, 0.5])
    theirs, _ = trl_grpo_loss(
        log_probs,
        log_probs.detach(),
        scores,
        mask,
        loss_type=loss_type,
        max_completion_length=9,
    )
    per_token = policy_gradient(log_probs, scores[:, None].expand(3, 4))
    ours = total(per_token, mask, mode, max_length=9)
    torch.testing.assert_close(gradient(ours, log_probs), gradient(theirs, log_probs))
    value = total(-scores[:, None].expand(3, 4), mask, mode, max_length=9)
    torch.testing.assert_close(value, theirs.detach())
