"""A witness batch: everything about a few responses that a recomputation of their step needs.

Curves are means, and the usual mistakes leave means alone. A witness keeps the numbers themselves,
as the run used them, and beside them what a second, plain way of computing gives: each response as
it is, without padding, cache or shared prompt.

Recorder   → looks on while a run of ours is made, and hands out a witness every so many steps
Draft      → a witness while its step is being made, whichever trainer makes it
Witness    → facts and tensors, as one file of safetensors
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from nbcourse.errors import UserError
from nbcourse.lm.lora import own_parameters
from nbcourse.lm.rollouts import select
from nbcourse.lm.sampling import end_tokens
from nbcourse.tasks.task import Task
from nbcourse.training.algorithms import Estimate, Penalty
from nbcourse.training.experience import Experience
from nbcourse.training.learner import Learner
from nbcourse.training.watch import Watch, fingerprint

FORMAT = 1
LIKELIEST = 32  # log-probs kept of each distribution: all of them where a vocabulary is small
TOGETHER = 512  # tokens that are read at once: each has log-probs of the whole vocabulary
TEXT = 400  # characters kept of a prompt or a response


@dataclass(frozen=True)
class Witness:
    """A few responses of one step, and all that was made of them. R rows, T columns.

    What a trainer does not tell is not there; `tensors.get` then gives None.

    Attributes:
        facts: JSON: `step`, algorithm and settings, fingerprints, how the weights moved, texts, and
            as `pieces` the text of each token of each response.
        tensors: by name.

            As the run had them, (R, T): `tokens`, `mask`, `sampler_log_probs`, `ref_log_probs`,
            `token_rewards`, `advantages`, `values`, `returns`, and `scored_log_probs`, the
            learner's before its first update; (R,): `scores`, `verdicts`, `truncated`, `lengths`,
            `group` and `padded`, of its prompt.

            Of the first update that a row took part in, and as `last_…` of the last one, (R, T):
            `log_probs`, `old_log_probs`, and `coefficients`, the derivative of the loss by each
            log-prob; (R,): `minibatch` and `slice`, −1 for a row that took part in none.

            As the sampler handed them out, (R, T'): `drawn_tokens`; and (R, T"): `encoded_tokens`,
            those of the text that they decode to. −1 behind the end.

            Computed once more, (R, T): `plain_log_probs`, `plain_ref_log_probs`,
            `unshifted_log_probs` by the logits behind each token, `entropy` and
            `surprisal_variance`; (R, T, K): `likeliest`; (R,): `verified`, the strict reading.
    """

    facts: dict[str, Any]
    tensors: dict[str, Tensor]

    @property
    def step(self) -> int:
        """The step that it is of, from 1."""
        return self.facts["step"]

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"step-{self.step:06d}.safetensors"

    def __getitem__(self, name: str) -> Tensor:
        """A tensor that is there."""
        return self.tensors[name]

    def has(self, *names: str) -> bool:
        """Whether all of these tensors are there."""
        return all(name in self.tensors for name in names)

    def to_bytes(self) -> bytes:
        """As a safetensors file, the facts in its header."""
        from safetensors.torch import save

        tensors = {name: tensor.contiguous() for name, tensor in self.tensors.items()}
        return save(tensors, metadata={"witness": json.dumps(self.facts)})

    @classmethod
    def from_bytes(cls, content: bytes, *, name: str) -> "Witness":
        """What `to_bytes` made.

        Raises:
            ValueError: if it is something else, or of another version; `name` is the file's.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            tensors = load(content)
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
            facts = json.loads(header["__metadata__"]["witness"])
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{name} is not a witness batch, or a damaged one: {error}") from error
        if facts.get("format") != FORMAT:
            raise UserError(f"{name} has format {facts.get('format')!r}, expected {FORMAT}")
        return cls(facts, tensors)


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


class Draft:
    """A witness while its step is being made, by whichever trainer.

    Args:
        policy: whose weights the step moves.
        tensors: of the rows that are kept, (R, …), by the names of `Witness`.
        facts: likewise; `fingerprints` among them.
    """

    def __init__(
        self, policy: nn.Module, tensors: dict[str, Tensor], facts: dict[str, Any]
    ) -> None:
        self.policy, self.tensors, self.facts = policy, tensors, facts
        self.rows, self.width = tensors["tokens"].shape
        self.before = {name: p.detach().clone() for name, p in _trained(policy)}
        self.minibatches: list[Tensor] = []
        self.slices = 0

    def slice(
        self, rows: Tensor, batch_mask: Tensor, log_probs: Tensor, old_log_probs: Tensor
    ) -> None:
        """Record a slice of the loss; some of its rows may have been in an earlier update."""
        if not self.minibatches or batch_mask is not self.minibatches[-1]:
            self.minibatches.append(batch_mask)
        numbers = {"minibatch": len(self.minibatches) - 1, "slice": self.slices}
        self.slices += 1
        inside = (rows < self.rows).nonzero().squeeze(1).cpu()
        where = rows.cpu()[inside]
        seen = self._column("slice")[where] >= 0

        def put(name: str, values: Tensor) -> None:
            values = values.detach().float().cpu()[inside, : self.width]
            for prefix, part in (("", ~seen), ("last_", seen)):
                if part.any():
                    table = self._table(prefix + name)
                    table[where[part], : values.shape[1]] = values[part]

        put("log_probs", log_probs)
        put("old_log_probs", old_log_probs)
        log_probs.register_hook(lambda gradient: put("coefficients", gradient))
        for name, number in numbers.items():
            self._column(name)[where[~seen]] = number
            if seen.any():
                self._column("last_" + name)[where[seen]] = number

    def close(self, optimiser: Any, reference: nn.Module | None) -> Witness:
        """All that is there, and how the weights have moved."""
        self.facts |= _movement(self.before, self.policy, optimiser)
        if reference is not None:
            self.facts["fingerprints"]["reference_after"] = of_reference(reference)
        self.facts["minibatches"] = [
            {"rows": int(mask.any(dim=1).sum()), "tokens": int(mask.sum())}
            for mask in self.minibatches
        ]
        return Witness(self.facts, self.tensors)

    def _table(self, name: str) -> Tensor:
        return self.tensors.setdefault(name, torch.zeros(self.rows, self.width))

    def _column(self, name: str) -> Tensor:
        return self.tensors.setdefault(name, torch.full((self.rows,), -1, dtype=torch.int32))


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


PER_TOKEN = {
    *("tokens", "mask", "sampler_log_probs", "token_rewards", "ref_log_probs"),
    *("values", "advantages", "returns"),
}


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
        "selected": recipe.dynamic_sampling,
        "precision": recipe.model.precision,
        "importance_cap": optimiser.truncated_importance_sampling,
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


def of_reference(reference: nn.Module) -> str:
    """Its fingerprint, that of an adapter beside its weights left out."""
    return fingerprint(parameter for _, parameter in own_parameters(reference))


def _movement(before: dict[str, Tensor], policy: nn.Module, optimiser: Any) -> dict[str, Any]:
    """How a step has changed the policy's weights, and what the optimiser counted."""
    kept = on_grid = count = 0
    change, size, counted = [], [], []
    for name, parameter in _trained(policy):
        now, then = parameter.detach(), before[name]
        change.append((now - then).float().norm())
        size.append(then.float().norm())
        kept += int((now == then).sum())
        on_grid += int((now == now.bfloat16().to(now.dtype)).sum())
        count += now.numel()
        counted.append(int(optimiser.state.get(parameter, {}).get("step", 0)))
    return {
        "weight_change": torch.stack(change).norm().item(),
        "weight_norm": torch.stack(size).norm().item(),
        "weights_unchanged": kept / count,
        "weights_in_bfloat16": on_grid / count,
        "updates_counted": min(counted),
    }


def _trained(policy: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, p) for name, p in policy.named_parameters() if p.requires_grad]


