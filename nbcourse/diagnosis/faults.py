"""Faults that real trainers have had, each behind a switch: `with FAULTS[name].planted(): …`.

A fault replaces functions of our own loop for as long as the context lasts; the loop itself has no
branch for any of them. Most leave the reward's curve looking as it should.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nbcourse.functional import advantages, kl, returns
from nbcourse.lm import log_probs as scoring
from nbcourse.lm import sampling
from nbcourse.lm.log_probs import rollout_log_probs, token_log_probs
from nbcourse.lm.rollouts import Rollout, model_inputs, select
from nbcourse.tasks.task import Task
from nbcourse.training import algorithms, loop
from nbcourse.training import experience as experiences
from nbcourse.training import learner as learners
from nbcourse.training.experience import Experience
from nbcourse.training.learner import Learner
from nbcourse.training.recipe import RewardSection

Plant = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        cause: what a diagnosis should name, one of `CAUSES`.
        sentence: what is planted.
        source: where it was met: a thread, a paper, or "common".
        plant: the context within which it is there.
        recipe: what a recipe needs so that the fault has something to spoil.
        algorithms: rows of the table in which it can be planted.
        recorded: whether it is among the runs of `book/runs/silent-failures`.
    """

    cause: str
    sentence: str
    source: str
    plant: Plant
    recipe: Mapping[str, Any] = field(default_factory=dict)
    algorithms: tuple[str, ...] = ("grpo",)
    recorded: bool = True

    def changes(self, number: int) -> dict[str, Any]:
        """Tables of a recipe for it, with one after the other of its algorithms."""
        name = self.algorithms[number % len(self.algorithms)]
        return {**self.recipe, "algorithm": {"name": name, **self.recipe.get("algorithm", {})}}

    def planted(self) -> AbstractContextManager[Any]:
        """Within it, the loop has the fault."""
        return self.plant()


@contextmanager
def _replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Within it, an attribute is what `make` makes of it."""
    original = getattr(owner, name)
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def _replacing(owner: Any, name: str, make: Callable[[Any], Any]) -> Plant:
    return partial(_replaced, owner, name, make)


def _after(change: Callable[[Learner, Experience], Experience]) -> Plant:
    """Each step's experience is changed once it has been collected."""

    def make(collect: Any) -> Any:
        return lambda learner, draws, processes: change(learner, collect(learner, draws, processes))

    return _replacing(loop, "collect", make)


def _with_rollout(experience: Experience, **changes: Any) -> Experience:
    return replace(experience, rollout=replace(experience.rollout, **changes))


# ---------------------------------------------------------------- who samples, who scores


@contextmanager
def _stale_sampler() -> Iterator[None]:
    first: dict[str, Tensor] = {}

    def make(collect: Any) -> Any:
        def stale(learner: Learner, draws: Any, processes: Any) -> Experience:
            now = copy.deepcopy(learner.policy.state_dict())
            first.update(first or now)
            learner.policy.load_state_dict(first)
            try:
                return collect(learner, draws, processes)
            finally:
                learner.policy.load_state_dict(now)

        return stale

    with _replaced(loop, "collect", make):
        yield


def _sampling(change: Callable[..., Rollout]) -> Plant:
    """Responses are sampled by `change(sample, model, tokenizer, prompts, **options)`.

    Greedy ones, of a baseline or an evaluation, are sampled as ever.
    """

    def make(sample: Any) -> Any:
        def changed(*arguments: Any, **options: Any) -> Rollout:
            if options.get("greedy"):
                return sample(*arguments, **options)
            return change(sample, *arguments, **options)

        return changed

    return _replacing(sampling, "sample", make)


def _colder(sample: Any, *arguments: Any, **options: Any) -> Rollout:
    return sample(*arguments, **options | {"temperature": 0.7 * options["temperature"]})


class _Truncated:
    """A model whose logits are −∞ outside of the nucleus."""

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
        with torch.no_grad():
            said = rollout_log_probs(model, rollout, temperature=options["temperature"])
        return replace(rollout, log_probs=said.masked_fill(~rollout.mask, 0.0))

    return changed


def _in_bfloat16(sample: Any, model: Any, *arguments: Any, **options: Any) -> Rollout:
    with torch.autocast(model.device.type, torch.bfloat16):
        return sample(model, *arguments, **options)


