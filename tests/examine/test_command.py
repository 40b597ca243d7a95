"""`nbcourse examine` as a user meets it: files, rows, wrong names, broken losses."""

import json
import re

import pytest
from typer.testing import CliRunner

from nbcourse.cli import app
from nbcourse.examine import assert_loss, examine

LOSSES = """
import torch

def reinforce(log_probs, advantages, mask):
    return -(log_probs * advantages).masked_fill(~mask, 0.0).sum(dim=1).mean()

def padded(log_probs, advantages, mask):
    return -(log_probs * advantages).masked_fill(~mask, 0.0).mean()

def wants_more(log_probs, temperature):
    return log_probs.sum()

def wants_nothing(mask):
    return mask.sum()

def raises(log_probs):
    raise RuntimeError("out of luck")

def returns_a_list(log_probs):
    return [0.0]

def ignores(log_probs, mask):
    return torch.tensor(1.0)

number = 3
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "losses.py"
    path.write_text(LOSSES, encoding="utf-8")
    return path


def run(*arguments, code):
    answer = CliRunner().invoke(app, ["examine", *map(str, arguments)])
    assert answer.exit_code == code, answer.output
    return answer.output


def refused(*arguments) -> str:
    """The one line that a mistake is answered with."""
    said = run(*arguments, code=2)
    assert len(said.splitlines()) == 1, said
    return said


def test_the_verdict_comes_first_and_the_file_has_stable_keys(file, tmp_path):
    said = run(f"{file}:reinforce", "--json", tmp_path / "out.json", code=0)
    assert said.splitlines()[3].startswith("On fresh samples its expected step is ∇J, exactly")
    found = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert found["direction"]["fresh"]["verdict"] == "exact"
    assert found["direction"]["fresh"]["factor"] == pytest.approx(1)
    assert found["kl"]["descends"] == "none"
    assert found["length"]["weight"] == "seq-mean-token-sum"
    assert (found["mask"]["safe"], found["microbatch"]["invariant"]) == (True, True)
    assert (found["detached"], found["finite"]["long"]) == (False, True) or found["detached"]
    assert found["nearest"]["row"] in ("rloo", "reinforce", "reinforce-ema", "remax")
    assert found["errata"] == []


def test_a_requirement_that_is_not_met_is_named_and_fails(file):
    assert "not met: mask-safe" in run(f"{file}:padded", "--require", "mask-safe", code=1)
    run(f"{file}:reinforce", "--require", "exact,mask-safe,eos-trained", code=0)


def test_a_row_goes_by_its_name():
    said = run("grpo", code=0)
    assert "the nearest row of the table is grpo, and the steps are its own." in said
    assert "forward KL" in said


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("grpoo", "the row is 'grpoo', expected one of reinforce, .*; did you mean 'grpo'?"),
        ("losses.py", "which function of losses.py? Say losses.py:FUNCTION"),
        ("nowhere.py:loss", "there is no file nowhere.py"),
        ("losses.py:reinforc", "defines no function 'reinforc'; .*; did you mean 'reinforce'?"),
        ("losses.py:number", "defines no function 'number'"),
        ("losses.py:wants_more", "wants_more needs 'temperature', which is not offered"),
        ("losses.py:wants_nothing", "wants_nothing takes no log_probs"),
        ("losses.py:raises", "raises raises RuntimeError: out of luck"),
        ("losses.py:returns_a_list", "returns_a_list returns list, expected a scalar"),
        ("losses.py:ignores", "ignores does not depend on log_probs"),
    ],
)
def test_bad_input_gets_one_line(file, monkeypatch, target, message):
    monkeypatch.chdir(file.parent)

    assert re.search(message.replace("?", r"\?"), refused(target))


def test_an_unknown_requirement_is_refused_before_anything_is_computed(file):
    assert "did you mean 'exact'" in refused(f"{file}:reinforce", "--require", "exakt")


def test_for_tests_there_is_an_assertion():
    def sign(log_probs, advantages, mask):
        return (log_probs * advantages).masked_fill(~mask, 0.0).sum(dim=1).mean()

    with pytest.raises(AssertionError, match="sign is not unbiased"):
        assert_loss(sign, "unbiased")
    assert examine(sign).facts.fresh.factors == pytest.approx({2: -1, 3: -1, 4: -1})
