"""The downhill explorer in a browser without a network: what it shows is what enumeration gives."""

import math
import re
from collections.abc import Callable

import pytest
import torch

from nbcourse.display import explore_downhill
from nbcourse.functional import advantages
from nbcourse.toys import bandit, enumeration

NUMBER = r"[+−]?\d+\.\d+"
DOWNHILL = {"probs": (0.9, 0.01, 0.09), "rewards": (1, 100, 0)}

pytestmark = pytest.mark.browser


class Opened:
    """An explorer on a page, with what it shows read back as numbers."""

    def __init__(self, page) -> None:
        self.page = page

    def slider(self, name: str):
        return self.page.locator(f"[data-name={name}]")

    def state(self) -> tuple[torch.Tensor, torch.Tensor, int]:
        """Probabilities, rewards and group size, as the sliders stand."""
        value = {name: float(self.slider(name).input_value()) for name in self.names()}
        probs = torch.tensor([value[f"p{arm}"] / 100 for arm in range(3)], dtype=torch.float64)
        rewards = torch.tensor([value[f"r{arm}"] for arm in range(3)], dtype=torch.float64)
        return probs, rewards, int(value["size"])

    def names(self) -> list[str]:
        return [f"{kind}{arm}" for arm in range(3) for kind in "pr"] + ["size"]

    def readout(self) -> str:
        return self.page.locator(".nb-readout").inner_text()

    def arrows(self) -> list[torch.Tensor]:
        """From tail to tip, y upwards."""
        places = self.page.locator("svg polyline").evaluate_all(
            "all => all.map(line => [...line.points].flatMap(({x, y}) => [x, y]))"
        )
        return [torch.tensor([x2 - x1, y1 - y2]).double() for x1, y1, x2, y2 in places]

    def move(self, name: str, to: int) -> None:
        self.slider(name).focus()
        self.slider(name).fill(str(to))


@pytest.fixture
def open_explorer(open_alone) -> Callable[..., Opened]:
    """open_explorer(**arguments) → it, on a page of its own and offline."""

    def open_one(width: int = 800, has_touch: bool = False, **arguments) -> Opened:
        return Opened(open_alone(explore_downhill(**arguments).data, width, has_touch))

    return open_one


def divided(probs: torch.Tensor, rewards: torch.Tensor, size: int) -> torch.Tensor:
    """The expected gradient of the normalised advantage, over every ordered group."""
    members = enumeration.groups(3, size)
    weights = advantages.group_relative(rewards[members].view(-1), group_size=size)
    scores = bandit.score_vectors(probs.log())[members]
    estimates = (weights.view(members.shape)[..., None] * scores).mean(dim=1)
    return enumeration.mean(enumeration.group_probs(probs, members), estimates)


def numbers(text: str) -> list[float]:
    return [float(number.replace("−", "-")) for number in re.findall(NUMBER, text)]


def check(explorer: Opened) -> None:
    """Everything shown is what enumeration gives for the bandit shown."""
    probs, rewards, size = explorer.state()
    assert probs.sum() == pytest.approx(1)
    exact = bandit.gradient(probs.log(), rewards)
    other = divided(probs, rewards, size)
    cosine = torch.cosine_similarity(exact, other, dim=0).item()
    shown = numbers(explorer.readout())
    expected = [(probs @ rewards).item(), *exact.tolist(), *other.tolist(), cosine]
    assert shown == pytest.approx(expected, abs=0.00051)
    assert ("downhill" in explorer.readout()) == (cosine < 0)
    up, turned = explorer.arrows()
    assert up[0].item() == pytest.approx(0, abs=0.1)
    assert up[1] > 0
    assert (up @ turned / up.norm() / turned.norm()).item() == pytest.approx(cosine, abs=2e-3)


def test_the_bandit_of_the_chapter_goes_uphill(open_explorer):
    explorer = open_explorer()
    check(explorer)
    assert "uphill" in explorer.readout()


def test_it_can_go_downhill(open_explorer):
    explorer = open_explorer(**DOWNHILL)
    check(explorer)
    assert "cosine −0.245, 104° from ∇J: downhill" in explorer.readout()


@pytest.mark.parametrize("size", [2, 5, 8])
def test_every_group_size_is_summed_over_all_groups(open_explorer, size):
    explorer = open_explorer(**DOWNHILL)
    explorer.move("size", size)
    assert explorer.state()[2] == size
    check(explorer)


def test_a_reader_gets_from_the_chapters_bandit_to_a_downhill_one(open_explorer):
    explorer = open_explorer()
    for name, to in (("p0", 90), ("p1", 1), ("p0", 90), ("r0", 1), ("r1", 100), ("r2", 0)):
        explorer.move(name, to)
        check(explorer)
    assert "downhill" in explorer.readout()


def test_the_others_share_the_rest_and_come_back(open_explorer):
    explorer = open_explorer()
    explorer.move("p0", 40)
    assert explorer.state()[0].tolist() == pytest.approx([0.4, 0.4, 0.2], abs=0.011)
    explorer.slider("p0").fill("70")
    assert explorer.state()[0].tolist() == [0.7, 0.2, 0.1]
    explorer.slider("p0").press("End")
    assert explorer.state()[0].tolist() == [0.98, 0.01, 0.01]
    check(explorer)
    explorer.slider("p0").press("Home")
    assert explorer.state()[0][0] == 0.01


def test_equal_rewards_teach_nothing(open_explorer):
    explorer = open_explorer(rewards=(3, 3, 3))
    assert "nothing to learn" in explorer.readout()
    assert explorer.arrows() == []


def test_it_can_be_started_again(open_explorer):
    explorer = open_explorer()
    before = explorer.readout()
    explorer.move("r1", 60)
    assert explorer.readout() != before
    explorer.page.get_by_role("button", name="Start again").click()
    assert explorer.readout() == before


def test_a_finger_moves_a_slider_on_a_narrow_page(open_explorer):
    explorer = open_explorer(380, has_touch=True)
    box = explorer.slider("r1").bounding_box()
    assert box["height"] >= 40
    explorer.page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert explorer.state()[1][1].item() == pytest.approx(50, abs=3)
    check(explorer)
    assert explorer.page.evaluate("document.documentElement.scrollWidth") <= 380


def test_the_turn_of_the_arrow_has_a_side(open_explorer):
    """With ∇J upwards, exchanging two arms mirrors the picture."""
    one = open_explorer(**DOWNHILL).arrows()[1]
    other = open_explorer(probs=(0.01, 0.9, 0.09), rewards=(100, 1, 0)).arrows()[1]
    assert other.tolist() == pytest.approx([-one[0].item(), one[1].item()], abs=0.2)
    assert math.copysign(1, one[0]) != math.copysign(1, other[0])
