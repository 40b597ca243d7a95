"""What the KL explorer is built from; what it computes is tested in a browser."""

import re

import pytest
import torch

from nbcourse.display import explore_kl


def program(html: str) -> str:
    (script,) = re.findall(r"<script>(.*)</script>", html, re.S)
    return script


def test_the_bars_begin_where_they_were_told_to():
    html = explore_kl((0.7, 0.25, 0.05), (0.2, 0.2, 0.6), names=["yes", "no", "<eos>"]).data
    expected = '["yes","no","&lt;eos&gt;"], [70,25,5], [20,20,60]);'
    assert expected in program(html)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_of_either_precision_are_taken(dtype):
    probs, ref_probs = (torch.tensor(p, dtype=dtype) for p in ([0.29, 0.71], [0.57, 0.43]))
    assert '["A","B"], [29,71], [57,43]);' in program(explore_kl(probs, ref_probs).data)


def test_the_output_is_the_same_each_time_and_another_for_other_policies():
    one, two = (explore_kl().data for _ in range(2))
    assert one == two
    identity = re.compile(r'id="(nb-explorer-\w+)"')
    assert identity.search(one)[1] != identity.search(explore_kl((0.5, 0.5), (0.1, 0.9)).data)[1]


def test_the_output_asks_no_other_host_for_anything():
    assert "//" not in re.sub(r"^ *// .*$|; // .*$", "", explore_kl().data, flags=re.M)


def test_one_script_ends_once_whatever_the_names_are():
    html = explore_kl(names=["<b>", "</b>", '"&']).data
    assert html.count("</script>") == 1
    assert "<b>" not in program(html).rpartition("explore(")[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"probs": (1.0,), "ref_probs": (1.0,)}, "probs has 1 entries, expected 2 to 6"),
        ({"probs": (0.1,) * 10}, "probs has 10 entries, expected 2 to 6"),
        ({"ref_probs": (0.5, 0.5)}, "ref_probs has 2 entries, expected 3 as probs has"),
        ({"probs": (0.5, 0.5, 0.0)}, r"probs\[2\] is 0.0, expected a positive multiple of 0.01"),
        ({"ref_probs": (1.1, -0.2, 0.1)}, r"ref_probs\[1\] is -0.2, expected a positive multiple"),
        ({"probs": (0.495, 0.495, 0.01)}, r"probs\[0\] is 0.495, expected a positive multiple"),
        ({"probs": (0.5, float("nan"), 0.5)}, r"probs\[1\] is nan, expected a positive multiple"),
        ({"ref_probs": (0.5, 0.3, 0.1)}, "ref_probs sums to 0.9, expected 1"),
        ({"names": ["a", "b"]}, "names has 2 entries, expected 3 as probs has"),
        ({"names": ["a", "", "c"]}, r"names\[1\] is '', expected 1 to 6 characters"),
        ({"names": ["a", "b", "forever"]}, r"names\[2\] is 'forever', expected 1 to 6 characters"),
    ],
)
def test_what_cannot_be_shown_is_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        explore_kl(**arguments)