def _one_for_all(sample: Any, *arguments: Any, **options: Any) -> Rollout:
    group = options["group_size"]
    single = sample(*arguments, **options | {"group_size": 1})
    rows = torch.arange(len(single.mask), device=single.mask.device)
    return select(single, rows.repeat_interleave(group))


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
    again = replace(
        rollout, tokens=tokens, mask=mask, log_probs=torch.zeros(mask.shape).to(mask.device)
    )
    with torch.no_grad():
        temperature = learner.recipe.rollouts.temperature
        said = rollout_log_probs(learner.policy, again, temperature=temperature)
    return replace(experience, rollout=replace(again, log_probs=said.masked_fill(~mask, 0.0)))


def _unshifted(_: Any) -> Any:
    def log_probs(self: Learner, model: Any, rollout: Rollout, group_size: int) -> Tensor:
        logits = model(**model_inputs(rollout)).logits[:, -rollout.tokens.shape[1] :]
        temperature = self.recipe.rollouts.temperature
        return token_log_probs(logits, rollout.tokens, temperature=temperature)

    return log_probs


def _at_temperature_one(score: Any) -> Any:
    return lambda *arguments, **options: score(*arguments, **options | {"temperature": 1.0})


def _reading_padding(_: Any) -> Any:
    def inputs(rollout: Rollout) -> dict[str, Tensor]:
        ids = torch.cat([rollout.prompt_ids, rollout.tokens], dim=1)
        positions = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)
        everything = torch.ones_like(ids)
        return {"input_ids": ids, "attention_mask": everything, "position_ids": positions}

    return inputs


def _of_reference(_: Any) -> Any:
    def stale(learner: Learner, experience: Experience, *others: Any) -> Experience:
        group = learner.recipe.rollouts.group_size
        found = learner.ref_log_probs(experience.rollout, group_size=group)
        return replace(experience, old_log_probs=found)

    return stale


def _not_taken(_: Any) -> Any:
    return lambda learner, experience, *others: experience


def _share_weights(learner: Learner, experience: Experience) -> Experience:
    pairs = zip(learner.reference.parameters(), learner.policy.parameters(), strict=True)
    for reference, policy in pairs:
        reference.data = policy.data
    return experience


def _with_dropout(ask: Any) -> Any:
    def noisy(self: Learner, rollout: Rollout, *, group_size: int) -> Tensor:
        def drop(_: Any, inputs: tuple[Tensor]) -> tuple[Tensor]:
            return (torch.nn.functional.dropout(inputs[0], 0.1),)

        hook = self.reference.get_output_embeddings().register_forward_pre_hook(drop)
        try:
            return ask(self, rollout, group_size=group_size)
        finally:
            hook.remove()

    return noisy


# ---------------------------------------------------------------- what counts, what it earns


def _same_seed(learner: Learner, experience: Experience) -> Experience:
    group = learner.recipe.rollouts.group_size
    half = len(experience.scores) // group // 2
    return experiences._keep_groups(experience, torch.arange(half).repeat(2), group)


def _without_eos(_: Learner, experience: Experience) -> Experience:
    rollout, mask = experience.rollout, experience.rollout.mask.clone()
    lengths = mask.sum(dim=1)
    ended = (~rollout.truncated & (lengths > 1)).nonzero().squeeze(1)
    mask[ended, lengths[ended] - 1] = False
    return _with_rollout(experience, mask=mask)


def _with_padding(_: Learner, experience: Experience) -> Experience:
    return _with_rollout(experience, mask=torch.ones_like(experience.rollout.mask))


def _hedges_paid(_: Any) -> Any:
    def rewards(self: Task, responses: Any, problems: Any) -> Tensor:
        pairs = zip(responses, problems, strict=True)
        return torch.tensor([float(str(asked.answer) in text) for text, asked in pairs])

    return rewards


def _fails_on_long_answers(verify: Any) -> Any:
    def rewards(self: Task, responses: Any, problems: Any) -> Tensor:
        long = torch.tensor([len(str(problem.answer)) > 1 for problem in problems])
        return verify(self, responses, problems).masked_fill(long, 0.0)

    return rewards


