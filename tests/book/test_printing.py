"""Binding the pages of the site into one, for the book on paper."""

import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from nbcourse import EDITION, __version__
from nbcourse.errors import UserError
from nbcourse.publishing import chapters, printing

ADDRESS = '<link rel="canonical" href="https://book.example/{path}"/>'


FRONT = (
    '<html><head><meta property="og:site_name" content="Book"/>'
    '<meta name="description" content="Of bandits &amp; models."/>{head}</head>'
    '<body><p class="component-author">\n By The authors\n</p></body></html>'
)


def bound(pages: dict[str, str], head: str = "") -> BeautifulSoup:
    """These pages as the one part of a book."""
    whole = printing.bound(FRONT.format(head=head), {"Chapters": pages})
    return BeautifulSoup(whole, "html.parser")


def page(heading: str, body: str, head: str = "") -> str:
    return (
        f'<html><head><title>{heading}</title>{head}<meta property="og:site_name" content="Book"/>'
        f'</head><body><main><article class="bd-article"><section id="start"><h1>{heading}'
        f'<a class="headerlink" href="#start">#</a></h1>{body}</section></article></main></body>'
        "</html>"
    )


@pytest.mark.parametrize(
    ("at", "href", "leads_to"),
    [
        ("1.html", "#start", "#1--start"),
        ("1.html", "2.html#start", "#2--start"),
        ("1.html", "2.html", "#2"),
        ("1.html", "sheets/1.html#start", "#sheets-1--start"),
        ("sheets/1.html", "../2.html#start", "#2--start"),
        ("sheets/1.html", "1.html", "#sheets-1"),
        ("1.html", "https://arxiv.org/abs/1#start", "https://arxiv.org/abs/1#start"),
        ("1.html", "reference/index.html#gae", "https://book.example/reference/index.html#gae"),
        ("sheets/1.html", "../search.html", "https://book.example/search.html"),
    ],
)
def test_links_lead_within_the_book_or_to_its_address(at, href, leads_to):
    pages = {
        path: page(path, f'<a class="tried" href="{href}">x</a>' if path == at else "", address)
        for path in ("1.html", "2.html", "sheets/1.html")
        for address in (ADDRESS.format(path=path),)
    }
    soup = bound(pages)
    assert [link["href"] for link in soup.select("a.tried")] == [leads_to]
    if leads_to.startswith("#"):
        assert len(soup.select(f'[id="{leads_to[1:]}"]')) == 1


def test_without_an_address_no_link_is_dead():
    soup = bound({"1.html": page("1", '<a class="tried" href="search.html">x</a>')})
    assert soup.select_one("a.tried").attrs == {"class": ["tried"]}


def test_pictures_are_found_and_explorers_keep_their_names():
    body = (
        '<img src="../_images/a.svg"/><picture><source srcset="../_images/b.svg"/></picture>'
        '<img src="data:image/png;base64,AA"/><div id="nb-explorer-1"></div>'
    )
    soup = bound({"sheets/1.html": page("1", body)})
    assert [image["src"] for image in soup.select("img")] == [
        "_images/a.svg",
        "data:image/png;base64,AA",
    ]
    assert soup.select_one("source")["srcset"] == "_images/b.svg"
    assert len(soup.select("#nb-explorer-1")) == 1


def test_the_contents_list_every_page_in_order():
    parts = {
        "Chapters": {"1.html": page("One", ""), "2.html": page("Two", "")},
        "Exercises": {"sheets/1.html": page("A sheet", "")},
    }
    soup = BeautifulSoup(printing.bound(FRONT.format(head=""), parts), "html.parser")
    assert soup.title.string == "Book"
    _, contents, *articles = soup.select("main > article.bd-article")
    assert [heading.string for heading in contents.select("h2, h3")] == ["Contents", *parts]
    entries = [
        [(link.string, link["href"]) for link in entries.select("a")]
        for entries in contents.select("ul")
    ]
    assert entries == [[("One", "#1"), ("Two", "#2")], [("A sheet", "#sheets-1")]]
    assert [article["id"] for article in articles] == ["1", "2", "sheets-1"]
    headings = [re.sub("#$", "", article.h1.get_text()) for article in articles]
    assert headings == ["One", "Two", "A sheet"]


@pytest.mark.parametrize(
    ("head", "where"),
    [("", ""), (ADDRESS.format(path="intro.html"), ", https://book.example/")],
)
def test_the_first_page_says_what_the_book_is(head, where):
    title = bound({"1.html": page("One", "")}, head).select("main > article")[0]
    assert title.h1.string == "Book"
    assert [line.string for line in title.select("p")] == [
        "Of bandits & models.",
        "By The authors",
        f"{EDITION}: the pages of nbcourse {__version__}{where}",
    ]


@pytest.fixture
def printed(tmp_path, monkeypatch):
    """A built site of empty pages, and what is printed of it: file → what it holds."""
    site = tmp_path / "_build/html"
    site.mkdir(parents=True)
    for one in [*chapters.notebooks(), Path("intro.ipynb")]:
        (site / f"{one.stem}.html").write_text(page(one.stem, ""))
    files: dict[str, str] = {}
    monkeypatch.setattr(printing, "ROOT", tmp_path)
    monkeypatch.setattr(printing, "bound", lambda front, parts: " ".join(*parts.values()))
    monkeypatch.setattr(
        printing, "write", lambda one, pdf: files.update({pdf.name: one.read_text("utf-8")})
    )
    return files


def test_one_chapter_is_printed_by_itself(printed):
    printing.write_all(["10"])
    assert [*printed] == ["10-grpo.pdf"]


def test_several_chapters_are_bound_in_the_order_that_was_asked_for(printed):
    printing.write_all(["2", "bandit"])
    assert printed == {"chapters-2-1.pdf": "02-sequences.html 01-bandit.html"}


def test_a_chapter_that_there_is_not_is_refused_before_anything_is_printed(printed):
    with pytest.raises(UserError, match="no chapter '99'"):
        printing.write_all(["1", "99"])
    assert printed == {}


def test_each_article_of_a_book_knows_its_own_address():
    """By which what moves on a page says where: the page that is printed is none of the site."""
    pages = {path: page(path, "", ADDRESS.format(path=path)) for path in ("1.html", "2.html")}
    addresses = [one.get("data-address") for one in bound(pages).select("article[data-address]")]
    assert addresses == ["https://book.example/1.html", "https://book.example/2.html"]
    (nowhere,) = bound({"1.html": page("1", "")}).select("article[data-address]")
    assert nowhere["data-address"] == ""
