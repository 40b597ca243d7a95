"""The command line as a user meets it: help at once, mistakes answered in one line."""

import subprocess
import sys
from pathlib import Path

import pytest

from nbcourse import cli
from nbcourse.publishing import chapters
from tests.command import invoke, nbcourse, refused


@pytest.mark.parametrize("command", ["run", "site", "pdf", "twins", "doctor"])
def test_every_command_explains_itself(command):
    assert command in nbcourse("--help")
    assert len(nbcourse(command, "--help").split()) > 20


def test_examples_in_help_stand_one_to_a_line():
    shown = nbcourse("diagnose", "--help").splitlines()
    assert sum(line.startswith("  • nbcourse ") for line in shown) == 5
    # Markdown, in which the help is written, joins the lines that click keeps apart by this.
    files = Path(cli.__file__).parent.glob("*.py")
    assert not any("\\b\n" in file.read_text(encoding="utf-8") for file in files)


HEAVY = {"torch", "numpy", "transformers", "nbclient", "nbformat", "sphinx"}


def test_no_help_waits_for_heavy_imports():
    code = f"""
import sys
from tests.command import invoke
for command in ["", "train", "build check", "hunt new", "grade", "examine", "twins", "recipes"]:
    assert invoke(*command.split(), "--help").exit_code == 0
print(sorted({HEAVY!r} & {{*sys.modules}}))
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert shown.stdout == "[]\n", shown.stderr


def test_the_help_of_train_says_where_the_keys_of_recipes_are_listed():
    assert "nbcourse recipes --keys" in nbcourse("train", "--help")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["twins", "--check", "quantum"], "there is no chapter 'quantum'; the chapters are: "),
        (["twins"], "give exactly one of --to-text, --to-notebook and --check"),
        (
            ["twins", "--to-text", "--to-notebook"],
            "give exactly one of --to-text, --to-notebook and --check",
        ),
    ],
)
def test_a_mistake_is_answered_in_one_line(arguments, line):
    assert refused(*arguments).startswith(f"nbcourse: {line}")


def test_an_unknown_chapter_is_answered_with_the_known_ones():
    """As typed: one line, and nothing else."""
    command = [sys.executable, "-m", "nbcourse", "run", "quantum"]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert (answer.returncode, answer.stdout, answer.stderr.count("\n")) == (2, "", 1)
    assert answer.stderr.startswith("nbcourse: there is no chapter 'quantum'; the chapters are: ")
    assert all(notebook.stem in answer.stderr for notebook in chapters.notebooks())


def test_the_doctor_names_the_versions():
    said = invoke("doctor").output  # with whatever this machine lacks
    assert "Python" in said
    assert "torch" in said
