"""Does a second wording of each story in training help with a third?

    python -m book.studies.more_wordings --out more-wordings

Base models learn from the same number of questions. Some have met each story in the wording of one
split, the others in those of two; then both are asked in the third. The task is a reader's own, as
a recipe's key `code` brings it: this file.

Book: appendix J, "More wordings".
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Interval

from nbcourse.experiments import records
from nbcourse.experiments.pretraining import pretrain
from nbcourse.tasks.word_problems import SHARES, WordProblem, WordProblems, problems
from nbcourse.training import recipe_files
from nbcourse.training.recipe import Pretraining, validate

RECIPE = "word-problems-tiny-base"
TAUGHT = ("train", "validation")


@dataclass(frozen=True)
class Reworded(WordProblems):
    """Word problems whose training questions may have a second wording.

    Attributes:
        wordings: in how many wordings each story is told in training, equally often.
    """

    held_out: ClassVar[str] = "test"
    wordings: Annotated[int, Interval(ge=1, le=len(TAUGHT))] = 1

    def draw(self, count: int, *, split: str, generator: torch.Generator) -> list[WordProblem]:
        """Draw problems; those of "train" have its numbers, whatever their wording."""
        taught = TAUGHT[: self.wordings] if split == "train" else (split,)
        return [
            problem
            for first, wording in enumerate(taught)
            for problem in problems(
                len(range(first, count, len(taught))),
                split=wording,
                numbers=split,
                generator=generator,
                **self.told(),
            )
        ]


TASKS = {"reworded-problems": Reworded}


def recipe_of(wordings: int, seed: int) -> dict[str, Any]:
    """The tables of a recipe: appendix J's base model, shown all stories, in so many wordings."""
    tables = recipe_files.read(RECIPE)
    steps = sum(tables[stage]["steps"] for stage in ("pretraining", "supervised"))
    changed = {"name": "reworded-problems", "stories": 1.0, "wordings": wordings}
    return {
        **tables,
        "code": __file__,
        "seed": seed,
        "task": {**tables["task"], **changed},
        "model": {**tables["model"], "precision": "float32"},
        "evaluation": {**tables["evaluation"], "every": steps},
    }


def study(out: Path, wordings: int, seed: int, count: int) -> None:
    """Make a base model in a folder of `out`, and ask it in the wording of each split.

    Args:
        out: the folder; one run in it that was begun before is gone on with.
        wordings: in how many each story is told in training, 1 or 2.
        seed: of the weights and the questions.
        count: questions in each wording, all with numbers that no training question has.
    """
    from .wordings import ask_apart  # not above: as a recipe's `code`, the file stands alone

    run = out / f"wordings-{wordings}-seed{seed}"
    recipe = validate(Pretraining, recipe_of(wordings, seed), name=RECIPE)
    pretrain(recipe, folder=run, resume=True)
    asked = ask_apart(run, count, wordings=tuple(SHARES), numbers=("test",))
    records.write_results(run, asked)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Tell each story in one wording, or in two.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--wordings", type=int, nargs="+", choices=[1, 2], default=[1, 2])
    parser.add_argument("--count", type=int, default=1000)
    given = parser.parse_args(arguments)
    for seed, wordings in product(given.seeds, given.wordings):
        study(given.out, wordings, seed, given.count)


if __name__ == "__main__":
    main()
