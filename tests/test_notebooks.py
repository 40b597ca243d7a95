"""Notebooks of others: read, or refused in one line."""

import pytest

from nbcourse import notebooks


def test_cells_are_given_and_code_is_that_of_code_cells(tmp_path):
    file = tmp_path / "mine.ipynb"
    file.write_text(
        '{"cells": [{"cell_type": "code", "source": ["a = 1\\n", "b = 2"]},'
        ' {"cell_type": "markdown", "source": "a"}, {"cell_type": "code", "source": "c"}]}'
    )
    assert [notebooks.code(cell) for cell in notebooks.cells(file)] == ["a = 1\nb = 2", "", "c"]


@pytest.mark.parametrize("content", ["{", "[]", '{"cells": 3}'])
def test_what_is_no_notebook_is_refused(tmp_path, content):
    file = tmp_path / "mine.ipynb"
    file.write_text(content)
    with pytest.raises(ValueError, match=r"mine.ipynb is damaged: it is no notebook of nbformat 4"):
        notebooks.cells(file)


def test_a_notebook_of_an_older_form_is_told_so(tmp_path):
    (tmp_path / "mine.ipynb").write_text('{"worksheets": [{"cells": []}]}')
    with pytest.raises(ValueError, match=r"mine.ipynb is a notebook of nbformat 3: open it in Jup"):
        notebooks.cells(tmp_path / "mine.ipynb")


def test_a_mark_of_the_order_of_bytes_is_no_damage(tmp_path):
    file = tmp_path / "mine.ipynb"
    file.write_text('{"cells": []}', encoding="utf-8-sig")
    assert notebooks.cells(file) == []


def test_a_notebook_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no .*other.ipynb: expected a notebook"):
        notebooks.cells(tmp_path / "other.ipynb")