def _next_row(score: Any) -> Any:
    def shifted(*arguments: Any) -> tuple[Tensor, Tensor]:
        scores, correct = score(*arguments)
        return scores.roll(1), correct.roll(1)

    return shifted


def _on_first_token(rewards: Any) -> Any:
    def misplaced(self: Experience, penalty: Any) -> Tensor:
        found = rewards(self, penalty).clone()
        mask = self.rollout.mask
        rows, last = torch.arange(len(mask)), mask.sum(dim=1) - 1
        found[rows, last] -= self.scores
        found[:, 0] += self.scores
        return found

    return misplaced


def _charged_backwards(rewards: Any) -> Any:
    def wrong(self: Experience, penalty: Any) -> Tensor:
        return 2 * rewards(self, replace(penalty, placement="none")) - rewards(self, penalty)

    return wrong


# ---------------------------------------------------------------- whose credit it is


def _across_prompts(estimate: Any) -> Any:
    def mixed(rewards: Tensor, *, group_size: int, **settings: Any) -> Tensor:
        order = torch.arange(len(rewards)).view(group_size, -1).T.flatten()
        found = estimate(rewards[order], group_size=group_size, **settings)
        return found[order.argsort()]

    return mixed


def _no_baseline(_: Any) -> Any:
    return lambda rewards, *, group_size: rewards.clone()


def _no_zero_test(_: Any) -> Any:
    def divided(rewards: Tensor, *, group_size: int, eps: float, scale: bool = True) -> Tensor:
        groups = rewards.view(-1, group_size)
        mean, spread = groups.mean(dim=1, keepdim=True), groups.std(dim=1, keepdim=True)
        return ((groups - mean) / (spread + eps)).flatten()

    return divided


def _whiten_everything(_: Any) -> Any:
    def whiten(x: Tensor, mask: Tensor, *, shift_mean: bool = True) -> Tensor:
        filled = x.masked_fill(~mask, 0.0)
        return ((filled - filled.mean()) / (filled.std() + 1e-8)).masked_fill(~mask, 0.0)

    return whiten


def _rewards_as_targets(gae: Any) -> Any:
    def wrong(rewards: Tensor, *arguments: Any, **settings: Any) -> tuple[Tensor, Tensor]:
        return gae(rewards, *arguments, **settings)[0], rewards.clone()

    return wrong


# ---------------------------------------------------------------- what is minimised


def _surrogate(name: str, wrong: Callable[..., Tensor]) -> Plant:
    """A row of the table has another surrogate."""

    @contextmanager
    def swapped() -> Iterator[None]:
        table = algorithms.ALGORITHMS
        original = table[name]
        table[name] = replace(original, surrogate=wrong)
        try:
            yield
        finally:
            table[name] = original

    return swapped


def _old_over_new(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float | None = None,
    dual_clip: float | None = None,
) -> Tensor:
    ratio = (old_log_probs - log_probs).exp()
    high = clip_low if clip_high is None else clip_high
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - clip_low, 1 + high) * advantages)


def _max_for_bad(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float | None = None,
    dual_clip: float | None = None,
) -> Tensor:
    ratio = (log_probs - old_log_probs).exp()
    high = clip_low if clip_high is None else clip_high
    sides = ratio * advantages, ratio.clamp(1 - clip_low, 1 + high) * advantages
    return -torch.where(advantages >= 0, torch.minimum(*sides), torch.maximum(*sides))


def _negative(loss: Any) -> Any:
    return lambda *arguments, **given: -loss(*arguments, **given)


def _mean_of_means(loss: Any) -> Any:
    def wrong(*arguments: Any, **given: Any) -> Tensor:
        mask, whole = given["mask"], given["batch_mask"]
        share = len(mask) / len(whole)
        return share * loss(*arguments, **given | {"batch_mask": None})

    return wrong


def _counting_padding(aggregate: Any) -> Any:
    def wrong(per_token: Tensor, mask: Tensor, mode: str, **given: Any) -> Tensor:
        whole = given.get("batch_mask")
        whole = mask if whole is None else whole
        return per_token.masked_fill(~mask, 0.0).sum() / whole.numel()

    return wrong


def _without_last(slices: Any) -> Any:
    def fewer(*arguments: Any) -> list[Tensor]:
        parts = slices(*arguments)
        return parts[:-1] if len(parts) > 1 else parts

    return fewer


