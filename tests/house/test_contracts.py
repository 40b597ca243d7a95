"""The house: who may import whom, and what an import costs."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_layers_depend_on_each_other_in_one_direction():
    """The contracts are in pyproject.toml, under [tool.importlinter]."""
    program = (
        "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_every_layer_below_display_loads_nothing_heavy():
    """Transformers, datasets, matplotlib and IPython load where they are used, not before."""
    program = """
import sys, nbcourse, nbcourse.installation, nbcourse.cli
from nbcourse.functional import advantages, aggregation, kl, masking, returns, rewards
from nbcourse.functional import surrogates, values
from nbcourse.lm import log_probs, sampling, tiny
from nbcourse.tasks import answers, arithmetic, gsm8k
from nbcourse.toys import bandit, sequences
heavy = {"transformers", "datasets", "matplotlib", "IPython", "ipywidgets", "nbclient", "trl"}
print(*sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
