"""Figures as the site has them: smaller, and in columns for phones."""

import re
from io import StringIO
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import pytest

from nbcourse.publishing import drawings, narrow, panels


@pytest.fixture(autouse=True)
def usual_letters():
    """Whatever style the figures of other tests have set."""
    with plt.style.context("default", after_reset=True):
        yield


def drawn(rows: int, columns: int, *, bar: bool = False, **options) -> str:
    """A grid of panels with a line each, as SVG."""
    fig, axes = plt.subplots(rows, columns, squeeze=False, layout="constrained", **options)
    for number, ax in enumerate(axes.flat):
        ax.plot([0, 1, 2], [number, number + 1, 0.5])
        ax.set_ylabel(f"label {number}" if not options else "")
    if bar:
        fig.colorbar(plt.cm.ScalarMappable(), ax=axes[0, -1])
    with StringIO() as file:
        fig.savefig(file, format="svg")
        plt.close(fig)
        return file.getvalue()


def ends(svg: str) -> list[tuple[float, float]]:
    """Where the steps of all paths end, in the path's own points."""
    found = []
    for path in re.findall(r' d="([^"]*)"', svg):
        x = y = start_x = start_y = 0.0
        for command, arguments in re.findall(r"([A-Za-z])([^A-Za-z]*)", path):
            if command in "zZ":
                x, y = start_x, start_y
                continue
            numbers = [float(n) for n in re.findall(r"-?(?:\d+\.?\d*|\.\d+)", arguments)]
            from_x, from_y = (x, y) if command.islower() else (0.0, 0.0)
            x, y = from_x + numbers[-2], from_y + numbers[-1]
            if command in "mM":
                start_x, start_y = x, y
            found.append((x, y))
    return found


def test_a_smaller_drawing_looks_the_same():
    svg = drawn(1, 2)
    small = drawings.smaller(svg)
    assert len(small) < 0.6 * len(svg)
    for before, after in zip(ends(svg), ends(small), strict=True):
        assert after == pytest.approx(before, abs=0.0051)  # no error grows along a path
    transforms = [re.findall(r"(?:scale|rotate)\([^)]*\)", text) for text in (svg, small)]
    assert transforms[0] == transforms[1]
    elements = [[part.tag for part in ElementTree.fromstring(text).iter()] for text in (svg, small)]
    plain = [tag for tag in elements[0] if "svg}" in tag and not tag.endswith("metadata")]
    assert [tag for tag in elements[1] if "svg}" in tag] == plain


def test_what_is_referred_to_has_its_new_name():
    small = drawings.smaller(drawn(1, 1))
    referred = set(re.findall(r'href="#(\w+)"|url\(#(\w+)\)', small))
    assert {a or b for a, b in referred} == set(re.findall(r' id="(\w+)"', small))
    assert set(re.findall(r'class="(\w+)"', small)) == set(re.findall(r"\.(s\d+)\{", small))


def size(svg: str) -> tuple[float, float]:
    width, height = re.findall(r'(?:width|height)="([\d.]+)pt"', svg)[:2]
    return float(width), float(height)


@pytest.mark.parametrize(("rows", "columns"), [(1, 2), (2, 3)])
def test_columns_stand_below_each_other(rows, columns):
    svg = drawn(rows, columns)
    stacked = drawings.for_phone(svg)
    assert size(stacked)[1] == pytest.approx(columns * size(svg)[1], abs=columns)
    assert size(stacked)[0] == narrow.PHONE
    assert stacked.count('id="axes_') == rows * columns
    assert stacked.count('id="text_') == svg.count('id="text_')


@pytest.mark.parametrize("rows", [1, 2])
def test_rows_are_one_column(rows):
    assert len(panels.split(ElementTree.fromstring(drawn(rows, 1)))) == 1


def test_a_colour_bar_stays_with_its_panel():
    svg = drawn(1, 2, bar=True)
    assert svg.count('id="axes_') == 3
    assert size(drawings.for_phone(svg))[1] == pytest.approx(2 * size(svg)[1], abs=2)


