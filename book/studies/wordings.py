"""What a model of word problems cannot do: new words, or new numbers?

    python -m book.studies.wordings runs/word-problems-small-base-seed0 --out wordings

A held-out question has both. Here it is asked with one of them from training at a time.

Book: appendix J, "New words, or new numbers?".
"""

import argparse
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

from nbcourse.errors import UserError
from nbcourse.experiments import records
from nbcourse.lm import loading
from nbcourse.seeds import generator
from nbcourse.tasks.word_problems import WordProblems, problems
from nbcourse.training.held_out import ask
from nbcourse.training.models import precision, rendered
from nbcourse.training.processes import own_device
from nbcourse.training.recipe import Pretraining

SPLITS = ("train", "validation")


def ask_apart(
    run: Path,
    count: int,
    *,
    wordings: Sequence[str] = SPLITS,
    numbers: Sequence[str] = SPLITS,
    progress: bool = True,
) -> list[dict[str, Any]]:
    """The verdicts on greedy answers, for wordings and numbers of several splits.

    All sets of questions tell the same stories up to the same steps, one by one.

    Args:
        run: folder of a base model's making, on word problems.
        count: questions in each set.
        wordings: the splits whose wordings are asked.
        numbers: the splits whose numbers are in the questions, each with each wording.
        progress: draw progress bars.

    Returns:
        Of each set: the split of its `wording` and of its `numbers`, the `verdicts` as a string of
        0 and 1, and the `steps` of each question as a string of digits.

    Raises:
        UserError: if the run is another.
    """
    recipe = records.read_any_recipe(run, with_code=True)
    task = recipe.task.build()
    if not isinstance(recipe, Pretraining) or not isinstance(task, WordProblems):
        raise UserError(f"{run} did not make a base model for word problems")
    tokenizer, model = loading.load(run / records.MODEL, own_device())
    results = []
    for wording, of in product(wordings, numbers):
        source = generator(recipe.seed, "wordings")
        asked = problems(count, split=wording, numbers=of, generator=source, **task.told())
        answers = ask(
            model,
            tokenizer,
            rendered(recipe.prompt, tokenizer, asked),
            max_new_tokens=recipe.evaluation.max_new_tokens,
            precision=precision(recipe.model, model.device),
            label=f"wording: {wording}, numbers: {of}" if progress else None,
        )
        verdicts = task.rewards(answers.texts, asked).masked_fill(answers.truncated, 0.0)
        results.append(
            {
                "wording": wording,
                "numbers": of,
                "verdicts": records.digits(verdicts),
                "steps": "".join(str(problem.steps) for problem in asked),
            }
        )
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Ask for new wordings and new numbers apart.")
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=1000)
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    began, environment = perf_counter(), records.environment(1)
    records.write_results(given.out, ask_apart(given.run, given.count))
    environment["seconds"] = round(perf_counter() - began, 1)
    records.write_json(given.out / records.ENVIRONMENT, environment)


if __name__ == "__main__":
    main()
