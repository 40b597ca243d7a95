"""Slides of a chapter for a lecture, cut from its page: `nbcourse slides`.

The main line alone, one idea a slide: the question and its picture, the opening with what it
prints, then section by section each equation, table and figure with the sentence that leads to it,
and each prediction as a poll whose answer comes with the next click. All other prose stands in the
speaker's notes. reveal.js shows them; its files come with the package sphinx-revealjs.
"""

import posixpath
import re
import shutil
from html import escape
from importlib.metadata import distribution
from pathlib import Path
from urllib.parse import urlsplit

from bs4 import BeautifulSoup, Tag

from nbcourse.errors import UserError
from nbcourse.publishing import chapters
from nbcourse.publishing.folds import DEEPER
from nbcourse.publishing.printing import first
from nbcourse.repository import ROOT

FOLDER = "slides"  # of the site
REVEAL = "sphinx_revealjs/_static/revealjs"  # in the package that brings it
PARTS = ("dist/reset.css", "dist/reveal.css", "dist/reveal.js", "plugin/notes")
SHEETS = "link[rel=stylesheet]"
MOVES = "nb-moves"
WITHOUT = ".headerlink, .eqno, .nb-runs, summary"
SENTENCE = re.compile(r"(?<=[.?!:])\s+(?=[A-Z$*])")

FRAME = """<!DOCTYPE html>
<html lang="en" data-theme="light">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: slides</title>
{sheets}
</head>
<body>
<div class="reveal"><div class="slides">
{slides}
</div></div>
<script src="reveal/dist/reveal.js"></script>
<script src="reveal/plugin/notes/notes.js"></script>
<script src="slides.js"></script>
</body>
</html>
"""


def write(chapter: str, site: Path = ROOT / "_build/html") -> Path:
    """Write the slides of a chapter of the built site into its folder `slides`.

    Args:
        chapter: a number or a name, as `nbcourse run` takes it.
        site: where `nbcourse site` built the pages.

    Returns:
        The page to open.

    Raises:
        UserError: if there is no such chapter, or the pages are not built.
    """
    name = chapters.find(chapter).stem
    page = site / f"{name}.html"
    if not page.exists():
        raise UserError("the pages are not built; run: nbcourse site")
    folder = site / FOLDER
    reveal = Path(str(distribution("sphinx-revealjs").locate_file(REVEAL)))
    for part in PARTS:
        _copy(reveal / part, folder / "reveal" / part)
    for ours in ("slides.css", "slides.js"):
        _copy(Path(__file__).with_name(ours), folder / ours)
    written = folder / page.name
    written.write_text(cut(page.read_text("utf-8"), page.name), encoding="utf-8")
    return written


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy(source, target)


def cut(page: str, name: str) -> str:
    """The slides of a page of the site, as a page of the site's folder `slides`.

    Args:
        page: HTML of a chapter's page.
        name: the page's file, to which links on a slide lead.
    """
    soup = BeautifulSoup(page, "html.parser")
    for element in soup.select(WITHOUT):
        element.decompose()
    for cell in soup.select(".cell:has(.nb-explorer)"):
        cell.replace_with(_where_it_moves(soup, cell))
    _lead_up(soup, name)
    chapter = first(soup, "article section")
    parts = chapter.find_all(recursive=False)
    opening = [part for part in parts if part.name != "section"]
    stacks = [[_title(chapter)], _slides(opening, "")]
    stacks += [_slides([part], "") for part in parts if part.name == "section"]
    sheets = "\n".join(str(sheet) for sheet in soup.select(SHEETS))
    sheets += '\n<link rel="stylesheet" href="reveal/dist/reveal.css">'
    sheets += '\n<link rel="stylesheet" href="slides.css">'
    slides = "\n".join(f"<section>{''.join(stack)}</section>" for stack in stacks if stack)
    return FRAME.format(title=escape(_heading(chapter)), sheets=sheets, slides=slides)


