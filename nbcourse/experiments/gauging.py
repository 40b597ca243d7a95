"""What a model answers to a recipe's training problems before the first step: measured for `gate`.

It samples as the recipe does, and takes the gradient of each batch in two halves. No weight moves.

Book: chapter 17, "Before you pay".
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from nbcourse.experiments.gate import Estimate, Measurements, Tried
from nbcourse.functional.kl import estimate as kl_estimate
from nbcourse.lm.rollouts import Rollout, group_rows, select
from nbcourse.progress import track
from nbcourse.seeds import generator
from nbcourse.training.experience import (
    Draws,
    Experience,
    add_reference_and_values,
    collect,
    in_any_form,
)
from nbcourse.training.held_out import greedy
from nbcourse.training.learner import Learner
from nbcourse.training.loop import credited
from nbcourse.training.preparation import build
from nbcourse.training.processes import connect
from nbcourse.training.recipe import Recipe
from nbcourse.training.update import Update, backward
from nbcourse.training.watch import Watch

QUESTIONS, GROUP = 256, 8
GOLDS = 2_000  # training problems from which the best constant answer is chosen


def gauge(
    recipe: Recipe,
    *,
    questions: int = QUESTIONS,
    instructions: Sequence[str] = (),
    progress: bool = True,
) -> Measurements:
    """Measure what a verdict on a recipe needs, on its first training problems.

    Args:
        recipe: what would be trained.
        questions: how many, in whole batches of the recipe, and at least one batch; a batch larger
            than that is cut to it.
        instructions: others than the recipe's, to be tried on the same problems.
        progress: draw a progress bar.

    Raises:
        FileNotFoundError: if the model is not there.
    """
    recipe = _still(recipe, questions)
    learner = build(recipe, connect(), progress=progress)
    batches = max(1, questions // recipe.rollouts.prompts)
    found = _asked(learner, batches, gradients=True, progress=progress)
    tried = []
    for instruction in instructions:
        own = recipe.prompt.model_copy(update={"instruction": instruction})
        learner.recipe = recipe.model_copy(update={"prompt": own})
        other = _asked(learner, batches, gradients=False, progress=progress)
        tried.append(Tried(instruction, _mean(other.paid.mean(1) - found.paid.mean(1))))
    learner.recipe = recipe
    task = recipe.task.build()
    drawn = task.draw(GOLDS, split="train", generator=generator(recipe.seed, "golds"))
    return replace(
        found.judged(recipe, constant_accuracy([problem.answer for problem in drawn])),
        greedy=_greedy(learner, found.problems, progress=progress),
        tried=tuple(tried),
    )


def _still(recipe: Recipe, questions: int) -> Recipe:
    """The recipe with one update a batch, and batches that come as they are drawn."""
    rollouts = recipe.rollouts
    sampling = {
        "prompts": min(rollouts.prompts, questions),
        "group_size": rollouts.group_size if rollouts.group_size > 1 else GROUP,
        "dynamic_sampling": False,
    }
    return recipe.model_copy(
        update={
            "rollouts": rollouts.model_copy(update=sampling),
            "optimiser": recipe.optimiser.model_copy(update={"epochs": 1, "minibatches": 1}),
        }
    )


@dataclass(frozen=True)
class Answered:
    """The answers of N questions with G each.

    Attributes:
        problems: the N questions.
        answers: N lists of G, as read leniently; None for none.
        paid: (N, G) what the verifier pays, 0 or 1: strictly, or in any form if the recipe says so.
        rewards: (N, G) what the recipe pays, be it the verifier, a model or a reader's function.
        lenient: (N, G) right in whatever form.
        form: (N, G) in the form asked for.
        truncated: (N, G) cut off.
        mismatch: of each batch that was learned from, nats an answer.
        cosines: of the halves of each such batch.
    """

    problems: list[Any]
    answers: list[list[Hashable]]
    paid: Tensor
    rewards: Tensor
    lenient: Tensor
    form: Tensor
    truncated: Tensor
    mismatch: list[float]
    cosines: list[float]

    def judged(self, recipe: Recipe, constant: float) -> Measurements:
        """What follows from them."""
        golds = [problem.answer for problem in self.problems]
        rates = lucky_rates(self.answers, golds)
        group = self.paid.shape[1]
        mixed = mixed_share(self.lenient)
        by_luck = (1 - (1 - rates) ** group - rates**group).mean().item()
        of_verifier = recipe.reward.source == "verifier"  # only its groups are mixed by right ones
        cosines = torch.tensor(self.cosines)
        return Measurements(
            paid=_mean(self.paid.mean(1)),
            mixed=mixed_share(self.paid if of_verifier else self.rewards),
            prompts=recipe.rollouts.prompts,
            steps=recipe.steps,
            lenient=_mean(self.lenient.mean(1)),
            form=self.form.mean().item(),
            best_of=self.lenient.amax(1).mean().item(),
            constant=constant,
            luck=rates.mean().item(),
            mixed_leniently=mixed if of_verifier else None,
            lucky=min(1.0, by_luck / mixed) if mixed and of_verifier else None,
            truncated=self.truncated.mean().item(),
            mismatch=sum(self.mismatch) / len(self.mismatch) if self.mismatch else None,
            cosine=_mean(cosines) if len(cosines) else None,
            corrected=recipe.optimiser.importance_bounds is not None
            or recipe.row.needs("sampler_log_probs"),
        )


def constant_accuracy(golds: Sequence[Hashable]) -> float:
    """How often the one answer is right that is right most often."""
    return Counter(golds).most_common(1)[0][1] / len(golds)


def lucky_rates(answers: Sequence[Sequence[Hashable]], golds: Sequence[Hashable]) -> Tensor:
    """For each of N questions, how many of the answers to all others would be right for it: (N,).

    So often is an answer right that comes from somebody who was asked something else.
    """
    everything = Counter(answer for group in answers for answer in group)
    others = sum(everything.values()) - len(answers[0])
    hits = [
        everything[gold] - group.count(gold)
        for group, gold in zip(map(list, answers), golds, strict=True)
    ]
    return torch.tensor(hits, dtype=torch.float64) / max(others, 1)


def mixed_share(right: Tensor) -> float:
    """Share of the groups, rows of (N, G), whose answers are not all paid alike."""
    return (right.amax(1) != right.amin(1)).double().mean().item()


def _mean(values: Tensor) -> Estimate:
    """The mean of independent values, with its standard error."""
    values = values.double()
    error = values.std().item() / len(values) ** 0.5 if len(values) > 1 else 0.0
    return Estimate(values.mean().item(), error)


def _asked(learner: Learner, batches: int, *, gradients: bool, progress: bool) -> Answered:
    """Sample the recipe's first batches, and look at what they would teach."""
    recipe, draws, processes = learner.recipe, Draws(learner.recipe), connect()
    group, task = recipe.rollouts.group_size, recipe.task.build()
    nothing = torch.zeros(0)
    found = Answered([], [], nothing, nothing, nothing, nothing, nothing, [], [])
    columns: list[list[Tensor]] = [[], [], [], [], []]
    for _ in track(range(batches), "gauging", visible=progress):
        experience = collect(learner, draws, processes)
        asked, texts = experience.problems or [], experience.rollout.texts(learner.tokenizer)
        read = [task.read(text, strict=False) for text in texts]
        form = [task.read(text) is not None for text in texts]
        lenient = [answer == problem.answer for answer, problem in zip(read, asked, strict=True)]
        truncated = experience.rollout.truncated
        paid = experience.correct.cpu()
        if recipe.reward.lenient:
            paid = in_any_form(recipe, texts, asked, truncated).cpu()
        read_so = torch.maximum(torch.tensor(lenient).float(), paid)
        told = paid, experience.scores.cpu(), read_so, torch.tensor(form), truncated.cpu()
        for column, values in zip(columns, told, strict=True):
            column.append(values.float().view(-1, group))
        found.problems.extend(asked[::group])
        found.answers.extend(read[i : i + group] for i in range(0, len(read), group))
        if gradients and (seen := _halves(learner, experience)) is not None:
            found.mismatch.append(seen[0])
            found.cosines.append(seen[1])
    paid, rewards, lenient_, form_, cut = map(torch.cat, columns)
    return replace(found, paid=paid, rewards=rewards, lenient=lenient_, form=form_, truncated=cut)


