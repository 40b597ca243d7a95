"""The stored form of the training panel on a page of its own: no kernel, no network, a slider."""

import pytest

from nbcourse.display import training_panel
from tests.browser.conftest import OVERLAPS
from tests.small import recipe

pytestmark = pytest.mark.browser


def test_the_slider_turns_over_the_texts_and_marks_their_step(open_alone, tmp_path):
    panel = training_panel(recipe(steps=3), folder=tmp_path / "run")
    assert open_alone(panel.html()).get_by_role("slider").count() == 0  # nothing to read yet
    panel.start()
    panel.wait()
    page = open_alone(panel.html(), width=390)
    slider = page.get_by_role("slider", name="texts of step")
    mark = page.locator(".nb-marked")
    places = []
    for step in (1, 2, 3):
        tables = page.locator(".nb-texts:visible")
        assert tables.all_inner_texts()[0].startswith(f"Written in step {step}")
        assert tables.count() == 1
        for sample in panel.run.samples[step]:
            assert sample.prompt in tables.inner_text()
        points = page.locator(".nb-curves svg").first.locator("circle")
        at = points.nth(step - 1).bounding_box()
        line = mark.bounding_box()
        places.append(abs(line["x"] + line["width"] / 2 - at["x"] - at["width"] / 2))
        slider.press("ArrowRight")
    assert max(places) < 1
    assert slider.get_attribute("aria-valuetext") == "step 3"
    assert slider.bounding_box()["height"] >= 44
    assert page.get_by_role("button").count() == 0
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert page.locator("body").evaluate(OVERLAPS) == []