def _where_it_moves(soup: BeautifulSoup, cell: Tag) -> Tag:
    """In place of an explorer, which needs the width and the scripts of its page, a link to it."""
    explorer = first(cell, ".nb-explorer")
    link = soup.new_tag("a", href=f"#{explorer['id']}", string="Move it on the page")
    paragraph = soup.new_tag("div", attrs={"class": MOVES})
    paragraph.append(link)
    return paragraph


def _heading(section: Tag) -> str:
    found = section.find(["h1", "h2", "h3"], recursive=False)
    return found.get_text().strip() if found else ""


def _title(chapter: Tag) -> str:
    opening = chapter.select_one(".nb-opening")
    parts = opening.select(".nb-question, .nb-shown") if opening else []
    return f"<section><h1>{escape(_heading(chapter))}</h1>{_written(parts)}</section>"


def _slides(elements: list[Tag], heading: str) -> list[str]:
    """A slide for each thing that is shown below a heading; the words about it are its notes."""
    if DEEPER in heading.split():
        return []
    slides: list[str] = []
    words: list[Tag] = []
    for element in elements:
        if element.name == "section":
            slides += _slides(element.find_all(recursive=False), _heading(element))
        elif element.name in ("p", "ul", "ol"):
            words.append(element)
        if "tag_opening" in (element.get("class") or []) and words:  # the story of the chapter
            slides, words = [*slides, _slide(heading, "", words)], []
        for shown in _shown(element):
            slides.append(_slide(heading, shown, words))
            words = []
    if words and not slides:  # a section of words alone
        return [_slide(heading, "", words)]
    if words:  # what is concluded from the last slide
        slides[-1] = slides[-1].replace("</aside>", f"{_written(words)}</aside>")
    return slides


def _shown(element: Tag) -> list[str]:
    """What slides have of an element of the page, a part each: nothing of what only checks."""
    classes: list[str] = [*(element.get("class") or [])]
    if "dropdown" in classes:
        return [_poll(element)]
    if "math" in classes or MOVES in classes:
        return [str(element)]
    if "tag_opening" in classes:
        return [str(part) for part in element.select(".cell_input, .cell_output")]
    captioned = "cell" in classes and element.select_one(".nb-caption")
    return [_written(element.select(".cell_output, .nb-caption"))] if captioned else []


def _poll(box: Tag) -> str:
    """A prediction: hands up first, and the answer with the next click."""
    title, *answer = box.find_all(recursive=False)
    question = title.get_text().removeprefix("Predict first:").strip()
    return (
        f'<div class="nb-poll"><p>{escape(question)}</p>'
        f'<div class="fragment">{_written(answer)}</div></div>'
    )


def _slide(heading: str, shown: str, words: list[Tag]) -> str:
    """One slide. Of the words before what it shows, the sentence that leads to it stays."""
    lead = _sentence(words[-1]) if shown and words else _written(words[:1])
    title = f"<h2>{escape(heading)}</h2>" if heading else ""
    notes = f'<aside class="notes">{_written(words)}</aside>'
    return f"<section>{title}{lead}{shown}{notes}</section>"


def _sentence(words: Tag) -> str:
    """The last sentence of a paragraph; a list as it is."""
    if words.name != "p":
        return str(words)
    return f"<p>{SENTENCE.split(words.decode_contents())[-1]}</p>"


def _written(elements: list[Tag]) -> str:
    return "".join(map(str, elements))


def _lead_up(soup: BeautifulSoup, name: str) -> None:
    """Let what a page loads, and where it leads, be found from a folder of the site."""
    for attribute in ("src", "srcset", "href"):
        for element in soup.select(f"[{attribute}]:not([{attribute}^='data:'])"):
            to = urlsplit(str(element[attribute]))
            if not (to.scheme or to.netloc):
                path = posixpath.join("..", to.path or name)
                element[attribute] = f"{path}#{to.fragment}" if to.fragment else path
