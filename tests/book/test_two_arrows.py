"""The README's picture is what its command draws, and turns as far as chapter 1 says."""

import math
from xml.etree import ElementTree

import pytest

from nbcourse.publishing import two_arrows
from nbcourse.repository import ROOT


def test_the_picture_is_what_the_command_draws():
    shown = (ROOT / "book/_static/two-arrows.svg").read_text(encoding="utf-8")
    assert shown == two_arrows.picture()


def test_it_turns_as_far_as_chapter_1_says():
    assert math.cos(math.radians(two_arrows.angle(100))) == pytest.approx(-0.245, abs=5e-4)


def test_with_two_different_rewards_both_arrows_point_up():
    assert two_arrows.angle(1) == pytest.approx(0, abs=1e-6)


def test_one_caption_is_shown_at_a_time():
    captions = ElementTree.fromstring(two_arrows.picture([1, 5, 100])).iter(
        "{http://www.w3.org/2000/svg}animate"
    )
    shown = [one.get("values").split(";") for one in captions]
    assert [sum(map(int, moment)) for moment in zip(*shown, strict=True)] == [1] * len(shown)
