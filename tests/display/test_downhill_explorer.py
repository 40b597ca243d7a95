"""What the downhill explorer is built from; what it computes is tested in a browser."""

import re

import pytest
import torch

from nbcourse.display import explore_downhill


def program(html: str) -> str:
    (script,) = re.findall(r"<script>(.*)</script>", html, re.S)
    return script


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_begins_where_it_was_told_to(dtype):
    probs, rewards = (torch.tensor(x, dtype=dtype) for x in ([0.9, 0.01, 0.09], [1, 100, 0]))
    html = explore_downhill(probs, rewards, group_size=4).data
    expected = '{"probs":[90,1,9],"rewards":[1,100,0],"size":4});'
    assert expected in program(html)


def test_the_output_is_the_same_each_time_and_another_for_another_bandit():
    one, two = (explore_downhill().data for _ in range(2))
    assert one == two
    identity = re.compile(r'id="(nb-explorer-\w+)"')
    assert identity.search(one)[1] != identity.search(explore_downhill(group_size=4).data)[1]


def test_the_output_asks_no_other_host_for_anything():
    assert "//" not in re.sub(r"^ *// .*$|; // .*$", "", explore_downhill().data, flags=re.M)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"probs": (0.5, 0.5)}, "probs has 2 entries and rewards 3, expected 3 each"),
        ({"rewards": (1, 2, 3, 4)}, "probs has 3 entries and rewards 4, expected 3 each"),
        ({"probs": (0.5, 0.495, 0.005)}, r"probs\[1\] is 0.495, expected a positive multiple"),
        ({"rewards": (1, 2.5, 0)}, r"rewards\[1\] is 2.5, expected a whole number from 0 to 100"),
        ({"rewards": (1, 2, 101)}, r"rewards\[2\] is 101.0, expected a whole number"),
        ({"group_size": 1}, "group_size is 1, expected 2 to 8"),
        ({"group_size": 9}, "group_size is 9, expected 2 to 8"),
    ],
)
def test_what_cannot_be_shown_is_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        explore_downhill(**arguments)
