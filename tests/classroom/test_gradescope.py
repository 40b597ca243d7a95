"""The autograder's own scripts, run in a folder that is laid out as Gradescope's is."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from nbcourse.classroom import gradescope
from nbcourse.classroom.ledger import LedgerEntry
from nbcourse.classroom.results import ExerciseResult, SubmissionResult
from nbcourse.confined import sandbox
from nbcourse.confined.submission_errors import Ending
from nbcourse.repository import ROOT
from tests.checks import masters
from tests.command import nbcourse, refused

pytestmark = masters.needed


def test_what_gradescope_reads():
    result = SubmissionResult(
        *("student", "", "02-x", "02-x.ipynb", False),
        exercises=(
            ExerciseResult(
                "by-hand-check", (LedgerEntry("", 1.5),), 3.0, Ending.FAILED, "Wrong for <b>."
            ),
            ExerciseResult("essay", None, 2.0, Ending.BY_HAND),
            ExerciseResult(
                "plot", (LedgerEntry("", 0.0),), 2.0, Ending.NOT_ATTEMPTED
            ),  # a 0 that a person gives
        ),
        notes=("There are 2 cells called `x`; the last one counts.",),
    )
    assert gradescope.report(result, ["essay", "plot"]) == {
        "output": "There are 2 cells called `x`; the last one counts.",
        "tests": [
            {"name": "by-hand", "score": 1.5, "max_score": 3.0,
             "output": "failed\nWrong for <b>."}
        ],
    }  # fmt: skip


def test_another_platform_is_refused():
    assert "the platform is 'moodle', expected 'gradescope'" in refused("export", "moodle", "2")


@pytest.fixture(scope="module")
def autograder(tmp_path_factory) -> Path:
    """A folder as Gradescope makes it of the zip, before there is a submission."""
    root = tmp_path_factory.mktemp("autograder")
    rules = root / "class.toml"
    rules.write_text('partial_credit = ["unequal-groups"]\n')
    nbcourse("export", "gradescope", "2", "--out", root, "--rules", rules)
    with zipfile.ZipFile(root / "gradescope-02-sequences.zip") as archive:
        assert {"setup.sh", "run_autograder"} <= set(archive.namelist())
        modes = {name: archive.getinfo(name).external_attr >> 16 for name in archive.namelist()}
        assert {name for name in modes if modes[name] & 0o100} == {"setup.sh", "run_autograder"}
        solutions = [name for name in archive.namelist() if name.startswith("solutions/")]
        assert solutions == ["solutions/02-sequences.ipynb"]
        archive.extractall(root / "source")
    return root


def script(root: Path, name: str, **more: str) -> subprocess.CompletedProcess:
    """Run one of its scripts, with nothing of this repository in the environment."""
    found = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "TMPDIR")}
    found |= {"AUTOGRADER_ROOT": str(root), "PYTHON": sys.executable, **more}
    return subprocess.run(
        ["bash", root / "source" / name], cwd=root, env=found, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def test_setup_asks_for_what_this_environment_has(autograder):
    """Nothing is installed here: pip only says whether everything is there."""
    done = script(autograder, "setup.sh", PIP_DRY_RUN="1", PIP_NO_INDEX="1")
    assert done.returncode == 0, done.stderr
    assert "Would install" not in done.stdout
    wanted = (autograder / "source" / "requirements.txt").read_text().splitlines()
    assert len(wanted) == len(gradescope.NEEDED)


def test_setup_brings_its_own_python(autograder, tmp_path):
    """Whatever the system has: here the installer is replaced, and nothing is downloaded."""
    (tmp_path / "curl").write_text(
        f"""#!/bin/sh
cat <<'END'
mkdir -p "$UV_INSTALL_DIR"
printf '#!/bin/sh\necho "$@" "$UV_PYTHON_INSTALL_DIR"\nmkdir -p "$5/bin"\n' > "$UV_INSTALL_DIR/uv"
printf 'ln -sf {sys.executable} "$5/bin/python"\n' >> "$UV_INSTALL_DIR/uv"
chmod +x "$UV_INSTALL_DIR/uv"
END
"""
    )
    (tmp_path / "apt-get").write_text("#!/bin/sh\nexit 9\n")
    for name in ("curl", "apt-get"):
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    dry = {"PIP_DRY_RUN": "1", "PIP_NO_INDEX": "1"}
    done = script(autograder, "setup.sh", PATH=path, PYTHON="", **dry)
    asked = f"venv --seed --python 3.11 {autograder}/python {autograder}/uv/python"
    assert asked in done.stdout, done.stderr
    assert (autograder / "python" / "bin" / "python").exists()


@pytest.mark.skipif(bool(sandbox.missing()), reason="no submission can be confined here")
def test_a_submission_is_graded_by_its_own_scripts(autograder):
    notebook = json.loads((ROOT / "solutions" / "02-sequences.ipynb").read_text())
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == "unequal-groups":
            cell["source"] = source.replace("torch.where(others > 0, rewards - baseline, 0.0)",
                                            "rewards - baseline")  # fmt: skip
            assert cell["source"] != source
    submitted = autograder / "submission" / "02-sequences.ipynb"
    submitted.parent.mkdir()
    submitted.write_text(json.dumps(notebook))
    done = script(autograder, "run_autograder")
    assert done.returncode == 0, done.stderr
    written = json.loads((autograder / "results" / "results.json").read_text())
    scores = {test["name"]: (test["score"], test["max_score"]) for test in written["tests"]}
    wrong, most = scores.pop("unequal-groups")
    assert 0 < wrong < most
    assert all(score == best for score, best in scores.values())
    assert len(scores) == 4
    (told,) = (t["output"] for t in written["tests"] if t["name"] == "unequal-groups")
    assert "cases are right" in told


def test_what_cannot_be_graded_gets_no_result(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "missing", lambda: ["Landlock"])
    monkeypatch.setattr(gradescope.masters, "sheets", lambda root: [ROOT / "solutions" / MASTER])
    (tmp_path / "submission").mkdir()
    with pytest.raises(ValueError, match="cannot be confined here"):
        gradescope.run(tmp_path)
    assert not (tmp_path / "results").exists()


MASTER = "02-sequences.ipynb"
