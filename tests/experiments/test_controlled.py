"""Experiments that change one field: what counts as one, how runs are read, and how they pair."""

import math
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
import torch

import nbcourse
from nbcourse.agents.table import AGENTS
from nbcourse.experiments.controlled import (
    Experiment,
    differ,
    differences,
    experiment,
    interval,
)
from nbcourse.training.recipe import check, load

GAE = AGENTS["gae"]


def arithmetic(name, *overrides):
    return load(f"arithmetic-{name}", overrides)


@pytest.mark.parametrize(
    ("configurations", "field", "values"),
    [
        ([{"rate": 1, "size": 2}, {"rate": 3, "size": 2}], "rate", [1, 3]),
        ([{"a": {"b": 1}}, {"a": {"b": 2}}, {"a": {"b": 1}}], "a.b", [1, 2, 1]),
        ([GAE, GAE.with_settings(lam=0.0)], "settings.lam", [0.95, 0.0]),
        ([GAE, GAE.with_settings(gamma=0.99), replace(GAE, steps=8)], "steps", [16, 16, 8]),
        ([arithmetic("grpo"), arithmetic("rloo")], "algorithm.name", ["grpo", "rloo"]),
        ([arithmetic("grpo"), arithmetic("grpo", "seed=7", "steps=9")], "steps", [80, 9]),
        (
            [arithmetic("grpo"), arithmetic("grpo", "algorithm.clip_high=0.3")],
            "algorithm.clip_high",
            [None, 0.3],
        ),
    ],
)
def test_the_one_field_is_found(configurations, field, values):
    names = "abc"[: len(configurations)]
    found = differ(dict(zip(names, configurations, strict=True)))
    assert found.field == field
    assert found.values == dict(zip(names, values, strict=True))


def test_settings_that_come_with_an_algorithm_belong_to_its_name():
    """dapo's clip_high is its own; one that a recipe sets is a second change."""
    first, second = arithmetic("grpo"), arithmetic("dapo")
    assert differ({"grpo": first, "dapo": second}).field == "algorithm.name"
    changed = arithmetic("grpo", "algorithm.clip_high=0.3")
    with pytest.raises(ValueError, match=r"differ in 2 fields.*algorithm.clip_high: grpo 0.3"):
        differ({"grpo": changed, "dapo": second})


def test_a_key_that_is_not_in_use_makes_no_difference():
    """A critic belongs to ppo; grpo's recipe has the section's defaults, and does not read it."""
    two = {"grpo": arithmetic("grpo"), "ppo": arithmetic("ppo")}
    assert differ(two).field == "algorithm.name"


def test_the_recipes_of_the_family_differ_in_the_algorithm_alone():
    """All of arithmetic's but the first model, and chapter 8's reward model and critic's study."""
    files = Path(nbcourse.__file__).parent.glob("recipes/arithmetic-*.toml")
    others = {"arithmetic-sft", "arithmetic-ppo-reward-model", "arithmetic-critic"}
    names = sorted({file.stem for file in files} - others)
    assert len(names) > 10
    difference = differ({name: load(name) for name in names})
    assert difference.field == "algorithm.name"
    assert len(set(difference.values.values())) == len(names)


def test_the_record_of_a_run_whose_row_is_gone_is_compared_as_it_stands():
    """Nothing says then what such a row reads."""
    recorded = arithmetic("grpo").model_dump(mode="json")
    gone = {**recorded, "algorithm": {"name": "mine", "sharpness": 2.0}}
    records = {
        name: check(tables, complete=True)
        for name, tables in {"one": gone, "two": {**gone, "steps": 9, "seed": 4}}.items()
    }
    assert [str(found) for found in differences(records)] == ["steps: one 80, two 9"]


@pytest.mark.parametrize(
    ("configurations", "message"),
    [
        ({"a": GAE}, r"configurations are \['a'\], expected at least two"),
        ({"a": GAE, "b": GAE}, "differ in 0 fields, expected one$"),
        (
            {"ppo": AGENTS["ppo"], "gae": GAE},
            r"differ in 3 fields, expected one \(surrogate: ppo ppo_clip, gae policy_gradient; ",
        ),
        (
            {"grpo": arithmetic("grpo"), "dapo": arithmetic("dapo", "reward.overlong_buffer=3")},
            r"differ in 2 fields.*reward.overlong_buffer: grpo 0, dapo 3",
        ),
    ],
)
def test_any_other_number_of_differences_is_refused(configurations, message):
    with pytest.raises(ValueError, match=message):
        differ(configurations)


def line(configuration, seed):
    """A run whose number is known at every second step: slope × step + 100 × seed."""
    return [{"step": s, "height": configuration["slope"] * s + 100 * seed} for s in range(2, 21, 2)]


def test_runs_are_read_at_the_same_steps_and_paired_by_seed():
    two = {"flat": {"slope": 1}, "steep": {"slope": 3}}
    made = experiment(two, line, seeds=(4, 1), schedule=(2, 5, 20), progress=False)
    assert made.difference.rows() == [["flat", "1"], ["steep", "3"]]
    heights = made.curves["steep"]["height"]
    # between two updates, what was known last: at step 5, that of step 4
    expected = torch.tensor([[406.0, 412.0, 460.0], [106.0, 112.0, 160.0]], dtype=torch.float64)
    torch.testing.assert_close(heights, expected)
    difference = made.paired("height", "steep", against="flat")
    twice = torch.tensor([[4.0, 8.0, 40.0]] * 2, dtype=torch.float64)
    torch.testing.assert_close(difference, twice)
    assert made.gain("height", "steep", against="flat", at=1) == (8.0, 8.0, 8.0)


