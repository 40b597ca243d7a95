"""Smaller drawings that look the same, and others for phones: a Sphinx extension.

Matplotlib writes six decimals, every coordinate relative to the corner of the drawing, and the
style of each line on the line. Here coordinates have two decimals and are relative to the point
before, and styles are classes.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from sphinx.application import Sphinx

from nbcourse.publishing import narrow, panels

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


def for_phone(svg: str) -> str | None:
    """A figure with its columns below each other, each as wide as a phone where it can be.

    None if nothing of it can be changed.
    """
    drawing = ElementTree.fromstring(svg)
    columns = panels.split(drawing)
    fitted = [narrow.fitted(column) for column in columns]
    if fitted in ([], [None]):
        return None
    panels.stack(drawing, [one or other for one, other in zip(fitted, columns, strict=True)])
    return ElementTree.tostring(drawing, encoding="unicode")


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


def write(app: Sphinx, error: Exception | None) -> None:
    """Make the drawings of every page smaller, and draw them for small windows too."""
    if error is not None:
        return
    sizes = {}
    for file in list(Path(app.outdir, "_images").glob("*.svg")):
        drawing = file.read_text(encoding="utf-8")
        drawings = {file: drawing, file.with_stem(f"{file.stem}-phone"): for_phone(drawing)}
        for path, text in drawings.items():
            if text is not None:
                path.write_text(smaller(text), encoding="utf-8")
                width, height = SIZE.findall(text)[0]
                sizes[path.stem] = f"{4 / 3 * float(width):.0f}", f"{4 / 3 * float(height):.0f}"
    for page in Path(app.outdir).rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        page.write_text(IMAGE.sub(lambda image: placed(image, sizes), text), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
