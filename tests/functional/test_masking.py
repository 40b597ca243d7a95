"""Masked mean and whitening against arithmetic done on the entries that count, on their own."""

import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nbcourse.functional.masking import masked_mean, masked_whiten, set_aside
from tests.effort import case, examples

# TRL 1.16 exports neither a masked mean nor a masked whitening: no parity to check here.

NAN = math.nan
QUICK = examples(40)


def bools(rows: list[list[int]]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.bool)


def doubles(rows) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


@st.composite
def rows_with_masks(draw):
    """Two to four rows of up to five numbers and a mask that keeps at least two of them."""
    shape = draw(st.integers(2, 4)), draw(st.integers(1, 5))
    count = shape[0] * shape[1]
    number = st.floats(-50, 50, allow_subnormal=False)
    x = draw(st.lists(number, min_size=count, max_size=count))
    kept = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    kept[0] = kept[-1] = True
    return doubles(x).view(shape), torch.tensor(kept).view(shape)


class TestMaskedMean:
    x = doubles([[1, 2, 3, NAN], [4, NAN, NAN, NAN]])
    mask = bools([[1, 1, 1, 0], [1, 0, 0, 0]])

    @pytest.mark.parametrize(
        ("dim", "expected"),
        [
            (None, 10 / 4),  # (1+2+3+4) / 4
            (1, [6 / 3, 4 / 1]),
            (0, [5 / 2, 2 / 1, 3 / 1, 0]),  # the last column has nothing to average
            (-1, [2, 4]),
        ],
    )
    def test_divides_by_what_counts(self, dim, expected):
        found = masked_mean(self.x, self.mask, dim)
        torch.testing.assert_close(found, doubles(expected), rtol=0, atol=0)

    def test_takes_the_axis_by_name_too(self):
        torch.testing.assert_close(masked_mean(self.x, self.mask, dim=1), doubles([2, 4]))

    def test_gradient_is_one_over_the_count(self):
        x = self.x.clone().requires_grad_()
        masked_mean(x, self.mask).backward()
        torch.testing.assert_close(x.grad, doubles([[0.25, 0.25, 0.25, 0], [0.25, 0, 0, 0]]))

    @pytest.mark.parametrize("dim", [None, 0, 1])
    def test_of_nothing_is_zero_with_zero_gradient(self, dim):
        x = doubles([[NAN, 1e30]]).requires_grad_()
        mean = masked_mean(x, bools([[0, 0]]), dim)
        mean.sum().backward()
        torch.testing.assert_close(mean, torch.zeros_like(x.detach().sum(dim)))
        torch.testing.assert_close(x.grad, torch.zeros_like(x.detach()))

    def test_takes_any_number_of_axes(self):
        x = torch.arange(24, dtype=torch.float64).view(2, 3, 4)
        mask = x % 3 == 0
        by_hand = [[0 + 3, 6, 9], [12 + 15, 18, 21]]  # the multiples of 3 in each row of four
        counts = [[2, 1, 1], [2, 1, 1]]
        expected = doubles(by_hand) / doubles(counts)
        torch.testing.assert_close(masked_mean(x, mask, dim=2), expected)

    @given(rows_with_masks())
    @QUICK
    def test_equals_the_mean_of_the_list_without_the_rest(self, given):
        x, mask = given
        expected = statistics.fmean(x[mask].tolist())
        torch.testing.assert_close(masked_mean(x, mask), doubles(expected))

    @given(rows_with_masks(), st.integers(1, 4))
    @QUICK
    def test_ignores_extra_padding(self, given, columns):
        x, mask = given
        wide = torch.cat([x, torch.full((len(x), columns), NAN, dtype=x.dtype)], dim=1)
        wide_mask = torch.cat([mask, torch.zeros(len(x), columns, dtype=torch.bool)], dim=1)
        torch.testing.assert_close(masked_mean(wide, wide_mask), masked_mean(x, mask))


