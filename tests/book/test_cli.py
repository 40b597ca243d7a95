"""The command line as a user meets it: help at once, mistakes answered in one line."""

import subprocess
import sys
from pathlib import Path

import pytest

from nbcourse import cli
from nbcourse.publishing import chapters


def nbcourse(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "nbcourse", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("command", ["run", "site", "pdf", "twins", "doctor"])
def test_every_command_explains_itself(command):
    assert command in nbcourse("--help").stdout
    assert len(nbcourse(command, "--help").stdout.split()) > 20


def test_examples_in_help_stand_one_to_a_line():
    shown = nbcourse("diagnose", "--help").stdout.splitlines()
    assert sum(line.startswith("  • nbcourse ") for line in shown) == 5
    # Markdown, in which the help is written, joins the lines that click keeps apart by this.
    assert "\\b\n" not in Path(cli.__file__).read_text(encoding="utf-8")


def test_help_does_not_wait_for_heavy_imports():
    code = "import sys, nbcourse.cli; print({'torch', 'nbclient', 'sphinx'} & {*sys.modules})"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert shown.stdout == "set()\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run", "quantum"], "there is no chapter 'quantum'; the chapters are: "),
        (["twins", "--check", "quantum"], "there is no chapter 'quantum'; the chapters are: "),
        (["twins"], "say one of --to-text, --to-notebook and --check"),
        (
            ["twins", "--to-text", "--to-notebook"],
            "say one of --to-text, --to-notebook and --check",
        ),
    ],
)
def test_a_mistake_is_answered_in_one_line(arguments, line):
    answer = nbcourse(*arguments)
    assert answer.returncode == 2
    assert answer.stderr.startswith(f"nbcourse: {line}")
    assert answer.stderr.count("\n") == 1
    assert answer.stdout == ""


def test_an_unknown_chapter_is_answered_with_the_known_ones():
    answer = nbcourse("run", "quantum").stderr
    assert all(notebook.stem in answer for notebook in chapters.notebooks())


def test_the_twins_are_checked():
    answer = nbcourse("twins", "--check")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")


def test_the_doctor_names_the_versions():
    answer = nbcourse("doctor")
    assert "Python" in answer.stdout
    assert "torch" in answer.stdout
