"""The reference has every public function, as it is."""

import ast
import re

import pytest

from nbcourse.publishing import chapters, numbering, reference

ROOMS = sorted(reference.ROOMS)
# Machinery, and the checks, whose source would tell the answers.
NOT_FOR_READERS = {"builds", "checks", "classroom", "publishing", "recipes"}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    book = tmp_path_factory.mktemp("book")
    written = reference.write(book, numbering.places())
    return {name.rpartition("/")[2]: (book / f"{name}.md").read_text("utf-8") for name in written}


def test_every_room_that_readers_call_has_a_page(pages):
    folders = {path.parent.name for path in reference.PACKAGE.glob("*/__init__.py")}
    assert set(pages) == folders - NOT_FOR_READERS


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_has_an_entry_with_its_source(pages, room):
    for module in (reference.PACKAGE / room).glob("*.py"):
        section = pages[room].partition(f"\n## {room}.{module.stem}\n")[2].partition("\n## ")[0]
        for node in reference.public(module):
            entry = section.partition(f"\n### {node.name}\n")[2].partition("\n### ")[0]
            assert entry.startswith(f"\n```python\n{reference.signature(node)}\n```\n"), node.name
            assert f"nbcourse/{room}/{module.name}, line " in entry


@pytest.mark.parametrize("room", ROOMS)
def test_a_signature_is_the_code_s_own(room):
    for module in (reference.PACKAGE / room).glob("*.py"):
        for node in reference.public(module):
            if isinstance(node, ast.FunctionDef):
                again = ast.parse(f"def {reference.signature(node)}: ...").body[0]
                assert ast.dump(again.args) == ast.dump(node.args)


def test_an_entry_leads_to_its_equation_its_chapter_and_its_tests(pages):
    place = numbering.places()["eq-rloo"]
    entry = pages["functional"].partition("### leave_one_out\n")[2].partition("\n### ")[0]
    assert f"Book: equation [({place.number})](../02-sequences.ipynb#eq-rloo)." in entry
    assert "*Derived in* [chapter 2](../02-sequences.ipynb)." in entry
    assert "*Tested in* `tests/functional/test_advantages.py`, " in entry
    assert "mean reward of the *other* responses" in entry
    assert "- `group_size`: G, at least 2." in entry
    assert "return mean_baseline(rewards, group_size=group_size)" in entry
    assert entry.count("The baseline is independent of response i") == 1


def test_no_label_is_left_over(pages):
    for page in pages.values():
        prose = re.sub(r"^```.*?^```", "", page, flags=re.M | re.S)
        assert not re.search(r"(?<!\])\(eq-", prose)


def test_what_markdown_would_take_for_its_own_is_escaped(tmp_path):
    source = 'def f():\n    """a_b <c> [d] *e* 2 * 3, `g_h`."""\n'
    module = tmp_path / "module.py"
    module.write_text(source)
    (node,) = reference.public(module)
    assert reference.docstring(node, {}) == r"a\_b \<c\> \[d\] *e* 2 \* 3, `g_h`."


def test_the_reference_is_made_for_the_site_alone():
    assert not (chapters.BOOK / reference.FOLDER).exists()
