"""Old links to what moved to another page still lead there."""

import json
import re

import pytest
from docutils.nodes import make_id

from nbcourse.publishing import chapters, numbering

SCRIPT = (chapters.BOOK / "_static/moved.js").read_text(encoding="utf-8")
MOVED = json.loads(SCRIPT[SCRIPT.index("{") : SCRIPT.index("};") + 1])


def anchors(page: str) -> set[str]:
    """What links may name on a page: its labels, and its headings as Sphinx writes them."""
    text = (chapters.BOOK / "text" / f"{page}.md").read_text(encoding="utf-8")
    headings = re.findall(r"^#{2,4} (?:[\dA-Z]+\.\d+ )?(?:○ )?(.*)$", text, re.M)
    labels = [label for label, at in numbering.places().items() if at.chapter == page]
    return {*labels, *map(make_id, headings)}


@pytest.mark.parametrize("page", MOVED)
def test_what_moved_is_where_its_links_lead_and_no_longer_where_it_was(page):
    for target, moved in MOVED[page].items():
        assert set(moved) - anchors(target) == set()
        assert set(moved) & anchors(page) == set()
