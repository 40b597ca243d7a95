"""The book on paper: pages of the site as PDF, made by an installed Chromium or Chrome.

The rules for paper are in the pages themselves, `book.css` and `print.js` of `book/_static`, so a
reader who prints from a browser gets the same.
"""

import posixpath
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from bs4 import BeautifulSoup, Tag

from nbcourse import EDITION, __version__, installation
from nbcourse.errors import NotAvailable, UserError
from nbcourse.progress import track
from nbcourse.publishing import chapters
from nbcourse.repository import ROOT

# Our own pages, from the disk, need no sandbox (containers offer none).
OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
OPTIONS += ["--generate-pdf-document-outline"]  # headings in the reader's side bar
PARTS = {
    "Chapters": "[0-9][0-9]-*.html",
    "Exercises": "exercises/[0-9][0-9]-*.html",
    "Appendices": "appendix-*.html",
}
TITLE_PAGE = "nb-title-page"  # a class that only the bound book has
PATIENCE = 60_000  # milliseconds of the page's own clock, until its mathematics is drawn


def write_all(wanted: Sequence[str]) -> None:
    """Print chapters of the built site into `_build/pdf`.

    Args:
        wanted: one chapter is printed by itself, several are bound into one file; for none, every
            chapter is printed, and the book.

    Raises:
        UserError: if the pages are not built, or there is no such chapter.
        NotAvailable: if there is no browser, or it does not print.
    """
    site, folder = ROOT / "_build/html", ROOT / "_build/pdf"
    found = [chapters.find(one) for one in wanted] or chapters.notebooks()
    pages = [site / f"{one.stem}.html" for one in found]
    if not all(page.exists() for page in pages):
        raise UserError("the pages are not built; run: nbcourse site")
    if len(wanted) > 1:
        name = "-".join(chapters.names(one)[0] for one in found)
        write_bound(site, {"Chapters": pages}, folder / f"chapters-{name}.pdf")
        return
    for page in track(pages, "printing"):
        write(page, folder / f"{page.stem}.pdf")
    if not wanted:
        parts = {name: sorted(site.glob(pattern)) for name, pattern in PARTS.items()}
        write_bound(site, parts, folder / "book.pdf")


def write(page: Path, pdf: Path) -> None:
    """Print a page of the built site into a file.

    Raises:
        NotAvailable: if there is no browser, or it does not print.
    """
    browser = installation.browser()
    if browser is None:
        raise NotAvailable("printing needs Chromium or Chrome, and neither was found")
    pdf.parent.mkdir(parents=True, exist_ok=True)
    done = opened(page, browser, f"--print-to-pdf={pdf}")
    if done.returncode != 0 or not pdf.exists():
        raise NotAvailable(f"{browser} did not print {page.name}: {reason(done)}")


def opened(page: Path, browser: str, option: str) -> subprocess.CompletedProcess[str]:
    """What a browser without a window says of a page, once its mathematics is drawn."""
    command = [browser, *OPTIONS, f"--virtual-time-budget={PATIENCE}", option]
    return subprocess.run(
        [*command, page.resolve().as_uri()],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )


def reason(done: subprocess.CompletedProcess[str]) -> str:
    """The last line of what a browser complains of."""
    return (done.stderr.strip().splitlines() or ["it said nothing"])[-1]


def write_bound(site: Path, parts: Mapping[str, Sequence[Path]], pdf: Path) -> None:
    """Print pages of the built site into one file.

    Args:
        site: where they lie.
        parts: the pages of each part by its name, in the order in which to bind them.
        pdf: the file.

    Raises:
        NotAvailable: if there is no browser, or it does not print.
    """
    texts = {
        name: {page.relative_to(site).as_posix(): page.read_text("utf-8") for page in pages}
        for name, pages in parts.items()
    }
    front = (site / "intro.html").read_text("utf-8")
    whole = site / "whole-book.html"  # beside the pages, whose pictures and styles it uses
    whole.write_text(bound(front, texts), encoding="utf-8")
    try:
        write(whole, pdf)
    finally:
        whole.unlink()


