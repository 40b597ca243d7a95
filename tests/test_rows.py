"""Signatures as the source of what a row needs and of what may be set."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any

import pytest
from annotated_types import Interval

from nbcourse import rows
from nbcourse.functional.arguments import NonNegative, Share
from nbcourse.rows import Row, Setting, needs_of, settings_of


def weigh(rewards, mask, *, values, decay: Share = 0.9, cap: NonNegative | None = None):
    return rewards, mask, values, decay, cap


def shrink(log_probs, *, rate: Share = 0.5, exact=False, mode: str = "mean", count: int = 3):
    return log_probs, rate, exact, mode, count


@dataclass(frozen=True)
class Pair(Row):
    """A row of two functions, like the rows of the package."""

    first: Callable = weigh
    second: Callable = shrink
    settings: Mapping[str, Any] = field(default_factory=dict)

    offers = MappingProxyType(
        {"first": ("rewards", "mask", "values"), "second": ("log_probs", "mask")}
    )

    def __post_init__(self) -> None:
        self.check_functions()


def test_what_has_no_default_is_a_need_and_what_has_one_is_a_setting():
    assert needs_of(weigh) == ("rewards", "mask", "values")
    assert settings_of(weigh) == {
        "decay": Setting("decay", 0.9, float, Interval(ge=0, le=1)),
        "cap": Setting("cap", None, float | None, Interval(ge=0)),
    }
    assert settings_of(shrink) == {
        "rate": Setting("rate", 0.5, float, Interval(ge=0, le=1)),
        "exact": Setting("exact", False, bool, None),  # by its default
        "mode": Setting("mode", "mean", str, None),
        "count": Setting("count", 3, int, None),
    }


def test_the_fields_of_a_dataclass_are_read_alike():
    @dataclass
    class Sums:
        teacher: str
        digits: Annotated[int, Interval(ge=1, le=9)] = 2

    assert needs_of(Sums) == ("teacher",)
    assert settings_of(Sums) == {"digits": Setting("digits", 2, int, Interval(ge=1, le=9))}


def test_a_setting_checks_its_bounds_where_it_has_some_and_a_value():
    found = settings_of(weigh)
    found["decay"].check(1.0, name="decay")
    found["cap"].check(None, name="cap")
    settings_of(shrink)["count"].check(-(10**9), name="count")
    with pytest.raises(ValueError, match=r"^a\.decay is 1\.5, expected a number from 0 to 1$"):
        found["decay"].check(1.5, name="a.decay")
    with pytest.raises(ValueError, match=r"^cap is -1, expected a number of at least 0$"):
        found["cap"].check(-1, name="cap")


@pytest.mark.parametrize("value", ["x", None, True])
def test_a_setting_with_bounds_is_a_number(value):
    with pytest.raises(ValueError, match=f"^decay is {value!r}, expected a number from 0 to 1$"):
        Pair(settings={"decay": value})
    assert Pair(settings={"cap": None}).all_settings["cap"] is None


def test_a_setting_reads_like_help():
    assert str(settings_of(weigh)["decay"]) == "decay = 0.9 (a number from 0 to 1)"
    assert str(settings_of(shrink)["mode"]) == "mode = mean"


def test_a_function_is_called_with_what_it_needs_and_its_own_settings():
    offered = {"rewards": "r", "mask": "m", "values": "v", "log_probs": "l"}
    settings = {"decay": 0.25, "cap": None, "exact": True}
    assert rows.call(weigh, settings, offered) == ("r", "m", "v", 0.25, None)
    assert rows.call(shrink, settings, offered) == ("l", 0.5, True, "mean", 3)


def varied(rewards, **options):
    return rewards


def listed(rewards, *more):
    return rewards


def shapeless(rewards, *, sizes=[1, 2]):  # noqa: B006  the default that is refused
    return rewards


def mistyped(rewards, vaules):
    return rewards


def greedy(rewards, log_probs):
    return rewards


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (varied, r"'varied' takes \*\*options, expected every quantity and every setting by its"),
        (listed, r"'listed' takes \*more, expected every quantity and every setting by its name"),
        (shapeless, r"'shapeless' has sizes=\[1, 2\], expected a number, a text, True, False or"),
        (
            mistyped,
            r"first 'mistyped' needs 'vaules', which is not offered; on offer are 'rewards', "
            r"'mask', 'values'; did you mean 'values'\?$",
        ),
        (
            greedy,
            r"first 'greedy' needs 'log_probs', which is not offered; on offer are 'rewards', "
            r"'mask', 'values'$",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_function_that_cannot_be_served_is_refused_when_the_row_is_made(function, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        Pair(first=function)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"deacy": 0.5},
            "a name in settings is 'deacy', expected one of 'decay', 'cap', 'rate', 'exact', "
            r"'mode', 'count'; did you mean 'decay'\?$",
        ),
        ({"values": 1.0}, "a name in settings is 'values', expected one of 'decay', 'cap', "),
        ({"decay": 1.5}, r"decay is 1\.5, expected a number from 0 to 1$"),
    ],
    ids=["typo", "a need", "out of bounds"],
)
def test_settings_that_the_functions_do_not_take_are_refused_when_the_row_is_made(
    settings, message
):
    with pytest.raises(ValueError, match=f"^{message}"):
        Pair(settings=settings)


def test_a_rows_own_defaults_stand_before_those_of_its_functions():
    row = Pair(settings={"decay": 0.75, "mode": "sum"})
    assert row.all_settings == {
        "decay": 0.75,
        "cap": None,
        "rate": 0.5,
        "exact": False,
        "mode": "sum",
        "count": 3,
    }
    assert row.known_settings["decay"] == Setting("decay", 0.75, float, Interval(ge=0, le=1))
    assert Pair().all_settings["mode"] == "mean"


def test_a_row_needs_what_either_of_its_functions_needs():
    row = Pair()
    assert row.needs("values")
    assert row.needs("log_probs")
    assert not row.needs("decay")


def test_a_changed_setting_is_that_of_a_copy_and_leaves_the_others():
    row = Pair(settings={"decay": 0.25, "mode": "sum"})
    changed = row.with_settings(decay=0.75)
    assert row.all_settings["decay"] == 0.25
    assert changed.all_settings == {**row.all_settings, "decay": 0.75}
    assert row.with_settings() == row
    assert changed.with_settings(decay=0.25) == row


def test_a_changed_setting_is_checked():
    with pytest.raises(ValueError, match=r"^decay is 2, expected a number from 0 to 1$"):
        Pair().with_settings(decay=2)
    with pytest.raises(ValueError, match=r"^a name in settings is 'rat', .* did you mean 'rate'"):
        Pair().with_settings(rat=0.5)
