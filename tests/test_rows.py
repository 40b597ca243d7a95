"""A row of functions: what it takes, and that its checks run wherever it is changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pytest

from nbcourse.functional.arguments import Share
from nbcourse.rows import Row


def scaled(size, *, by: Share = 0.5):
    return by * size


@dataclass(frozen=True)
class Scale(Row):
    function: Any = scaled
    settings: Mapping[str, Any] = field(default_factory=dict)

    offers = MappingProxyType({"function": ("size",)})

    def __post_init__(self):
        self.check_functions()


def test_a_changed_setting_is_that_of_a_copy_and_leaves_the_others():
    row = Scale(settings={"by": 0.25})
    changed = row.with_settings(by=0.75)
    assert (row.all_settings, changed.all_settings) == ({"by": 0.25}, {"by": 0.75})
    assert row.with_settings() == row
    assert changed.with_settings(by=0.25) == row


def test_a_changed_setting_is_checked():
    with pytest.raises(ValueError, match="by is 2, expected a number from 0 to 1"):
        Scale().with_settings(by=2)
    with pytest.raises(ValueError, match=r"a name in settings is 'buy', .* did you mean 'by'"):
        Scale().with_settings(buy=0.5)
