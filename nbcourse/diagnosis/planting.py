"""What real trainers have got wrong, in place of the functions of our own loop that are right.

A plant is a context: within it a function of the loop, of the learner or of the task is another
one. The loop itself has no branch for any of them.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import wraps
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nbcourse.diagnosis.updates import inverted_clip, inverted_ratio
from nbcourse.functional import advantages, kl, returns
from nbcourse.lm import log_probs as scoring
from nbcourse.lm import sampling
from nbcourse.lm.log_probs import rollout_log_probs, token_log_probs
from nbcourse.lm.rollouts import Rollout, model_inputs, select
from nbcourse.tasks.task import Task
from nbcourse.training import algorithms, loop
from nbcourse.training import experience as experiences
from nbcourse.training import learner as learners
from nbcourse.training import update as updating
from nbcourse.training.algorithms import per_response
from nbcourse.training.experience import Experience
from nbcourse.training.learner import Learner
from nbcourse.training.recipe_sections import RewardSection
from nbcourse.training.update import Update

Plant = Callable[[], AbstractContextManager[Any]]
Wrong = Callable[..., Any]


def _in_place_of(owner: Any, name: str) -> Callable[[Wrong], Plant]:
    """A decorator: the plant of a function, which is given first what it is called in place of."""

    def plant_of(wrong: Wrong) -> Plant:
        def plant() -> AbstractContextManager[Any]:
            original = getattr(owner, name)

            @wraps(original)
            def planted(*arguments: Any, **options: Any) -> Any:
                return wrong(original, *arguments, **options)

            return mock.patch.object(owner, name, planted)

        return plant

    return plant_of


def _with(row: str, **functions: Callable[..., Any]) -> Plant:
    """The plant that gives a row of the table another function."""

    def plant() -> AbstractContextManager[Any]:
        table = algorithms.ALGORITHMS
        return mock.patch.dict(table, {row: replace(table[row], **functions)})  # type: ignore[arg-type]

    return plant


def _estimator(name: str, wrong: Callable[..., Tensor], **fixed: Any) -> Plant:
    """The plant that replaces a function of `advantages`, also in each row that has bound it."""

    @contextmanager
    def plant() -> Iterator[None]:
        original, table = getattr(advantages, name), algorithms.ALGORITHMS
        estimate = per_response(wrong, **fixed)
        bound = {
            row: replace(known, advantage=estimate)
            for row, known in table.items()
            if getattr(known.advantage, "__wrapped__", None) is original
        }
        with mock.patch.object(advantages, name, wrong), mock.patch.dict(table, bound):
            yield

    return plant


def _after_collecting(change: Callable[[Learner, Experience], Experience]) -> Plant:
    """A decorator: the plant that changes each step's experience once it has been collected."""

    @_in_place_of(loop, "collect")
    def collected(collect: Any, learner: Learner, *others: Any) -> Experience:
        return change(learner, collect(learner, *others))

    return collected


def _sampled_by(change: Callable[..., Rollout]) -> Plant:
    """The plant of `change(sample, model, tokenizer, prompts, **options)`.

    Greedy responses, of a baseline or an evaluation, are sampled as ever.
    """

    @_in_place_of(sampling, "sample")
    def changed(sample: Any, *arguments: Any, **options: Any) -> Rollout:
        if options.get("greedy"):
            return sample(*arguments, **options)
        return change(sample, *arguments, **options)

    return changed


def _while_learning(change: Callable[[Learner, int], AbstractContextManager[Any]]) -> Plant:
    """The plant within which each step's updates are made within `change(learner, step)`."""

    @_in_place_of(loop, "learn")
    def changed(learn: Any, update: Update, step: int) -> Any:
        with change(update.learner, step):
            return learn(update, step)

    return changed


# ---------------------------------------------------------------- who samples, who scores


def _stale_sampler() -> AbstractContextManager[Any]:
    first: dict[str, Tensor] = {}

    @_in_place_of(loop, "collect")
    def stale(collect: Any, learner: Learner, *others: Any) -> Experience:
        now = copy.deepcopy(learner.policy.state_dict())
        first.update(first or now)
        learner.policy.load_state_dict(first)
        try:
            return collect(learner, *others)
        finally:
            learner.policy.load_state_dict(now)

    return stale()


def _colder(sample: Any, *arguments: Any, **options: Any) -> Rollout:
    return sample(*arguments, **options | {"temperature": 0.7 * options["temperature"]})


