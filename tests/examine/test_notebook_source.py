"""A loss that stands in a notebook: taken out with what it names, and no cell is run."""

import nbformat
import pytest
from nbformat import v4

from nbcourse.errors import UserError
from nbcourse.examine import notebook_source, source
from tests.command import nbcourse, refused

HEAD = (
    "!pip install trl\n%matplotlib inline\nimport torch, os\nfrom torch.nn import functional as F"
)
LIMITS = "LOW, HIGH = 0.2, 0.28\nmodel = load_from_the_hub()"
HELP = "def ratio(new, old):\n    return torch.exp(new - old)"
LOSS = """
def loss(log_probs: Tensor, old_log_probs: 'Tensor', advantages, mask, config: GRPOConfig = None):
    r = ratio(log_probs, old_log_probs)
    model = torch.min(r * advantages, r.clamp(1 - LOW, 1 + HIGH) * advantages)
    return -(model * mask).sum() / mask.sum()
"""
CELLS = [HEAD, LIMITS, HELP, LOSS, "trainer.train(", "raise SystemExit('was run')"]


def notebook(folder, *cells):
    path = folder / "mine.ipynb"
    made = v4.new_notebook(cells=[v4.new_markdown_cell("def loss"), *map(v4.new_code_cell, cells)])
    nbformat.write(made, path)
    return path


def test_a_loss_of_a_notebook_is_examined_as_that_of_a_file(tmp_path):
    path = notebook(tmp_path, *CELLS)
    said = nbcourse("examine", f"{path}:loss")
    assert "no gradient above 1.28 with A > 0; no gradient below 0.8 with A < 0" in said
    assert "[choice] token-mean" in said


def test_it_takes_the_function_and_what_it_names(tmp_path):
    taken = notebook_source.source(notebook(tmp_path, *CELLS), "loss")
    assert taken.startswith("import torch, os\n\nLOW, HIGH = (0.2, 0.28)\n\ndef ratio(")
    assert "Tensor" not in taken  # which may be of a library that is not there
    assert "functional" not in taken
    assert "load_from_the_hub" not in taken  # it has a `model` of its own


def test_the_last_definition_counts(tmp_path):
    again = LOSS.replace("-(model", "+(model")
    assert "+(model" in notebook_source.source(notebook(tmp_path, *CELLS, again), "loss")


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ("LOW, HIGH = read()", "'LOW'|'HIGH'"),
        ("LOW = HIGH = 0.2\nHIGH += 0.08", "'HIGH'"),
        ("LOW: float = 0.2\nHIGH = LOW + 0.08", "'HIGH'"),  # which of several LOW?
        ("LOW = 0.2\nHIGH = float('0.28')", "'HIGH'"),
    ],
)
def test_what_a_cell_computes_is_asked_for(tmp_path, limits, named):
    path = notebook(tmp_path, HEAD, limits, HELP, LOSS)
    with pytest.raises(UserError, match=rf"uses ({named}), which a cell computes.* --given "):
        notebook_source.source(path, "loss")


def test_what_operators_make_of_constants_is_no_computation(tmp_path):
    limits = "LOW, HIGH = 1 - 0.8, 2 * 0.14"
    said = nbcourse("examine", f"{notebook(tmp_path, HEAD, limits, HELP, LOSS)}:loss")
    assert "no gradient above 1.28 with A > 0; no gradient below 0.8 with A < 0" in said


CLASSES = """
@dataclass
class Config:
    low: float = 0.2

class Trainer:
    def __init__(self, config=None):
        self.config = config or settings
    def compute_loss(self, log_probs, old_log_probs, advantages, mask):
        r = ratio(log_probs, old_log_probs)
        clipped = torch.min(r * advantages, r.clamp(1 - self.config.low) * advantages)
        return -(clipped * mask).sum() / mask.sum()
"""


def test_a_method_of_a_class_and_an_object_of_another(tmp_path):
    head = f"{HEAD}\nfrom dataclasses import dataclass"
    path = notebook(tmp_path, head, HELP, CLASSES, "settings = Config(low=0.1)")
    said = nbcourse("examine", f"{path}:Trainer.compute_loss")
    assert "no gradient below 0.9 with A < 0" in said


def test_a_function_that_is_not_there_is_named_with_those_that_are(tmp_path):
    path = notebook(tmp_path, *CELLS)
    with pytest.raises(UserError, match=r"no function 'los'; it defines ratio, loss.*'loss'"):
        source.load(f"{path}:los")
    assert f"which function of {path}? Say {path}:FUNCTION" in refused("examine", path)


def test_a_file_of_another_kind_is_refused_in_one_line(tmp_path):
    text = tmp_path / "mine.txt"
    text.write_text("a loss")
    assert "mine.txt cannot be imported: line 1: SyntaxError" in refused("examine", f"{text}:loss")
