"""The book for e-readers: pages become what an e-reader knows, and links lead within."""

import zipfile
from xml.etree import ElementTree

import pytest
from bs4 import BeautifulSoup, Tag

from nbcourse.errors import UserError
from nbcourse.publishing import epub, stills

MATH = (
    '<mjx-container tabindex="0"><mjx-math>x</mjx-math><mjx-assistive-mml>'
    '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block"><mi data-x="y">x</mi></math>'
    "</mjx-assistive-mml></mjx-container>"
)
BODY = {
    "intro.html": '<p class="component-author">By The authors</p>',
    "01-one.html": (
        f"{MATH}<details class='nb-deeper'><summary>Go deeper</summary><p>Within.</p></details>"
        '<a href="exercises/01-one.html#task">in</a><a href="genindex.html">out</a>'
        '<a href="https://arxiv.org/abs/1">far</a>'
        '<div><div class="nb-explorer" id="nb-explorer-1">Run this.</div>'
        "<script>1 < 2</script></div>"
        '<div><div class="nb-explorer" id="nb-explorer-2">Run this.</div></div>'
        '<picture><source srcset="_images/a-phone.svg"/>'
        '<img src="_images/a.svg" loading="lazy"/></picture>'
    ),
    "exercises/01-one.html": '<p id="task"><img src="../_images/a.svg" alt="A &amp; B"/></p>',
}


PICTURE = "_images/nb-explorer-1-0.svg"
DRAWN = stills.Stills(
    {"nb-explorer-1": Tag(name="div", attrs={"class": "nb-explorer"})},
    {PICTURE: '<svg xmlns="http://www.w3.org/2000/svg"/>'},
)
DRAWN.explorers["nb-explorer-1"].append(Tag(name="img", attrs={"src": PICTURE}))


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    site = tmp_path_factory.mktemp("site")
    (site / "exercises").mkdir()
    (site / "_images").mkdir()
    (site / "_images" / "a.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    for path, body in BODY.items():
        head = '<meta property="og:site_name" content="Book"/>'
        article = (
            f'<article class="bd-article"><section id="s"><h1>{path}</h1>{body}</section></article>'
        )
        (site / path).write_text(f"<html><head>{head}</head><body>{article}</body></html>")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stills, "draw", lambda outputs: DRAWN if [*outputs] else None)
        epub.write(site, site / "book.epub")
    with zipfile.ZipFile(site / "book.epub") as archive:
        assert archive.namelist()[0] == "mimetype"  # and not compressed, as readers ask
        assert archive.infolist()[0].compress_type == zipfile.ZIP_STORED
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_every_page_is_xml_and_named_once_in_the_package(book):
    for name, text in book.items():
        if name.endswith((".xhtml", ".opf", ".xml", ".svg")):
            ElementTree.fromstring(text)
    package = book["book/content.opf"]
    named = {name.removeprefix("book/") for name in book if name.startswith("book/")}
    assert all(package.count(f'href="{name}"') == 1 for name in named - {"content.opf"})
    assert 'href="01-one.xhtml" media-type="application/xhtml+xml" properties="mathml"' in package
    assert "<dc:creator>The authors</dc:creator>" in package
    assert '<a href="exercises-01-one.xhtml">' in book["book/nav.xhtml"]


def test_a_page_keeps_what_an_e_reader_can_show(book):
    page = BeautifulSoup(book["book/01-one.xhtml"], "html.parser")
    assert page.select_one("math[display=block] mi").attrs == {}
    assert page.select("mjx-container, details, summary, script, picture, source, svg") == []
    assert "Within." in page.get_text()
    assert page.get_text().count(epub.MOVES) == 2
    assert "Run this" not in page.get_text()
    shown, image = page.select("img")
    assert shown.find_parent(class_="nb-explorer") is not None
    assert book[f"book/{shown['src']}"] == DRAWN.pictures[shown["src"]]
    assert image.attrs == {"src": "_images/a.svg", "alt": ""}
    assert [link.get("href") for link in page.select("a")] == [
        "exercises-01-one.xhtml#task",
        None,
        "https://arxiv.org/abs/1",
    ]
    assert '<img alt="A &amp; B" src="_images/a.svg"/>' in book["book/exercises-01-one.xhtml"]


def test_without_pages_there_is_no_book(tmp_path):
    with pytest.raises(UserError, match="the pages are not built; run: nbcourse site"):
        epub.write(tmp_path, tmp_path / "book.epub")
