"""What `import nbcourse` costs on top of `import torch`.

    python benchmarks/import_time.py

Each import runs in a process of its own, the two in turn; what counts is the ratio of a pair.
"""

import subprocess
import sys

from _pairs import in_turn

PAIRS = 7
TORCH = "import torch"
PACKAGE = (
    "import nbcourse; from nbcourse.functional import "
    "advantages, aggregation, kl, masking, returns, surrogates, values; "
    "from nbcourse.lm import log_probs, sampling, tiny; from nbcourse.tasks import "
    "answers, arithmetic, gsm8k; from nbcourse.toys import bandit, sequences"
)


def in_a_process(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True)


def main() -> None:
    pairs = in_turn(lambda: in_a_process(PACKAGE), lambda: in_a_process(TORCH), pairs=PAIRS)
    package_ms, torch_ms = pairs.milliseconds()
    print(
        f"import torch {torch_ms:.0f} ms; all of nbcourse's lower floors {package_ms:.0f} ms; "
        f"ratio {pairs.ratio}"
    )


if __name__ == "__main__":
    main()
