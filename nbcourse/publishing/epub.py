"""The book for e-readers: the pages of the built site as one EPUB 3, formulas as MathML.

What a page says by a script is left out: an explorer is shown as it starts, and a line says where
it moves. What folds lies open, except for the code of figures, which is left out, as on paper.
"""

import uuid
import zipfile
from collections.abc import Iterator, Mapping
from copy import copy
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from pathlib import Path
from urllib.parse import unquote

from bs4 import BeautifulSoup, Tag

from nbcourse import __version__
from nbcourse.errors import UserError
from nbcourse.publishing import stills
from nbcourse.publishing.printing import PARTS, about, first, page_of
from nbcourse.repository import ROOT

KEPT = {"id", "class", "href", "src", "alt", "title", "lang", "colspan", "rowspan", "start"}
KEPT |= {"width", "height"} | {  # and of formulas
    "display", "mathvariant", "stretchy", "columnalign", "rowspacing", "columnspacing",
    "displaystyle", "scriptlevel", "accent", "accentunder", "movablelimits",
}  # fmt: skip
OF_KIND = {"math": {"xmlns"}}
DROPPED = "script, style, noscript, button, input, textarea, form, .headerlink, .nb-unfold"
DROPPED += ", .nb-python, .cell_input > details, details.hide, .nb-deeper > summary"
MOVES = "This explorer moves on the site of the book, and in its notebook."
PAGE = (
    '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html>\n'
    '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops" '
    'lang="en" xml:lang="en"><head><title>{title}</title>'
    '<link rel="stylesheet" href="epub.css"/></head>\n<body>{body}</body></html>\n'
)
PACKAGE = """<?xml version="1.0" encoding="utf-8"?>
<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id" xml:lang="en">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/">
<dc:identifier id="id">urn:uuid:{identifier}</dc:identifier><dc:title>{title}</dc:title>
<dc:language>en</dc:language><dc:creator>{author}</dc:creator>
<meta property="dcterms:modified">{modified}</meta>
</metadata>
<manifest>
{manifest}
</manifest>
<spine>
{spine}
</spine>
</package>
"""
CONTAINER = (
    '<?xml version="1.0"?>\n<container version="1.0" '
    'xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles><rootfile '
    'full-path="book/content.opf" media-type="application/oebps-package+xml"/></rootfiles>'
    "</container>\n"
)
TYPES = {".svg": "image/svg+xml", ".png": "image/png", ".jpg": "image/jpeg"}


