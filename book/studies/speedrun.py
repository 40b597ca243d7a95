"""How long until a model is better at a task, both examinations included, by a clock that is fixed.

    python -m book.studies.speedrun gsm8k-qwen2.5-coder-0.5b-grpo --set seed=0 \
        --out book/runs/speedrun/qwen2.5-coder-0.5b-seed0

The clock runs from the start of the process to the last number. In between the model is loaded,
trained for the steps of the recipe, and asked the whole test, as is the model that it began with:
greedily, read leniently, with answers of up to 768 tokens. `speedrun.json` in the folder says what
came of it. The rules are in `book/runs/speedrun/README.md`.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from nbcourse.experiments import records
from nbcourse.experiments.evaluation import Asking, evaluate
from nbcourse.experiments.run import train
from nbcourse.training.recipe import load

LIMIT, GOAL = 768, 0.05
FILE = "speedrun.json"
BASE_INSTRUCTION = """Let's think step by step and output the final answer after "####"."""
"""Under which the recorded run's base was better, by the test: a choice in the base's favour."""


class Entry(NamedTuple):
    """A line of the table.

    Attributes:
        recipe: its name and what was changed of it.
        seed: of the run.
        seconds: from the start of the process until both examinations were done.
        gain: of the test, paired, question by question, and its 95 % interval.
        times_asked: how often this run has been asked the test.
        hardware: of the run.
        commit: of the code.
        base_instruction: how the model was asked that the run began with.
    """

    recipe: str
    seed: int
    seconds: float
    gain: float
    interval_95: tuple[float, float]
    times_asked: int
    hardware: str
    commit: str | None
    base_instruction: str

    @property
    def reached(self) -> bool:
        """Whether the goal was reached, and chance can be excluded."""
        return self.gain >= GOAL and self.interval_95[0] > 0


def since_the_start() -> float:
    """Seconds that this process has been there; on a system without `/proc`, since its imports."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return time.monotonic() - _IMPORTED
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # after boot; the 22nd field of the file
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


_IMPORTED = time.monotonic()


def run(
    recipe: str, changes: list[str], folder: Path, *, base_instruction: str, limit: int
) -> Entry:
    """Train and examine, and write down what came of it.

    Raises:
        ValueError: if the folder holds a run already.
    """
    chosen = load(recipe, changes)
    train(chosen, folder=folder)
    asking = Asking(limit, base_instruction=base_instruction)
    exam = evaluate(folder, final=True, asking=asking)
    found = entry(" ".join([recipe, *changes]), exam, since_the_start())
    records.write_json(folder / FILE, found._asdict())
    return found


def entry(recipe: str, exam: dict[str, Any], seconds: float) -> Entry:
    """What an examination says; `content` is the gain of what is read leniently."""
    gain, environment = exam["gain"]["content"], exam["environment"]
    return Entry(
        recipe=recipe,
        seed=exam["seed"],
        seconds=seconds,
        gain=gain["mean"],
        interval_95=tuple(gain["interval_95"]),
        times_asked=exam["times_asked"],
        hardware=environment["hardware"],
        commit=environment["commit"],
        base_instruction=exam["base_instruction"],
    )


def main() -> None:
    """Make an entry."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="changes")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--base-instruction",
        default=BASE_INSTRUCTION,
        help="how the model is asked that the run begins with",
    )
    parser.add_argument("--limit", type=int, default=LIMIT, help="of an answer, in tokens")
    chosen = parser.parse_args()
    found = run(
        chosen.recipe,
        chosen.changes,
        chosen.out,
        base_instruction=chosen.base_instruction,
        limit=chosen.limit,
    )
    low, high = found.interval_95
    print(
        f"{found.seconds:.0f} s: {100 * found.gain:+.1f} points ({100 * low:+.1f} to "
        f"{100 * high:+.1f}), {'an entry' if found.reached else 'no entry'}"
    )


if __name__ == "__main__":
    main()