class _Truncated:
    """A model whose logits are −∞ outside of the _nucleus."""

    def __init__(self, model: Any, mass: float) -> None:
        self.model, self.mass = model, mass

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def __call__(self, **inputs: Any) -> Any:
        output = self.model(**inputs)
        ranked, order = output.logits.sort(dim=-1, descending=True)
        probs = ranked.softmax(dim=-1)
        beyond = probs.cumsum(dim=-1) - probs >= self.mass
        output.logits = torch.empty_like(ranked).scatter_(
            -1, order, ranked.masked_fill(beyond, -torch.inf)
        )
        return output


def _nucleus(sample: Any, model: Any, *arguments: Any, **options: Any) -> Rollout:
    return sample(_Truncated(model, 0.8), *arguments, **options)


def _unreported(change: Callable[..., Rollout]) -> Callable[..., Rollout]:
    """The same, but the log-probs that are handed on are those of the whole distribution."""

    def changed(sample: Any, model: Any, *arguments: Any, **options: Any) -> Rollout:
        rollout = change(sample, model, *arguments, **options)
        return _scored(rollout, model, options["temperature"])

    return changed


@torch.no_grad()
def _scored(rollout: Rollout, model: Any, temperature: float) -> Rollout:
    said = rollout_log_probs(model, rollout, temperature=temperature)
    return replace(rollout, log_probs=said.masked_fill(~rollout.mask, 0.0))


def _in_bfloat16(sample: Any, model: Any, *arguments: Any, **options: Any) -> Rollout:
    with torch.autocast(model.device.type, torch.bfloat16):
        return sample(model, *arguments, **options)


def _one_for_all(sample: Any, *arguments: Any, **options: Any) -> Rollout:
    group = options["group_size"]
    single = sample(*arguments, **options | {"group_size": 1})
    rows = torch.arange(len(single.mask), device=single.mask.device)
    return select(single, rows.repeat_interleave(group))


@_after_collecting
def _tokenised_again(learner: Learner, experience: Experience) -> Experience:
    """From the text of each response, as if it had come as text; scored again by the learner."""
    rollout, tokenizer = experience.rollout, learner.tokenizer
    end = int(tokenizer.eos_token_id)
    rows = []
    for text, cut in zip(rollout.texts(tokenizer), rollout.truncated.tolist(), strict=True):
        ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
        rows.append(torch.tensor(ids + [end] * (not cut or not ids)))
    lengths = torch.tensor(list(map(len, rows)), device=learner.device)
    tokens = pad_sequence(rows, batch_first=True, padding_value=end).to(learner.device)
    mask = torch.arange(tokens.shape[1], device=learner.device) < lengths[:, None]
    none = torch.zeros(mask.shape).to(mask.device)
    again = replace(rollout, tokens=tokens, mask=mask, log_probs=none)
    temperature = learner.recipe.rollouts.temperature
    return replace(experience, rollout=_scored(again, learner.policy, temperature))


@_in_place_of(Learner, "_log_probs")
def _unshifted(_: Any, learner: Learner, model: Any, rollout: Rollout, group_size: int) -> Tensor:
    logits = model(**model_inputs(rollout)).logits[:, -rollout.tokens.shape[1] :]
    return token_log_probs(logits, rollout.tokens, temperature=learner.recipe.rollouts.temperature)


@_in_place_of(learners, "rollout_log_probs")
def _at_temperature_one(score: Any, *arguments: Any, **options: Any) -> Tensor:
    return score(*arguments, **options | {"temperature": 1.0})


@_in_place_of(scoring, "model_inputs")
def _reading_padding(_: Any, rollout: Rollout) -> dict[str, Tensor]:
    ids = torch.cat([rollout.prompt_ids, rollout.tokens], dim=1)
    positions = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)
    everything = torch.ones_like(ids)
    return {"input_ids": ids, "attention_mask": everything, "position_ids": positions}


@_in_place_of(loop, "add_old_log_probs")
def _old_of_reference(_: Any, update: Update, epoch: Any) -> Update:
    group = update.learner.recipe.rollouts.group_size
    theirs = update.learner.ref_log_probs(update.experience.rollout, group_size=group)
    return replace(update, experience=replace(update.experience, old_log_probs=theirs))


@_in_place_of(loop, "add_old_log_probs")
def _old_not_taken(_: Any, update: Update, epoch: Any) -> Update:
    return update


@_after_collecting
def _shared_weights(learner: Learner, experience: Experience) -> Experience:
    pairs = zip(learner.reference.parameters(), learner.policy.parameters(), strict=True)
    for reference, policy in pairs:
        reference.data = policy.data
    return experience


@_in_place_of(Learner, "ref_log_probs")
def _dropout_in_reference(
    ask: Any, learner: Learner, rollout: Rollout, *, group_size: int
) -> Tensor:
    def drop(_: Any, inputs: tuple[Tensor]) -> tuple[Tensor]:
        return (torch.nn.functional.dropout(inputs[0], 0.1),)

    hook = learner.reference.get_output_embeddings().register_forward_pre_hook(drop)
    try:
        return ask(learner, rollout, group_size=group_size)
    finally:
        hook.remove()