def test_every_panel_has_the_numbers_of_a_shared_scale():
    svg = drawn(1, 3, sharey=True)
    (scale,) = [
        found.count('id="text_')
        for found in re.findall(r'<g id="matplotlib.axis_2">.*?\n   </g>', svg, re.S)
    ]
    assert drawings.for_phone(svg).count('id="text_') == svg.count('id="text_') + 2 * scale


def test_the_copied_numbers_stand_beside_their_panel():
    for column in panels.split(ElementTree.fromstring(drawn(1, 3, sharey=True))):
        (panel,) = column.panels
        placed = [
            re.search(r"translate\((\S+) ", ElementTree.tostring(text, "unicode"))[1]
            for text in panel.scale
        ]
        assert placed
        assert all(column.left < float(x) < panel.left for x in placed)


def line(title: str = "title", labels: tuple[str, ...] = ("one",), width: float = 7.0) -> str:
    """One panel with marked lines from its left to its right side, as SVG."""
    fig, ax = plt.subplots(figsize=(width, 3), layout="constrained")
    for label in labels:
        ax.plot([0, 1, 4], [0, 1, 2], marker="o", label=label, gid="the-line")
    ax.set(title=title, xlim=(0, 4))
    ax.legend()
    with StringIO() as file:
        fig.savefig(file, format="svg")
        plt.close(fig)
        return file.getvalue()


def points(svg: str) -> list[tuple[float, float]]:
    """The corners of the line, which is where its marks are as well."""
    path, *marks = re.findall(
        r'<path d="([^"]*)"|<use [^>]*x="([^"]*)" y="([^"]*)"',
        svg[svg.index('id="the-line"') :],
    )
    corners = re.findall(r"(-?[\d.]+) (-?[\d.]+)", path[0])
    assert len(corners) == 3
    at = [(float(x), float(y)) for x, y in corners]
    assert [(float(x), float(y)) for _, x, y in marks[:3]] == [
        (pytest.approx(x), pytest.approx(y)) for x, y in at
    ]
    return at


def test_a_panel_is_as_narrow_as_the_page_and_its_letters_are_not():
    svg = line()
    narrowed = drawings.for_phone(svg)
    assert size(narrowed)[0] == narrow.PHONE
    letters = r"scale\([^)]*\)"
    assert re.findall(letters, narrowed) == re.findall(letters, svg)
    (x0, y0), (x1, y1), (x2, y2) = points(svg)
    (a0, b0), (a1, b1), (a2, b2) = points(narrowed)
    assert (a0, b0, b1, b2) == (x0, y0, y1, y2)
    assert (a1 - a0) / (a2 - a0) == pytest.approx((x1 - x0) / (x2 - x0)) == pytest.approx(1 / 4)
    assert x2 - a2 == pytest.approx(size(svg)[0] - narrow.PHONE, abs=15)  # less an empty margin


def test_the_legend_goes_below():
    one, three = (size(drawings.for_phone(line(labels=names)))[1] for names in ("a", "abc"))
    assert 3 * 72 < one < three


def test_a_title_too_long_is_condensed_and_one_much_too_long_is_let_be():
    assert "matrix(0.9" in drawings.for_phone(line(title="word " * 8))
    assert drawings.for_phone(line(title="word " * 14)) is None


