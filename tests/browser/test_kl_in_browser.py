"""The KL explorer in a browser without a network: what it shows is what the package computes."""

import re
from collections.abc import Callable

import pytest
import torch

from nbcourse.display import explore_kl
from nbcourse.functional import kl
from nbcourse.toys import enumeration
from tests.browser.conftest import OVERLAPS

NUMBER = r"[+−]?\d+\.\d+"
KINDS = ("k1", "k2", "k3")

pytestmark = pytest.mark.browser


class Opened:
    """An explorer on a page, with what it shows read back as numbers."""

    def __init__(self, page) -> None:
        self.page = page
        self.sliders = page.locator("[role=slider]").all()  # the bars
        self.count = len(self.sliders) // 2

    def probs(self) -> tuple[torch.Tensor, torch.Tensor]:
        """π and π_ref, as a screen reader is told them."""
        told = [float(slider.get_attribute("aria-valuenow")) for slider in self.sliders]
        both = torch.tensor(told, dtype=torch.float64)
        return both[: self.count], both[self.count :]

    def pi(self) -> list[float]:
        return self.probs()[0].tolist()

    def readout(self) -> str:
        return self.page.locator(".nb-readout").inner_text().replace("\xa0", " ")

    def texts(self, group: str) -> list[str]:
        return self.page.locator(f"{group} text").all_text_contents()

    def drag(self, slider: int, *to: float) -> None:
        """Take a bar by its foot and move it by these probabilities, one after the other."""
        box = self.sliders[slider].locator(".nb-track").bounding_box()
        height = box["height"] / 162 * 140  # of a bar of probability 1, in a track of 162 units
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] - 4
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        for change in to:
            self.page.mouse.move(x, y - change * height, steps=5)
        self.page.mouse.up()


@pytest.fixture
def open_explorer(open_alone) -> Callable[..., Opened]:
    """open_explorer(**arguments) → it, on a page of its own and offline."""

    def open_one(width: int = 800, has_touch: bool = False, **arguments) -> Opened:
        return Opened(open_alone(explore_kl(**arguments).data, width, has_touch))

    return open_one


def numbers(text: str) -> list[float]:
    return [float(number.replace("−", "-")) for number in re.findall(NUMBER, text)]


def check(explorer: Opened) -> None:
    """Everything shown is what enumeration and autograd give for the probabilities shown."""
    probs, ref_probs = explorer.probs()
    logits = probs.log().requires_grad_()
    exact = kl.exact(logits, ref_probs.log())
    (exact_gradient,) = torch.autograd.grad(exact, logits)
    assert probs.sum() == pytest.approx(1, abs=1e-12)
    assert ref_probs.sum() == pytest.approx(1, abs=1e-12)

    bars = [text for slider in explorer.sliders for text in slider.locator("text").all()]
    shown = [float(bar.text_content()) for bar in bars]
    assert shown == torch.cat([probs, ref_probs]).tolist()
    readout = explorer.readout()
    assert numbers(readout)[0] == pytest.approx(exact.item(), abs=0.00051)
    least = 0.00051 if explorer.count <= 4 else 0.0051  # two decimals fit, or three
    assert slopes(explorer, "exact") == pytest.approx(exact_gradient.tolist(), abs=least)

    for kind in KINDS:
        log_probs = logits.log_softmax(dim=-1)
        values = kl.estimate(log_probs, ref_probs.log(), kind)
        (gradient,) = torch.autograd.grad(enumeration.mean(probs, values), logits)
        mean = enumeration.mean(probs, values.detach()).item()
        deviation = enumeration.variance(probs, values.detach()).sqrt().item()

        moments = next(t for t in explorer.texts(f"[data-estimator={kind}]") if "mean" in t)
        assert numbers(moments) == pytest.approx([mean, deviation], abs=0.00051)
        assert slopes(explorer, kind) == pytest.approx(gradient.tolist(), abs=least)
        if exact > 0:
            assert f"{kind} {deviation:.3f}" in readout
        comparison = explorer.texts(f"[data-gradient={kind}]")[1]
        if kind == "k1" or exact == 0:
            assert comparison == "no gradient"
            continue
        cosine = torch.cosine_similarity(gradient, exact_gradient, dim=0).item()
        length = (gradient.norm() / exact_gradient.norm()).item()
        assert numbers(comparison) == pytest.approx([cosine, length], abs=0.0051)
        if kind == "k3":
            assert comparison.replace("cosine ", "(cosine ").replace(",", "),") in readout
            differ = gradient * exact_gradient < -1e-9
            assert ("opposite sign" in readout) == differ.any()


