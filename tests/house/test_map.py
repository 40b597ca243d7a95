"""The map of the package, nbcourse/README.md, is true: every room once, and every search ends."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "nbcourse"
MAP = (PACKAGE / "README.md").read_text("utf-8")
ROOMS = re.findall(r"^\| `([^` ]+)` \|", MAP, re.M)
SEARCHES = re.findall(r'`grep -rn "?([^"`]+?)"? (nbcourse[\w/]*)`', MAP)


def on_disk() -> set[str]:
    """Folders with something in them that git would keep, and modules."""
    folders = {
        f"{path.name}/"
        for path in PACKAGE.iterdir()
        if path.is_dir() and any(path.glob("[!_.]*")) and path.name != "__pycache__"
    }
    return folders | {path.name for path in PACKAGE.glob("[!_]*.py")}


def test_every_room_is_on_the_map_once():
    assert sorted(ROOMS) == sorted(on_disk())


def test_the_contributing_page_leads_to_the_map():
    first_screen = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("\n## ")[1]
    assert first_screen.startswith("Where things are")
    assert "](nbcourse/README.md)" in first_screen


@pytest.mark.parametrize(("words", "place"), SEARCHES)
def test_a_search_ends_in_a_handful_of_lines(words, place):
    """A definition is found once, a word in a few comments that say where it happens."""
    hits = [
        line
        for path in (ROOT / place).rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if words in line
    ]
    most = 1 if words.startswith(("def ", "class ")) else 20
    assert 1 <= len(hits) <= most, hits


def test_the_map_names_three_searches():
    assert len(SEARCHES) == 3
