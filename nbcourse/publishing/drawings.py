"""Smaller drawings that look the same, and others for phones: a Sphinx extension.

Matplotlib writes six decimals, every coordinate relative to the corner of the drawing, and the
style of each line on the line. Here coordinates have two decimals and are relative to the point
before, and styles are classes. (scour 0.38 takes five times as long, and its drawings are 8 %
larger.) The drawings for phones are those that the notebooks bring: see
`display.phones`.
"""

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

from nbformat import NotebookNode
from sphinx.application import Sphinx

from nbcourse.publishing import chapters, stored

SVG = "image/svg+xml"
UNSEEN = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->", re.S)
PATH = re.compile(r' d="([^"]*)"')
STEP = re.compile(r"([MLQCz])([^MLQCz]*)")
PLACES = re.compile(r' (?:x|y|width|height)="[^"]*"|translate\([^)]*\)')  # but no scales
DECIMAL = re.compile(r"-?\d+\.\d+")
SIZE = re.compile(r'<svg[^>]* width="([\d.]+)pt" height="([\d.]+)pt"')
IMAGE = re.compile(r'<img [^>]*src="(?P<folder>(?:\.\./)*_images/)(?P<name>[^"]+)\.svg"[^>]*>')
SMALL = "(max-width: 600px)"  # as in book.css
REFERENCE = re.compile(r'(?<=href="#)[\w.-]+|(?<=url\(#)[\w.-]+')


def smaller(svg: str) -> str:
    """The same drawing in less than half of the bytes."""
    svg = UNSEEN.sub("", svg)
    svg = PATH.sub(lambda found: f' d="{"".join(_relative(found[1]))}"', svg)
    svg = PLACES.sub(lambda found: DECIMAL.sub(lambda one: _short(float(one[0])), found[0]), svg)
    svg = re.sub(r">\s+<", "><", svg).replace("xlink:href=", "href=")
    return _with_short_names(svg)


def for_phones(notebook: NotebookNode) -> Iterator[tuple[NotebookNode, NotebookNode]]:
    """The figures of a notebook that have a drawing for phones: the output, and what holds it."""
    for output in (one for cell in notebook.cells for one in cell.get("outputs", [])):
        if held := output.get("metadata", {}).get(SVG):
            yield output, held


def _relative(path: str) -> Iterator[str]:
    """The steps of a path, each from where the last one ended, rounding included."""
    x = y = start_x = start_y = 0.0
    for command, arguments in STEP.findall(path):
        if command == "z":
            x, y = start_x, start_y
            yield command
            continue
        numbers = [float(number) for number in arguments.split()]
        steps = [round(number - (x, y)[i % 2], 2) for i, number in enumerate(numbers)]
        x, y = x + steps[-2], y + steps[-1]
        if command == "M":
            start_x, start_y = x, y
        yield command.lower() + re.sub(" (?=-)", "", " ".join(map(_short, steps)))


@cache  # the same few coordinates come again and again
def _short(number: float) -> str:
    """1.50 → 1.5, -0.50 → -.5, -0.00 → 0"""
    digits = f"{number:.2f}".rstrip("0").rstrip(".")
    return re.sub(r"^(-?)0(?=\.)", r"\1", digits) if digits not in ("-0", "") else "0"


def _with_short_names(svg: str) -> str:
    """Ids that are referred to become i0, i1, …; others are removed; each style becomes a class."""
    ids = {name: f"i{i}" for i, name in enumerate(dict.fromkeys(REFERENCE.findall(svg)))}
    svg = REFERENCE.sub(lambda found: ids[found[0]], svg)
    svg = re.sub(
        r' id="([^"]*)"', lambda found: f' id="{ids[found[1]]}"' if found[1] in ids else "", svg
    )
    styles: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        return f' class="{styles.setdefault(found[1], f"s{len(styles)}")}"'

    svg = re.sub(r' style="([^"]*)"', name, svg)
    rules = "".join(f".{name}{{{style}}}" for style, name in styles.items())
    return svg.replace("</style>", f"{rules}</style>", 1)


def placed(image: re.Match[str], sizes: Mapping[str, tuple[str, str]]) -> str:
    """The tag of a drawing with its size, so that nothing moves when it arrives.

    The one that opens a chapter comes with the page, all others when a reader comes near them.

    Args:
        image: the tag as Sphinx writes it.
        sizes: width and height of every drawing; with `-phone` in its name, for small windows.
    """
    tag, folder, name = image[0], image["folder"], image["name"]
    width, height = sizes[name]
    when = 'fetchpriority="high"' if 'class="nb-first"' in tag else 'loading="lazy"'
    size = f' width="{width}" height="{height}" {when} />'
    tag = tag.removesuffix(" />") + size
    if (phone := f"{name}-phone") not in sizes:
        return tag
    width, height = sizes[phone]
    source = f'srcset="{folder}{phone}.svg" width="{width}" height="{height}"'
    return f'<picture><source media="{SMALL}" {source} />{tag}</picture>'


def _name(svg: str) -> str:
    """The name that myst-nb gives the file of a drawing."""
    return sha256(os.linesep.join(svg.splitlines()).encode()).hexdigest()


def write(app: Sphinx, error: Exception | None) -> None:
    """Make the drawings of every page smaller, and draw them for small windows too."""
    if error is not None:
        return
    sizes, folder = {}, Path(app.outdir, "_images")
    drawings = {file.stem: file.read_text(encoding="utf-8") for file in folder.glob("*.svg")}
    small = {name: smaller(text) for name, text in drawings.items()}
    for notebook in chapters.notebooks(Path(app.srcdir)):
        for output, held in for_phones(stored.read(notebook)):
            small[f"{_name(output.data[SVG])}-phone"] = held.phone
    for name, text in small.items():
        (folder / f"{name}.svg").write_text(text, encoding="utf-8")
        width, height = SIZE.findall(text)[0]
        sizes[name] = f"{4 / 3 * float(width):.0f}", f"{4 / 3 * float(height):.0f}"
    for page in Path(app.outdir).rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        page.write_text(IMAGE.sub(lambda image: placed(image, sizes), text), encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("build-finished", write)