def _halves(learner: Learner, experience: Experience) -> tuple[float, float] | None:
    """Nats an answer from sampler to learner, and the cosine of two halves' gradients.

    None if a half has nothing to learn from.
    """
    recipe, processes = learner.recipe, connect()
    asked = recipe.asks_reference
    experience = add_reference_and_values(learner, experience, processes, reference=asked)
    estimate = credited(recipe, experience, recipe.penalty, average=0.0)
    update = Update(learner, experience, estimate, recipe.penalty, processes)
    groups = torch.arange(len(experience.scores) // recipe.rollouts.group_size)
    learner.watch = apart = Apart(experience.rollout)
    halves = []
    for half in groups.tensor_split(2):
        rows = group_rows(half, recipe.rollouts.group_size)
        if not len(half) or not estimate.advantages[rows].any():
            return None
        backward(update, half, first=True)
        halves.append([p.grad for _, p in learner.trained() if p.grad is not None])

    def product(x: list[Tensor], y: list[Tensor]) -> float:
        return sum(float((a * b).sum()) for a, b in zip(x, y, strict=True))

    squares = [product(half, half) for half in halves]
    dot = product(*halves)
    for _, parameter in learner.trained():
        parameter.grad = None
    if min(squares) == 0:
        return None
    return apart.nats / apart.answers, dot / (squares[0] * squares[1]) ** 0.5


class Apart(Watch):
    """Adds up by how much sampler and learner differ in the answers that are learned from."""

    def __init__(self, rollout: Rollout) -> None:
        self.rollout, self.nats, self.answers = rollout, 0.0, 0

    def tokens(
        self, rows: Tensor, batch_mask: Tensor, log_probs: Tensor, old_log_probs: Tensor
    ) -> None:
        """Some rows, as the learner sees them."""
        part = select(self.rollout, rows)
        apart = kl_estimate(part.log_probs, log_probs.detach(), "k3")
        self.nats += float(apart.masked_fill(~part.mask, 0.0).sum())
        self.answers += len(rows)


def _greedy(learner: Learner, problems: list[Any], *, progress: bool) -> Estimate:
    """Greedy accuracy on the same questions, read leniently."""
    task = learner.recipe.task.build()
    answers = greedy(learner, problems, label="greedy" if progress else None)
    right = [
        task.read(text, strict=False) == p.answer or task.read(text) == p.answer
        for text, p in zip(answers.texts, problems, strict=True)
    ]
    return _mean(torch.tensor(right))
