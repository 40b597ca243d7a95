"""One numbering: what a text labels has the same number in every form, and every link arrives."""

import ast
import itertools
import re
from functools import cache
from pathlib import Path

import pytest
from nbformat.v4 import new_markdown_cell, new_notebook

from nbcourse.errors import UserError
from nbcourse.publishing import bibliography, chapters, numbering, stored, twins

TEXTS = [*chapters.texts(), *chapters.texts(chapters.SOLUTIONS)]
NOTEBOOKS = [*chapters.notebooks(), *chapters.notebooks(chapters.BOOK / "exercises")]
ROOT = chapters.ROOT
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s#]*)#((?:eq|fig|tab|sec)-[a-z0-9-]+)\)")
ANCHOR = re.compile(r'<div id="([a-z0-9-]+)"></div>')


def prose(notebook) -> str:
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


@cache
def anchors(path: Path) -> list[str]:
    return ANCHOR.findall(prose(stored.read(path)))


# ---------------------------------------------------------------- the book


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: f"{path.parent.parent.name}/{path.stem}")
def test_no_label_is_left_over(text):
    """A broken label raises here; one of a foreign form would be left."""
    written = re.sub(r"`[^`\n]*`", "", prose(twins.read_text(text)))
    assert (
        re.findall(r"\((?:eq|fig|tab|sec)-[^)]*\)|\{[a-z:]+\}`|^\$\$|\\(?:eq)?ref", written) == []
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_link_between_notebooks_arrives(path):
    for file, anchor in LINK.findall(prose(stored.read(path))):
        target = (path.parent / file).resolve() if file else path
        assert anchors(target).count(anchor) == 1, (file, anchor)


def test_the_numbers_of_a_chapter_go_up_by_one():
    places = numbering.places()
    for text in chapters.texts():
        own = {label: place for label, place in places.items() if place.chapter == text.stem}
        for kind in ("eq", "fig", "tab", "sec"):
            numbers = [place.number for place in own.values() if place.anchor.startswith(kind)]
            chapter = chapters.names(text)[0].upper()
            assert numbers == [f"{chapter}.{i}" for i in range(1, len(numbers) + 1)]


def test_every_equation_that_a_docstring_names_has_a_number():
    places = numbering.places()
    for path in (ROOT / "nbcourse").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                for label in re.findall(r"\((eq-[a-z0-9-]+)\)", ast.get_docstring(node) or ""):
                    assert re.fullmatch(r"(\d+|[A-Z])\.\d+", places[label].number), (path, label)


def test_every_figure_has_a_caption_behind_it():
    """A cell that shows one is followed by its caption."""
    for path in chapters.notebooks():
        cells = stored.read(path).cells
        for cell, after in zip(cells, [*cells[1:], None], strict=True):
            if any("image/svg+xml" in output.get("data", {}) for output in cell.get("outputs", [])):
                assert after is not None
                assert after.source.startswith('<div id="fig-'), (path.name, cell.id)


def test_the_caption_of_a_table_stands_behind_it():
    """Behind the cell that shows one, or in the text below one that is written by hand.

    Below the table the cell may print a line more.
    """
    found = 0
    for path in chapters.notebooks():
        cells = stored.read(path).cells
        for before, cell in itertools.pairwise(cells):
            if cell.source.startswith('<div id="tab-'):
                shown = [out.get("data", {}).get("text/markdown", "") for out in before.outputs]
                assert any(text.startswith("|") for text in shown), (path.name, cell.id)
                found += 1
            assert '\n<div id="tab-' not in re.sub(r"\|\n\n<div", "", cell.source)
    assert found > 4


# ---------------------------------------------------------------- a small book

ONE = r"""# 1 · One

## 1.1 First

```
$$
z
$$ (eq-in-code) {eq}`eq-x` section 1.1
```

$$
x_1 = 2
$$ (eq-x)

See {eq}`eq-x`, {eq}`eq-y`, {eq}`eq-z`,
sections 1.1 and 2.1,
appendix B.1 and (B.1).

$$
\begin{aligned} a &= b \\ c &= d \end{aligned}
$$

> - quoted

* an item

  $$
  y
  $$ (eq-in-a-list)

*Figure (fig-x).* A caption, and {numref}`fig-x`.

*Table (tab-x).* A table's, with {numref}`tab-x` and {numref}`tab-y`.

*Table (tab-y).* Another.

`section 1.1`, $section 1.1$ and [section 1.1](https://example.org) stay; section 4.1.2 as well.

## Readings

- Someone (1992). Section 2.1 is theirs,
  section 1.1 ours, and {eq}`eq-y` as well.
  Sections 1.1 and 2.1 and section 1.9 are theirs.
"""

NUMBERED = r"""# 1 · One

<div id="sec-1-1"></div>

## 1.1 First

```
$$
z
$$ (eq-in-code) {eq}`eq-x` section 1.1
```

<div id="eq-x"></div>

\begin{equation*}
x_1 = 2
\tag{1.1}
\end{equation*}

See [(1.1)](#eq-x), [(2.1)](02-two.ipynb#eq-y), [(B.1)](appendix-b-last.ipynb#eq-z),
[sections 1.1](#sec-1-1) and [2.1](02-two.ipynb#sec-2-1),
[appendix B.1](appendix-b-last.ipynb#sec-b-1) and ([B.1](appendix-b-last.ipynb#sec-b-1)).

\begin{equation*}
\begin{aligned} a &= b \\ c &= d \end{aligned}
\end{equation*}

> - quoted

* an item

  <div id="eq-in-a-list"></div>

  \begin{equation*}
  y
  \tag{1.2}
  \end{equation*}

<div id="fig-x"></div>

*Figure 1.1.* A caption, and [figure 1.1](#fig-x).

<div id="tab-x"></div>

*Table 1.1.* A table's, with [table 1.1](#tab-x) and [table 1.2](#tab-y).

<div id="tab-y"></div>

*Table 1.2.* Another.

`section 1.1`, $section 1.1$ and [section 1.1](https://example.org) stay; section 4.1.2 as well.

## Readings

- Someone (1992). Section 2.1 is theirs,
  [section 1.1](#sec-1-1) ours, and [(2.1)](02-two.ipynb#eq-y) as well.
  Sections 1.1 and 2.1 and section 1.9 are theirs.
"""
TWO = "# 2 · Two\n\n## 2.1 First\n\n$$\ny\n$$ (eq-y)\n"
LAST = "# B · Last\n\n### B.1 · First\n\n$$\nz\n$$ (eq-z)\n"


@pytest.fixture
def book(tmp_path):
    """The texts of a book of two chapters and an appendix; write(name, source) changes them."""

    def write(name: str, source: str):
        text = tmp_path / f"{name}.md"
        text.parent.mkdir(parents=True, exist_ok=True)
        text.write_text(source, encoding="utf-8")
        return text

    write("book/text/01-one", ONE)
    write("book/text/02-two", TWO)
    write("book/text/appendix-b-last", LAST)
    return write


def test_a_chapter_is_numbered_and_its_text_comes_back(book):
    notebook = twins.read_text(book("book/text/01-one", ONE))
    assert prose(notebook) + "\n" == NUMBERED
    assert prose(numbering.plain(notebook)) + "\n" == ONE


def test_an_equation_more_in_front_moves_the_numbers_of_all_that_refer_to_it(book):
    book("book/text/02-two", TWO.replace("## 2.1 First", "## 2.1 First\n\n$$\nw\n$$ (eq-w)"))
    assert "[(2.2)](02-two.ipynb#eq-y)" in prose(twins.read_text(book("book/text/01-one", ONE)))


def test_exercises_link_to_the_chapters_one_folder_up(book):
    sheet = twins.read_text(book("solutions/text/01-one", "It is {eq}`eq-y`, of section 2.1."))
    assert prose(sheet) == "It is [(2.1)](../02-two.ipynb#eq-y), of section 2.1."
    assert prose(numbering.plain(sheet)) == "It is {eq}`eq-y`, of section 2.1."


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{eq}`eq-q`", "03-three.md: {eq}`eq-q` leads nowhere in the book; did you mean 'eq-"),
        ("{numref}`fig-nothing`", "{numref}`fig-nothing` leads nowhere in the book"),
        ("{numref}`tab-z`", "{numref}`tab-z` leads nowhere in the book; did you mean 'tab-"),
        ("see section 1.9", "section 1.9 leads nowhere in the book"),
        ("$$\nx\n$$ (eq-x)", "eq-x is in 01-one and again in 03-three"),
        ("## 1.1 Again", "1.1 is in 01-one and again in 03-three"),
    ],
)
def test_a_broken_or_foreign_label_is_named(book, source, message):
    with pytest.raises(UserError) as caught:
        twins.read_text(book("book/text/03-three", source))
    assert message in str(caught.value)


