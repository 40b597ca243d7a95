"""A few responses of each step as text: what the policy writes while it learns.

A run that is followed keeps them beside its metrics, in `samples.jsonl`, a line for each step.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from nbcourse import durable
from nbcourse.lm.rollouts import select
from nbcourse.training.experience import Experience
from nbcourse.training.learner import Learner

FILE = "samples.jsonl"


class Sample(NamedTuple):
    """A response, and what became of it.

    Attributes:
        prompt: as the model was given it.
        response: without the token that ends it.
        reward: what it earned.
        right: the verifier's verdict.
        truncated: whether it reached the limit without ending itself.
    """

    prompt: str
    response: str
    reward: float
    right: bool
    truncated: bool


def of_batch(learner: Learner, experience: Experience, count: int) -> list[Sample]:
    """The first response to each of the first `count` prompts of a batch."""
    scores = experience.scores
    first = range(0, len(scores), learner.recipe.rollouts.group_size)[:count]
    rows = torch.tensor(first, device=scores.device)
    problems = experience.problems or []
    part = select(experience.rollout, rows)
    columns = (
        learner.prompts([problems[row] for row in first]),
        part.texts(learner.tokenizer),
        scores[rows].tolist(),
        (experience.correct[rows] > 0).tolist(),
        part.truncated.tolist(),
    )
    return [Sample(*row) for row in zip(*columns, strict=True)]


def read(folder: Path) -> dict[int, list[Sample]]:
    """Step → the responses that were kept of it; a last line that a kill cut short is left out."""
    path, found = folder / FILE, {}
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    for line in text.split("\n")[:-1]:
        kept: dict[str, Any] = json.loads(line)
        found[kept["step"]] = [Sample(**sample) for sample in kept["samples"]]
    return found


def write(folder: Path, kept: Mapping[int, Sequence[Sample]]) -> None:
    """Write the file anew."""
    lines = (_line(step, samples) for step, samples in kept.items())
    durable.write(folder / FILE, "".join(lines).encode())


def append(folder: Path, step: int, samples: Sequence[Sample]) -> None:
    """Add a step to the file."""
    with (folder / FILE).open("a", encoding="utf-8") as stream:
        stream.write(_line(step, samples))


def _line(step: int, samples: Sequence[Sample]) -> str:
    return json.dumps({"step": step, "samples": [sample._asdict() for sample in samples]}) + "\n"
