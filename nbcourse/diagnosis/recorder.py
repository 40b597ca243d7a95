"""Looks on while a run of ours is made, and makes witnesses of some of its steps."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nbcourse.diagnosis.draft import (
    TEXT,
    Draft,
    drawn,
    is_wanted,
    kept,
    lengths_of,
    of_reference,
    rows_within,
    texts,
    verified,
)
from nbcourse.diagnosis.plain_pass import distributions, plainly
from nbcourse.diagnosis.witness import FORMAT, Witness
from nbcourse.lm.rollouts import select
from nbcourse.lm.sampling import end_tokens
from nbcourse.training.algorithms import Estimate, Penalty
from nbcourse.training.experience import Experience
from nbcourse.training.learner import Learner
from nbcourse.training.watch import Watch, fingerprint


class Recorder(Watch):
    """Looks on while steps are made, and makes a witness of the first one and of every n-th.

    Nothing of the run changes: no random number is drawn, no weight touched. A witness step costs
    one more forward pass over the witness, without padding, and a copy of the weights.

    Args:
        every: n.
        tokens: of responses in a witness at most; whole groups are taken, and at least one.
        keep: is given each witness.
        processes: how many share the work; this one then sees the loss of its own share alone.
    """

    def __init__(
        self, every: int, tokens: int, keep: Callable[[Witness], None], *, processes: int = 1
    ) -> None:
        self.every, self.tokens_at_most, self.keep = every, tokens, keep
        self.processes = processes
        self.open: Draft | None = None

    def before_updates(
        self, learner: Any, experience: Any, estimate: Any, penalty: Any, step: int
    ) -> None:
        """Take what there is before learning, if a witness of this step is wanted."""
        wanted = is_wanted(step + 1, self.every)
        self.open = (
            _drafted(learner, experience, estimate, penalty, step + 1, self.tokens_at_most)
            if wanted
            else None
        )

    def tokens(
        self, rows: Tensor, batch_mask: Tensor, log_probs: Tensor, old_log_probs: Tensor
    ) -> None:
        """Take the log-probs of a slice of the loss, and later its derivative by them."""
        if self.open is not None:
            self.open.slice(rows, batch_mask, log_probs, old_log_probs)

    def after_updates(self, learner: Any) -> None:
        """Take what has become of the weights, and hand the witness out."""
        if self.open is not None:
            self.open.facts["processes"] = self.processes
            self.keep(self.open.close(learner.optimiser, learner.reference))
            self.open = None


def _drafted(
    learner: Learner,
    experience: Experience,
    estimate: Estimate,
    penalty: Penalty,
    step: int,
    tokens_at_most: int,
) -> Draft:
    """What there is of a step of ours before it learns."""
    group, rollout = learner.recipe.rollouts.group_size, experience.rollout
    ends = end_tokens(learner.policy, learner.tokenizer)
    lengths = lengths_of(rollout.tokens, ends)
    rows = rows_within(lengths, group_size=group, tokens=tokens_at_most)
    width = int(torch.maximum(lengths, _extent(rollout.mask))[:rows].max())
    tensors = kept(_as_used(experience, estimate, penalty), rows, width)
    problems = (experience.problems or [])[:rows]
    tensors["lengths"] = lengths[:rows].cpu().int()
    read = texts(learner.tokenizer, tensors["tokens"], lengths, ends)
    tensors |= verified(learner.recipe.task.build(), [text for text, _ in read], problems)

    def plain(ids: Tensor, prompt: int) -> Tensor:
        with learner.precision():
            return distributions(learner.policy, ids, prompt, learner.recipe.rollouts.temperature)

    def plain_reference(ids: Tensor, prompt: int) -> Tensor:
        with learner.precision(), learner.referring():
            return distributions(
                learner.reference, ids, prompt, learner.recipe.rollouts.temperature
            )

    tensors |= plainly(
        [rollout.prompt_ids[row][rollout.prompt_mask[row]] for row in range(rows)],
        [rollout.tokens[row, :length] for row, length in enumerate(lengths[:rows].tolist())],
        width,
        plain,
        plain_reference,
    )
    tensors |= drawn(learner.tokenizer, (experience.drawn or [])[:rows], ends)
    scored, noise = _asked(learner, experience, rows)
    tensors["scored_log_probs"] = torch.zeros(rows, width)
    tensors["scored_log_probs"][:, : scored.shape[1]] = scored
    facts = {
        **_facts(learner, experience, penalty, step),
        "reference_noise": noise,
        "ends": ends,
        "prompts": [str(problem.prompt)[:TEXT] for problem in problems[::group]],
        "answers": [str(problem.answer)[:TEXT] for problem in problems[::group]],
        "responses": [text[:TEXT] for text, _ in read],
        "pieces": [pieces for _, pieces in read],
    }
    return Draft(learner.policy, tensors, facts)


def _as_used(
    experience: Experience, estimate: Estimate, penalty: Penalty
) -> dict[str, Tensor | None]:
    """What the step was made of, under the names of `Witness`."""
    rollout = experience.rollout
    prompts = rollout.prompt_ids.masked_fill(~rollout.prompt_mask, -1)
    return {
        "tokens": rollout.tokens.int(),
        "mask": rollout.mask,
        "sampler_log_probs": rollout.log_probs,
        "truncated": rollout.truncated,
        "group": torch.unique(prompts, dim=0, return_inverse=True)[1].int(),
        "padded": ~rollout.prompt_mask.all(dim=1),
        "scores": experience.scores,
        "verdicts": experience.correct,
        "greedy_scores": experience.greedy_scores,
        "token_rewards": experience.rewards(penalty),
        "ref_log_probs": experience.ref_log_probs,
        "values": experience.values,
        "advantages": estimate.advantages,
        "returns": estimate.returns,
        **experience.rewards_of_steps(),
    }


def _extent(mask: Tensor) -> Tensor:
    """(B,) columns up to the last True."""
    return (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(dim=1)


def _facts(learner: Learner, experience: Experience, penalty: Penalty, step: int) -> dict[str, Any]:
    recipe, rollout = learner.recipe, experience.rollout
    optimiser, settings = recipe.optimiser, recipe.rollouts
    updates = optimiser.epochs * min(optimiser.minibatches, settings.prompts)
    may_leave_early = optimiser.target_kl is not None
    # dynamic sampling may end with fewer groups than there are minibatches
    may_be_fewer = recipe.dynamic_sampling and optimiser.minibatches > 1
    return {
        "format": FORMAT,
        "step": step,
        "algorithm": recipe.algorithm.name,
        "settings": {**recipe.row.all_settings, **recipe.settings},
        "penalty": vars(penalty),
        "reward": recipe.reward.model_dump(),
        "group_size": settings.group_size,
        "max_new_tokens": settings.max_new_tokens,
        "temperature": settings.temperature,
        "vocabulary": learner.policy.config.vocab_size,
        "selected": recipe.dynamic_sampling,
        "precision": recipe.model.precision,
        "importance_cap": optimiser.truncated_importance_sampling,
        "importance_floor": optimiser.truncated_importance_floor,
        "batch": {"rows": len(rollout.mask), "width": rollout.mask.shape[1]},
        "updates_expected": None if may_leave_early or may_be_fewer else step * updates,
        "may_leave_early": may_leave_early,
        "fingerprints": {
            "sampler": experience.sampler,
            "learner": fingerprint(learner.policy.parameters()),
            "reference": of_reference(learner.reference),
        },
    }


def _asked(learner: Learner, experience: Experience, rows: int) -> tuple[Tensor, float | None]:
    """The learner's log-probs, its own way, and how far two answers of the reference differ."""
    part = select(experience.rollout, torch.arange(rows, device=learner.device))
    group, noise = learner.recipe.rollouts.group_size, None
    with learner.precision():
        scored = learner.log_probs(part, group_size=group).detach().float()
        if experience.ref_log_probs is not None:
            first, second = (learner.ref_log_probs(part, group_size=group) for _ in range(2))
            noise = (first - second)[part.mask].abs().max().item()
    return scored.masked_fill(~part.mask, 0.0).cpu(), noise