def bound(front: str, parts: Mapping[str, Mapping[str, str]]) -> str:
    """One page that holds the articles of many, behind a title page and a list of contents.

    Links between the pages lead within it; links to other pages of the site lead to the site's
    address, or nowhere if it has none.

    Args:
        front: the HTML of the site's first page, for what it says of itself.
        parts: for the name of each part the HTML of its pages by their paths in the site, in the
            order in which to bind them.

    Returns:
        The HTML of the page, which is to lie at the site's root.
    """
    pages = {path: text for part in parts.values() for path, text in part.items()}
    soups = {path: BeautifulSoup(text, "html.parser") for path, text in pages.items()}
    frame = BeautifulSoup(next(iter(pages.values())), "html.parser")
    first(frame, "title").string = about(frame, "property='og:site_name'")
    contents = [frame.new_tag("h2", string="Contents")]
    articles = []
    for name, part in parts.items():
        entries = frame.new_tag("ul")
        for path in part:
            article = first(soups[path], "article.bd-article")
            _lead_within(article, path, soups[path], set(pages))
            entry, link = frame.new_tag("li"), frame.new_tag("a", href=f"#{_name(path)}")
            link.string = first(article, "h1").get_text().removesuffix("#")
            entry.append(link)
            entries.append(entry)
            articles.append(article)
        contents += [frame.new_tag("h3", string=name), entries]
    before = [_title_page(front), frame.new_tag("article", attrs={"class": "bd-article"})]
    before[1].extend(contents)
    first(frame, "article.bd-article").replace_with(*before, *articles)
    return str(frame)


def _title_page(front: str) -> Tag:
    """What the book is called, what it says of itself, who wrote it and which edition this is."""
    page = BeautifulSoup(front, "html.parser")
    article = page.new_tag("article", attrs={"class": f"bd-article {TITLE_PAGE}"})
    article.append(page.new_tag("h1", string=about(page, "property='og:site_name'")))
    lines = [about(page, "name='description'"), first(page, ".component-author").get_text()]
    lines.append(f"{EDITION}: the pages of nbcourse {__version__}")
    if canonical := page.select_one("link[rel=canonical]"):
        lines[-1] += f", {urljoin(str(canonical['href']), '.')}"
    article.extend(page.new_tag("p", string=" ".join(line.split())) for line in lines)
    return article


def about(page: Tag, which: str) -> str:
    """What a page of the site says of itself."""
    return str(first(page, f"meta[{which}]")["content"])


def first(page: Tag, selector: str) -> Tag:
    """What each page of the site has one of."""
    found = page.select_one(selector)
    assert found is not None
    return found


def _name(path: str, anchor: str = "") -> str:
    """What an anchor of a page is called where pages are bound: anchors of two may be the same."""
    name = path.removesuffix(".html").replace("/", "-")
    return f"{name}--{anchor}" if anchor else name


def page_of(path: str, href: str) -> tuple[str, str] | None:
    """The page of the site and the anchor to which a link of a page leads; None if elsewhere."""
    to = urlsplit(href)
    if to.scheme or to.netloc:
        return None
    folder = posixpath.dirname(path)
    return posixpath.normpath(posixpath.join(folder, to.path)) if to.path else path, to.fragment


def _lead_within(article: Tag, path: str, page: BeautifulSoup, bound_pages: set[str]) -> None:
    """Rename a page's anchors, and let its links and pictures be found from the bound page."""
    canonical = page.select_one("link[rel=canonical]")
    folder = posixpath.dirname(path)
    for element in article.select("[id]:not([id^=nb-])"):  # explorers find themselves by their ids
        element["id"] = _name(path, str(element["id"]))
    article["id"] = _name(path)
    article["data-address"] = "" if canonical is None else str(canonical["href"])
    for attribute in ("src", "srcset"):
        for element in article.select(f"[{attribute}]:not([{attribute}^='data:'])"):
            element[attribute] = posixpath.normpath(f"{folder}/{element[attribute]}".lstrip("/"))
    for link in article.select("a[href]"):
        to = page_of(path, str(link["href"]))
        if to is None:
            continue
        if to[0] in bound_pages:
            link["href"] = f"#{_name(*to)}"
        elif canonical is not None:
            link["href"] = urljoin(str(canonical["href"]), str(link["href"]))
        else:
            del link["href"]