# ---------------------------------------------------------------- what counts, what it earns


@_after_collecting
def _same_seed(learner: Learner, experience: Experience) -> Experience:
    group = learner.recipe.rollouts.group_size
    half = len(experience.scores) // group // 2
    return experiences._keep_groups(experience, torch.arange(half).repeat(2), group)


def _with_mask(experience: Experience, mask: Tensor) -> Experience:
    return replace(experience, rollout=replace(experience.rollout, mask=mask))


@_after_collecting
def _without_eos(_: Learner, experience: Experience) -> Experience:
    rollout, mask = experience.rollout, experience.rollout.mask.clone()
    lengths = mask.sum(dim=1)
    ended = (~rollout.truncated & (lengths > 1)).nonzero().squeeze(1)
    mask[ended, lengths[ended] - 1] = False
    return _with_mask(experience, mask)


@_after_collecting
def _with_padding(_: Learner, experience: Experience) -> Experience:
    return _with_mask(experience, torch.ones_like(experience.rollout.mask))


@_in_place_of(Task, "rewards")
def _hedges_paid(_: Any, task: Task, responses: Any, problems: Any) -> Tensor:
    pairs = zip(responses, problems, strict=True)
    return torch.tensor([float(str(asked.answer) in text) for text, asked in pairs])


@_in_place_of(Task, "rewards")
def _long_answers_refused(verify: Any, task: Task, responses: Any, problems: Any) -> Tensor:
    long = torch.tensor([len(str(problem.answer)) > 1 for problem in problems])
    return verify(task, responses, problems).masked_fill(long, 0.0)


@_in_place_of(RewardSection, "verdicts")
def _truncation_ignored(_: Any, section: RewardSection, right: Tensor, cut: Tensor) -> Tensor:
    return right


