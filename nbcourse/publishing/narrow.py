"""A column of panels for a phone: as wide as the page, with its letters as large as before.

What lies between the sides of the axes moves in proportion; letters, marks and what stands
outside keep their size. A legend goes below its panel, line by line; words beside an upright line
or a mark stay there. Where letters would come to stand on each other, or a diagram has no axes, it
stays as it is.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import combinations
from xml.etree.ElementTree import Element, SubElement

from nbcourse.publishing.panels import GROUP, PATH, RECT, SVG, Column, Panel

PHONE = 268.0  # points: what a window of 390 pixels leaves
NARROWEST = 0.3  # of the frame, as a part of what it was
LETTER, ABOVE, BELOW = 70.0, 75.0, 20.0  # width, height and depth of a letter of size 100
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


def fitted(column: Column) -> Column | None:
    """The column as wide as a phone; None if it is a diagram, or its letters find no room."""
    if not all(panel.scale for panel in column.panels):
        return None
    column = deepcopy(column)
    panels = column.panels
    left, right = min(panel.left for panel in panels), max(panel.right for panel in panels)
    legends = [_taken_out(panel.axes) for panel in panels]
    texts = [words for part in column.parts for words in _texts(part)]
    before = max([right, *(words.right for words in texts)]) + SPACE - column.left
    factor = 1 - (before - PHONE) / (right - left)
    if factor < NARROWEST:
        return None

    def place(x: float) -> float:
        return x + (factor - 1) * (min(max(x, left), right) - left)

    page = column.left, column.left + PHONE
    labelled = list(_labelled(panels))
    moved = [_placed(words, place, left, labelled, page) for words in texts]
    kept = _with_room(texts, moved, page)
    if kept is None:
        return None
    _move(column.parts, place)
    for words, now in zip(texts, moved, strict=True):
        if now in kept:
            wide = (now.right - now.left) / (words.right - words.left)
            right_by = now.left - wide * words.left
            words.group.set("transform", f"matrix({wide:.4f} 0 0 1 {right_by:.2f} 0)")
        else:
            words.group.set("visibility", "hidden")  # the letters it defines are others' as well
    column.height = SPACE + max(
        [*(panel.bottom for panel in panels), *(words.bottom for words in texts)]
    )
    down = [0.0] * len(panels)
    for panel, of_panel in zip(panels, legends, strict=True):
        deep = _put_below(panel, of_panel, left, page[1])
        if deep is None:
            return None
        column.height += deep
        down = [far + deep * (one.top > panel.top) for one, far in zip(panels, down, strict=True)]
    for panel, far in zip(panels, down, strict=True):
        panel.axes.set("transform", f"translate(0 {far})")
    return replace(column, width=PHONE)


def _put_below(panel: Panel, legends: Sequence[Element], left: float, right: float) -> float | None:
    """Put legends below a panel, line by line, and say how deep they are; None if too wide."""
    foot = end = max([panel.bottom, *(words.bottom for words in _texts(panel.axes))])
    for legend in legends:
        entries = list(_entries(legend))
        indent = max(
            words.left - min(_drawn(parts), default=words.left) for words, parts in entries
        )
        for words, parts in entries:
            aside = left - words.left + (indent if len(parts) > 1 else 0.0)
            if words.right + aside > right:
                return None
            place = f"translate({aside:.2f} {end + 2 * SPACE - words.top:.2f})"
            SubElement(panel.axes, GROUP, transform=place).extend(parts)
            end += words.bottom - words.top + 2 * SPACE
    return end - foot


def _entries(legend: Element) -> Iterator[tuple[Words, list[Element]]]:
    """The words of each line of a legend, and its parts: what is explained, then the words.

    The words of a heading explain nothing.
    """
    parts = []
    for part in legend:
        parts.append(part)
        if part.get("id", "").startswith("text_"):
            yield _words(part, of_scale=False), parts
            parts = []


def _drawn(parts: Sequence[Element]) -> Iterator[float]:
    """Where lines and marks are, from left to right."""
    for one in (one for part in parts[:-1] for one in part.iter()):
        if one.tag == USE:
            yield float(one.get("x", 0))
        elif one.tag == PATH and not one.get("id"):
            yield from (float(x) for x, _ in PAIR.findall(one.get("d", "")))


def _taken_out(axes: Element) -> list[Element]:
    """Remove the legends from axes, and return them without their frames."""
    found = [part for part in axes if part.get("id", "").startswith("legend_")]
    for legend in found:
        axes.remove(legend)
        for frame in [part for part in legend if part.get("id", "").startswith("patch_")]:
            if any("opacity" in path.get("style", "") for path in frame.iter(PATH)):
                legend.remove(frame)
    return found


def _texts(part: Element, *, of_scale: bool = False) -> Iterator[Words]:
    name = part.get("id", "")
    if name.startswith("text_"):
        yield _words(part, of_scale)
    else:
        for child in part:
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
    page: tuple[float, float],
) -> Words:
    """A text where it belongs in the narrow column.

    It moves with the frame if it starts there, with the line or mark beside it, or else with its
    own middle. One that is wider than the page is squeezed into it, unless that is too much.
    """
    if PHONE < words.right - words.left < PHONE / CONDENSED:
        return replace(words, left=page[0], right=page[1])
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
    return now.moved(min(0.0, page[1] - now.right))


def _with_room(
    before: Sequence[Words], after: Sequence[Words], page: tuple[float, float]
) -> list[Words] | None:
    """The texts that can be shown without new overlaps, or None.

    Every second label of a scale that has many of them may be dropped.
    """
    if any(words.left < page[0] for words in after):
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


def _move(parts: Sequence[Element], place: Callable[[float], float]) -> None:
    """Move every point of what is drawn, but letters and marks, which have a place of their own."""
    drawn = [one for part in parts for one in part.iter()]
    marks = {
        use.get(REFERENCE, "")[1:] for use in drawn if use.tag == USE and float(use.get("x", 1))
    }
    letters = {
        path for group in drawn if group.get("id", "").startswith("text_")
        for path in group.iter(PATH)
    }  # fmt: skip
    for one in drawn:
        if one.tag == PATH and one not in letters and one.get("id") not in marks:
            one.set("d", PAIR.sub(lambda at: f"{place(float(at[1]))} {at[2]}", one.get("d", "")))
        elif one.tag in (RECT, IMAGE):
            x, wide = float(one.get("x", 0)), float(one.get("width", 0))
            one.set("x", f"{place(x)}")
            one.set("width", f"{place(x + wide) - place(x)}")
        elif one.tag == USE and float(one.get("x", 0)):
            one.set("x", f"{place(float(one.get('x', 0)))}")