# ---------------------------------------------------------------- how the weights move


def _learning(change: Callable[[Learner, int], AbstractContextManager[Any]]) -> Plant:
    """Each step's updates are made within `change(learner, step)`."""

    def make(learn: Any) -> Any:
        def changed(learner: Learner, *others: Any) -> Any:
            with change(learner, others[3]):
                return learn(learner, *others)

        return changed

    return _replacing(loop, "learn", make)


@contextmanager
def _of_a_copy(learner: Learner, step: int) -> Iterator[None]:
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


@contextmanager
def _forgetting(learner: Learner, step: int) -> Iterator[None]:
    if step and step % 4 == 0:  # as if resumed
        learner.optimiser.state.clear()
    yield


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


EVERY = ("grpo", "rloo", "ppo")
NO_CRITIC = ("grpo", "rloo", "reinforce++")
SEVERAL = {"optimiser": {"epochs": 4, "minibatches": 2}}
MANY = {"rollouts": {"prompts": 24, "group_size": 8}}  # tokens enough for a test
PIECES = {"optimiser": {"prompts_at_once": 1}}
WORDS = {  # a vocabulary in which a text can be written in several ways
    "task": {"name": "word-problems", "max_steps": 1},
    "model": {"vocabulary": 400},
    "warm_start": {"steps": 0},
    "rollouts": {"max_new_tokens": 12},
}
MISMATCH = "trl #6789, trl #4159, verl #6280"
DENOMINATORS = "ms-swift #10117, trl #6024, Liger #1082"
KL = "trl #6503, trl #6586, rlhf-book #489"