@_in_place_of(experiences, "score")
def _next_row(score: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
    scores, correct = score(*arguments)
    return scores.roll(1), correct.roll(1)


@_in_place_of(Experience, "rewards")
def _on_first_token(rewards: Any, experience: Experience, penalty: Any) -> Tensor:
    paid = rewards(experience, penalty).clone()
    mask = experience.rollout.mask
    rows, last = torch.arange(len(mask)), mask.sum(dim=1) - 1
    paid[rows, last] -= experience.scores
    paid[:, 0] += experience.scores
    return paid


@_in_place_of(Experience, "rewards")
def _charged_backwards(rewards: Any, experience: Experience, penalty: Any) -> Tensor:
    uncharged = rewards(experience, replace(penalty, placement="none"))
    return 2 * uncharged - rewards(experience, penalty)


# ---------------------------------------------------------------- whose credit it is


GROUP_RELATIVE = advantages.group_relative  # the sound one, while another is in its place


def _across_prompts(
    rewards: Tensor, *, group_size: int, scale: bool = True, eps: float = 1e-4
) -> Tensor:
    order = torch.arange(len(rewards)).view(group_size, -1).T.flatten()
    mixed = GROUP_RELATIVE(rewards[order], group_size=group_size, scale=scale, eps=eps)
    return mixed[order.argsort()]


def _no_baseline(rewards: Tensor, *, group_size: int) -> Tensor:
    return rewards.clone()


def _no_zero_test(
    rewards: Tensor, *, group_size: int, scale: bool = True, eps: float = 1e-4
) -> Tensor:
    groups = rewards.view(-1, group_size)
    mean, spread = groups.mean(dim=1, keepdim=True), groups.std(dim=1, keepdim=True)
    return ((groups - mean) / (spread + eps)).flatten()


@_in_place_of(algorithms, "masked_whiten")
def _whitened_with_padding(_: Any, x: Tensor, mask: Tensor, *, shift_mean: bool = True) -> Tensor:
    filled = x.masked_fill(~mask, 0.0)
    return ((filled - filled.mean()) / (filled.std() + 1e-8)).masked_fill(~mask, 0.0)


@_in_place_of(returns, "token_gae")
def _rewards_as_targets(
    gae: Any, rewards: Tensor, *arguments: Any, **settings: Any
) -> tuple[Tensor, Tensor]:
    return gae(rewards, *arguments, **settings)[0], rewards.clone()


# ---------------------------------------------------------------- what is minimised


def _negative(original: Any, *arguments: Any, **given: Any) -> Tensor:
    return -original(*arguments, **given)


_negative_estimate = _in_place_of(kl, "estimate")(_negative)
_negative_loss = _in_place_of(updating, "policy_loss")(_negative)


@_in_place_of(kl, "estimate")
def _inverted_estimate(estimate: Any, log_probs: Tensor, ref: Tensor, kind: str) -> Tensor:
    return estimate(ref, log_probs, kind)


@_in_place_of(kl, "estimate")
def _always_k1(estimate: Any, log_probs: Tensor, ref: Tensor, kind: str) -> Tensor:
    return estimate(log_probs, ref, "k1")


@_in_place_of(updating, "policy_loss")
def _mean_of_means(loss: Any, *given: Any, batch_mask: Tensor, **others: Any) -> Tensor:
    _, _, _, tokens = given
    return len(tokens.mask) / len(batch_mask) * loss(*given, batch_mask=None, **others)


@_in_place_of(algorithms, "aggregate")
def _counting_padding(_: Any, per_token: Tensor, mask: Tensor, mode: str, **given: Any) -> Tensor:
    whole = given.get("batch_mask")
    whole = mask if whole is None else whole
    return per_token.masked_fill(~mask, 0.0).sum() / whole.numel()


@_in_place_of(updating, "slices")
def _without_last(slices: Any, *arguments: Any) -> list[Tensor]:
    parts = slices(*arguments)
    return parts[:-1] if len(parts) > 1 else parts


# ---------------------------------------------------------------- how the weights move


@_while_learning
@contextmanager
def _optimiser_of_a_copy(learner: Learner, step: int) -> Iterator[None]:
    """The optimiser was built from parameters that the model no longer has."""
    original = learner.optimiser
    groups = [
        {**group, "params": [p.detach().clone() for p in group["params"]]}
        for group in original.param_groups
    ]
    learner.optimiser = torch.optim.AdamW(groups)
    try:
        yield
    finally:
        learner.optimiser = original


@_while_learning
@contextmanager
def _forgetting(learner: Learner, step: int) -> Iterator[None]:
    if step and step % 4 == 0:  # as if resumed
        learner.optimiser.state.clear()
    yield


@_while_learning
@contextmanager
def _rounding(learner: Learner, step: int) -> Iterator[None]:
    @torch.no_grad()
    def round_all(*_: Any) -> None:
        for parameter in learner.policy.parameters():
            parameter.copy_(parameter.bfloat16())

    hook = learner.optimiser.register_step_post_hook(round_all)
    try:
        yield
    finally:
        hook.remove()


# By the names of the faults.
PLANTS: Mapping[str, Plant] = {
    "stale-sampler": _stale_sampler,
    "sampler-temperature": _sampled_by(_colder),
    "sampler-temperature-unreported": _sampled_by(_unreported(_colder)),
    "sampler-top-p": _sampled_by(_nucleus),
    "sampler-top-p-unreported": _sampled_by(_unreported(_nucleus)),
    "sampler-rounding": _sampled_by(_in_bfloat16),
    "re-tokenised": _tokenised_again,
    "shifted-log-probs": _unshifted,
    "learner-temperature": _at_temperature_one,
    "left-padding": _reading_padding,
    "stale-old-log-probs": _old_of_reference,
    "following-old-log-probs": _old_not_taken,
    "reference-moves": _shared_weights,
    "reference-dropout": _dropout_in_reference,
    "same-samples": _sampled_by(_one_for_all),
    "same-seed": _same_seed,
    "masked-eos": _without_eos,
    "trained-padding": _with_padding,
    "lenient-verifier": _hedges_paid,
    "silent-verifier": _long_answers_refused,
    "paid-truncation": _truncation_ignored,
    "shifted-rewards": _next_row,
    "misplaced-reward": _on_first_token,
    "kl-sign": _charged_backwards,
    "kl-sign-in-loss": _negative_estimate,
    "inverted-kl": _inverted_estimate,
    "wrong-kl-estimator": _always_k1,
    "mixed-groups": _estimator("group_relative", _across_prompts, scale=True),
    "missing-baseline": _estimator("leave_one_out", _no_baseline),
    "amplified-flat-groups": _estimator("group_relative", _no_zero_test, scale=True),
    "padded-whitening": _whitened_with_padding,
    "value-target-rewards": _rewards_as_targets,
    "inverted-ratio": _with("grpo", surrogate=inverted_ratio),
    "inverted-clip": _with("grpo", surrogate=inverted_clip),
    "flipped-loss": _negative_loss,
    "micro-batch-means": _mean_of_means,
    "padding-in-denominator": _counting_padding,
    "dropped-micro-batches": _without_last,
    "idle-optimiser": _optimiser_of_a_copy,
    "lost-moments": _forgetting,
    "rounded-updates": _rounding,
}