def _extent(mask: Tensor) -> Tensor:
    """(B,) columns up to the last True."""
    return (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(dim=1)


def is_wanted(step: int, every: int) -> bool:
    """Whether a step has a witness: the first one, and every n-th."""
    return step == 1 or step % every == 0


def lengths_of(tokens: Tensor, ends: Sequence[int]) -> Tensor:
    """(B,) tokens up to the first that ends a response, whatever a mask says."""
    ended = torch.isin(tokens, torch.tensor(ends, device=tokens.device))
    return torch.where(ended.any(dim=1), ended.int().argmax(dim=1) + 1, tokens.shape[1])


def rows_within(lengths: Tensor, *, group_size: int, tokens: int) -> int:
    """How many rows a witness keeps: whole groups of so many tokens at most, and at least one."""
    of_groups = lengths.view(-1, group_size).sum(dim=1).cumsum(dim=0)
    return group_size * max(1, int((of_groups <= tokens).sum()))


def kept(tensors: Mapping[str, Tensor | None], rows: int, width: int) -> dict[str, Tensor]:
    """Copies of those that are there, of the first rows and columns."""
    found = {
        name: tensor.detach()[:rows].cpu().clone()
        for name, tensor in tensors.items()
        if tensor is not None
    }
    return found | {name: found[name][:, :width].clone() for name in PER_TOKEN & found.keys()}


def texts(
    tokenizer: Any, tokens: Tensor, lengths: Tensor, ends: Sequence[int]
) -> list[tuple[str, list[str]]]:
    """Each response as text, without the token that ends it, and the text of each of its tokens."""
    rows = [row[:length].tolist() for row, length in zip(tokens, lengths.tolist(), strict=False)]
    return [
        (
            str(tokenizer.decode(row[:-1] if row[-1] in ends else row)),
            [str(tokenizer.decode([token])) for token in row],
        )
        for row in rows
    ]


def drawn(tokenizer: Any, rows: Sequence[Sequence[int]], ends: Sequence[int]) -> dict[str, Tensor]:
    """Tokens as they were sampled, up to the one that ends them, and those of their texts."""
    if not rows:
        return {}
    sampled, encoded = [], []
    for row in rows:
        length = next((n for n, token in enumerate(row) if token in ends), len(row))
        said, end = list(row[:length]), list(row[length : length + 1])
        again = tokenizer(tokenizer.decode(said), add_special_tokens=False)["input_ids"]
        sampled.append(torch.tensor(said + end, dtype=torch.int32))
        encoded.append(torch.tensor(list(again) + end, dtype=torch.int32))
    together = partial(pad_sequence, batch_first=True, padding_value=-1)
    return {"drawn_tokens": together(sampled), "encoded_tokens": together(encoded)}


def verified(task: Task, texts: Sequence[str], problems: Sequence[Any]) -> dict[str, Tensor]:
    """The strict reading of each response, if that is what the task's verdict should be."""
    if not problems or type(task).rewards is not Task.rewards:
        return {}
    read = zip(texts, problems, strict=True)
    return {"verified": torch.tensor([task.read(text) == asked.answer for text, asked in read])}


Answers = Callable[[Tensor, int], Tensor]  # (n, L) ids, how many are the prompt's → (n, t + 1, V)


@torch.no_grad()
def plainly(
    prompts: Sequence[Tensor],
    responses: Sequence[Tensor],
    width: int,
    policy: Answers,
    reference: Answers | None,
) -> dict[str, Tensor]:
    """Log-probs of each response without padding, and of what else could have been said.

    Rows that are equally long are read together, which moves no number by more than rounding.

    Args:
        prompts: the ids of each, without padding.
        responses: likewise.
        width: T.
        policy: answers as `distributions` does.
        reference: likewise, if there is one.
    """
    found: dict[str, Tensor] = {}
    texts = [torch.cat(both) for both in zip(prompts, responses, strict=True)]
    known: dict[tuple[int, ...], int] = {}
    first = [
        known.setdefault((len(prompt), *ids.tolist()), row)
        for row, (prompt, ids) in enumerate(zip(prompts, texts, strict=True))
    ]
    for rows in _equally_long(known.values(), prompts, responses):
        ids, prompt = torch.stack([texts[row] for row in rows]), len(prompts[rows[0]])
        every, chosen = policy(ids, prompt), ids[:, prompt:, None]
        now, later = every[:, :-1], every[:, 1:]
        probs = now.exp()
        entropy = -(probs * now).nan_to_num(0.0).sum(dim=2)
        columns = {
            "plain_log_probs": now.gather(2, chosen)[..., 0],
            "unshifted_log_probs": later.gather(2, chosen)[..., 0],
            "entropy": entropy,
            "surprisal_variance": (probs * now.square()).nan_to_num(0.0).sum(dim=2)
            - entropy.square(),
            "likeliest": now.topk(min(LIKELIEST, now.shape[2]), dim=2).values,
        }
        if reference is not None:
            of_ref = reference(ids, prompt)[:, :-1]
            columns["plain_ref_log_probs"] = of_ref.gather(2, chosen)[..., 0]
        for name, values in columns.items():
            shape = (len(prompts), width, *values.shape[2:])
            found.setdefault(name, torch.zeros(shape))[rows, : values.shape[1]] = values.cpu()
    return {name: table[first] for name, table in found.items()}


def _equally_long(
    rows: Iterable[int], prompts: Sequence[Tensor], responses: Sequence[Tensor]
) -> Iterator[list[int]]:
    """The rows in pieces of equal lengths, each of at most `TOGETHER` tokens or of one row."""
    alike: dict[tuple[int, int], list[int]] = {}
    for row in rows:
        alike.setdefault((len(prompts[row]), len(responses[row])), []).append(row)
    for lengths, those in alike.items():
        size = max(1, TOGETHER // sum(lengths))
        yield from (those[i : i + size] for i in range(0, len(those), size))


def distributions(model: nn.Module, ids: Tensor, prompt: int, temperature: float) -> Tensor:
    """(n, t + 1, V) log-probs of what may follow the prompt, and each token of the response."""
    logits = model(input_ids=ids, use_cache=False).logits[:, prompt - 1 :]
    return (logits.float() / temperature).log_softmax(dim=-1)
