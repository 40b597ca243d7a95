"""An explorer on a page of its own, offline."""

from collections.abc import Callable, Iterator

import pytest


@pytest.fixture
def open_alone(open_tab, tmp_path) -> Iterator[Callable]:
    """open_alone(html) → the page that holds nothing else; it may not ask for anything, nor err."""
    tabs = []

    def open_one(html: str, width: int = 800, has_touch: bool = False):
        viewport = {"width": width, "height": 700}
        tab = open_tab(viewport=viewport, has_touch=has_touch, offline=True)
        tabs.append(tab)
        file = tmp_path / f"{len(tabs)}.html"
        file.write_text(f'<!doctype html><meta charset="utf-8">{html}', encoding="utf-8")
        tab.page.goto(file.as_uri())
        return tab.page

    yield open_one
    for tab in tabs:
        assert tab.errors == []
        assert tab.foreign == []
