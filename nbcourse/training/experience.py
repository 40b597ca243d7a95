"""From prompts to experience: sample, score, and ask reference and critic what they make of it."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nbcourse.functional.kl import rewards_with_kl
from nbcourse.functional.rewards import overlong_penalty
from nbcourse.lm import sampling
from nbcourse.lm.casting import cast_once
from nbcourse.lm.rollouts import Rollout, concatenate, group_rows, select
from nbcourse.seeds import generator
from nbcourse.tasks.task import in_epochs
from nbcourse.training import reward_functions
from nbcourse.training.algorithms import Penalty
from nbcourse.training.learner import Learner
from nbcourse.training.processes import Processes
from nbcourse.training.recipe import Recipe
from nbcourse.training.watch import fingerprint

# what an `Experience` knows of each response before reference and critic are asked
OF_RESPONSES = ("scores", "correct", "greedy_scores", "steps", "problems", "drawn")
ROUNDS = 8  # of dynamic sampling, before a step makes do with the groups it has


@dataclass(frozen=True)
class Sampled:
    """All that was sampled for a batch, the responses to replaced prompts included.

    Attributes:
        responses: how many.
        tokens: in all of them.
        reward: their mean score.
        accuracy: share that the verifier accepts.
        no_spread: share of the groups whose responses all earned the same.
    """

    responses: int
    tokens: int
    reward: float
    accuracy: float
    no_spread: float


NOTHING = Sampled(0, 0, math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Experience:
    """A batch of responses with everything that was found out about them before learning.

    Attributes:
        rollout: B = prompts · group_size responses.
        scores: (B,) what each earned: verdict or reward model, minus penalties.
        correct: (B,) the verifier's verdict, 0 or 1, whatever the scores are.
        greedy_scores: (B,) score of the greedy response to the same prompt, if it is needed.
        steps: for each response the steps before its answer, as (last token, reward), if they are
            needed.
        old_log_probs: (B, T) of the learner before its first update on the batch; None where there
            is no other update, and the log-probs that it then differentiates are the old ones.
        ref_log_probs: (B, T), if the algorithm uses the reference.
        values: (B, T), if there is a critic.
        sampled: what all responses that were sampled for it are like.
        problems: what each response answers.
        sampler: `watch.fingerprint` of the weights that sampled.
        drawn: the row of tokens of each response as the sampler handed it out.
    """

    rollout: Rollout
    scores: Tensor
    correct: Tensor
    greedy_scores: Tensor | None = None
    steps: list[list[tuple[int, float]]] | None = None
    old_log_probs: Tensor | None = None
    ref_log_probs: Tensor | None = None
    values: Tensor | None = None
    sampled: Sampled = NOTHING
    problems: list[Any] | None = None
    sampler: str = ""
    drawn: list[list[int]] | None = None

    def rewards_of_steps(self) -> dict[str, Tensor | None]:
        """`step_rewards` and `step_ends`, (B, S): the steps, and last the score, at the last token.

        Both are None where the algorithm does not need them.
        """
        if self.steps is None:
            return {"step_rewards": None, "step_ends": None}
        shape = len(self.steps), max(map(len, self.steps))
        missing = [[(-1, 0.0)] * (shape[1] - len(steps)) for steps in self.steps]
        rows = [steps + rest for steps, rest in zip(self.steps, missing, strict=True)]
        like, last = self.scores, self.rollout.mask.sum(dim=1, keepdim=True) - 1
        ends = torch.tensor([[end for end, _ in row] for row in rows], device=like.device)
        earned = torch.tensor([[reward for _, reward in row] for row in rows]).to(like)
        return {
            "step_rewards": torch.cat([earned.view(shape), like[:, None]], dim=1),
            "step_ends": torch.cat([ends.view(shape).long(), last], dim=1),
        }

    def rewards(self, penalty: Penalty) -> Tensor:
        """(B, T): the score on the last token, and the KL on every token if it belongs there."""
        log_probs, mask = self.rollout.log_probs, self.rollout.mask
        if penalty.placement == "reward" and self.ref_log_probs is not None:
            return rewards_with_kl(
                self.scores, log_probs, self.ref_log_probs, mask, beta=penalty.beta
            )
        return rewards_with_kl(self.scores, log_probs, log_probs, mask, beta=0.0)


@dataclass
class Draws:
    """How far a run has come in the endless list of training problems.

    Of a finite list, every problem is drawn once before any is drawn again.

    Attributes:
        taken: batches of problems drawn so far.
    """

    recipe: Recipe
    taken: int = 0

    def next(self) -> tuple[int, list[Any]]:
        """The number of the next batch of problems, and the batch."""
        number, self.taken = self.taken, self.taken + 1
        seed, count, task = self.recipe.seed, self.recipe.rollouts.prompts, self.recipe.task.build()
        if there := task.listed("train"):
            return number, in_epochs(there, number * count, count, seed=seed, purpose="problems")
        source = generator(seed, "problems", number)
        return number, task.draw(count, split="train", generator=source)


def collect(learner: Learner, draws: Draws, processes: Processes) -> Experience:
    """One step's experience.

    With dynamic sampling, groups whose responses all earned the same are left out, and further
    prompts take their place (Yu et al. 2025, DAPO, section 3.2).
    """
    recipe = learner.recipe
    group, wanted = recipe.rollouts.group_size, recipe.rollouts.prompts
    everything: list[Experience] = []
    found: list[Experience] = []
    for _ in range(ROUNDS if recipe.dynamic_sampling else 1):
        batch = _sample_and_score(learner, *draws.next(), processes)
        everything.append(batch)
        if not recipe.dynamic_sampling:
            found.append(batch)
        elif len(kept := with_spread(batch.scores, group).nonzero().squeeze(1)):
            found.append(_keep_groups(batch, kept, group))
        if sum(len(part.scores) for part in found) >= wanted * group:
            break
    if not found:  # no group with spread in any round: one more batch, taken as it comes
        found = [_sample_and_score(learner, *draws.next(), processes)]
        everything += found
    joined = _join(found)
    if len(joined.scores) > wanted * group:
        joined = _keep_groups(joined, torch.arange(wanted), group)
    return replace(joined, sampled=_described(everything, group))


def _described(batches: Sequence[Experience], group: int) -> Sampled:
    scores = torch.cat([batch.scores for batch in batches])
    spread = with_spread(scores, group)
    return Sampled(
        responses=len(scores),
        tokens=sum(int(batch.rollout.mask.sum()) for batch in batches),
        reward=scores.mean().item(),
        accuracy=torch.cat([batch.correct for batch in batches]).mean().item(),
        no_spread=int((~spread).sum()) / len(spread),
    )


def add_reference_and_values(
    learner: Learner, experience: Experience, processes: Processes, *, reference: bool
) -> Experience:
    """Add the critic's values and, if `reference`, the reference's log-probs."""
    if learner.critic is None and not reference:
        return experience
    group = learner.recipe.rollouts.group_size
    size = group * (learner.recipe.rollouts.prompts_at_once or len(experience.scores))
    rollout, width = experience.rollout, experience.rollout.tokens.shape[1]

    def ask(rows: Tensor) -> list[Tensor | None]:
        part = select(rollout, rows)
        with learner.precision():
            answers = [
                learner.ref_log_probs(part, group_size=group) if reference else None,
                learner.values(part, group_size=group),
            ]
        return [
            None if x is None else torch.nn.functional.pad(x, (0, width - x.shape[1]))
            for x in answers
        ]

    parts = torch.arange(len(experience.scores), device=learner.device).split(size)
    answers = processes.gather([ask(rows) for rows in processes.share(parts)])
    ref_log_probs, values = (
        None if column[0] is None else torch.cat(column) for column in zip(*answers, strict=True)
    )
    return replace(experience, ref_log_probs=ref_log_probs, values=values)


def _sample_and_score(
    learner: Learner, number: int, problems: list[Any], processes: Processes
) -> Experience:
    settings = learner.recipe.rollouts
    size = settings.prompts_at_once or len(problems)
    parts = [problems[i : i + size] for i in range(0, len(problems), size)]
    sampler = fingerprint(learner.policy.parameters())
    with learner.precision(), cast_once(learner.policy):
        answers = [
            _answer(learner, part, (number, i), sampler)
            for i, part in processes.share(list(enumerate(parts)))
        ]
    return _join(processes.gather(answers))


def _answer(
    learner: Learner, problems: list[Any], counters: tuple[int, int], sampler: str
) -> Experience:
    """Sample the group of each problem and score it; `sampler` is the fingerprint of the policy."""
    recipe, settings = learner.recipe, learner.recipe.rollouts
    prompts = learner.prompts(problems)
    rollout = sampling.sample(
        learner.policy,
        learner.tokenizer,
        prompts,
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        group_size=settings.group_size,
        generator=generator(recipe.seed, "sampling", *counters, device=learner.device),
        engine=settings.engine,
    )
    asked = [problem for problem in problems for _ in range(settings.group_size)]
    scores, correct = score(learner, rollout, asked)
    if recipe.reward.shuffled:
        source = generator(recipe.seed, "shuffled rewards", *counters)
        scores = dealt_out(scores, settings.group_size, source)
    greedy_scores = None
    if recipe.row.needs("greedy_scores"):
        best = sampling.sample(
            learner.policy,
            learner.tokenizer,
            prompts,
            max_new_tokens=settings.max_new_tokens,
            greedy=True,
            engine=settings.engine,
        )
        greedy_scores, _ = score(learner, best, problems)
        greedy_scores = greedy_scores.repeat_interleave(settings.group_size)
    steps = steps_of(learner, rollout, asked) if recipe.row.needs("step_rewards") else None
    return Experience(
        rollout,
        scores,
        correct,
        greedy_scores,
        steps,
        problems=asked,
        sampler=sampler,
        drawn=rollout.tokens.tolist(),
    )


def steps_of(
    learner: Learner, rollout: Rollout, problems: Sequence[Any]
) -> list[list[tuple[int, float]]]:
    """The steps that the task sees in each response: the number of its last token, and a reward.

    A step that ends within a token ends with it.
    """
    task, decode = learner.recipe.task.build(), learner.tokenizer.decode
    texts = rollout.texts(learner.tokenizer)
    found = []
    for text, problem, tokens in zip(texts, problems, rollout.tokens, strict=True):

        def characters(count: int, tokens: Tensor = tokens) -> int:
            return len(str(decode(tokens[:count])))

        found.append(
            [
                (bisect_left(range(len(tokens)), step.end, key=characters) - 1, step.reward)
                for step in task.steps(text, problem)
            ]
        )
    return found


def score(learner: Learner, rollout: Rollout, problems: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """What each response earns by the recipe, and whether it is right: two (B,) tensors.

    Raises:
        FloatingPointError: if the reward model gives a score that is not finite.
    """
    reward = learner.recipe.reward
    task = learner.recipe.task.build()
    texts = rollout.texts(learner.tokenizer)
    right = task.rewards(texts, problems).to(learner.device)
    correct = reward.verdicts(right, rollout.truncated)
    scores = correct
    if reward.lenient:
        scores = in_any_form(learner.recipe, texts, problems, rollout.truncated)
    if reward.function:
        ids = [row[kept].tolist() for row, kept in zip(rollout.tokens, rollout.mask, strict=True)]
        paid = reward_functions.pay(reward.function, learner.recipe.prompt, texts, problems, ids)
        scores = torch.tensor(paid, dtype=torch.float32, device=learner.device)
    elif learner.reward_model is not None:
        with torch.no_grad():
            scores = learner.reward_model(rollout)
        if not scores.isfinite().all():
            raise FloatingPointError("the reward model's scores are not finite")
    scores = scores - reward.truncation_penalty * rollout.truncated.float()
    if reward.overlong_buffer:
        limit = learner.recipe.rollouts.max_new_tokens
        scores = scores + overlong_penalty(
            rollout.mask.sum(dim=1), max_length=limit, buffer=reward.overlong_buffer
        )
    return scores, correct


def in_any_form(
    recipe: Recipe, texts: Sequence[str], problems: Sequence[Any], truncated: Tensor
) -> Tensor:
    """1 for each response that is right in whatever form, else 0: (B,)."""
    read = map(partial(recipe.task.build().read, strict=False), texts)
    same = [float(answer == problem.answer) for answer, problem in zip(read, problems, strict=True)]
    return recipe.reward.verdicts(torch.tensor(same, device=truncated.device), truncated)


def dealt_out(scores: Tensor, group: int, source: torch.Generator) -> Tensor:
    """The scores of each group in an order of chance: (B,)."""
    order = torch.rand(len(scores) // group, group, generator=source).argsort(dim=1)
    return scores.view(-1, group).gather(1, order.to(scores.device)).view(-1)


def with_spread(scores: Tensor, group: int) -> Tensor:
    """Which groups have responses that earned different amounts: (groups,) bool."""
    groups = scores.view(-1, group)
    return groups.amax(dim=1) > groups.amin(dim=1)


def _keep_groups(batch: Experience, groups: Tensor, group: int) -> Experience:
    rows = group_rows(groups.to(batch.scores.device), group)
    columns = {name: _selected(getattr(batch, name), rows) for name in OF_RESPONSES}
    return replace(batch, rollout=select(batch.rollout, rows), **columns)


def _join(parts: Sequence[Experience]) -> Experience:
    if len(parts) == 1:
        return parts[0]
    columns = {name: _joined([getattr(part, name) for part in parts]) for name in OF_RESPONSES}
    return replace(parts[0], rollout=concatenate([part.rollout for part in parts]), **columns)


def _selected(column: Any, rows: Tensor) -> Any:
    if column is None or torch.is_tensor(column):
        return None if column is None else column[rows]
    return [column[row] for row in rows.tolist()]


def _joined(columns: list[Any]) -> Any:
    """One column of several, if there is one: all batches of a run have it, or none."""
    if columns[0] is None or torch.is_tensor(columns[0]):
        return None if columns[0] is None else torch.cat(columns)
    return [row for column in columns for row in column]
