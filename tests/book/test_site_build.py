"""What the site builder objects to, without a browser."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from IPython.core.interactiveshell import InteractiveShell
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from nbcourse import installation
from nbcourse.publishing import (
    hosted,
    mathematics,
    pages,
    reference,
    site,
    stored,
)
from nbcourse.publishing.chapters import ROOT

PROSE = "The first words of a page, which are long enough to describe it, & more."
EQUATION = '<div id="eq-x"></div>\n\n\\begin{equation*}\nx \\\\ y\n\\tag{1.1}\n\\end{equation*}'
SECTION = '<div id="sec-1-1"></div>\n\n## 1.1 Title'
LINKS = "See [(1.1)](#eq-x), [(1.1)](01-one.ipynb#eq-x) and [section 1.1](#sec-1-1)."
TABLE = """| name | value | mixed |
| --- | --- | --- |
| -a | -0.5 | +0.1 (-2e-3 to 0.2%) |
| 9=-8 | 1e-3 | 4-6 |"""

QUESTION = """:::{admonition} The question of this chapter
A sentence that leads to it. **Why?**

*Run time:* none.
:::

> It surprises \\<everyone> ([figure 1.1](#fig-x)), so look."""
SVG = """<svg width="72pt" height="36pt" xmlns="http://www.w3.org/2000/svg"><g id="figure_1">
<g id="patch_1"/><g id="axes_1"><path d="M 1 1 L 2 1"/></g></g></svg>
"""  # Matplotlib ends its last line
FOR_PHONES = {"image/svg+xml": {"phone": SVG.replace("72pt", "36pt")}}
DRAWN = new_output("display_data", {"image/svg+xml": SVG}, metadata=FOR_PHONES)
DRAWING = new_code_cell("draw()", outputs=[DRAWN])
CAPTION = '<div id="fig-x"></div>\n\n*Figure 1.1.* What it shows.\n\n<!-- alt: A line. -->'


def write_book(root: Path, *cells: str | NotebookNode) -> Path:
    """The root of a book whose one chapter has these cells, and whose sheet has a link to it."""
    (root / "book" / "exercises").mkdir(parents=True)
    for name in ("_config.yml", "_toc.yml"):
        shutil.copy(ROOT / name, root)
    for name in ("_static", "_templates"):
        shutil.copytree(ROOT / "book" / name, root / "book" / name)
    (root / "book" / "intro.md").write_text("# The book\n")
    for name, contents in {
        "01-one": ("# One", *cells),
        "exercises/01-one": ("# Sheet",),
        "appendix-a-last": ("# Last",),  # a part without a page is refused
    }.items():
        notebook = new_notebook(
            cells=[new_markdown_cell(one) if isinstance(one, str) else one for one in contents]
        )
        stored.write(notebook, root / "book" / f"{name}.ipynb")
    return root


@pytest.fixture(scope="module", autouse=True)
def without_reference(forked):
    """These books have no reference, whose equations they do not have either."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "ROOMS", {})
        yield


@pytest.fixture(scope="module")
def healthy(tmp_path_factory, without_reference) -> Path:
    """The root of a small book without a mistake."""
    cells = (PROSE, QUESTION, EQUATION, SECTION, LINKS, TABLE, DRAWING, CAPTION)
    root = write_book(tmp_path_factory.mktemp("healthy"), *cells)
    from_sheet = new_markdown_cell("# Sheet\n\n[(1.1)](../01-one.ipynb#eq-x)")
    stored.write(new_notebook(cells=[from_sheet]), root / "book" / "exercises" / "01-one.ipynb")
    return root


@pytest.fixture(scope="module")
def built(healthy) -> Path:
    """The pages of that book."""
    return site.build(healthy, root=healthy)


@pytest.mark.parametrize(
    ("page", "breadcrumbs"),
    [
        ("01-one", ["Chapters", "One"]),
        ("exercises/01-one", ["Exercises", "Sheet"]),
        ("appendix-a-last", ["Appendices", "Last"]),
        ("intro", []),
        ("genindex", []),
    ],
)
def test_a_page_says_where_it_stands(built, page, breadcrumbs):
    html = (built / f"{page}.html").read_text(encoding="utf-8")
    (found,) = re.findall(r'class="nb-breadcrumbs".*?</nav>', html, re.DOTALL) or [""]
    assert re.findall(r"<li[^>]*>([^<]+)</li>", found) == breadcrumbs


def test_a_small_window_gets_the_drawing_for_phones(built):
    page = BeautifulSoup((built / "01-one.html").read_text(encoding="utf-8"), "html.parser")
    drawings = page.select("img[src$='.svg']")
    assert len(drawings) == 2  # the one that opens the chapter, and where it belongs
    for drawing in drawings:
        source = drawing.parent.find("source")
        assert source["srcset"] == drawing["src"].replace(".svg", "-phone.svg")
        assert (built / source["srcset"]).exists()
        assert (source["width"], drawing["width"]) == ("48", "96")


def test_a_book_is_built_with_its_own_mathematics(built):
    page = (built / "01-one.html").read_text(encoding="utf-8")
    assert re.search(r'id="eq-x">\s*<span class="eqno">\(1\.1\)', page)
    assert "tag{" not in page
    assert page.count('href="#eq-x"') == 3  # two links, and the one beside the number
    assert page.index('id="sec-1-1"') < page.index("<h2>1.1 Title")
    assert '../01-one.html#eq-x"' in (built / "exercises" / "01-one.html").read_text("utf-8")
    assert page.count("<mjx-container") > 0
    assert "mathjax/" not in page
    fonts = re.findall(r'url\("([^"]+)"\)', (built / "_static" / mathematics.SHEET).read_text())
    assert fonts
    assert all((built / "_static" / font).exists() for font in fonts)


def test_a_chapter_opens_with_its_question_and_a_picture(built):
    page = BeautifulSoup((built / "01-one.html").read_text("utf-8"), "html.parser")
    opening = page.select_one(".nb-opening")
    words = ["A sentence that leads to it. Why?", "It surprises <everyone> (figure 1.1), so look."]
    assert [part.get_text() for part in opening.select("p")] == [*words, "Run time: none."]
    assert page.select_one(".admonition") is None
    assert page.blockquote is None
    first, drawing = page.select("article img")
    assert first.find_parent(class_="nb-shown").find_next("p").get_text() == words[1]
    assert first["src"] == drawing["src"]  # the same file, and with it its description and size
    assert [first["alt"], first["width"], first["height"]] == ["A line.", "96", "48"]
    assert (first.get("fetchpriority"), first.get("loading")) == ("high", None)
    assert (drawing.get("fetchpriority"), drawing.get("loading")) == (None, "lazy")
    assert opening.a["href"] == "#fig-x"
    cell = page.find(id="fig-x")
    assert drawing in cell.select("img")
    assert cell.select_one(":scope > .nb-caption").get_text() == "Figure 1.1. What it shows."
    ids = [part["id"] for part in page.select("[id]")]
    assert len(ids) == len(set(ids))


def test_a_page_offers_its_notebook(built, healthy):
    page = (built / "01-one.html").read_text(encoding="utf-8")
    assert 'href="_sources/01-one.ipynb"' in page
    offered, chapter = built / "_sources" / "01-one.ipynb", healthy / "book" / "01-one.ipynb"
    assert offered.read_bytes() == chapter.read_bytes()


def test_columns_of_numbers_stand_to_the_right_with_a_minus(built):
    page = (built / "01-one.html").read_text("utf-8")
    cells = re.findall(r'<t[hd](?: class="([^"]*)")?><p>([^<]*)</p>', page)
    assert [text for names, text in cells if "nb-number" in names] == ["value", "−0.5", "1e−3"]
    others = [text for names, text in cells if "nb-number" not in names][:6]
    assert others == ["name", "mixed", "-a", "+0.1 (−2e−3 to 0.2%)", "9=-8", "4-6"]


def test_mistakes_in_formulas_and_references_fail_and_are_placed(tmp_path):
    cells = ("Fine: $x$.", r"$\frac{1$", "See {eq}`eq-no`.", "See [x](01-one.ipynb#eq-none).")
    root = write_book(tmp_path, *cells)
    with pytest.raises(site.SiteFailed) as caught:
        site.build(root, root=root)
    for mistake in ("Missing close brace", r"eq-no\b", "eq-none"):
        assert re.search(rf"01-one\.ipynb(, cell \d)?: .*{mistake}", str(caught.value)), mistake


def test_without_an_address_a_page_names_none(built):
    page = (built / "01-one.html").read_text("utf-8")
    assert 'name="description" content="The first words of a page, which' in page
    assert 'property="og:title" content="One"' in page
    for absent in ("canonical", "og:image", "github", "colab", "mybinder"):
        assert absent not in page
    for absent in ("sitemap.xml", "404.html"):
        assert not (built / absent).exists()


def test_one_setting_gives_the_site_its_address(tmp_path):
    root = write_book(tmp_path, PROSE)
    config = root / "_config.yml"
    assert config.read_text("utf-8").count('repository_url: ""') == 1
    repository = "https://github.com/Someone/a-book"
    config.write_text(config.read_text("utf-8").replace('url: ""', f'url: "{repository}"'), "utf-8")
    addressed = site.build(root, root=root)
    page = (addressed / "01-one.html").read_text("utf-8")
    home = "https://someone.github.io/a-book/"
    assert f'<link rel="canonical" href="{home}01-one.html" />' in page
    assert f'href="{repository}"' in page
    assert (
        "https://colab.research.google.com/github/Someone/a-book/blob/"
        "gh-pages/_sources/01-one.ipynb" in page
    )
    first, *cells = stored.read(addressed / "_sources" / "01-one.ipynb").cells
    assert f"git clone --quiet --depth 1 {repository} nbcourse-book" in first.source
    own = stored.read(root / "book" / "01-one.ipynb").cells
    assert [cell.source for cell in cells] == [cell.source for cell in own]
    assert "https://mybinder.org/v2/gh/Someone/a-book/main?urlpath=lab/tree/book/01-one" in page
    assert f'property="og:image" content="{home}{pages.PICTURE}"' in page
    assert (addressed / pages.PICTURE).exists()
    assert f"<loc>{home}exercises/01-one.html</loc>" in (addressed / "sitemap.xml").read_text()
    assert home in (addressed / "404.html").read_text()


def test_where_the_book_is_installed_the_first_cell_does_nothing():
    cell = hosted.installing(new_notebook(), "https://github.com/someone/a-book").cells[0]
    shell = InteractiveShell()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shell, "system", lambda command: pytest.fail(command))
        assert shell.run_cell(cell.source).success


def test_what_it_installs_beside_the_extras_is_in_the_range_of_the_book():
    assert "ipywidgets>=8.1" in hosted.DRAWING
    assert "ipywidgets>=8.1" in installation.declared()["book"]


def test_the_lock_for_a_host_leaves_its_torch_and_its_kernel_alone(tmp_path):
    lock = (ROOT / "requirements.txt").read_text()
    done = subprocess.run(hosted.LOCKED, shell=True, input=lock, capture_output=True, text=True)
    names = {line.partition("==")[0] for line in done.stdout.splitlines() if "==" in line}
    assert {"transformers", "peft", "gymnasium", "annotated-types"} <= names
    assert not {"torch", "numpy", "ipykernel", "ipython", "tornado", "traitlets"} & names


def test_elsewhere_it_fetches_installs_and_finds_the_book(monkeypatch):
    cell = hosted.installing(new_notebook(), "https://github.com/someone/a-book").cells[0]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "path", list(sys.path))
    shell, called = InteractiveShell(), []
    shell.system = called.append
    shell.run_line_magic = lambda name, line, **_: called.append(f"%{name} {line}")
    shell.run_cell(cell.source).raise_error()
    assert called == [
        "git clone --quiet --depth 1 https://github.com/someone/a-book nbcourse-book",
        f"{hosted.LOCKED} nbcourse-book/requirements.txt > nbcourse-book/hosted.txt",
        "%pip install --quiet --constraint nbcourse-book/hosted.txt --editable "
        '"./nbcourse-book[lm,agents]" matplotlib "ipywidgets>=8.1"',
        "%cd nbcourse-book/book",
    ]
    assert sys.path[0] == os.path.abspath("..")  # wherever the notebook goes from here


@pytest.mark.parametrize(
    ("repository", "address"),
    [
        ("https://github.com/Someone/a-book", "https://someone.github.io/a-book/"),
        ("https://github.com/someone/a-book.git", "https://someone.github.io/a-book/"),
        ("", ""),
        ("https://github.com/someone", ""),
    ],
)
def test_the_address_comes_from_the_repository(repository, address):
    assert pages.address(repository) == address


def test_a_picture_on_another_host_fails(tmp_path):
    root = write_book(
        tmp_path, "![x](https://example.org/x.png)", "[a link](https://example.org) is fine"
    )
    with pytest.raises(site.SiteFailed, match=r"01-one.html: <img src=https://example.org/x.png>"):
        site.build(root, root=root)


def test_a_missing_front_page_is_said_without_a_stack_trace(tmp_path):
    root = write_book(tmp_path)
    (root / "book" / "intro.md").unlink()
    with pytest.raises(site.SiteFailed, match="unable to load the master document") as caught:
        site.build(root, root=root)
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://x.org/a.js"></script>',
        "<script async src='//x.org/a.js'></script>",
        '<link rel="stylesheet" href="http://x.org/a.css">',
        '<img alt="" src="https://x.org/a.png"/>',
        '<iframe src="https://x.org"></iframe>',
        '<img srcset="https://x.org/a.png 2x">',
        "<style>@import 'https://x.org/a.css';</style>",
        "<p style=\"background: url('https://x.org/a.png')\">",
        "<style>p { background: url(//x.org/a.png) }</style>",
    ],
)
def test_what_a_browser_would_fetch_is_found(html):
    assert len(site.addresses_in_page(f"<html><body>{html}</body></html>")) == 1


@pytest.mark.parametrize(
    "html",
    [
        '<a href="https://x.org">a link</a>',
        '<script src="_static/a.js"></script>',
        '<img src="data:image/png;base64,AA//BB==">',
        '<svg xmlns="http://www.w3.org/2000/svg"></svg>',
        "<script>// see https://x.org</script>",
        "<pre>src=https://x.org</pre>",
    ],
)
def test_what_it_would_not_fetch_is_let_be(html):
    assert site.addresses_in_page(html) == []
