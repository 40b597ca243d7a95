"""An evaluation as one JSON file: what was asked, what came back, how sure one may be, its cost.

Everything that is compared is asked on the same problems: the model after training, and, for a run
of reinforcement learning, the model before it.
"""

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from nbcourse.errors import UserError
from nbcourse.experiments import checkpoint, records
from nbcourse.experiments.records import CHECKPOINTS, MODEL
from nbcourse.functional.accuracy import (
    bootstrap_interval,
    gain_split,
    pass_at_k,
    wilson_interval,
)
from nbcourse.lm import loading
from nbcourse.lm.places import located
from nbcourse.seeds import generator
from nbcourse.tasks.task import Task
from nbcourse.training.clock import peak_memory
from nbcourse.training.held_out import Answers, ask
from nbcourse.training.models import precision, rendered
from nbcourse.training.processes import own_device
from nbcourse.training.recipe import Pretraining, Recipe, check

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LIMIT = 768  # tokens of an answer, for a model without a recipe: it cuts few solutions to GSM8K off


@dataclass(frozen=True)
class Asking:
    """In what an examination departs from the recipe; None where it does not.

    Attributes:
        limit: of an answer, in tokens.
        instruction: of the prompt.
        base_instruction: of the prompt, for the model that the run began with.
    """

    limit: int | None = None
    instruction: str | None = None
    base_instruction: str | None = None

    def applied(self, recipe: Recipe | Pretraining) -> Recipe | Pretraining:
        """The recipe, with these."""
        changed: dict[str, Any] = {}
        if self.instruction is not None:
            own = {"instruction": self.instruction}
            changed["prompt"] = recipe.prompt.model_copy(update=own)
        if self.limit is not None:
            length = {"max_new_tokens": self.limit}
            if isinstance(recipe, Pretraining):
                changed["evaluation"] = recipe.evaluation.model_copy(update=length)
            else:
                changed["rollouts"] = recipe.rollouts.model_copy(update=length)
        return recipe.model_copy(update=changed)

    def of_the_base(self, recipe: Recipe | Pretraining) -> Recipe | Pretraining:
        """The recipe by which the model is asked that the run began with."""
        own = Asking(self.limit, self.base_instruction or self.instruction)
        return own.applied(recipe)


@dataclass(frozen=True)
class Exam:
    """What is asked of every model that is compared.

    Attributes:
        recipe: of the run; its prompts and its longest response.
        name: of the task.
        task: which judges.
        split: of the problems.
        problems: P of them.
        samples: sampled responses to each, for pass@k; 0 for the greedy ones alone.
        temperature: of sampling.
        progress: draw progress bars.
        single: a model that no run has left, so that there is nothing to compare it with.
    """

    recipe: Recipe | Pretraining
    name: str
    task: Task
    split: str
    problems: list[Any]
    samples: int
    temperature: float
    progress: bool
    single: bool = False

    @property
    def max_new_tokens(self) -> int:
        """As many as in training."""
        if isinstance(self.recipe, Pretraining):
            return self.recipe.evaluation.max_new_tokens
        return self.recipe.rollouts.max_new_tokens

    @property
    def engine(self) -> str:
        """What writes the responses: as in training."""
        return "eager" if isinstance(self.recipe, Pretraining) else self.recipe.rollouts.own_engine

    def right(self, strict: Tensor, truncated: Tensor) -> Tensor:
        """Which responses are right: a response that was cut off is not, as in training."""
        if isinstance(self.recipe, Recipe) and self.recipe.reward.accept_truncated:
            return strict
        return strict & ~truncated


def evaluate(
    folder: str | Path,
    *,
    task: str | None = None,
    final: bool = False,
    problems: int | None = None,
    samples: int = 0,
    temperature: float = 1.0,
    progress: bool = True,
    asking: Asking = Asking(),
) -> dict[str, Any]:
    """Ask the model of a run, and the model it was made from, and write down how they did.

    Args:
        folder: of a run of reinforcement learning or of a base model; or of a model in the hub's
            layout, or its name, if `nbcourse model` fetched it: then `task` has to be named, and
            the model is asked alone.
        task: the name of another task than the run's, with its usual settings.
        final: ask the test split; the held-out split of training if False.
        problems: how many; if None, 2,000. A task that draws its problems may draw one more than
            once, and `different` says how many there are: then intervals are those of the accuracy
            on this split, and not on problems outside it. Of a task that lists its problems, all
            are asked if it has fewer.
        samples: sampled responses to each problem for pass@k, besides the greedy one.
        temperature: of the samples.
        progress: draw progress bars.
        asking: another limit or instruction than the recipe's, or another one for the base.

    Returns:
        What was written to `evaluation-TASK-SPLIT.json` in the folder; with a limit N of its own,
        to `evaluation-TASK-SPLIT-N-tokens.json`.

    Raises:
        FileNotFoundError: if there is no run, or it has not left a model.
        ValueError: if the task is unknown or a number is out of range.
    """
    _check_numbers(samples, problems, temperature)
    began = perf_counter()
    folder, recipe, single = _model_of(Path(folder), task)
    of_the_base, recipe = asking.of_the_base(recipe), asking.applied(recipe)
    environment = records.environment(1, recipe.own_code)
    name, asks = recipe.task.name, recipe.task.build()
    if task not in (None, name):
        name, asks = str(task), recipe.own_code.task(str(task))()
    split = "test" if final else asks.held_out
    drawn = asked_of(recipe, asks, split, problems or 2000)
    exam = Exam(recipe, name, asks, split, drawn, samples, temperature, progress, single)
    path = folder / evaluation_file(name, split, asking.limit)
    result = {
        **_compared(exam, replace(exam, recipe=of_the_base), folder),
        "times_asked": _times_asked(folder, evaluation_file(name, split)) + 1,
        "file": path.name,
        "seconds": perf_counter() - began,
        "peak_memory_bytes": peak_memory(),
        "seed": recipe.seed,
        "environment": environment,
        "recipe": recipe.model_dump(mode="json"),
    }
    records.write_json(path, result)
    return result


