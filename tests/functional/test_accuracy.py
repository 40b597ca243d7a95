"""Counts and intervals against enumeration, rational numbers and the equations they solve."""

import math
from fractions import Fraction
from itertools import accumulate, product

import pytest
import torch

from nbcourse.functional import accuracy
from nbcourse.functional.accuracy import (
    bootstrap_interval,
    gain_split,
    pass_at_k,
    wilson_interval,
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def doubles(numbers) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def root(function, low, high):
    """Where a function changes its sign, by bisection."""
    sign = function(low) > 0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if (function(middle) > 0) == sign else (low, middle)
    return (low + high) / 2


class TestWilsonInterval:
    @pytest.mark.parametrize("z", [1.0, 1.96, 3.0])
    @pytest.mark.parametrize(
        ("successes", "trials"), [(1, 2), (1, 10), (9, 10), (37, 100), (512, 1024), (3, 100_000)]
    )
    def test_the_ends_are_the_shares_that_lie_z_standard_errors_away(self, successes, trials, z):
        """|p̂ − p| = z √(p(1 − p)/n), the standard error taken at the unknown p and not at p̂."""
        seen = successes / trials

        def distance(p):
            return abs(seen - p) - z * math.sqrt(p * (1 - p) / trials)

        low, high = wilson_interval(successes, trials, z=z)
        assert low == pytest.approx(root(distance, 1e-12, seen), rel=1e-9)
        assert high == pytest.approx(root(distance, seen, 1 - 1e-12), rel=1e-9)

    @pytest.mark.parametrize("trials", [1, 10, 1000])
    def test_at_the_extremes_it_neither_vanishes_nor_leaves_the_unit_interval(self, trials):
        """With no success p̂ = 0: n p² = z² p (1 − p), so p = z²/(n + z²)."""
        far = 1.96**2 / (trials + 1.96**2)
        assert wilson_interval(0, trials) == (0.0, pytest.approx(far))
        assert wilson_interval(trials, trials) == (pytest.approx(1 - far), 1.0)

    def test_for_many_trials_it_is_the_textbooks_interval(self):
        low, high = wilson_interval(400_000, 1_000_000)
        radius = 1.96 * math.sqrt(0.4 * 0.6 / 1_000_000)
        assert (low, high) == pytest.approx((0.4 - radius, 0.4 + radius), abs=1e-6)

    @pytest.mark.parametrize(("successes", "trials"), [(0, 0), (3, 2), (-1, 4), (1, -4)])
    def test_what_is_no_share_is_refused(self, successes, trials):
        message = f"successes={successes} of trials={trials}: expected at least one trial, and 0 <="
        with pytest.raises(ValueError, match=message):
            wilson_interval(successes, trials)


class TestPassAtK:
    SAMPLES = 7
    OUTCOMES = torch.tensor(list(product([False, True], repeat=SAMPLES)))  # (2^n, n)

    def expected(self, estimates: torch.Tensor, p: Fraction) -> Fraction:
        """The mean of an estimator over all 2^n outcomes of n samples that are right with p."""
        counts = self.OUTCOMES.sum(dim=1).tolist()
        assert len(estimates) == 2**self.SAMPLES
        return sum(
            p**c * (1 - p) ** (self.SAMPLES - c) * Fraction(estimate)
            for c, estimate in zip(counts, estimates.tolist(), strict=True)
        )

    @pytest.mark.parametrize("p", [Fraction(1, 50), Fraction(3, 10), Fraction(9, 10)])
    @pytest.mark.parametrize("k", range(1, SAMPLES + 1))
    def test_is_unbiased_where_the_plug_in_is_too_low(self, k, p):
        truth = 1 - (1 - p) ** k
        assert abs(self.expected(pass_at_k(self.OUTCOMES, k=k), p) - truth) < 1e-12
        plug_in = 1 - (1 - self.OUTCOMES.double().mean(dim=1)) ** k
        if k == 1:
            assert abs(self.expected(plug_in, p) - truth) < 1e-12
        else:
            assert self.expected(plug_in, p) < truth - Fraction(1, 10_000)

    def test_how_low_the_plug_in_is(self):
        """k = 2: E[(1 − p̂)²] − (1 − p)² is the variance of p̂, p(1 − p)/n."""
        p = Fraction(3, 10)
        plug_in = 1 - (1 - self.OUTCOMES.double().mean(dim=1)) ** 2
        bias = self.expected(plug_in, p) - (1 - (1 - p) ** 2)
        assert float(bias) == pytest.approx(-float(p * (1 - p) / self.SAMPLES), rel=1e-12)

    @pytest.mark.parametrize("samples", [1, 2, 9, 200, 3000])
    def test_is_the_ratio_of_binomials_to_the_last_digits(self, samples):
        counts = sorted({0, 1, 2, samples // 3, samples // 2, samples - 1, samples})
        counts = [c for c in counts if c <= samples]
        correct = torch.arange(samples) < torch.tensor(counts)[:, None]
        for k in {1, 2, 10, samples // 2, samples - 1, samples} & set(range(1, samples + 1)):
            all_wrong = [Fraction(math.comb(samples - c, k), math.comb(samples, k)) for c in counts]
            truth = doubles([float(1 - share) for share in all_wrong])
            found = pass_at_k(correct, k=k)
            torch.testing.assert_close(found, truth, rtol=1e-12, atol=0)
            for c, estimate in zip(counts, found.tolist(), strict=True):
                if c == 0:
                    assert estimate == 0.0
                if samples - c < k:
                    assert estimate == 1.0

    def test_the_order_of_the_samples_does_not_matter(self):
        correct = torch.rand(20, 9, generator=seeded()) < 0.3
        assert torch.equal(pass_at_k(correct, k=4), pass_at_k(correct.flip(1), k=4))

    def test_one_try_is_the_share_of_right_samples(self):
        correct = torch.rand(50, 8, generator=seeded()) < 0.4
        torch.testing.assert_close(pass_at_k(correct, k=1), correct.double().mean(dim=1))

    @pytest.mark.parametrize("k", [-1, 0, 5, 2.5, math.nan])
    def test_a_k_that_cannot_be_drawn_is_refused(self, k):
        with pytest.raises(ValueError, match=rf"^k is {k}, expected an integer from 1 to 4"):
            pass_at_k(torch.ones(3, 4, dtype=torch.bool), k=k)

    @pytest.mark.parametrize(
        ("correct", "message"),
        [
            ([[True]], "^correct is a list, expected a torch tensor$"),
            (torch.ones(3, 4), r"^correct has dtype torch.float32, expected torch.bool$"),
            (torch.ones(4) > 0, r"^correct has shape \(4,\), expected \(P, n\)$"),
            (torch.ones(0, 4) > 0, r"^correct has shape \(0, 4\), expected at least one problem"),
            (torch.ones(3, 0) > 0, r"^correct has shape \(3, 0\), expected at least .* sample$"),
        ],
    )
    def test_verdicts_of_another_kind_are_refused(self, correct, message):
        with pytest.raises(ValueError, match=message):
            pass_at_k(correct, k=1)


class TestBootstrapInterval:
    @pytest.mark.parametrize("level", [0.2, 0.5, 0.8, 0.95, 0.99])
    @pytest.mark.parametrize("values", [[0.0, 1.0, 3.0, 7.0], [-2.0, 0.5, 0.5, 4.0, 10.0]])
    def test_its_ends_cut_the_exact_distribution_where_they_should(self, values, level):
        """All n^n resamples, enumerated; the cut may miss by five binomial standard errors."""
        means = doubles(list(product(values, repeat=len(values)))).mean(dim=1)
        tail, resamples = (1 - level) / 2, 20_000
        slack = 5 * math.sqrt(tail * (1 - tail) / resamples)
        low, high = bootstrap_interval(
            doubles(values), generator=seeded(1), resamples=resamples, level=level
        )
        rounding = 1e-9
        below, above = means < low - rounding, means > high + rounding
        assert below.double().mean() < tail + slack
        assert (means <= low + rounding).double().mean() > tail - slack
        assert above.double().mean() < tail + slack
        assert (means >= high - rounding).double().mean() > tail - slack

    @pytest.mark.parametrize(("right", "problems"), [(30, 200), (1055, 1319)])
    def test_of_a_share_they_are_the_quantiles_of_a_binomial(self, right, problems):
        """Right answers in a resample: Binomial(P, right / P). The found ones may lie beside it."""
        share = Fraction(right, problems)
        weights = [
            math.comb(problems, i) * right**i * (problems - right) ** (problems - i)
            for i in range(problems + 1)
        ]
        assert sum(weights) == problems**problems
        cumulative = [float(Fraction(c, problems**problems)) for c in accumulate(weights)]
        slack = 5 * math.sqrt(0.025 * 0.975 / 10_000)
        values = (torch.arange(problems) < right).float()
        low, high = bootstrap_interval(values, generator=seeded(2))
        for end, tail in ((low, 0.025), (high, 0.975)):
            count = end * problems
            assert cumulative[math.floor(count + 1e-6)] > tail - slack
            assert cumulative[math.ceil(count - 1e-6) - 1] < tail + slack
        assert low < share < high

    def test_equal_values_give_a_point(self):
        low, high = bootstrap_interval(torch.full((37,), 0.1), generator=seeded())
        assert low == high == pytest.approx(0.1)

    def test_is_of_ten_thousand_resamples_at_95_percent_unless_told_otherwise(self):
        values = torch.rand(30, generator=seeded())
        told = bootstrap_interval(values, generator=seeded(4), resamples=10_000, level=0.95)
        assert bootstrap_interval(values, generator=seeded(4)) == told

    def test_is_determined_by_the_generator(self):
        values = torch.rand(50, generator=seeded())
        first, again, other = (bootstrap_interval(values, generator=seeded(s)) for s in (3, 3, 4))
        assert first == again != other

    def test_takes_nothing_from_the_global_generator(self):
        before = torch.random.get_rng_state()
        bootstrap_interval(torch.rand(5, generator=seeded()), generator=seeded())
        assert torch.equal(torch.random.get_rng_state(), before)

    @pytest.mark.parametrize("entries", [1, 70, 30 * 13])
    def test_the_chunks_it_is_drawn_in_leave_no_trace(self, monkeypatch, entries):
        values = torch.randint(100, (30,), generator=seeded()).double()  # sums without rounding
        whole = bootstrap_interval(values, generator=seeded(5), resamples=101)
        drawn = []
        randint = torch.randint

        def watch(high, shape, **options):
            drawn.append(shape)
            return randint(high, shape, **options)

        monkeypatch.setattr(accuracy, "RESAMPLED_ENTRIES", entries)
        monkeypatch.setattr(torch, "randint", watch)
        assert bootstrap_interval(values, generator=seeded(5), resamples=101) == whole
        assert sum(rows for rows, _ in drawn) == 101
        assert all(rows * width <= max(entries, 30) for rows, width in drawn)

    def test_is_the_interval_of_a_mean_in_double_precision(self):
        values = torch.rand(40, generator=seeded()).to(torch.bfloat16)
        halved = bootstrap_interval(values, generator=seeded(6))
        assert halved == bootstrap_interval(values.double(), generator=seeded(6))

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ([0.5], "^values is a list, expected a torch tensor$"),
            (torch.ones(4) > 0, r"^values has dtype torch.bool, expected a floating-point dtype$"),
            (torch.ones(4, 2), r"^values has shape \(4, 2\), expected \(P,\)$"),
            (torch.ones(0), "^values is empty, expected at least one problem$"),
            (doubles([0.0, math.nan]), r"^values\[1\] is nan, expected a finite number$"),
            (doubles([-math.inf, 0.0]), r"^values\[0\] is -inf, expected a finite number$"),
        ],
    )
    def test_values_without_a_mean_are_refused(self, values, message):
        with pytest.raises(ValueError, match=message):
            bootstrap_interval(values, generator=seeded())

    @pytest.mark.parametrize("level", [-0.1, 0.0, 1.0, 95, math.nan])
    def test_a_level_that_is_no_share_is_refused(self, level):
        with pytest.raises(
            ValueError, match=rf"^level is {level}, expected .* above 0 and below 1$"
        ):
            bootstrap_interval(torch.rand(5), generator=seeded(), level=level)

    def test_no_resample_is_refused(self):
        with pytest.raises(ValueError, match=r"^resamples is 0, expected a number of at least 1$"):
            bootstrap_interval(torch.rand(5), generator=seeded(), resamples=0)


class TestGainSplit:
    # (strict, lenient) of one response: wrong, right in the wrong form, right in the right form
    WRONG, BADLY_PUT, RIGHT = (False, False), (False, True), (True, True)
    # before and after, then total, form and content
    TABLE = (
        (WRONG, WRONG, 0, 0, 0),
        (WRONG, BADLY_PUT, 0, -1, 1),
        (WRONG, RIGHT, 1, 0, 1),
        (BADLY_PUT, WRONG, 0, 1, -1),
        (BADLY_PUT, BADLY_PUT, 0, 0, 0),
        (BADLY_PUT, RIGHT, 1, 1, 0),
        (RIGHT, WRONG, -1, 0, -1),
        (RIGHT, BADLY_PUT, -1, -1, 0),
        (RIGHT, RIGHT, 0, 0, 0),
    )

    def arguments(self, rows) -> list[torch.Tensor]:
        return list(torch.tensor([before + after for before, after, *_ in rows]).T)

    def test_all_that_can_become_of_a_problem(self):
        split = gain_split(*self.arguments(self.TABLE))
        assert split._fields == ("total", "form", "content")
        assert {x.dtype for x in split} == {torch.float64}
        assert torch.equal(torch.stack(split, dim=1), doubles([row[2:] for row in self.TABLE]))

    def test_the_means_are_the_differences_of_the_shares(self):
        rows = [self.TABLE[i] for i in torch.randint(9, (400,), generator=seeded()).tolist()]
        arguments = self.arguments(rows)
        strict_0, lenient_0, strict_1, lenient_1 = (x.double().mean().item() for x in arguments)
        total, form, content = (x.mean().item() for x in gain_split(*arguments))
        assert total == pytest.approx(strict_1 - strict_0)
        assert content == pytest.approx(lenient_1 - lenient_0)
        assert form == pytest.approx((lenient_0 - strict_0) - (lenient_1 - strict_1))

    def test_its_interval_is_paired(self):
        """Nine problems in ten come out as before: only the tenth can move the difference."""
        rows = [self.TABLE[0]] * 90 + [self.TABLE[8]] * 90 + [self.TABLE[5]] * 20
        arguments = self.arguments(rows)
        low, high = bootstrap_interval(gain_split(*arguments).total, generator=seeded())
        # Binomial(200, 0.1) / 200, by its normal approximation. Two shares of 0.45 and 0.55 that
        # know nothing of each other would differ by √(2 · 0.45 · 0.55 / 0.09) = 2.3 times as much.
        width = 2 * 1.96 * math.sqrt(0.1 * 0.9 / 200)
        assert low < 0.1 < high
        assert high - low == pytest.approx(width, rel=0.05)

    NAMES = ("before_strict", "before_lenient", "after_strict", "after_lenient")

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ([True], "is a list, expected a torch tensor$"),
            (torch.ones(3), r"has dtype torch.float32, expected torch.bool$"),
            (
                torch.ones(3, 1) > 0,
                r"has shape \(3, 1\), expected (\(P,\)|\(3,\) as before_strict has)$",
            ),
        ],
    )
    def test_verdicts_of_another_kind_are_refused_by_name(self, name, wrong, message):
        verdicts = dict.fromkeys(self.NAMES, torch.ones(3) > 0)
        with pytest.raises(ValueError, match=f"^{name} {message}"):
            gain_split(**{**verdicts, name: wrong})

    @pytest.mark.parametrize("name", NAMES[1:])
    def test_other_problems_are_refused(self, name):
        verdicts = dict.fromkeys(self.NAMES, torch.ones(3) > 0)
        message = rf"^{name} has shape \(1,\), expected \(3,\) as before_strict has$"
        with pytest.raises(ValueError, match=message):
            gain_split(**{**verdicts, name: torch.ones(1) > 0})

    def test_no_problems_are_refused(self):
        with pytest.raises(ValueError, match=r"^before_strict is empty, expected at least one"):
            gain_split(*[torch.zeros(0) > 0] * 4)

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_strict_and_lenient_in_the_wrong_order_are_refused(self, when):
        verdicts = dict.fromkeys(self.NAMES, torch.ones(3) > 0)
        verdicts[f"{when}_lenient"] = torch.tensor([True, False, True])
        message = rf"^{when}_lenient\[1\] is False and {when}_strict\[1\] is True, expected"
        with pytest.raises(ValueError, match=message):
            gain_split(**verdicts)
