"""Figures laid out for phones: one column, letters as large, legends below, or none at all."""

import matplotlib.pyplot as plt
import pytest
from matplotlib.legend import Legend

from nbcourse.display import figure, figures, phones
from nbcourse.installation import FOR_PHONES


def drawn(rows=1, columns=1, **options):
    """A figure of panels with a line each, as wide as all."""
    fig, axes = figure(rows, columns, squeeze=False, **options)
    for number, axis in enumerate(axes.flat):
        axis.plot([0, 1, 2], [number, number + 1, 0.5], label="a line")
        axis.set(title=f"panel {number}", xlabel="step")
    return fig, axes


@pytest.fixture(autouse=True)
def no_figures_left():
    with plt.rc_context():
        yield
    plt.close("all")


def tops(axes) -> list[float]:
    return [axis.bbox.y1 for axis in axes]


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 1), (1, 3), (2, 2)])
def test_panels_stand_below_each_other_column_by_column_as_high_as_before(rows, columns):
    fig, axes = drawn(rows, columns, height=2.5 * rows)
    fig.draw_without_rendering()
    heights = [axis.bbox.height for axis in axes.T.flat]
    assert phones.lay_out(fig)
    assert [*fig.get_size_inches()] == [phones.WIDTH, 2.5 * rows * columns]
    in_order = [*axes.T.flat]
    assert tops(in_order) == sorted(tops(in_order), reverse=True)
    assert len({axis.bbox.x1 for axis in in_order}) == 1
    assert [axis.bbox.height for axis in in_order] == pytest.approx(heights, rel=0.03)


def test_rows_keep_their_proportion():
    fig, (upper, lower) = figure(2, 1, gridspec_kw={"height_ratios": [3, 1]})
    assert phones.lay_out(fig)
    assert upper.bbox.height == pytest.approx(3 * lower.bbox.height, rel=0.02)


def test_every_panel_has_the_numbers_and_words_of_a_scale_that_it_shares():
    fig, axes = drawn(1, 2, sharey=True)
    axes[0, 0].set_ylabel("reward")
    assert phones.lay_out(fig)
    assert axes[0, 1].get_ylabel() == "reward"
    assert all(text.get_visible() for text in axes[0, 1].get_yticklabels())


def test_a_panel_with_a_scale_of_its_own_gets_no_words():
    fig, axes = drawn(1, 2)
    axes[0, 0].set_ylabel("reward")
    assert phones.lay_out(fig)
    assert axes[0, 1].get_ylabel() == ""


def test_a_colour_bar_stays_with_its_panel():
    fig, axes = drawn(1, 2)
    bar = fig.colorbar(plt.cm.ScalarMappable(), ax=axes[0, 0]).ax
    assert phones.lay_out(fig)
    assert axes[0, 0].bbox.y0 == pytest.approx(bar.bbox.y0, abs=1)
    assert axes[0, 0].bbox.x1 < bar.bbox.x0 < fig.bbox.x1


@pytest.mark.parametrize("panel", [0, 1])
def test_a_legend_stands_below_its_own_panel_line_by_line(panel):
    def height(lines: int) -> float:
        fig, axes = drawn(2, 1, height=5)
        shown = [axes[panel, 0].plot([0, 1], label=f"line {i}")[0] for i in range(lines)]
        if shown:
            axes[panel, 0].legend(handles=shown, ncols=3)
        assert phones.lay_out(fig)
        for legend in axes[panel, 0].findobj(Legend):
            box, axis = legend.get_window_extent(), axes[panel, 0]
            assert box.y1 <= axis.xaxis.get_tightbbox().y0 + 1
            assert box.x0 >= axis.bbox.x0
            assert panel == 1 or box.y0 > axes[1, 0].title.get_window_extent().y1
        return fig.get_figheight()

    none, one, three = map(height, (0, 1, 3))
    assert one - none == pytest.approx(0.19, abs=0.06)
    assert three - one == pytest.approx(2 * (one - none), rel=0.5)


def test_the_legend_of_a_figure_stands_below_the_first_panel():
    fig, axes = drawn(1, 2)
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    assert phones.lay_out(fig)
    assert fig.legends == []
    box = axes[0, 0].findobj(Legend)[0].get_window_extent()
    assert axes[0, 1].bbox.y1 < box.y0 < box.y1 < axes[0, 0].bbox.y0


def test_a_long_title_has_two_lines_and_one_word_too_long_has_no_room():
    fig, axes = drawn()
    axes[0, 0].set_title("word " * 14)
    assert phones.lay_out(fig)
    fig, axes = drawn()
    axes[0, 0].set_title("word" * 20)
    assert not phones.lay_out(fig)


def test_many_labels_that_would_meet_are_halved_and_few_are_not():
    def labels(words: list[str]) -> list[str] | None:
        fig, axis = figure()
        axis.set_xticks(range(len(words)), words)
        found = phones.lay_out(fig)
        return [text.get_text() for text in axis.get_xticklabels()] if found else None

    assert labels(["1000000"] * 9) == ["1000000"] * 5
    assert labels(["1000000"] * 3) == ["1000000"] * 3
    assert labels(["a rather long name"] * 4) is None


def test_words_that_would_come_to_stand_on_each_other_have_no_room():
    def laid_out(right: float) -> bool:
        fig, axes = drawn()
        axes[0, 0].text(0.5, 0.5, "some words to read")
        axes[0, 0].text(right, 0.5, "and some beside them")
        return phones.lay_out(fig)

    assert not laid_out(1.0)
    assert laid_out(0.51)  # they do so on a desktop as well


def test_a_diagram_and_a_figure_without_panels_have_no_layout():
    fig, axes = drawn(1, 2)
    axes[0, 1].axis("off")
    assert not phones.lay_out(fig)
    fig = plt.figure()
    fig.text(0.5, 0.5, "words alone")
    assert not phones.lay_out(fig)


@pytest.mark.parametrize("wanted", [True, False])
def test_a_figure_is_drawn_for_phones_where_outputs_are_stored(monkeypatch, wanted):
    shown = []
    monkeypatch.setattr(
        figures, "display", lambda data, *, metadata, raw: shown.append((data, metadata))
    )
    if wanted:
        monkeypatch.setenv(FOR_PHONES, "1")
    figures.show(drawn()[0])
    ((data, metadata),) = shown
    assert ' width="599.9976pt"' in data[figures.SVG][:200]
    if wanted:
        assert 'width="268pt"' in metadata[figures.SVG]["phone"][:200]
    else:
        assert metadata == {}
    assert not plt.get_fignums()