def test_a_number_that_is_no_longer_right_is_a_difference(book):
    text = book("book/text/02-two", TWO)
    notebook = twins.to_notebook(text)
    assert twins.difference(notebook) == ""
    book("book/text/02-two", TWO.replace("$$\ny", "$$\nw\n$$ (eq-w)\n\n$$\ny"))
    stored.write(new_notebook(cells=[new_markdown_cell(prose(stored.read(notebook)))]), notebook)
    assert "-\\tag{2.2}" in twins.difference(notebook)


# ---------------------------------------------------------------- citations

WORK = bibliography.Work("Doe & Roe", "2024", "A title", "https://arxiv.org/abs/2402.03300")
CITES = "It is known ({cite}`doe2024title`, theorem 1).\n\n```\n{cite}`none`\n```"


def test_a_citation_is_a_link_that_has_the_title_and_leads_back():
    write = numbering.Writer({}, {WORK.key: WORK}, "01-one.md", "01-one")
    link = '[Doe & Roe 2024](https://arxiv.org/abs/2402.03300 "A title")'
    written = write(CITES)
    assert written == CITES.replace("{cite}`doe2024title`", link)
    notebook = new_notebook(cells=[new_markdown_cell(written)])
    assert numbering.plain(notebook).cells[0].source == CITES


def test_a_key_of_no_work_is_refused_by_name():
    write = numbering.Writer({}, {WORK.key: WORK}, "01-one.md", "01-one")
    with pytest.raises(UserError, match=r"01-one\.md: \{cite\}`doe2024titel` .*doe2024title"):
        write("See {cite}`doe2024titel`.")