def slopes(explorer: Opened, row: str) -> list[float]:
    return numbers(" ".join(explorer.texts(f"[data-gradient={row}]")[-explorer.count :]))


def test_the_first_numbers_are_right(open_explorer):
    explorer = open_explorer()
    check(explorer)
    # by hand: ∇KL(π_ref‖π) = π − π_ref
    assert slopes(explorer, "k3") == [0.4, 0.1, -0.5]
    assert slopes(explorer, "k1") == [0.0, 0.0, 0.0]
    assert "of opposite sign for token B." in explorer.readout()


@pytest.mark.parametrize("width", [800, 500])
def test_a_dragged_bar_moves_everything_with_it(open_explorer, width):
    explorer = open_explorer(width, probs=(0.5, 0.3, 0.2), ref_probs=(0.2, 0.3, 0.5))
    explorer.drag(0, 0.25)
    assert explorer.pi()[0] == pytest.approx(0.75, abs=0.011)
    assert explorer.probs()[1].tolist() == [0.2, 0.3, 0.5]
    check(explorer)
    explorer.drag(3, 0.4)
    assert explorer.probs()[1][0].item() == pytest.approx(0.6, abs=0.011)
    check(explorer)


def test_a_bar_that_was_let_go_stays(open_explorer):
    explorer = open_explorer()
    explorer.drag(0, 0.2)
    before = explorer.pi()
    box = explorer.sliders[0].bounding_box()
    explorer.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20, steps=3)
    assert explorer.pi() == before


def test_only_the_main_button_drags(open_explorer):
    explorer = open_explorer()
    box = explorer.sliders[0].bounding_box()
    explorer.page.mouse.move(box["x"] + 10, box["y"] + box["height"] - 10)
    explorer.page.mouse.down(button="right")
    explorer.page.mouse.move(box["x"] + 10, box["y"] + 10)
    assert explorer.pi() == [0.5, 0.4, 0.1]


def test_a_finger_scrolls_over_a_bar_and_moves_the_slider_of_the_one_it_taps(open_explorer):
    explorer = open_explorer(380, has_touch=True)
    page, before = explorer.page, explorer.pi()
    page.set_viewport_size({"width": 380, "height": 400})
    box = explorer.sliders[0].locator(".nb-bar").bounding_box()
    finger = page.context.new_cdp_session(page)
    for step in range(8):
        point = {"x": box["x"] + 10, "y": box["y"] + 10 - 5 * step}
        event = {"type": "touchMove" if step else "touchStart", "touchPoints": [point]}
        finger.send("Input.dispatchTouchEvent", event)
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert explorer.pi() == before
    page.wait_for_function("scrollY > 0")
    explorer.sliders[4].tap(position={"x": 10, "y": 30})
    slider = page.get_by_role("slider", name="reference policy, token B: the bar that was chosen")
    slider.fill("55")
    # What the others have above 0.01, 9 : 59, shares the 0.43 that is left: 5.7 and 37.3.
    assert explorer.probs()[1].tolist() == [0.07, 0.55, 0.38]
    slider.fill("30")
    assert explorer.probs()[1].tolist() == [0.1, 0.3, 0.6]
    assert explorer.pi() == before
    check(explorer)