@pytest.mark.parametrize(
    "plot", [lambda ax: ax.axvline(2), lambda ax: ax.plot([2], [0.1], "o")], ids=["line", "mark"]
)
@pytest.mark.parametrize(("gap", "side"), [(0.02, "left"), (-0.02, "right")])
def test_words_beside_an_upright_line_or_a_mark_stay_there(plot, gap, side):
    fig, ax = plt.subplots(figsize=(7, 3), layout="constrained")
    ax.plot([0, 4], [0, 1])
    plot(ax)
    ax.text(2 + gap, 0.1, "what is beside", ha=side)
    with StringIO() as file:
        fig.savefig(file, format="svg")
        plt.close(fig)
        svg = file.getvalue()

    def distance(svg: str) -> float:
        parts = [
            (group.get("id", ""), group) for group in ElementTree.fromstring(svg).iter(panels.GROUP)
        ]
        drawn_last = [group for name, group in parts if name.startswith("line2d_")][-1]
        said = [group for name, group in parts if name.startswith("text_")][-1]
        at = ElementTree.tostring(drawn_last, encoding="unicode")
        x = (re.search(r' x="(\S+)"', at) or re.search(r'd="M (\S+)', at))[1]
        start = re.search(r"translate\((\S+) ", said.find(panels.GROUP).get("transform"))[1]
        aside = re.fullmatch(r"matrix\(1.0000 0 0 1 (\S+) 0\)", said.get("transform", "")) or (
            "",
            0,
        )
        return float(start) + float(aside[1]) - float(x)

    assert distance(drawings.for_phone(svg)) == pytest.approx(distance(svg), abs=0.02)


def test_what_is_narrower_becomes_as_wide():
    svg = line(width=3.5)
    assert size(svg)[0] < narrow.PHONE == size(drawings.for_phone(svg))[0]


def test_a_diagram_is_not_narrowed():
    fig, ax = plt.subplots(figsize=(7, 3))
    ax.plot([0, 1], [0, 1])
    ax.axis("off")
    with StringIO() as file:
        fig.savefig(file, format="svg")
        plt.close(fig)
        assert drawings.for_phone(file.getvalue()) is None


def test_a_figure_without_axes_stays_as_it_is():
    fig = plt.figure()
    fig.text(0.5, 0.5, "words alone")
    fig.legend([plt.Line2D([], [])], ["a line"])
    with StringIO() as file:
        fig.savefig(file, format="svg")
        plt.close(fig)
        assert drawings.for_phone(file.getvalue()) is None


def test_many_labels_that_would_meet_are_halved_and_few_are_not():
    def with_ticks(words):
        fig, ax = plt.subplots(figsize=(7, 3), layout="constrained")
        ax.set_xticks(range(len(words)), words)
        with StringIO() as file:
            fig.savefig(file, format="svg")
            plt.close(fig)
            return file.getvalue()

    halved = drawings.for_phone(with_ticks(["1000000"] * 9))
    assert halved.count('visibility="hidden"') == 4
    assert drawings.for_phone(with_ticks(["1000000"] * 3)).count("hidden") == 0
    assert drawings.for_phone(with_ticks(["a rather long name"] * 4)) is None


def test_each_of_two_wide_columns_is_as_narrow_as_the_page():
    svg = drawn(1, 2, figsize=(9, 3))
    narrowed = drawings.for_phone(svg)
    assert size(narrowed) == (narrow.PHONE, pytest.approx(2 * size(svg)[1], abs=2))
    letters = r"scale\([^)]*\)"
    assert re.findall(letters, narrowed) == re.findall(letters, svg)
    names = re.findall(r'<clipPath id="(\w+)"', narrowed)
    assert len(names) == 2
    assert set(re.findall(r"url\(#(\w+)\)", narrowed)) == set(names)


def test_lines_end_at_the_sides_of_their_narrow_panel():
    """What cuts a line off moves with it."""
    column = panels.split(ElementTree.fromstring(drawn(1, 2, figsize=(9, 3))))[1]
    column = narrow.fitted(column)
    (panel,) = column.panels
    clip = next(part for one in column.parts for part in one.iter(panels.RECT))
    left, wide = float(clip.get("x")), float(clip.get("width"))
    assert (left, left + wide) == (pytest.approx(panel.left), pytest.approx(panel.right))


def frames(svg: str) -> list[tuple[float, float]]:
    """Top and bottom of each panel, where it stands in the drawing."""

    def walk(part, down):
        moved = re.match(r"translate\(\S+ (\S+)\)", part.get("transform", ""))
        down += float(moved[1]) if moved else 0.0
        if part.get("id", "").startswith("axes_"):
            ys = [
                float(y)
                for y in re.findall(r"[ML] \S+ (\S+)", next(part.iter(panels.PATH)).get("d"))
            ]
            return [(down + min(ys), down + max(ys))]
        return [found for child in part for found in walk(child, down)]

    return walk(ElementTree.fromstring(svg), 0.0)


