"""The recorded training ablation of chapter 12, on sequences that can be listed.

    python -m book.studies.kl_sequences runs/kl-sequences

It is not among the toys because those write no files. Every form of the KL is trained on the same
problems with the same settings, without noise and with; `nbcourse.toys.regularised` says what the
forms are. The folder gets `recipe.json`, `environment.json`, `summary.json` as any run's, and
`results.jsonl` with a line for each training.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from nbcourse.experiments import records
from nbcourse.progress import track
from nbcourse.toys import regularised
from nbcourse.toys.sequences import SequenceSpace


@dataclass(frozen=True)
class Ablation:
    """Everything the runs depend on. The settings were found on problems 1 and 2 of each space.

    Attributes:
        spaces: vocabulary, length and EOS of each set of sequences.
        problems: seeds of reference and rewards. The first one is trained in every way, the others
            without noise and with the first number of steps on a batch.
        beta: β.
        learning_rate: of the first step.
        updates: in a run, all batches together.
        inner_steps: updates on each batch.
        batch_size: responses in a batch, where batches are sampled.
        seeds: of the samples.
        points: how many times the distance to the optimum is measured after the beginning.
    """

    spaces: Sequence[tuple[int, int, int | None]] = ((3, 3, None), (3, 4, 0))
    problems: Sequence[int] = (0, 3, 4, 5, 6, 7, 8, 9, 10, 11)
    beta: float = 1.0
    learning_rate: float = 1.0
    updates: int = 512
    inner_steps: Sequence[int] = (4, 1, 16, 64)
    batch_size: int = 256
    seeds: Sequence[int] = (0, 1, 2, 3, 4)
    points: int = 8


@dataclass(frozen=True)
class Training:
    """One of them. A seed of None stands for endless batches, without noise."""

    space: tuple[int, int, int | None]
    problem: int
    form: str
    inner_steps: int
    seed: int | None


def trainings(plan: Ablation) -> Iterator[Training]:
    """All of them."""
    for space in plan.spaces:
        for form in regularised.FORMS:
            for inner_steps in plan.inner_steps:
                for seed in (None, *plan.seeds):
                    yield Training(space, plan.problems[0], form, inner_steps, seed)
            for problem in plan.problems[1:]:
                yield Training(space, problem, form, plan.inner_steps[0], None)


def problem(training: Training) -> tuple[SequenceSpace, torch.Tensor, torch.Tensor]:
    """The sequences, the logits of the reference, and the reward of each sequence."""
    space = SequenceSpace(*training.space)
    generator = torch.Generator().manual_seed(training.problem)
    ref_logits = space.random_logits(generator)
    rewards = torch.randn(len(space.tokens), generator=generator, dtype=ref_logits.dtype)
    return space, ref_logits, rewards


def result(plan: Ablation, training: Training) -> dict[str, Any]:
    """Train, and see how far from the optimum it ends.

    Returns:
        The description of the training; KL(π‖π*) at the beginning and at each point; KL(π‖π_ref)
        at the end, and that of the optimum. Divergences have six digits.
    """
    space, ref_logits, rewards = problem(training)
    star = regularised.optimum(space, ref_logits, rewards, beta=plan.beta)
    sampling: dict[str, Any] = {}
    if training.seed is not None:
        generator = torch.Generator().manual_seed(training.seed)
        sampling = {"batch_size": plan.batch_size, "generator": generator}
    iterations = plan.updates // training.inner_steps
    path = regularised.optimise(
        space,
        ref_logits,
        rewards,
        form=training.form,
        beta=plan.beta,
        learning_rate=plan.learning_rate,
        iterations=iterations,
        inner_steps=training.inner_steps,
        **sampling,
    )
    measured = path[:: iterations // plan.points]

    def divergence(logits: torch.Tensor, other: torch.Tensor) -> float:
        return float(f"{regularised.divergence(space, logits, other).item():.6g}")

    return {
        **asdict(training),
        "distance": [divergence(logits, star) for logits in measured],
        "kl_ref": divergence(path[-1], ref_logits),
        "kl_ref_of_the_optimum": divergence(star, ref_logits),
    }


def record(plan: Ablation, folder: Path, *, progress: bool = True) -> None:
    """Train everything, and write the result of each; files of an earlier time are overwritten.

    Args:
        plan: what to do.
        folder: where the files go.
        progress: whether to draw a progress bar.

    Raises:
        ValueError: if the updates cannot be divided into batches and points.
    """
    for inner_steps in plan.inner_steps:
        if plan.updates % (inner_steps * plan.points):
            raise ValueError(
                f"updates is {plan.updates}, expected a multiple of inner_steps * points = "
                f"{inner_steps * plan.points}"
            )
    folder.mkdir(parents=True, exist_ok=True)
    records.write_json(folder / records.RECIPE, asdict(plan))
    records.write_json(folder / records.ENVIRONMENT, records.environment(processes=1))
    everything, start = list(trainings(plan)), perf_counter()
    results = [result(plan, each) for each in track(everything, "trainings", visible=progress)]
    seconds = perf_counter() - start
    records.write_results(folder, results)
    records.write_json(folder / records.SUMMARY, {"trainings": len(results), "seconds": seconds})


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Record the ablation of chapter 12.")
    parser.add_argument("folder", type=Path)
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the tables are tiny: a second thread mostly waits
    record(Ablation(), chosen.folder)


if __name__ == "__main__":
    main()
