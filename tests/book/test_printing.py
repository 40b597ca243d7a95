"""Binding the pages of the site into one, for the book on paper."""

import re

import pytest
from bs4 import BeautifulSoup

from nbcourse.publishing import printing

ADDRESS = '<link rel="canonical" href="https://book.example/{path}"/>'


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
    soup = BeautifulSoup(printing.bound(pages), "html.parser")
    assert [link["href"] for link in soup.select("a.tried")] == [leads_to]
    if leads_to.startswith("#"):
        assert len(soup.select(f'[id="{leads_to[1:]}"]')) == 1


def test_without_an_address_no_link_is_dead():
    soup = BeautifulSoup(
        printing.bound({"1.html": page("1", '<a class="tried" href="search.html">x</a>')}),
        "html.parser",
    )
    assert soup.select_one("a.tried").attrs == {"class": ["tried"]}


def test_pictures_are_found_and_explorers_keep_their_names():
    body = (
        '<img src="../_images/a.svg"/><picture><source srcset="../_images/b.svg"/></picture>'
        '<img src="data:image/png;base64,AA"/><div id="nb-explorer-1"></div>'
    )
    soup = BeautifulSoup(printing.bound({"sheets/1.html": page("1", body)}), "html.parser")
    assert [image["src"] for image in soup.select("img")] == [
        "_images/a.svg",
        "data:image/png;base64,AA",
    ]
    assert soup.select_one("source")["srcset"] == "_images/b.svg"
    assert len(soup.select("#nb-explorer-1")) == 1


def test_the_contents_list_every_page_in_order():
    soup = BeautifulSoup(
        printing.bound({"1.html": page("One", ""), "sheets/1.html": page("A sheet", "")}),
        "html.parser",
    )
    assert soup.title.string == "Book"
    contents, *articles = soup.select("main > article.bd-article")
    assert contents.h1.string == "Book"
    entries = [(link.string, link["href"]) for link in contents.select("a")]
    assert entries == [("One", "#1"), ("A sheet", "#sheets-1")]
    assert [article["id"] for article in articles] == ["1", "sheets-1"]
    assert [re.sub("#$", "", article.h1.get_text()) for article in articles] == ["One", "A sheet"]
