"""Notebooks of strangers: the cell that trained is found, and its table or its lines are read."""

import nbformat
import pytest
from nbformat import v4

from nbcourse.experiments import evidence, notebook_outputs

STREAM = "".join(f"step {n} | loss 0.1 | reward {n / 10}\n" for n in range(1, 9))


def table(*rows, header="Step Training&nbsp;Loss reward rewards&nbsp;/&nbsp;form"):
    """As transformers shows it while it trains."""
    cells = "".join(f"<th>{name}</th>" for name in header.split())
    lines = ["".join(f"\n <td>{x}</td>" for x in row) for row in rows]
    body = "".join(f"<tr>{line}\n</tr>" for line in lines)
    return f"<progress value='3'></progress>[3/3]<table><tr>{cells}</tr>{body}</table><p>"


STEPS = table(
    (1, "No log", "0.25", "-1.5"), (2, "0.001000", "0.500000", "-1.000000"), (3, "", "0.5", "")
)


def html(text):
    return v4.new_output("display_data", {"text/html": text, "text/plain": "<HTML object>"})


def stream(text):
    return v4.new_output("stream", text=text)


def read(folder, *cells, name="mine.ipynb"):
    """The evidence of a notebook with such outputs, a list for each cell."""
    code = [v4.new_code_cell("…", outputs=outputs) for outputs in cells]
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell("# Mine"), *code])
    nbformat.write(notebook, folder / "mine.ipynb")
    return evidence.read(folder / name)


def test_the_table_of_the_cell_that_trained_is_read(tmp_path):
    prose = stream("Question: {'top_p': 0.9} or 2 | 4 | 8?\n4 | 2 | 8\n")
    summary = v4.new_output("execute_result", {"text/plain": "{'train_runtime': 9.0, 'x': 1.0}"})
    found = read(tmp_path, [stream("loading\n")], [prose, html(STEPS), summary])
    assert found.name == "mine.ipynb, cell 3"
    assert found.history == (
        {"step": 1, "reward": 0.25, "rewards/form": -1.5},
        {"step": 2, "policy_loss": 0.001, "reward": 0.5, "rewards/form": -1.0},
        {"step": 3, "reward": 0.5},
    )
    assert not found.unknown  # neither what a model wrote nor the summary is a column


def test_lines_that_a_cell_printed_are_read(tmp_path):
    found = read(tmp_path, [stream(STREAM[:99]), stream(STREAM[99:])])
    assert [row["reward"] for row in found.history] == [n / 10 for n in range(1, 9)]


def test_a_table_of_losses_alone_is_not_taken_for_reinforcement(tmp_path):
    losses = html(table((1, "0.5"), (2, "0.4"), header="Step Training&nbsp;Loss"))
    assert read(tmp_path, [losses], [html(STEPS)]).name.endswith("cell 3")
    with pytest.raises(ValueError, match=r"no cell of .*mine.ipynb printed a reward in several"):
        read(tmp_path, [losses], [stream("reward: 0.5\nreward: 0.8\n")])  # before and after


def test_a_cell_with_an_accuracy_counts_where_none_has_a_reward(tmp_path):
    examined = stream(STREAM.replace("reward", "accuracy"))
    assert read(tmp_path, [examined], [html(STEPS)]).name.endswith("cell 3")
    assert read(tmp_path, [stream("loading\n")], [examined]).name.endswith("cell 3")
    assert notebook_outputs.of_training(tmp_path / "mine.ipynb")[0] == "mine.ipynb, cell 3"


def test_of_several_trainings_one_is_named(tmp_path):
    both = [html(STEPS)], [stream(STREAM)]
    with pytest.raises(ValueError, match=r"several cells .* name one of .*#2, .*mine.ipynb#3"):
        read(tmp_path, *both)
    found = read(tmp_path, *both, name="mine.ipynb#3")
    assert (found.name, len(found.history)) == ("mine.ipynb, cell 3", 8)
    with pytest.raises(ValueError, match=r"cell 1 of .* has no output: cells 2, 3 have"):
        read(tmp_path, *both, name="mine.ipynb#1")