def _check_numbers(samples: int, problems: int | None, temperature: float) -> None:
    if samples < 0 or (problems is not None and problems < 1) or not temperature > 0:
        raise UserError(
            f"samples={samples}, problems={problems}, temperature={temperature}: expected samples "
            "of 0 or more, and the others above 0"
        )


def _model_of(folder: Path, task: str | None) -> tuple[Path, Recipe | Pretraining, bool]:
    """Where a model is and by which recipe it is asked; and whether no run has left it.

    Raises:
        FileNotFoundError: if there is neither a run nor a model.
        ValueError: if it is a model alone, and no task is named.
    """
    model = located(folder)
    if (folder / records.RECIPE).is_file() or model is None:
        return folder, records.read_any_recipe(folder, with_code=True), False
    if task is None:
        raise UserError(
            f"{folder} is a model without a recipe: name what to ask it, as in --task gsm8k"
        )
    chat = bool(loading.tokenizer(model).chat_template)
    tables = {
        "steps": 0,
        "algorithm": {"name": "reinforce"},  # says nothing here: there is no step
        "task": {"name": task},
        "model": {"source": str(folder)},
        "prompt": {"style": "chat" if chat else "plain"},
        "rollouts": {"max_new_tokens": LIMIT},
    }
    return model, check(tables, name=str(folder)), True


def _compared(exam: Exam, of_the_base: Exam, folder: Path) -> dict[str, Any]:
    """What is asked, how the model of a run did, and how the one that it was made from."""
    place = folder if exam.single else folder.resolve() / MODEL
    tokenizer, model = loading.load(place, own_device())
    after, of_after = _examine(exam, tokenizer, model, "after")
    result: dict[str, Any] = {
        "task": {"name": exam.name, **asdict(exam.task)},  # type: ignore[call-overload]
        "split": exam.split,
        "problems": len(exam.problems),
        "different": len({problem.prompt for problem in exam.problems}),
        "max_new_tokens": exam.max_new_tokens,
        "temperature": exam.temperature,
        "samples": exam.samples,
        "base_instruction": of_the_base.recipe.prompt.instruction,
        "after": after,
    }
    if isinstance(exam.recipe, Recipe) and not exam.single:
        checkpoint.load_start(folder / CHECKPOINTS, model)  # the source may have gone meanwhile
        result["before"], of_before = _examine(of_the_base, tokenizer, model, "before")
        result["gain"] = {
            name: _bootstrapped(difference, exam)
            for name, difference in _differences(of_before, of_after).items()
        }
    return result


def asked_of(recipe: Recipe | Pretraining, task: Task, split: str, count: int) -> list[Any]:
    """The problems that an evaluation asks, in order."""
    return task.draw(count, split=split, generator=generator(recipe.seed, "evaluation"))


def evaluation_file(task: str, split: str, limit: int | None = None) -> str:
    """The name of the file that holds the evaluation on a task's split, by a limit of its own."""
    own = "" if limit is None else f"-{limit}-tokens"
    return f"evaluation-{task}-{split}{own}.json"


def rows(result: dict[str, Any]) -> list[list[str]]:
    """An evaluation as lines of a table: a label, and a column for each model."""
    models = [result[name] for name in ("before", "after") if name in result]
    labels = {
        "strict": "right, strictly",
        "lenient": "right, leniently",
        "no_answer": "no answer in the form asked for",
        "truncated": "not ended",
    }
    lines = [[label, *(_shown(m[key], "share") for m in models)] for key, label in labels.items()]
    for k in models[0].get("pass_at", ()):
        lines.append([f"pass@{k}", *(_shown(model["pass_at"][k], "mean") for model in models)])
    for name, gain in result.get("gain", {}).items():
        lines.append([f"gain: {name}", "", _shown(gain, "mean")])
    return lines


