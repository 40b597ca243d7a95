"""A figure of one column for a phone: as wide as the page, with its letters as large as before.

What lies between the sides of the axes comes closer in proportion; letters, marks and what stands
outside keep their size. The legend goes below; words beside an upright line or a mark stay there.
Where letters would come to stand on each other, or a diagram has no axes, there is no such drawing.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from nbcourse.publishing.panels import GROUP, PATH, RECT, SVG, Panel, columns, figure_of, resize

PHONE = 340.0  # points: what a window of 390 pixels leaves, see the rule in book.css
NARROWEST = 0.4  # of the frame, as a part of what it was
LETTER, ABOVE, BELOW = 62.0, 75.0, 20.0  # width, height and depth of a letter of size 100
CONDENSED = 0.8  # letters of a title, at the least, as a part of their width
FEW = 6  # labels of a scale, each of which is needed
SPACE = 3.0  # between two words, in points
NEAR = 12.0  # points between an upright line or a mark and the words that say what it is
USE, IMAGE = (f"{{{SVG}}}{tag}" for tag in ("use", "image"))
REFERENCE = "{http://www.w3.org/1999/xlink}href"
PAIR = re.compile(r"(-?[\d.]+) (-?[\d.]+)")
PLACED = re.compile(
    r"translate\((?P<x>-?[\d.]+) (?P<y>-?[\d.]+)\)(?: rotate\((?P<turn>-?[\d.]+)\))?"
    r" scale\((?P<size>[\d.]+) "
)


@dataclass
class Words:
    """A text of a drawing, and the box it fills."""

    group: Element
    left: float
    top: float
    right: float
    bottom: float
    of_scale: bool

    @property
    def middle(self) -> float:
        return (self.left + self.right) / 2

    def moved(self, right: float) -> "Words":
        return replace(self, left=self.left + right, right=self.right + right)

    def meets(self, other: "Words") -> bool:
        return (
            self.left < other.right + SPACE
            and other.left < self.right + SPACE
            and self.top < other.bottom
            and other.top < self.bottom
        )


def narrowed(svg: str) -> str | None:
    """The drawing as narrow as a phone; None if it is already, or its letters find no room."""
    drawing = ElementTree.fromstring(svg)
    before, height = (
        float(drawing.attrib[side].removesuffix("pt")) for side in ("width", "height")
    )
    figure, panels = figure_of(drawing)
    if before <= PHONE or len(columns(panels)) > 1 or not all(panel.scale for panel in panels):
        return None
    left, right = min(panel.left for panel in panels), max(panel.right for panel in panels)
    legends = _taken_out(figure)
    texts = list(_texts(figure))
    before = max([right, *(words.right for words in texts)]) + SPACE
    width = min(PHONE, before)
    factor = 1 - (before - width) / (right - left)
    if factor < NARROWEST:
        return None

    def place(x: float) -> float:
        return x + (factor - 1) * (min(max(x, left), right) - left)

    labelled = list(_labelled(panels))
    moved = [_placed(words, place, left, labelled, width) for words in texts]
    kept = _with_room(texts, moved)
    if kept is None:
        return None
    _squeeze(drawing, place)
    for words, now in zip(texts, moved, strict=True):
        if now in kept:
            wide = (now.right - now.left) / (words.right - words.left)
            right_by = now.left - wide * words.left
            words.group.set("transform", f"matrix({wide:.4f} 0 0 1 {right_by:.2f} 0)")
        else:
            words.group.set("visibility", "hidden")  # the letters it defines are others' as well
    for legend in legends:
        lines = list(_texts(legend))
        drawn = [path.get("d", "") for path in legend.iter(PATH) if not path.get("id")]
        points = [float(x) for path in drawn for x, _ in PAIR.findall(path)]
        start = min([*points, *(float(use.get("x", "inf")) for use in legend.iter(USE))])
        if max(line.right for line in lines) + left - start > width:
            return None
        top, bottom = min(line.top for line in lines), max(line.bottom for line in lines)
        below = SubElement(
            figure, GROUP, transform=f"translate({left - start:.2f} {height + SPACE - top:.2f})"
        )
        below.append(legend)
        height += bottom - top + 2 * SPACE
    next(figure.iter(PATH)).set("d", f"M 0 {height} L {width} {height} L {width} 0 L 0 0 z")
    resize(drawing, width, height)
    return ElementTree.tostring(drawing, encoding="unicode")


def _taken_out(figure: Element) -> list[Element]:
    """Remove the legends from a drawing, and return them without their frames."""
    found = []
    for parent in list(figure.iter(GROUP)):
        for part in list(parent):
            if part.get("id", "").startswith("legend_"):
                parent.remove(part)
                found.append(part)
                for frame in [frame for frame in part if frame.get("id", "").startswith("patch_")]:
                    if any("opacity" in path.get("style", "") for path in frame.iter(PATH)):
                        part.remove(frame)
    return found


def _texts(part: Element, *, of_scale: bool = False) -> Iterator[Words]:
    for child in part:
        name = child.get("id", "")
        if name.startswith("text_"):
            yield _words(child, of_scale)
        else:
            yield from _texts(child, of_scale=of_scale or name.startswith("xtick_"))


def _words(group: Element, of_scale: bool) -> Words:
    """A text, with the box of all its lines."""
    sides: list[tuple[float, float, float, float]] = []
    for line in group.iter(GROUP):
        if (placed := PLACED.match(line.get("transform", ""))) is None:
            continue
        x, y, size = (float(placed[name]) for name in ("x", "y", "size"))
        ends = [PAIR.search(one.get("transform", "")) for one in line.iter(USE)]
        long = size * (max(float(end[1]) if end else 0.0 for end in ends) + LETTER)
        if placed["turn"]:
            sides.append((x - size * ABOVE, y - long, x + size * BELOW, y))
        else:
            sides.append((x, y - size * ABOVE, x + long, y + size * BELOW))
    lefts, tops, rights, bottoms = zip(*sides, strict=True)
    return Words(group, min(lefts), min(tops), max(rights), max(bottoms), of_scale)


def _labelled(panels: Sequence[Panel]) -> Iterator[tuple[float, float, float]]:
    """What words may stand beside: the place, top and bottom of upright lines and of marks."""
    for part in (part for panel in panels for part in panel.axes):
        if part.get("id", "").startswith(("line2d_", "LineCollection_", "PathCollection_")):
            for path in part.iter(PATH):
                points = [(float(x), float(y)) for x, y in PAIR.findall(path.get("d", ""))]
                if not path.get("id") and len({x for x, _ in points}) == 1:
                    heights = [y for _, y in points]
                    yield points[0][0], min(heights), max(heights)
            for mark in part.iter(USE):
                yield float(mark.get("x", 0)), float(mark.get("y", 0)), float(mark.get("y", 0))


def _placed(
    words: Words,
    place: Callable[[float], float],
    left: float,
    labelled: Sequence[tuple[float, float, float]],
    width: float,
) -> Words:
    """A text where it belongs in the narrow drawing.

    It moves with the frame if it starts there, with the line or mark beside it, or else with its
    own middle. One that is wider than the page is squeezed into it, unless that is too much.
    """
    if width < words.right - words.left < width / CONDENSED:
        return replace(words, left=0.0, right=width)
    beside = (
        x
        for x, top, bottom in labelled
        if words.left > left
        and not words.of_scale
        and min(abs(words.left - x), abs(words.right - x)) < NEAR
        and words.top - NEAR < bottom
        and top < words.bottom + NEAR
    )
    at_start = abs(words.left - left) < SPACE
    anchor = left if at_start else next(beside, words.middle)
    now = words.moved(place(anchor) - anchor)
    return now.moved(min(0.0, width - now.right))


def _with_room(before: Sequence[Words], after: Sequence[Words]) -> list[Words] | None:
    """The texts that can be shown without new overlaps, or None.

    Every second label of a scale that has many of them may be dropped.
    """
    if any(words.left < 0 for words in after):
        return None
    scale = [words for words in after if words.of_scale]
    for dropped in ([], scale[1::2] if len(scale) > FEW else []):
        pairs = [
            (one, two)
            for one, two in combinations(range(len(after)), 2)
            if after[one] not in dropped and after[two] not in dropped
        ]
        if not any(
            after[one].meets(after[two]) and not before[one].meets(before[two])
            for one, two in pairs
        ):
            return [words for words in after if words not in dropped]
    return None


def _squeeze(drawing: Element, place: Callable[[float], float]) -> None:
    """Move every point of what is drawn, but letters and marks, which have a place of their own."""
    marks = {use.get(REFERENCE, "")[1:] for use in drawing.iter(USE) if float(use.get("x", 1))}
    letters = {
        path for group in drawing.iter(GROUP) if group.get("id", "").startswith("text_")
        for path in group.iter(PATH)
    }  # fmt: skip
    for path in drawing.iter(PATH):
        if path not in letters and path.get("id") not in marks:
            path.set("d", PAIR.sub(lambda at: f"{place(float(at[1]))} {at[2]}", path.get("d", "")))
    for part in [*drawing.iter(RECT), *drawing.iter(IMAGE)]:
        x, wide = float(part.get("x", 0)), float(part.get("width", 0))
        part.set("x", f"{place(x)}")
        part.set("width", f"{place(x + wide) - place(x)}")
    for use in drawing.iter(USE):
        if float(use.get("x", 0)):
            use.set("x", f"{place(float(use.get('x', 0)))}")
