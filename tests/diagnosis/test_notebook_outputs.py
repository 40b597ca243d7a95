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


def test_a_cell_that_learned_counts_before_one_that_examined(tmp_path):
    asked = stream("".join(f"Question {n}: reward: {n % 2}\n" for n in range(9)))
    assert read(tmp_path, [asked], [stream(STREAM)], [asked]).name.endswith("cell 3")


def test_a_table_is_not_counted_twice_with_what_was_printed_beside_it(tmp_path):
    printed = stream("".join(f"{{'loss': 0.1, 'reward': {n / 10}}}\n" for n in range(1, 9)))
    assert len(read(tmp_path, [printed, html(STEPS), html("<b>done</b>")]).history) == 3
    others = html(table((1, 2), (3, 4), header="seed size"))
    assert len(read(tmp_path, [others, printed]).history) == 8


def test_the_history_of_a_trainer_is_read_as_a_cell_shows_it(tmp_path):
    shown = "[{'loss': 0.1,\n  'reward': 0.25,\n  'step': 1},\n {'loss': nan,\n  'reward': 0.5,\n"
    shown += "  'step': 2},\n {'reward': 1.0, 'step': 3},\n {'train_runtime': 9.0, 'step': 3}]"
    value = v4.new_output("execute_result", {"text/plain": shown})
    found = read(tmp_path, [value]).history
    assert [(row["step"], row["reward"]) for row in found] == [(1, 0.25), (2, 0.5), (3, 1.0)]


def test_text_is_read_where_the_page_beside_it_has_no_table(tmp_path):
    rich = v4.new_output("display_data", {"text/html": "<pre>x</pre>", "text/plain": STREAM})
    assert len(read(tmp_path, [rich]).history) == 8


@pytest.mark.parametrize(
    "page",
    [
        STEPS.replace("</td>", ""),  # whose ends may be left out
        STEPS.replace("</tr>", "").replace("</td>", ""),
        f"<table><tr><td>one <table><tr></tr></table> beside</td><td>{STEPS}</td></tr></table>",
    ],
)
def test_tables_that_are_written_otherwise(tmp_path, page):
    found = read(tmp_path, [html(page)]).history
    assert [row["reward"] for row in found] == [0.25, 0.5, 0.5]


def test_a_number_sign_may_be_part_of_the_name(tmp_path):
    read(tmp_path, [stream(STREAM)])
    (tmp_path / "mine.ipynb").rename(tmp_path / "GRPO #2.ipynb")
    assert evidence.read(tmp_path / "GRPO #2.ipynb").name == "GRPO #2.ipynb, cell 2"
    assert evidence.read(tmp_path / "GRPO #2.ipynb#2").name == "GRPO #2.ipynb, cell 2"


def test_a_cell_with_an_accuracy_counts_where_none_has_a_reward(tmp_path):
    examined = stream(STREAM.replace("reward", "accuracy"))
    assert read(tmp_path, [examined], [html(STEPS)]).name.endswith("cell 3")
    assert read(tmp_path, [stream("loading\n")], [examined]).name.endswith("cell 3")
    assert notebook_outputs.of_training(tmp_path / "mine.ipynb")[0] == "mine.ipynb, cell 3"


def test_of_several_trainings_one_is_named(tmp_path):
    both = [html(table(*((n, 0.1, 0.5, 0) for n in range(1, 5))))], [stream(STREAM)]
    with pytest.raises(ValueError, match=r"several cells .* name one of .*#2, .*mine.ipynb#3"):
        read(tmp_path, *both)
    found = read(tmp_path, *both, name="mine.ipynb#3")
    assert (found.name, len(found.history)) == ("mine.ipynb, cell 3", 8)
    with pytest.raises(ValueError, match=r"cell 1 of .* has no output: cells 2, 3 have"):
        read(tmp_path, *both, name="mine.ipynb#1")
