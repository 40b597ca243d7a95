"""Figures for a phone: the columns of a drawing by Matplotlib below each other.

A drawing says which of its parts belong to which axes, so that they are moved whole and nothing is
drawn again. A panel that shares the scale of a panel to its left gets a copy of its numbers.
"""

import re
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

SVG = "http://www.w3.org/2000/svg"
ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
GROUP, PATH, RECT = (f"{{{SVG}}}{tag}" for tag in ("g", "path", "rect"))
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
SLIVER = 0.1  # axes this narrow, as a part of the widest, are the colour bar of those before them
BEYOND = 10.0  # points by which the last number of a scale may stand to the right of its axes


@dataclass
class Panel:
    """Axes, and where their frame is: points from the left upper corner of the drawing."""

    axes: Element
    left: float
    top: float
    right: float

    @property
    def scale(self) -> list[Element]:
        """The numbers and the words at the vertical axis, the second of two; none in a diagram."""
        both = [part for part in self.axes if part.get("id", "").startswith("matplotlib.axis_")]
        return [
            part
            for axis in both[1:]
            for part in axis.iter(GROUP)
            if part.get("id", "").startswith("text_")
        ]


def stacked(svg: str) -> str | None:
    """The drawing with its columns below each other, or None where it has one column."""
    drawing = ElementTree.fromstring(svg)
    figure, panels = figure_of(drawing)
    parts = columns(panels)
    if len(parts) < 2:
        return None
    width, height = (float(drawing.attrib[name].removesuffix("pt")) for name in ("width", "height"))
    ends = [max(panel.right for panel in column) for column in parts]
    starts = [0.0, *ends[:-1]]
    for i, column in enumerate(parts):
        for panel in column:
            same_row = (
                (j, one) for j in reversed(range(i)) for one in parts[j] if one.top == panel.top
            )
            with_scale = next(((j, one) for j, one in same_row if one.scale), None)
            if not panel.scale and with_scale:
                j, neighbour = with_scale
                aside = panel.left - neighbour.left
                panel.axes.append(_moved(aside, 0.0, map(deepcopy, neighbour.scale)))
                starts[i] = starts[j] + aside
    ends = [end + BEYOND for end in ends[:-1]] + [width]
    widest = max(end - start for start, end in zip(starts, ends, strict=True))
    for part in list(figure):
        figure.remove(part)
    SubElement(figure, RECT, width=f"{widest}", height=f"{len(parts) * height}", fill="#ffffff")
    for i, (start, column) in enumerate(zip(starts, parts, strict=True)):
        figure.append(_moved(-start, i * height, [panel.axes for panel in column]))
    resize(drawing, widest, len(parts) * height)
    return ElementTree.tostring(drawing, encoding="unicode")


def figure_of(drawing: Element) -> tuple[Element, list[Panel]]:
    """What a drawing draws, and its panels."""
    figure = next(group for group in drawing.iter(GROUP) if group.get("id") == "figure_1")
    return figure, [_panel(group) for group in figure if group.get("id", "").startswith("axes_")]


def _panel(axes: Element) -> Panel:
    """The frame of axes is the first thing that they draw."""
    numbers = [float(number) for number in NUMBER.findall(next(axes.iter(PATH)).attrib["d"])]
    return Panel(axes, min(numbers[::2]), min(numbers[1::2]), max(numbers[::2]))


def columns(panels: list[Panel]) -> list[list[Panel]]:
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


def _moved(right: float, down: float, parts: Iterable[Element]) -> Element:
    group = Element(GROUP, transform=f"translate({right} {down})")
    group.extend(parts)
    return group


def resize(drawing: Element, width: float, height: float) -> None:
    """Say how large a drawing is, in points."""
    drawing.attrib |= {
        "width": f"{width}pt",
        "height": f"{height}pt",
        "viewBox": f"0 0 {width} {height}",
    }