def test_the_others_share_the_rest_as_before(open_explorer):
    explorer = open_explorer(probs=(0.4, 0.3, 0.2, 0.1), ref_probs=(0.25,) * 4)
    explorer.drag(0, -0.2)
    first, *others = explorer.pi()
    expected = [share * (1 - first) / 0.6 for share in (0.3, 0.2, 0.1)]
    assert others == pytest.approx(expected, abs=0.01)


def test_a_bar_that_is_dragged_back_restores_the_others(open_explorer):
    explorer = open_explorer(probs=(0.4, 0.3, 0.2, 0.1), ref_probs=(0.25,) * 4)
    before = explorer.pi()
    explorer.drag(0, 2.0, 0.0)
    assert explorer.pi() == before


def test_no_probability_leaves_its_range(open_explorer):
    explorer = open_explorer()
    explorer.drag(0, 2.0)
    assert explorer.pi() == [0.98, 0.01, 0.01]
    explorer.drag(5, 2.0)
    check(explorer)  # the largest KL there is with three tokens
    explorer.drag(0, -2.0)
    assert explorer.pi()[0] == 0.01
    check(explorer)


def test_the_keyboard_does_what_the_pointer_does(open_explorer):
    explorer = open_explorer(probs=(0.5, 0.3, 0.2), ref_probs=(0.2, 0.3, 0.5))
    page = explorer.page
    page.keyboard.press("Tab")
    expected = 0.5
    steps = {"ArrowUp": 0.01, "ArrowRight": 0.01, "PageDown": -0.1, "ArrowDown": -0.01}
    for key, step in (steps | {"ArrowLeft": -0.01, "PageUp": 0.1}).items():
        page.keyboard.press(key)
        expected += step
        assert explorer.pi()[0] == pytest.approx(expected)
        check(explorer)
    assert explorer.pi() == [0.5, 0.3, 0.2]
    page.keyboard.press("Home")
    # What the others have above 0.01, 29 : 19, shares the 0.97 that is left: 58.6 and 38.4.
    assert explorer.pi() == [0.01, 0.6, 0.39]
    page.keyboard.press("End")
    assert explorer.pi() == [0.98, 0.01, 0.01]
    page.keyboard.press("x")
    assert explorer.pi() == [0.98, 0.01, 0.01]
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowUp")
    assert explorer.pi() == [0.97, 0.02, 0.01]
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowDown")  # from here on, not from what this bar was first given
    assert explorer.pi() == [0.96, 0.03, 0.01]
    check(explorer)


def test_the_keys_move_the_bar_and_not_the_page(open_explorer):
    explorer = open_explorer(380)
    explorer.sliders[0].press("PageDown")
    explorer.sliders[0].press("ArrowDown")
    explorer.page.wait_for_timeout(300)  # as long as scrolling would take
    assert explorer.pi()[0] == 0.39
    assert explorer.page.evaluate("scrollY") == 0


def test_it_can_be_started_again(open_explorer):
    explorer = open_explorer()
    before = explorer.readout()
    explorer.drag(0, 0.3)
    explorer.drag(3, 0.3)
    assert explorer.readout() != before
    explorer.page.get_by_role("button", name="Start again").click()
    assert explorer.readout() == before
    assert explorer.pi() == [0.5, 0.4, 0.1]


@pytest.mark.parametrize("probs", [(0.2, 0.3, 0.5), (0.1, 0.2, 0.1, 0.1, 0.2, 0.3)])
def test_equal_policies_have_nothing_to_push(open_explorer, probs):
    explorer = open_explorer(probs=probs, ref_probs=probs)
    check(explorer)
    assert "The policies are equal" in explorer.readout()


def test_a_small_divergence_is_not_shown_as_none(open_explorer):
    explorer = open_explorer(probs=(0.34, 0.33, 0.33), ref_probs=(0.33, 0.33, 0.34))
    assert explorer.readout().startswith("KL(π‖πref) = 0.00030 nats")  # 0.01 · log(34/33)


