"""Notebook and text twin say the same, and conversion loses nothing."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from typer.testing import CliRunner

from nbcourse.cli import app
from nbcourse.errors import UserError
from nbcourse.publishing import chapters, stored, twins

EQUATION = r"""# One

<div id="eq-x"></div>

\begin{equation*}
x_1 < \theta
\tag{1.1}
\end{equation*}

See [(1.1)](#eq-x)."""

PAIRS = [*twins.notebooks(chapters.BOOK), *twins.notebooks(chapters.SOLUTIONS)]


@pytest.mark.parametrize("notebook", PAIRS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_twins_agree(notebook):
    assert twins.difference(notebook) == ""


@pytest.fixture
def pair(tmp_path):
    """A chapter in both forms, with everything that Markdown could mistake for its own."""
    cells = [
        new_markdown_cell(EQUATION),
        new_markdown_cell("```python\nnot_a_cell = 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |"),
        new_code_cell("---\n1", metadata={"tags": ["hide-input", "nbval-ignore-output"]}),
        new_code_cell(":x = 2\n\n\nprint('```')\n# ünïcode ∇θ"),
        new_code_cell("x", metadata={"nbgrader": {"grade": True, "points": 1}}),
        new_code_cell("x", metadata={"nbgrader": {"grade_id": "y"}, "tags": ["hide-input"]}),
        new_code_cell("1 + 1", execution_count=7, outputs=[new_output("stream", text="2\n")]),
    ]
    (tmp_path / "book").mkdir()
    notebook = tmp_path / "book" / "01-one.ipynb"
    stored.write(new_notebook(cells=cells), notebook)
    twins.to_text(notebook)
    return notebook


def test_there_and_back_changes_no_byte(pair):
    before = pair.read_bytes()
    text = chapters.text_of(pair)
    written = text.read_bytes()
    twins.to_notebook(text)
    assert pair.read_bytes() == before  # outputs too, since the code is the same
    twins.to_text(pair)
    assert text.read_bytes() == written


def test_changed_code_drops_the_outputs(pair):
    text = chapters.text_of(pair)
    text.write_text(text.read_text().replace("1 + 1", "1 + 2"))
    twins.to_notebook(text)
    last = stored.read(pair).cells[-1]
    assert (last.source, last.outputs, last.execution_count) == ("1 + 2", [], None)


def test_the_metadata_of_an_exercise_take_one_line(pair):
    lines = chapters.text_of(pair).read_text().splitlines()
    assert ":nbgrader: {grade: true, points: 1}" in lines
    first = lines.index(":nbgrader: {grade_id: y}")
    assert lines[first + 1 : first + 4] == [":tags: [hide-input]", "", "x"]


def test_the_text_does_not_name_versions(pair):
    assert "version" not in chapters.text_of(pair).read_text()


@pytest.mark.parametrize(
    "change",
    [
        lambda cells: cells[0].update(source=cells[0].source + " More."),
        lambda cells: cells[3].update(source=cells[3].source.replace("2", "3")),
        lambda cells: cells[2].metadata.update(tags=["hide-input"]),
        lambda cells: cells.pop(),
        lambda cells: cells.append(nbformat.from_dict(cells[0])),
        lambda cells: cells.reverse(),
        lambda cells: cells[1].update(cell_type="raw"),
    ],
    ids=["prose", "code", "tags", "fewer", "more", "order", "kind"],
)
def test_every_change_shows_as_a_difference(pair, change):
    notebook = stored.read(pair)
    change(notebook.cells)
    stored.write(notebook, pair)
    assert "text/01-one.md" in twins.difference(pair)


def test_the_command_takes_a_master_by_its_folder(pair, monkeypatch):
    monkeypatch.setattr(chapters, "SOLUTIONS", pair.parent)
    masters = [pair]  # the chapters are compared above
    monkeypatch.setattr(twins, "notebooks", lambda folder: masters * (folder == pair.parent))
    notebook = stored.read(pair)
    notebook.cells[0].source += " Edited."
    stored.write(notebook, pair)
    for name in (["solutions/01-one"], []):
        checked = CliRunner().invoke(app, ["twins", "--check", *name])
        assert checked.exit_code == 1
        assert "Edited." in checked.output
    done = CliRunner().invoke(app, ["twins", "--to-text", "solutions/01-one"])
    assert done.output == "text/01-one.md written\n"
    assert twins.difference(pair) == ""
    agreed = CliRunner().invoke(app, ["twins", "--check", "solutions/01-one"])
    assert (agreed.exit_code, agreed.output) == (0, "")


def test_a_missing_twin_is_a_difference(pair):
    chapters.text_of(pair).unlink()
    assert twins.difference(pair) == "text/01-one.md is missing"


def test_a_pasted_picture_is_refused():
    picture = {"a.png": {"image/png": "iVBORw0KGgo="}}
    cell = new_markdown_cell("![](attachment:a.png)", attachments=picture)
    with pytest.raises(UserError, match=r"pasted picture \(a\.png\)"):
        twins.as_text(new_notebook(cells=[cell]))