class TestMaskedWhiten:
    # Of 1, 2, 4 the mean is 7/3 and the squared deviations 16/9, 1/9, 25/9 sum to 42/9, so that
    # the unbiased variance is 42/9 / 2 = 7/3. The entry 100 is padding.
    x = doubles([[1, 2, 4, 100]])
    mask = bools([[1, 1, 1, 0]])
    std = math.sqrt(7 / 3)

    def test_literal(self):
        expected = doubles([[-4 / 3, -1 / 3, 5 / 3, 0]]) / self.std
        torch.testing.assert_close(masked_whiten(self.x, self.mask), expected, rtol=0, atol=1e-8)
        rounded = doubles([[-0.87287, -0.21822, 1.09109, 0]])
        torch.testing.assert_close(expected, rounded, rtol=0, atol=5e-6)

    def test_can_put_the_mean_back(self):
        expected = doubles([[-4 / 3, -1 / 3, 5 / 3, 0]]) / self.std + 7 / 3
        expected[0, 3] = 0
        found = masked_whiten(self.x, self.mask, shift_mean=False)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-8)

    def test_adds_its_constant_to_the_variance_under_the_root(self):
        # ±h has mean 0 and unbiased variance 2h²: with h = 5e-5 that is 5e-9, half of the 1e-8
        h = 5e-5
        found = masked_whiten(doubles([[-h, h]]), bools([[1, 1]]))
        torch.testing.assert_close(found, doubles([[-h, h]]) / math.sqrt(2 * h * h + 1e-8))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("constant", [0.7, 0.1, -1 / 3, 1e6 + 0.1, 0.0])
    def test_equal_entries_have_deviation_exactly_zero(self, constant, dtype):
        for count in (1, 2, 3, 10, 1000):
            x = torch.full((1, count + 1), constant, dtype=dtype)
            x[0, -1] = 5.0
            mask = torch.ones_like(x, dtype=torch.bool)
            mask[0, -1] = False
            with case(count):
                assert masked_whiten(x, mask).eq(0).all()
                kept = masked_whiten(x, mask, shift_mean=False)[mask]
                torch.testing.assert_close(kept, x[mask], rtol=1e-5, atol=0)

    @pytest.mark.parametrize("count", [0, 1, 2])
    def test_gradients_stay_finite_without_spread(self, count):
        x = doubles([[0.7, 0.7, NAN]]).requires_grad_()
        masked_whiten(x, torch.arange(3)[None] < count).sum().backward()
        torch.testing.assert_close(x.grad, torch.zeros_like(x.detach()))

    def test_nothing_to_whiten_gives_zero(self):
        x = torch.tensor([[NAN, math.inf]])
        for shift_mean in (True, False):
            assert masked_whiten(x, bools([[0, 0]]), shift_mean=shift_mean).eq(0).all()

    @given(rows_with_masks())
    @QUICK
    def test_leaves_mean_zero_and_unbiased_deviation_one(self, given):
        x, mask = given
        x[mask] += torch.arange(mask.sum(), dtype=x.dtype) * 101  # spread them out
        white = masked_whiten(x, mask)[mask].tolist()
        assert statistics.fmean(white) == pytest.approx(0, abs=1e-9)
        assert statistics.stdev(white) == pytest.approx(1, abs=1e-9)

    def test_whitens_over_the_batch_and_not_row_by_row(self):
        x, mask = doubles([[0, 2], [10, 12]]), bools([[1, 1], [1, 1]])
        # mean 6, squared deviations 36, 16, 16, 36 sum to 104, over 3
        expected = doubles([[-6, -4], [4, 6]]) / math.sqrt(104 / 3)
        torch.testing.assert_close(masked_whiten(x, mask), expected, rtol=0, atol=1e-8)


class TestSetAside:
    def test_puts_zero_where_it_is_told_and_lets_no_gradient_pass_there(self):
        broken = torch.tensor([False, True])
        x = doubles([3.0, NAN]).requires_grad_()
        (clean,) = set_aside(broken, x)
        clean.exp().sum().backward()
        torch.testing.assert_close(clean.detach(), doubles([3.0, 0.0]))
        torch.testing.assert_close(x.grad, doubles([math.exp(3.0), 0.0]))

    def test_treats_every_tensor_alike_and_keeps_their_order(self):
        broken = torch.tensor([True, False])
        a, b = set_aside(broken, doubles([NAN, 1.0]), doubles([2.0, 3.0]))
        assert (a.tolist(), b.tolist()) == ([0.0, 1.0], [0.0, 3.0])
