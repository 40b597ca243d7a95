"""Figures for a phone: the columns of a drawing by Matplotlib below each other.

A drawing says which of its parts belong to which axes, so that they are moved whole and nothing is
drawn again. A panel that shares the scale of a panel to its left gets a copy of its numbers.
"""

import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

SVG = "http://www.w3.org/2000/svg"
ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
GROUP, PATH, RECT, DEFS = (f"{{{SVG}}}{tag}" for tag in ("g", "path", "rect", "defs"))
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
CLIPPED = re.compile(r"url\(#(.+)\)")
PLACE = re.compile(r"(?<=^translate\()-?[\d.]+")
SLIVER = 0.1  # axes this narrow, as a part of the widest, are the colour bar of those before them
BEYOND = 10.0  # points by which the last number of a scale may stand to the right of its axes


@dataclass
class Panel:
    """Axes, and where their frame is: points from the left upper corner of the drawing."""

    axes: Element
    left: float
    top: float
    right: float
    bottom: float

    @property
    def vertical(self) -> Element | None:
        """The vertical axis, the second of two; None in a diagram."""
        both = [part for part in self.axes if part.get("id", "").startswith("matplotlib.axis_")]
        return both[1] if both else None

    @property
    def scale(self) -> list[Element]:
        """The numbers and the words at the vertical axis."""
        parts = [] if self.vertical is None else self.vertical.iter(GROUP)
        return [part for part in parts if part.get("id", "").startswith("text_")]


@dataclass
class Column:
    """Panels that stand below each other, with all that is drawn of them.

    Its parts keep their places in the drawing; `left` is where it starts there, in points.
    """

    parts: list[Element]
    left: float
    width: float
    height: float

    @property
    def panels(self) -> list[Panel]:
        return [_panel(part) for part in self.parts if part.get("id", "").startswith("axes_")]


def split(drawing: Element) -> list[Column]:
    """The columns of a drawing, from left to right; none where nothing has axes."""
    width, height = (float(drawing.attrib[side].removesuffix("pt")) for side in ("width", "height"))
    figure = _figure(drawing)
    whole = Column(list(figure)[1:], 0.0, width, height)  # the first is the ground
    if not whole.panels:
        return []
    for legend in [part for part in figure if part.get("id", "").startswith("legend_")]:
        whole.parts.remove(legend)
        whole.panels[0].axes.append(legend)
    parts = _by_column(whole.panels)
    if len(parts) == 1:
        return [replace(whole, parts=[*whole.parts, _clips(drawing, whole.parts)])]
    ends = [max(panel.right for panel in column) for column in parts]
    starts = [0.0, *ends[:-1]]
    for i, column in enumerate(parts):
        for panel in column:
            same_row = (
                (j, one) for j in reversed(range(i)) for one in parts[j] if one.top == panel.top
            )
            with_scale = next(((j, one) for j, one in same_row if one.scale), None)
            if panel.vertical is not None and not panel.scale and with_scale:
                j, neighbour = with_scale
                aside = panel.left - neighbour.left
                panel.vertical.extend(_copied(neighbour.scale, aside))
                starts[i] = starts[j] + aside
    ends = [end + BEYOND for end in ends[:-1]] + [width]
    found = []
    for start, end, column in zip(starts, ends, parts, strict=True):
        axes = [panel.axes for panel in column]
        found.append(Column([*axes, _clips(drawing, axes)], start, end - start, height))
    return found


def stack(drawing: Element, columns: Sequence[Column]) -> None:
    """Let a drawing consist of some columns, below each other."""
    figure = _figure(drawing)
    width, height = max(one.width for one in columns), sum(one.height for one in columns)
    for part in list(figure):
        figure.remove(part)
    SubElement(figure, RECT, width=f"{width}", height=f"{height}", fill="#ffffff")
    top = 0.0
    for one in columns:
        place = f"translate({-one.left} {top})"
        SubElement(figure, GROUP, transform=place).extend(one.parts)
        top += one.height
    drawing.attrib |= {
        "width": f"{width}pt",
        "height": f"{height}pt",
        "viewBox": f"0 0 {width} {height}",
    }


def _figure(drawing: Element) -> Element:
    return next(group for group in drawing.iter(GROUP) if group.get("id") == "figure_1")


def _panel(axes: Element) -> Panel:
    """The frame of axes is the first thing that they draw."""
    numbers = [float(number) for number in NUMBER.findall(next(axes.iter(PATH)).attrib["d"])]
    xs, ys = numbers[::2], numbers[1::2]
    return Panel(axes, min(xs), min(ys), max(xs), max(ys))


def _by_column(panels: list[Panel]) -> list[list[Panel]]:
    """Panels that stand below each other, from left to right."""
    widest = max(panel.right - panel.left for panel in panels)
    found: list[list[Panel]] = []
    for panel in sorted(panels, key=lambda panel: panel.left):
        is_bar = panel.right - panel.left < SLIVER * widest
        if found and (is_bar or panel.left < found[-1][0].right):
            found[-1].append(panel)
        else:
            found.append([panel])
    return found


def _copied(texts: Sequence[Element], right: float) -> Iterator[Element]:
    """Copies of texts that stand to the right of them."""
    for text in map(deepcopy, texts):
        for line in text.iter(GROUP):
            place = line.get("transform", "")
            line.set("transform", PLACE.sub(lambda x: f"{float(x[0]) + right}", place))
        yield text


def _clips(drawing: Element, parts: Sequence[Element]) -> Element:
    """Take the frames that cut off some parts out of a drawing: they are moved with the parts."""
    named = {part.get("clip-path", "") for one in parts for part in one.iter()}
    wanted = {found[1] for name in named if (found := CLIPPED.match(name))}
    clips = Element(DEFS)
    for defined in drawing.findall(DEFS):
        for clip in [clip for clip in defined if clip.get("id") in wanted]:
            defined.remove(clip)
            clips.append(clip)
    return clips