def _shown(number: dict[str, Any], key: str) -> str:
    low, high = number["interval_95"]
    return f"{number[key]:.1%} ({low:.1%} to {high:.1%})"


def _times_asked(folder: Path, file: str) -> int:
    """How often a split was asked before, whatever the limit of an answer was."""
    files = [folder / file, *folder.glob(f"{Path(file).stem}-*-tokens.json")]
    return max((records.read_json(f)["times_asked"] for f in files if f.is_file()), default=0)


class Verdicts(NamedTuple):
    """On one model: (P,) bool each for the greedy responses, and (P, samples) bool or None."""

    strict: Tensor
    lenient: Tensor
    samples: Tensor | None


def _differences(before: Verdicts, after: Verdicts) -> dict[str, Tensor]:
    """What training changed, (P,) each, in pairs: of greedy responses, and of the sampled share."""
    found = gain_split(*before[:2], *after[:2])._asdict()
    if before.samples is not None and after.samples is not None:
        found["sampled"] = (after.samples.double() - before.samples.double()).mean(dim=1)
    return found


def _examine(
    exam: Exam, tokenizer: "PreTrainedTokenizerBase", model: "PreTrainedModel", label: str
) -> tuple[dict[str, Any], Verdicts]:
    """How one model did, and the verdicts on it."""
    recipe, problems = exam.recipe, exam.problems
    prompts = rendered(recipe.prompt, tokenizer, problems)
    answer = partial(
        ask,
        model,
        tokenizer,
        prompts,
        max_new_tokens=exam.max_new_tokens,
        precision=precision(recipe.model, model.device),
        engine=exam.engine,
    )
    start = perf_counter()
    answers = answer(label=label if exam.progress else None)
    seconds = perf_counter() - start
    strict, lenient, silent = _judge(exam, answers, problems)
    found: dict[str, Any] = {
        "strict": _share(strict),
        "lenient": _share(lenient),
        "no_answer": _share(silent),
        "truncated": _share(answers.truncated),
        "mean_tokens": answers.lengths.double().mean().item(),
        "tokens_per_second": int(answers.lengths.sum()) / seconds,
        "by_steps": _by_steps(strict, problems),
        "verdicts": {"strict": records.digits(strict), "lenient": records.digits(lenient)},
        "examples": [
            {"question": p.prompt, "response": text, "answer": str(p.answer), "right": bool(right)}
            for p, text, right in zip(problems[:5], answers.texts, strict, strict=False)
        ],
    }
    right = None
    if exam.samples:
        sampled = answer(
            samples=exam.samples,
            temperature=exam.temperature,
            generator=generator(recipe.seed, "samples", device=model.device),
            label=f"{label}, samples" if exam.progress else None,
        )
        asked = [problem for problem in problems for _ in range(exam.samples)]
        right = _judge(exam, sampled, asked)[0].view(-1, exam.samples)
        tries = [1 << i for i in range(exam.samples.bit_length())]
        found["pass_at"] = {str(k): _bootstrapped(pass_at_k(right, k=k), exam) for k in tries}
        found["verdicts"]["samples"] = right.sum(dim=1).tolist()  # how many of them were right
    return found, Verdicts(strict, lenient, right)


def _judge(exam: Exam, answers: Answers, problems: list[Any]) -> tuple[Tensor, Tensor, Tensor]:
    """For each response: strictly right, leniently right, and no answer by the strict rules.

    A lenient reader takes the answer of a response that was cut off, too.
    """
    task, pairs = exam.task, list(zip(answers.texts, problems, strict=True))
    read = [task.read(text) for text, _ in pairs]
    strict = [answer == p.answer for answer, (_, p) in zip(read, pairs, strict=True)]
    lenient = [task.read(text, strict=False) == p.answer for text, p in pairs]
    return (
        exam.right(torch.tensor(strict), answers.truncated),
        torch.tensor(lenient) | torch.tensor(strict),  # so that no task has to ensure it
        torch.tensor([answer is None for answer in read]),
    )


def _by_steps(right: Tensor, problems: list[Any]) -> dict[str, Any]:
    """Accuracy by the length of the worked solution, in lines; {} for a task without solutions."""
    lines = [len(getattr(p, "solution", "").splitlines()) - 1 for p in problems]
    groups = {n: [i for i, m in enumerate(lines) if m == n] for n in sorted(set(lines)) if n > 0}
    return {str(n): _share(right[rows]) for n, rows in groups.items()}


def _share(verdicts: Tensor) -> dict[str, Any]:
    count = int(verdicts.sum())
    return {
        "count": count,
        "of": len(verdicts),
        "share": count / len(verdicts),
        "interval_95": wilson_interval(count, len(verdicts)),
    }


def _bootstrapped(values: Tensor, exam: Exam) -> dict[str, Any]:
    source = generator(exam.recipe.seed, "bootstrap")
    return {
        "mean": values.mean().item(),
        "interval_95": bootstrap_interval(values, generator=source),
    }