FAULTS: dict[str, Fault] = {
    "stale-sampler": Fault(
        "stale-sampler",
        "The sampler keeps the weights of the first step.",
        "verl #7495, trl #5312, SkyRL #1680",
        _stale_sampler,
        algorithms=EVERY,
    ),
    "sampler-temperature": Fault(
        "sampler-temperature",
        "The sampler draws at 0.7 of the temperature that the learner scores at.",
        MISMATCH,
        _sampling(_colder),
        algorithms=EVERY,
    ),
    "sampler-temperature-unreported": Fault(
        "sampler-temperature",
        "As before, and the log-probs are reported at the stated temperature.",
        MISMATCH,
        _sampling(_unreported(_colder)),
        MANY,
        algorithms=EVERY,
    ),
    "sampler-top-p": Fault(
        "sampler-truncation",
        "The sampler draws from the nucleus of 0.8.",
        MISMATCH,
        _sampling(_nucleus),
        algorithms=EVERY,
    ),
    "sampler-top-p-unreported": Fault(
        "sampler-truncation",
        "As before, and the log-probs are reported of the whole distribution.",
        MISMATCH,
        _sampling(_unreported(_nucleus)),
        MANY,
        algorithms=EVERY,
    ),
    "sampler-rounding": Fault(
        "sampler-rounding",
        "The sampler computes in bfloat16, the learner in float32.",
        MISMATCH,
        _sampling(_in_bfloat16),
        algorithms=EVERY,
    ),
    "re-tokenised": Fault(
        "re-tokenised",
        "Responses reach the learner as text, and are tokenised again.",
        "trl #5224, rllm #816",
        _after(_tokenised_again),
        WORDS,
        recorded=False,
    ),
    "shifted-log-probs": Fault(
        "shifted-log-probs",
        "The learner takes the logits after each token.",
        "common",
        _replacing(Learner, "_log_probs", _unshifted),
        algorithms=NO_CRITIC,
    ),
    "learner-temperature": Fault(
        "learner-temperature",
        "Responses are sampled at temperature 0.7 and scored at 1.",
        "rlhf-book",
        _replacing(learners, "rollout_log_probs", _at_temperature_one),
        {"rollouts": {"temperature": 0.7}},
        algorithms=NO_CRITIC,
    ),
    "left-padding": Fault(
        "left-padding",
        "The learner's forward pass has neither the prompt's mask nor its positions.",
        "unsloth-zoo #840, trl #6800",
        _replacing(scoring, "model_inputs", _reading_padding),
        {"task": {"digits": 2}, "reward": {"overlong_buffer": 4}},
        algorithms=EVERY,
    ),
    "stale-old-log-probs": Fault(
        "stale-old-log-probs",
        "The reference's log-probs are used as the old ones.",
        "common",
        _replacing(loop, "add_old_log_probs", _of_reference),
        SEVERAL,
    ),
    "following-old-log-probs": Fault(
        "following-old-log-probs",
        "Each update takes its old log-probs anew.",
        "trl #2703, trl #3120",
        _replacing(loop, "add_old_log_probs", _not_taken),
        SEVERAL,
    ),
    "reference-moves": Fault(
        "reference-moves",
        "The reference shares the policy's weights.",
        "trl #3194, ms-swift #8233",
        _after(_share_weights),
        {"kl": {"beta": 0.1}},
    ),
    "reference-dropout": Fault(
        "reference-noise",
        "The reference is asked with dropout.",
        "common",
        _replacing(Learner, "ref_log_probs", _with_dropout),
        {"kl": {"beta": 0.1}},
    ),
    "same-samples": Fault(
        "same-samples",
        "All responses to a prompt are the same.",
        "common",
        _sampling(_one_for_all),
        algorithms=EVERY,
    ),
    "same-seed": Fault(
        "same-seed",
        "The second half of the batch repeats the first.",
        "common",
        _after(_same_seed),
        algorithms=EVERY,
    ),
    "no-signal": Fault(
        "no-signal",
        "There was no warm start, and the problems are too hard to solve by chance.",
        "trl #5697, trl #3452",
        nullcontext,
        {"warm_start": {"steps": 0}, "task": {"digits": 3}},
        algorithms=EVERY,
    ),
    "all-truncated": Fault(
        "all-truncated",
        "The limit of new tokens is too small for an answer.",
        "trl #5697, trl #3452",
        nullcontext,
        {"rollouts": {"max_new_tokens": 1}},
        algorithms=EVERY,
    ),
    "masked-eos": Fault(
        "masked-eos",
        "The mask leaves out the end of sequence.",
        "verl #3805, trl #4970, tiny-grpo",
        _after(_without_eos),
        algorithms=EVERY,
    ),
    "trained-padding": Fault(
        "trained-padding",
        "The mask is True everywhere.",
        "verl #3805, trl #4970",
        _after(_with_padding),
        algorithms=EVERY,
    ),
    "lenient-verifier": Fault(
        "lenient-verifier",
        "A response is paid if the answer occurs anywhere in it.",
        "verl #5635, NeMo-RL #3635, trl #5281",
        _replacing(Task, "rewards", _hedges_paid),
        {"warm_start": {"steps": 60, "careless_steps": 0}},
        algorithms=EVERY,
    ),
    "silent-verifier": Fault(
        "silent-verifier",
        "The verifier fails on answers of more than one character and says 0.",
        "verl #5635, NeMo-RL #3635, trl #5281",
        _replacing(Task, "rewards", _fails_on_long_answers),
        algorithms=EVERY,
    ),
    "paid-truncation": Fault(
        "paid-truncation",
        "Cut-off responses are paid like others.",
        "common",
        _replacing(RewardSection, "verdicts", lambda _: lambda self, right, cut: right),
        {"rollouts": {"max_new_tokens": 2}},
        algorithms=EVERY,
    ),
    "shifted-rewards": Fault(
        "shifted-rewards",
        "Each response gets the verdict of the one above it.",
        "verl #5635, NeMo-RL #3635, trl #5281",
        _replacing(experiences, "score", _next_row),
        algorithms=EVERY,
    ),
    "misplaced-reward": Fault(
        "misplaced-reward",
        "The score is on the first token.",
        "common",
        _replacing(Experience, "rewards", _on_first_token),
        algorithms=("ppo",),
    ),
    "kl-sign": Fault(
        "kl-sign",
        "The KL in the reward is added.",
        KL,
        _replacing(Experience, "rewards", _charged_backwards),
        {"kl": {"beta": 0.1}},
        ("rloo", "reinforce++", "ppo"),
    ),
    "kl-sign-in-loss": Fault(
        "kl-sign",
        "The KL in the loss is subtracted.",
        KL,
        _replacing(kl, "estimate", _negative),
        {"kl": {"beta": 0.1}},
    ),
    "inverted-kl": Fault(
        "inverted-kl",
        "k3 is taken of log π_ref − log π.",
        "rlhf-book",
        _replacing(kl, "estimate", lambda k: lambda log_probs, ref, kind: k(ref, log_probs, kind)),
        {"kl": {"beta": 0.1}},
    ),
    "wrong-kl-estimator": Fault(
        "wrong-kl-estimator",
        "k1 is in the loss, where k3 is stated.",
        "reasoning-from-scratch, rlhf-book",
        _replacing(kl, "estimate", lambda k: lambda log_probs, ref, kind: k(log_probs, ref, "k1")),
        {"kl": {"beta": 0.1}},
    ),
    "mixed-groups": Fault(
        "mixed-groups",
        "Rewards are reshaped to (group_size, prompts) and compared along the wrong axis.",
        "NeMo-RL #3882, slime #1918, PipelineRL #54",
        _replacing(advantages, "group_relative", _across_prompts),
    ),
    "missing-baseline": Fault(
        "missing-baseline",
        "The advantage is the reward.",
        "common",
        _replacing(advantages, "leave_one_out", _no_baseline),
        algorithms=("rloo",),
    ),
    "amplified-flat-groups": Fault(
        "amplified-flat-groups",
        "Groups are divided by their spread plus 1e-9, those without spread too.",
        "OpenRLHF",
        _replacing(advantages, "group_relative", _no_zero_test),
        {
            "algorithm": {"eps": 1e-9},
            "rollouts": {"group_size": 6},
            "reward": {"overlong_buffer": 3},
        },
    ),
    "padded-whitening": Fault(
        "padded-whitening",
        "Advantages are whitened over padding too.",
        "common",
        _replacing(algorithms, "masked_whiten", _whiten_everything),
        algorithms=("ppo",),
    ),
    "value-target-rewards": Fault(
        "value-target-rewards",
        "The critic learns the rewards of tokens.",
        "common",
        _replacing(returns, "token_gae", _rewards_as_targets),
        algorithms=("ppo",),
    ),
    "inverted-ratio": Fault(
        "inverted-ratio",
        "The ratio is old over new.",
        "common",
        _surrogate("grpo", _old_over_new),
        SEVERAL,
    ),
    "inverted-clip": Fault(
        "inverted-clip",
        "For negative advantages the clip takes the maximum.",
        "reasoning-from-scratch",
        _surrogate("grpo", _max_for_bad),
        SEVERAL,
    ),
    "flipped-loss": Fault(
        "flipped-loss",
        "The loss has the opposite sign.",
        "common",
        _replacing(loop, "policy_loss", _negative),
        algorithms=EVERY,
    ),
    "micro-batch-means": Fault(
        "micro-batch-means",
        "Each micro-batch is divided by its own tokens.",
        f"{DENOMINATORS}, nanochat",
        _replacing(loop, "policy_loss", _mean_of_means),
        PIECES,
        ("reinforce++", "dapo", "ppo"),
    ),
    "padding-in-denominator": Fault(
        "padding-in-denominator",
        "The sum over tokens is divided by rows × columns.",
        f"{DENOMINATORS}, arXiv 2604.23747",
        _replacing(algorithms, "aggregate", _counting_padding),
        algorithms=("reinforce++", "dapo", "ppo"),
    ),
    "dropped-micro-batches": Fault(
        "dropped-micro-batches",
        "The last micro-batch of each update is left out.",
        DENOMINATORS,
        _replacing(loop, "slices", _without_last),
        PIECES,
        algorithms=EVERY,
    ),
    "idle-optimiser": Fault(
        "idle-optimiser",
        "The optimiser holds copies of the parameters.",
        "common",
        _learning(_of_a_copy),
        algorithms=EVERY,
    ),
    "lost-moments": Fault(
        "lost-moments",
        "The optimiser is resumed without its moments.",
        "common",
        _learning(_forgetting),
        algorithms=EVERY,
    ),
    "rounded-updates": Fault(
        "rounded-updates",
        "The weights are rounded to bfloat16 after each update.",
        "common",
        _learning(_rounding),
        {"optimiser": {"learning_rate": 3e-5}},
        algorithms=EVERY,
    ),
}


@contextmanager
def planted(*names: str) -> Iterator[None]:
    """Within it, the loop has all of these faults.

    Raises:
        KeyError: if there is no such fault.
    """
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(FAULTS[name].planted())
        yield