def test_a_number_that_is_not_in_every_row_keeps_its_value_until_the_next():
    """As the KL to the reference, where nothing but the log wants it; NaN is a value."""

    def run(_, seed):
        heights = {2: 1.0, 4: 4.0, 5: math.nan}
        return [{"step": s, "seed": seed, **_height(heights, s)} for s in range(2, 8)]

    def _height(heights, step):
        return {"height": heights[step]} if step in heights else {}

    two = {"flat": {"slope": 1}, "steep": {"slope": 3}}
    made = experiment(two, run, seeds=(0, 1), schedule=(2, 3, 4, 6), progress=False)
    expected = torch.tensor([[1.0, 1.0, 4.0, math.nan]] * 2, dtype=torch.float64)
    torch.testing.assert_close(made.curves["flat"]["height"], expected, equal_nan=True)


def test_a_number_that_some_runs_do_not_have_has_no_curve():
    def run(_, seed):
        return [{"step": 1, "y": seed, **({"logged_since": 2.0} if seed else {})}]

    two = {"a": {"x": 0}, "b": {"x": 1}}
    for seeds in ((0, 1), (1, 0)):
        made = experiment(two, run, seeds=seeds, schedule=(1,), progress=False)
        assert [*made.curves["a"]] == ["y"]


def test_the_same_seeds_reach_every_configuration():
    seen = []

    def run(configuration, seed):
        seen.append((configuration["slope"], seed))
        return line(configuration, seed)

    two = {"flat": {"slope": 1}, "steep": {"slope": 3}}
    experiment(two, run, seeds=(0, 1), schedule=(4,), progress=False)
    assert sorted(seen) == [(1, 0), (1, 1), (3, 0), (3, 1)]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seeds": (3,)}, r"seeds are \[3\], expected at least two different ones"),
        ({"seeds": (3, 3)}, r"seeds are \[3, 3\]"),
        ({"schedule": (1, 4)}, r"flat, seed 0: its steps go from 2 to 20, .* schedule's 1 to 4"),
        ({"schedule": (2, 30)}, "schedule's 2 to 30"),
    ],
)
def test_what_cannot_be_compared_is_refused(changed, message):
    arguments = {"seeds": (0, 1), "schedule": (2, 4), **changed}
    with pytest.raises(ValueError, match=message):
        experiment({"flat": {"slope": 1}, "steep": {"slope": 3}}, line, progress=False, **arguments)


def test_a_wrong_name_is_answered_with_those_there_are():
    two = {"flat": {"slope": 1}, "steep": {"slope": 3}}
    made = experiment(two, line, seeds=(0, 1), schedule=(2,), progress=False)
    with pytest.raises(ValueError, match=r"configuration is 'step', expected one of \['flat'"):
        made.paired("height", "step", against="flat")
    with pytest.raises(ValueError, match=r"number is 'width', expected one of \['height'\]"):
        made.paired("width", "steep", against="flat")


def test_pairing_removes_what_the_seeds_share():
    """Heights 0, 100, 200 differ by seed far more than by configuration; the differences do not."""
    heights = torch.tensor([[0.0], [100.0], [200.0]], dtype=torch.float64)
    lift = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64)
    curves = {"a": {"height": heights}, "b": {"height": heights + lift}}
    made = Experiment(differ({"a": {"x": 1}, "b": {"x": 2}}), (0, 1, 2), (0,), curves)
    centre, low, high = made.gain("height", "b", against="a")
    # mean 2, standard deviation 1, t = 4.30265 with two degrees of freedom: 4.30265 / √3 = 2.48414
    assert (centre, low, high) == pytest.approx((2.0, -0.48414, 4.48414), abs=1e-5)


def quantile(freedom):
    """The quantile that an interval of that many numbers and one was made with."""
    numbers = [float(i) for i in range(freedom + 1)]
    spread = (sum((n - mean(numbers)) ** 2 for n in numbers) / freedom) ** 0.5
    low, high = interval(numbers)
    assert (high + low) / 2 == pytest.approx(mean(numbers))
    return (high - low) / 2 * (freedom + 1) ** 0.5 / spread


@pytest.mark.parametrize(
    ("freedom", "printed"),  # Student's t at 97.5 %, from printed tables
    [
        *[(1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (5, 2.57058), (13, 2.16037)],
        *[(14, 2.14479), (15, 2.13145), (16, 2.11991), (30, 2.04227), (60, 2.0003), (120, 1.97993)],
    ],
)
def test_the_interval_is_students(freedom, printed):
    digits = 6 - len(str(int(printed)))
    assert round(quantile(freedom), digits) == printed


@pytest.mark.parametrize("freedom", [1, 2, 3, 8, 15, 41, 200, 1001])
def test_the_interval_holds_95_per_cent_of_students_density(freedom):
    """Simpson's rule over the density, whose constant is Γ((n+1)/2) / (√(nπ) Γ(n/2))."""
    end, pieces = quantile(freedom), 20_000
    constant = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    constant /= math.sqrt(freedom * math.pi)

    def density(t):
        return constant * (1 + t * t / freedom) ** (-(freedom + 1) / 2)

    weights = [1, *([4, 2] * (pieces // 2))[:-1], 1]
    width = end / pieces
    area = sum(w * density(i * width) for i, w in enumerate(weights)) * width / 3
    assert 2 * area == pytest.approx(0.95, abs=1e-11)


def test_one_number_has_no_interval():
    with pytest.raises(ValueError, match="numbers has 1 entries, expected at least 2"):
        interval([1.0])


@pytest.mark.parametrize("unknown", [math.nan, math.inf])
def test_what_is_not_finite_leaves_nothing_known(unknown):
    assert all(map(math.isnan, interval([0.5, unknown, 0.25])))
