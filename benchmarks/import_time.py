"""What `import nbcourse` costs on top of `import torch`.

    python benchmarks/import_time.py

Each import runs in a process of its own, the two in turn; what counts is the ratio of a pair.
"""

import subprocess
import sys
from statistics import median
from time import perf_counter

PAIRS = 7
TORCH = "import torch"
PACKAGE = (
    "import nbcourse; from nbcourse.functional import "
    "advantages, aggregation, kl, masking, returns, surrogates, values; "
    "from nbcourse.lm import log_probs, sampling, tiny; from nbcourse.tasks import "
    "answers, arithmetic, gsm8k; from nbcourse.toys import bandit, sequences"
)


def seconds(program: str) -> float:
    start = perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return perf_counter() - start


def main() -> None:
    seconds(TORCH), seconds(PACKAGE)
    pairs = [(seconds(PACKAGE), seconds(TORCH)) for _ in range(PAIRS)]
    ratios = sorted(package / torch for package, torch in pairs)
    print(
        f"import torch {median(torch for _, torch in pairs):.2f} s; all of nbcourse's floors "
        f"{median(package for package, _ in pairs):.2f} s; "
        f"ratio {median(ratios):.3f} [{ratios[0]:.3f}, {ratios[-1]:.3f}]"
    )


if __name__ == "__main__":
    main()