def write(site: Path = ROOT / "_build/html", book: Path = ROOT / "_build/book.epub") -> None:
    """Bind the chapters, exercises and appendices of the built site.

    Raises:
        UserError: if the pages are not built.
    """
    parts = {
        name: sorted(page.relative_to(site).as_posix() for page in site.glob(pattern))
        for name, pattern in PARTS.items()
    }
    if not parts["Chapters"]:
        raise UserError("the pages are not built; run: nbcourse site")
    paths = [path for found in parts.values() for path in found]
    front = BeautifulSoup((site / "intro.html").read_text("utf-8"), "html.parser")
    articles = {path: _article(site / path) for path in sorted(paths)}
    shown = stills.draw(
        output.decode_contents()
        for article in articles.values()
        for output in article.select(":has(> .nb-explorer)")
    )
    pages = {
        path: simplified(article, "../" if "/" in path else "", shown.explorers)
        for path, article in articles.items()
    }
    anchors = {
        path: {str(one["id"]) for one in page.select("[id]")} for path, page in pages.items()
    }
    entries = dict(_entries(pages, anchors))
    pictures = sorted({str(one["src"]) for page in pages.values() for one in page.select("img")})
    entries["nav.xhtml"] = PAGE.format(title="Contents", body=_contents(parts, pages))
    entries["content.opf"] = _package(front, paths, site, pictures)
    with zipfile.ZipFile(book, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        archive.writestr("META-INF/container.xml", CONTAINER)
        style = files("nbcourse.publishing").joinpath("epub.css").read_text("utf-8")
        for name, text in {**entries, "epub.css": style}.items():
            archive.writestr(f"book/{name}", text)
        for picture in pictures:
            drawn = shown.pictures.get(picture) or (site / picture).read_bytes()
            archive.writestr(f"book/{picture}", drawn)


def _article(file: Path) -> Tag:
    return first(BeautifulSoup(file.read_text("utf-8"), "html.parser"), "article.bd-article")


def simplified(article: Tag, up: str, explorers: Mapping[str, Tag]) -> Tag:
    """An article without what needs a script or a browser's window; it is changed.

    Args:
        article: of a page of the site.
        up: what leads from the page to the site's root, before the addresses of pictures.
        explorers: by their ids, as `stills` shows them.
    """
    soup = BeautifulSoup("", "html.parser")
    for explorer in article.select(".nb-explorer"):
        still = explorers.get(str(explorer.get("id")))
        explorer.replace_with(
            *([] if still is None else [copy(still)]), soup.new_tag("p", string=MOVES)
        )
    for one in article.select(DROPPED):
        one.decompose()
    for around, kept_part in (("mjx-container", "math"), ("picture", "img")):
        for one in article.select(around):
            one.replace_with(first(one, kept_part))
    for fold, plain in (("details", "div"), ("summary", "p")):
        for one in article.select(fold):
            one.name = plain
    for one in article.find_all(True):
        kept = KEPT | OF_KIND.get(one.name, set())
        if one.find_parent(class_="nb-tokens"):
            kept = kept | {"style"}  # the colours of words
        one.attrs = {name: said for name, said in one.attrs.items() if name in kept}
        if one.name in ("col", "td", "th", "table"):
            one.attrs.pop("width", None)
    for image in article.select("img"):
        image["src"] = str(image["src"]).removeprefix(up)
        image["alt"] = image.get("alt") or ""
    return article


def name_of(path: str) -> str:
    """What a page of the site is called in the book."""
    return path.replace("/", "-").removesuffix(".html") + ".xhtml"


def _entries(pages: dict[str, Tag], anchors: dict[str, set[str]]) -> Iterator[tuple[str, str]]:
    for path, page in pages.items():
        for link in page.select("a[href]"):
            where = _within(path, str(link["href"]), anchors)
            if where is None:
                del link["href"]
            else:
                link["href"] = where
        title = _title(page)
        page.name = "div"
        yield name_of(path), PAGE.format(title=escape(title), body=page.decode(formatter="minimal"))


def _within(path: str, href: str, anchors: dict[str, set[str]]) -> str | None:
    """Where a link of a page leads in the book; None for what is not in it."""
    to = page_of(path, href)
    if to is None:
        return href
    target, anchor = to
    if target not in anchors:
        return None
    known = unquote(anchor) in anchors[target]
    return name_of(target) + (f"#{anchor}" if known else "")


def _title(page: Tag) -> str:
    return " ".join(first(page, "h1").get_text().split())


def _contents(parts: dict[str, list[str]], pages: dict[str, Tag]) -> str:
    lists = [
        f"<li><span>{name}</span><ol>"
        + "".join(f'<li><a href="{name_of(p)}">{escape(_title(pages[p]))}</a></li>' for p in found)
        + "</ol></li>"
        for name, found in parts.items()
        if found
    ]
    return f'<nav epub:type="toc"><h1>Contents</h1><ol>{"".join(lists)}</ol></nav>'


def _package(front: BeautifulSoup, paths: list[str], site: Path, pictures: list[str]) -> str:
    title = about(front, "property='og:site_name'")
    by = " ".join(first(front, ".component-author").get_text().split()).removeprefix("By ")
    rows = ['<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>']
    rows += ['<item id="css" href="epub.css" media-type="text/css"/>']
    for i, path in enumerate(paths):
        more = ' properties="mathml"' if "<math" in (site / path).read_text("utf-8") else ""
        name = name_of(path)
        rows.append(f'<item id="p{i}" href="{name}" media-type="application/xhtml+xml"{more}/>')
    for i, name in enumerate(pictures):
        rows.append(f'<item id="i{i}" href="{name}" media-type="{TYPES[Path(name).suffix]}"/>')
    at = datetime.fromtimestamp((site / "intro.html").stat().st_mtime, UTC)
    return PACKAGE.format(
        identifier=uuid.uuid5(uuid.NAMESPACE_DNS, f"{title} {__version__}"),
        title=escape(title),
        author=escape(by),
        modified=at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        manifest="\n".join(rows),
        spine="\n".join(
            f'<itemref idref="{one}"/>' for one in ["nav", *(f"p{i}" for i in range(len(paths)))]
        ),
    )