def test_a_legend_stands_below_its_own_panel():
    def column(*rows_with_legend: int) -> str:
        fig, axes = plt.subplots(2, 1, figsize=(7, 4), layout="constrained")
        for row, ax in enumerate(axes):
            ax.plot([0, 1], [0, row], label=f"row {row}")
            if row in rows_with_legend:
                ax.legend(loc="upper left")
        with StringIO() as file:
            fig.savefig(file, format="svg")
            plt.close(fig)
            return drawings.for_phone(file.getvalue())

    none, upper, lower = (frames(column(*rows)) for rows in ([], [0], [1]))
    legend = size(column(0))[1] - size(column())[1]
    assert legend > 10
    assert upper == [none[0], tuple(pytest.approx(y + legend) for y in none[1])]
    assert lower == none
    assert size(column(1))[1] == pytest.approx(size(column(0))[1])


def test_a_legend_of_the_whole_figure_stands_below_the_first_panel_line_by_line():
    def stacked(names: tuple[str, ...]) -> str:
        fig, axes = plt.subplots(1, 2, figsize=(9, 3))
        lines = [axes[0].plot([0, 1], [0, 1])[0] for _ in names]
        axes[1].plot([0, 1])
        if names:
            fig.legend(lines, names, loc="lower center", ncols=3)
        with StringIO() as file:
            fig.savefig(file, format="svg")
            plt.close(fig)
            return drawings.for_phone(file.getvalue())

    (none, one, three) = (stacked(tuple(names)) for names in ("", "a", "abc"))
    line = size(one)[1] - size(none)[1]
    assert line > 10
    assert size(three)[1] - size(none)[1] == pytest.approx(3 * line, abs=3)  # b is higher than a
    (first, second), (_, moved) = frames(none), frames(one)
    assert frames(one)[0] == first
    assert moved[0] - second[0] == pytest.approx(line)


def test_the_lines_of_a_legend_and_its_heading_stand_below_the_panel_at_its_side():
    fig, ax = plt.subplots(figsize=(7, 3), layout="constrained")
    ax.plot([0, 1], label="a line")
    ax.plot([1, 0], label="another")
    ax.tick_params(labelbottom=False)
    ax.legend(title="a heading", loc="upper right")
    with StringIO() as file:
        fig.savefig(file, format="svg")
        plt.close(fig)
        (column,) = panels.split(ElementTree.fromstring(file.getvalue()))
    (panel,) = narrow.fitted(column).panels
    entries = panel.axes.findall(f"{panels.GROUP}[@transform]")
    assert len(entries) == 3
    for entry in entries:
        aside, down = map(float, re.findall(r"[-\d.]+", entry.get("transform")))
        written = ElementTree.tostring(entry, "unicode").split("<", 2)[2]
        line = re.search(r'd="M (\S+) \S+\s+L', ElementTree.tostring(entry[0], "unicode"))
        words = re.search(r"translate\((\S+) (\S+)\) scale", written)
        start = words[1] if entry[0].get("id").startswith("text_") else line[1]
        assert float(start) + aside == pytest.approx(panel.left, abs=0.02)
        assert float(words[2]) + down > panel.bottom + 13  # a line of letters lower, and a gap


def test_nothing_is_left_free_where_the_legend_of_a_figure_was():
    fig, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
    for ax in axes:
        ax.plot([0, 1], label="a line")
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center")
    with StringIO() as file:
        fig.savefig(file, format="svg")
        plt.close(fig)
        first, second = panels.split(ElementTree.fromstring(file.getvalue()))
    height = narrow.fitted(second).height
    assert height == pytest.approx(second.height - 20, abs=5)  # letters of ten points, and gaps
    assert narrow.fitted(first).height > height + 10
