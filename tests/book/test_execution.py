"""Running a chapter headless: the message of a failure, the file after it, the same bytes twice."""

import sys
from io import StringIO

import pytest
from IPython.display import ProgressBar
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from nbcourse.progress import track
from nbcourse.publishing import drawings, execution, stored
from tests.effort import swept


@pytest.fixture
def chapter(tmp_path):
    """chapter(source, …) → the path of a chapter with a cell of prose and these code cells."""

    def write(*sources: str):
        path = tmp_path / "01-one.ipynb"
        cells = [new_markdown_cell("Prose."), *map(new_code_cell, sources)]
        stored.write(new_notebook(cells=cells), path)
        return path

    return write


def test_two_runs_store_the_same_bytes(chapter):
    path = chapter("print('hello')", "1 + 1")
    execution.run(path, write=True)
    once = path.read_bytes()
    execution.run(path, write=True)
    assert path.read_bytes() == once
    cells = stored.read(path).cells
    assert [cell.id for cell in cells] == ["cell-01", "cell-02", "cell-03"]
    assert [cell.get("execution_count") for cell in cells] == [None, 1, 2]
    assert cells[1].outputs[0].text == "hello\n"
    assert cells[2].outputs[0].data == {"text/plain": "2"}


FIGURE = "from nbcourse.display import figure, show\nshow(figure()[0])"


def test_a_figure_is_stored_with_its_drawing_for_phones(chapter):
    path = chapter(FIGURE)
    execution.run(path, write=True)
    ((output, held),) = drawings.for_phones(stored.read(path))
    assert ' width="600pt"' in drawings.smaller(output.data[drawings.SVG])[:200]
    assert ' width="268pt"' in held.phone[:200]
    assert "<metadata>" not in held.phone  # it is as small as on the site
    executed = execution.execute(stored.read(path), folder=path.parent)
    assert executed.cells[1].outputs[0].metadata == {}  # only where it is stored


def test_without_write_the_file_stays(chapter):
    path = chapter("print('hello')")
    before = path.read_bytes()
    execution.run(path)
    assert path.read_bytes() == before


FAILURES = [
    ("x = 1\ny = x / 0", "cell [2], line 2: y = x / 0\nZeroDivisionError: division by zero"),
    ("later(0)", "cell [2], line 1: later(0)\nZeroDivisionError: division by zero"),
    ("assert 1 == 2", "cell [2], line 1: assert 1 == 2\nAssertionError"),
    ("x = = 1", "cell [2], line 1: x = = 1\nSyntaxError: invalid syntax"),
    ("import os; os._exit(1)", "cell [2] ended its kernel"),
]


@pytest.mark.parametrize(
    ("source", "message"), swept(FAILURES, keep=[*FAILURES[:2], *FAILURES[3:]])
)
def test_a_failing_cell_is_named_and_the_file_stays(chapter, source, message):
    path = chapter("def later(x):\n    return 1 / x", source)
    before = path.read_bytes()
    with pytest.raises(execution.CellFailed) as caught:
        execution.run(path, write=True)
    assert str(caught.value).startswith(f"01-one.ipynb: {message}")
    assert path.read_bytes() == before


def test_an_endless_loop_ends(tmp_path):
    endless = new_notebook(cells=[new_code_cell("while True: pass")])
    with pytest.raises(execution.CellFailed, match=r"cell \[1\] was still running after 1 second"):
        execution.execute(endless, folder=tmp_path, timeout=1)


def test_a_widget_is_stored_as_its_page():
    both = {stored.WIDGET_VIEW: {"model_id": "random"}, "text/html": "<p>page</p>"}
    output = new_output("display_data", data=both)
    notebook = new_notebook(cells=[new_code_cell("w", execution_count=5, outputs=[output])])
    notebook.metadata.widgets = {"state": {}}
    tidied = stored.tidy(notebook)
    assert tidied.cells[0].outputs[0].data == {"text/html": "<p>page</p>"}
    assert "widgets" not in tidied.metadata


def test_no_bar_is_stored_nor_one_within_another(monkeypatch):
    monkeypatch.setattr(sys, "stdout", StringIO())
    for _ in track(range(2), "runs"):
        assert list(track(range(2), "steps")) == [0, 1]
    output = new_output("stream", text=sys.stdout.getvalue())
    finished = ProgressBar(2)
    bar = new_output("display_data", data={"text/html": finished._repr_html_()})
    notebook = new_notebook(cells=[new_code_cell("x", execution_count=5, outputs=[output, bar])])
    assert "steps" in output.text
    assert "\x1b[A" in output.text
    assert stored.tidy(notebook).cells[0].outputs == []
