"""The command line: run a chapter, train by a recipe, build the site, check the installation.

Each command imports what it needs when it is called, so that `nbcourse --help` answers at once.
"""

# In the order in which `nbcourse --help` lists their commands.
# isort: off
from nbcourse.cli import book, classroom, training, gating, runs, verdicts, builds, doctor
from nbcourse.cli.application import app

__all__ = ["app", "book", "builds", "classroom", "doctor", "gating", "runs", "training", "verdicts"]