def test_k3_can_point_backwards(open_explorer):
    explorer = open_explorer(probs=(0.01, 0.17, 0.82), ref_probs=(0.65, 0.01, 0.34))
    check(explorer)
    assert "96° away (cosine −0.10)" in explorer.readout()


def test_each_token_stands_at_its_value_as_high_as_its_probability(open_explorer):
    explorer = open_explorer()
    probs, ref_probs = explorer.probs()
    ticks = explorer.page.locator(".nb-values > text[text-anchor=middle]").evaluate_all(
        "texts => texts.map(text => [text.textContent, Number(text.getAttribute('x'))])"
    )
    at = {float(text.replace("−", "-")): x for text, x in ticks[:-1]}  # the last names the axis
    unit = (at[max(at)] - at[min(at)]) / (max(at) - min(at))
    for kind in KINDS:
        circles = explorer.page.locator(f"[data-estimator={kind}] circle").evaluate_all(
            "all => all.map(({cx, cy}) => [cx.baseVal.value, cy.baseVal.value])"
        )
        values = kl.estimate(probs.log(), ref_probs.log(), kind)
        xs, ys = torch.tensor(circles, dtype=torch.float64).T
        torch.testing.assert_close((xs - at[0]) / unit, values, atol=1e-3, rtol=0)
        heights = ys.max() - ys + 32 * probs.min()
        torch.testing.assert_close(heights / 32, probs, atol=1e-3, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_each_gradient_is_a_bar_within_the_outline_of_the_exact_one(open_explorer, kind):
    explorer = open_explorer()
    bars = explorer.page.locator(f"[data-gradient={kind}] rect").evaluate_all(
        "all => all.map(({y, height}) => [y.baseVal.value, height.baseVal.value])"
    )
    scale = numbers(explorer.texts(f"[data-gradient={kind}]")[3])[0]
    zero = max(y for y, _ in bars)  # where the bars below it begin
    heights = [(1 if y < zero else -1) * height / 22 * scale for y, height in bars]
    drawn, outline = heights[: explorer.count], heights[explorer.count :]
    assert drawn == pytest.approx(slopes(explorer, kind), abs=0.0006)
    assert outline == pytest.approx(slopes(explorer, "exact"), abs=0.0006)


def test_tokens_of_one_value_stand_on_each_other(open_explorer):
    explorer = open_explorer(probs=(0.2, 0.3, 0.5), ref_probs=(0.2, 0.3, 0.5))
    tips = explorer.page.locator("[data-estimator=k1] circle").evaluate_all(
        "all => all.map(circle => circle.cy.baseVal.value)"
    )
    assert [tips[0] - tips[1], tips[1] - tips[2]] == pytest.approx([32 * 0.3, 32 * 0.5])


CROWDED = {
    "three": {},
    "far apart": {"probs": (0.01, 0.01, 0.98), "ref_probs": (0.98, 0.01, 0.01)},
    "almost equal": {"probs": (0.34, 0.33, 0.33), "ref_probs": (0.33, 0.33, 0.34)},
    "equal": {"probs": (0.2, 0.3, 0.5), "ref_probs": (0.2, 0.3, 0.5)},
    "six long names": {
        "probs": (0.3, 0.2, 0.2, 0.1, 0.1, 0.1),
        "ref_probs": (0.05, 0.1, 0.15, 0.2, 0.25, 0.25),
        "names": ["answer", "twenty", "second", "<eos>", "prompt", "hello"],
    },
}


@pytest.mark.parametrize("width", [800, 380])
@pytest.mark.parametrize("case", CROWDED)
def test_no_label_covers_another(open_explorer, case, width):
    explorer = open_explorer(width, **CROWDED[case])
    assert explorer.page.locator("body").evaluate(OVERLAPS) == []
    assert explorer.page.evaluate("document.documentElement.scrollWidth") <= width
