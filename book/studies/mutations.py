"""Two hundred small changes of published losses, and what `examine` says of each.

    python -m book.studies.mutations book/runs/mutations

A mutant changes one place of one loss: a sign, a clause, a pair of names, a detach, a mask, an
average, a position, a number. What it does is found without `examine`, on listed prompts of its
own (`book.studies.listed`): see `effect`. A mutant that raises is none: nobody needs to be told. Of
the others 22 of each kind are drawn, as far as there are so many, and examined once.

A run that was stopped goes on where it was. `results.jsonl` has a line for each mutant.
"""

import argparse
import ast
import inspect
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from book.studies import published_losses
from book.studies.listed import EASY, HARD, NOTHING, RUBBISH, Listing
from tests import mutants
from torch import Tensor
from torch.nn.functional import pad

from nbcourse.errors import UserError
from nbcourse.examine import Report, examine
from nbcourse.experiments import records
from nbcourse.progress import track

OF_EACH_KIND = 22
KINDS = {
    "sign": "a minus for a plus, or none",
    "factor": "times for divided by",
    "constant": "a number, a tenth larger",
    "clause": "a clause, left out",
    "names": "another quantity",
    "detach": "a detach, too many or too few",
    "mask": "a mask, left out",
    "shift": "a position or a row off",
    "extremum": "min for max",
    "average": "a sum for a mean, or another axis",
}
NAMES = {  # in the place of a quantity: the kind, and what stands there
    "log_probs": {
        "names": ["old_log_probs", "ref_log_probs"],
        "detach": ["log_probs.detach()"],
        "shift": ["log_probs.roll(1, 1)"],
    },
    "old_log_probs": {
        "names": ["log_probs", "ref_log_probs", "sampler_log_probs"],
        "shift": ["old_log_probs.roll(1, 1)"],
    },
    "sampler_log_probs": {
        "names": ["old_log_probs", "log_probs"],
        "shift": ["sampler_log_probs.roll(1, 1)"],
    },
    "ref_log_probs": {
        "names": ["old_log_probs", "log_probs"],
        "shift": ["ref_log_probs.roll(1, 1)"],
    },
    "mask": {"mask": ["torch.ones_like(mask)"], "shift": ["mask.roll(1, 1)"]},
    "rewards": {"shift": ["rewards.roll(1)"], "names": ["rewards.square()"]},
    "values": {"shift": ["values.roll(-1, 1)"]},
    "advantages": {"names": ["advantages.abs()"]},
    "groups": {"shift": ["groups.T.reshape(groups.shape)"]},
}
LEFT_OUT = {  # methods that go, and of which kind that is
    "detach": "detach",
    "masked_fill": "mask",
    "exp": "clause",
    "cumsum": "clause",
    "clamp": "clause",
    "sqrt": "clause",
    "flip": "clause",
    "sign": "clause",
}
OTHERS = {"min": "extremum", "max": "extremum", "sum": "average", "mean": "average"}


# ---------------------------------------------------------------- mutants


def variants(node: ast.AST, taken: set[str]) -> list[tuple[str, ast.AST]]:
    """What may stand in the place of an expression, each with its kind."""
    found: list[tuple[str, ast.AST]] = []
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        found.append(("sign", node.operand))
    if isinstance(node, ast.BinOp) and type(node.op) in mutants.OPERATORS:
        added = isinstance(node.op, ast.Add | ast.Sub)
        other = ast.BinOp(node.left, mutants.OPERATORS[type(node.op)], node.right)
        found.append(("sign" if added else "factor", other))
        found.append(("clause", node.left))
    if isinstance(node, ast.Constant) and isinstance(node.value, float) and node.value:
        found.append(("constant", ast.Constant(node.value * 1.1)))
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        found += _named(node.id, taken)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        found += _called(node, node.func)
    return found


def _named(name: str, taken: set[str]) -> Iterator[tuple[str, ast.AST]]:
    for kind, texts in NAMES.get(name, {}).items():
        for text in texts:
            uses = {one.id for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Name)}
            if uses <= taken | {name, "torch"}:
                yield kind, ast.parse(text, mode="eval").body


def _called(node: ast.Call, called: ast.Attribute) -> Iterator[tuple[str, ast.AST]]:
    of_torch = isinstance(called.value, ast.Name) and called.value.id == "torch"
    for other in mutants.METHODS.get(called.attr, []):
        if called.attr in OTHERS or called.attr == "std":
            function = ast.Attribute(called.value, other, ast.Load())
            kind = OTHERS.get(called.attr, "average")
            yield kind, ast.Call(function, node.args, node.keywords)
    if of_torch and called.attr in ("min", "max", "clamp"):
        parts = node.args if called.attr != "clamp" else node.args[:1]
        yield from (("clause", part) for part in parts)
    if called.attr in LEFT_OUT and not of_torch:
        yield LEFT_OUT[called.attr], called.value
    if any(keyword.arg == "dim" for keyword in node.keywords):
        axes = [
            ast.keyword("dim", ast.Constant(0)) if keyword.arg == "dim" else keyword
            for keyword in node.keywords
        ]
        yield "average", ast.Call(node.func, node.args, axes)


def variants_of(original: Callable[..., Tensor]) -> Callable[[ast.AST], list[ast.AST]]:
    taken = set(inspect.signature(original).parameters)
    return lambda node: [variant for _, variant in variants(node, taken)]


def named() -> dict[str, list[str]]:
    """Every mutant by its kind: of which loss, at which place, which variant, and what it is."""
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for original in published_losses.ORIGINALS:
        source, taken = inspect.getsource(original), set(inspect.signature(original).parameters)
        for place, node in enumerate(ast.walk(ast.parse(source))):
            for which, (kind, variant) in enumerate(variants(node, taken)):
                change = f"{ast.unparse(node)} → {ast.unparse(variant)}"
                found[kind].append(f"{original.__name__} {place}.{which}: {change}")
    return found


def mutant(name: str) -> Callable[..., Tensor]:
    """The function that a name stands for."""
    loss, at, _ = name.split(" ", 2)
    original = getattr(published_losses, loss)
    place, which = map(int, at.rstrip(":").split("."))
    tree = mutants.changed(inspect.getsource(original), variants_of(original), place, which)
    scope: dict[str, Any] = {"torch": torch}
    exec(compile(tree, loss, "exec"), scope)
    return scope[loss]


# ---------------------------------------------------------------- what they do, without `examine`

LISTINGS = [
    Listing([EASY]),
    Listing([EASY], moved=0.15),
    Listing([EASY, HARD], moved=1.2, reference=1.0),
    Listing([EASY, HARD], moved=0.3),
]
DIRTY = Listing([EASY], moved=0.15, beyond=RUBBISH)
SIZE = "group_size"
LOG_RATIOS = [0.05 * step for step in range(-64, 65)]


def a_batch(beyond: Mapping[str, float] = NOTHING, **changed: Tensor) -> dict[str, Any]:
    """Two prompts with two answers each, of four tokens and of two, in float32."""
    source = torch.Generator().manual_seed(0)
    log_probs, far, further, values = torch.rand(4, 4, 4, generator=source)
    mask = torch.arange(4) < torch.tensor([[4], [2], [4], [2]])
    known = {
        "log_probs": -0.5 - log_probs,
        "old_log_probs": -0.5 - log_probs + 0.05 * far,
        "sampler_log_probs": -0.5 - log_probs - 0.05 * further,
        "ref_log_probs": -0.7 - further,
        "values": values,
    }
    return {
        **{name: part.masked_fill(~mask, beyond[name]) for name, part in known.items()},
        "rewards": torch.tensor([1.0, 0.0, 0.0, 1.0]),
        "advantages": torch.tensor([0.5, -0.5, -0.5, 0.5])[:, None].expand(4, 4),
        "mask": mask,
        SIZE: 2,
    } | changed


def swept_batches() -> Iterator[dict[str, Any]]:
    """A token at every distance from the old policy, or from the sampler, with both signs."""
    distances = torch.tensor(LOG_RATIOS).repeat_interleave(2)  # a row of A > 0, one of A < 0
    batch = a_batch()
    plain = {name: torch.cat([batch[name][:2]] * len(LOG_RATIOS)) for name in batch if name != SIZE}
    plain[SIZE] = batch[SIZE]
    for name in ("old_log_probs", "sampler_log_probs"):
        moved = plain[name].clone()
        moved[:, 0] = plain["log_probs"][:, 0] - distances
        yield plain | {name: moved}


def hard_batches() -> Iterator[dict[str, Any]]:
    """What a loss has to bear: tokens far off, NaN in the padding, groups without a spread."""
    plain = a_batch()
    for row, far in itertools.product((0, 1), (100.0, -100.0)):
        moved = plain["old_log_probs"].clone()
        moved[row, 0] -= far
        yield a_batch(old_log_probs=moved)
    yield a_batch(dict.fromkeys(RUBBISH, torch.nan))
    yield a_batch(mask=plain["mask"] & torch.tensor([[True], [True], [True], [False]]))
    yield a_batch(rewards=torch.full((4,), 0.1))
    yield a_batch(rewards=torch.tensor([0.9, 0.9000001, 1.0, 0.0]))


def gradient(loss: Callable[..., Tensor], batch: Mapping[str, Any]) -> Tensor:
    """(B, T) of the loss in the log-probs; 0 where there is none."""
    learner = batch["log_probs"].clone().requires_grad_()
    given = {name: batch[name] for name in inspect.signature(loss).parameters}
    value = loss(**given | ({"log_probs": learner} if "log_probs" in given else {}))
    if not value.requires_grad:
        return torch.zeros_like(learner)
    (found,) = torch.autograd.grad(value, learner, allow_unused=True)
    return torch.zeros_like(learner) if found is None else found


def same(one: Tensor, other: Tensor) -> bool:
    """Equal but for rounding, which the numbers of the fixed batches have in float32."""
    exact = one.dtype == torch.float64
    closely = {"rtol": 1e-7, "atol": 1e-10} if exact else {"rtol": 1e-4, "atol": 1e-6}
    return torch.allclose(one, other, equal_nan=True, **closely)


@dataclass(frozen=True)
class Traces:
    """What a loss does.

    Attributes:
        steps: expected steps.
        ratios: (B, T) gradients where a token is at every distance from another policy.
        padding: an expected step and gradients, with rubbish in the padding, and with more of it.
        hard: gradients on hard batches.
    """

    steps: list[Tensor]
    ratios: list[Tensor]
    padding: list[Tensor]
    hard: list[Tensor]

    @classmethod
    def of(cls, loss: Callable[..., Tensor]) -> "Traces":
        batch = a_batch(RUBBISH)
        wide = {
            name: pad(part, (0, 2)) if name != SIZE and part.ndim == 2 else part
            for name, part in batch.items()
        }
        knows = "sampler_log_probs" in inspect.signature(loss).parameters
        listings = [replace(one, sampler=0.2 if knows else 0.0) for one in LISTINGS]
        return cls(
            [listing.expected_step(loss) for listing in listings],
            [gradient(loss, swept) * swept["mask"] for swept in swept_batches()],
            [DIRTY.expected_step(loss), gradient(loss, batch), gradient(loss, wide)],
            [gradient(loss, hard) for hard in hard_batches()],
        )


@cache
def traces_of(name: str) -> Traces:
    return Traces.of(getattr(published_losses, name))


def all_same(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    return all(same(a, b) for a, b in zip(one, other, strict=True))


def effect(name: str) -> str:
    """What a mutant changes first of these.

    direction: an expected step. length: all of them, by one factor. far: gradients where a ratio is
    away from 1. noise: gradients of batches, and no expected step. padding: what padding does.
    robustness: gradients on hard batches. Else: nothing.
    """
    found, was = Traces.of(mutant(name)), traces_of(name.split()[0])
    if not all_same(found.steps, was.steps):
        factor = float(found.steps[0] @ was.steps[0] / was.steps[0].square().sum())
        scaled = factor > 0 and all_same(found.steps, [factor * one for one in was.steps])
        return "length" if scaled else "direction"
    if not all_same(found.ratios, was.ratios):
        near = torch.tensor(LOG_RATIOS).repeat_interleave(2).abs() < 0.06
        there = [[one[near] for one in traces.ratios] for traces in (found, was)]
        return "far" if all_same(*there) else "noise"
    if not all_same(found.padding, was.padding):
        return "padding"
    return "nothing" if all_same(found.hard, was.hard) else "robustness"


HARMLESS = {"nothing", "noise"}  # for an expected gradient


def is_silent(name: str) -> bool:
    """Whether a mutant runs, and returns what can be minimised."""
    loss, two = mutant(name), a_batch()
    three = {
        key: part if key == SIZE else torch.cat([part, part.flip(0)])[:6]
        for key, part in two.items()
    } | {SIZE: 3}
    try:
        found = [
            loss(**{key: batch[key] for key in inspect.signature(loss).parameters})
            for batch in (two, three)
        ]
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError):
        return False
    return all(isinstance(one, Tensor) and one.ndim == 0 for one in found)


def chosen(count: int = OF_EACH_KIND) -> dict[str, str]:
    """The mutants that are drawn, with their kinds, and the kinds in turn."""
    drawn = []
    for kind, names in named().items():
        silent = filter(is_silent, random.Random(0).sample(names, len(names)))
        drawn.append([(name, kind) for name in itertools.islice(silent, count)])
    in_turn = itertools.zip_longest(*drawn)
    return dict(one for one in itertools.chain.from_iterable(in_turn) if one)


# ---------------------------------------------------------------- what is said of them


REFUSED = {"refused"}  # in one line, such as that the loss has no gradient


def mistakes(report: Report) -> set[str]:
    return {one.id for one in report.findings if one.kind == "mistake"}


def rounded(value: Any) -> Any:
    """A report's numbers, to eight digits."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.8g}") if isinstance(value, float) else value


def said(loss: Callable[..., Tensor]) -> tuple[set[str], set[str], Any]:
    """The mistakes, all ids, and the report without names; or the line that refuses the loss."""
    try:
        report = examine(loss)
    except UserError as error:
        return REFUSED, REFUSED, str(error)
    kept = {key: value for key, value in report.as_dict().items() if key not in ("name", "verdict")}
    return mistakes(report), {one.id for one in report.findings}, rounded(kept)


@cache
def said_of(name: str) -> tuple[set[str], set[str], Any]:
    return said(getattr(published_losses, name))


def judged(name: str, kind: str) -> dict[str, Any]:
    """What a mutant does, and what is said of it."""
    accused, ids, report = said(mutant(name))
    before = said_of(name.split()[0])
    changed = effect(name)
    if accused == REFUSED:
        outcome = "refused"
    elif accused - before[0]:
        outcome = "named"
    elif ids != before[1]:
        outcome = "other ids"
    else:
        outcome = "other numbers" if report != before[2] else "missed"
    return {
        "mutant": name,
        "kind": kind,
        "changes": changed,
        "outcome": outcome,
        "mistakes": sorted(accused - before[0]),
        "others": sorted((ids ^ before[1]) - accused),
    }


def table(results: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """A row for each kind: mutants, those that change something, and what is said of these."""
    rows = []
    for kind, words in [*KINDS.items(), (None, "all")]:
        of_kind = [one for one in results if kind in (None, one["kind"])]
        harm = [one for one in of_kind if one["changes"] not in HARMLESS]
        counts = Counter(one["outcome"] for one in harm)
        innocent = [one for one in of_kind if one["changes"] in HARMLESS]
        rows.append(
            [
                words,
                len(harm),
                counts["named"] + counts["refused"],
                counts["other ids"] + counts["other numbers"],
                counts["missed"],
                len(innocent),
                sum(one["outcome"] in ("named", "refused") for one in innocent),
            ]
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the record goes")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    results = records.read_results(folder) if (folder / records.RESULTS).exists() else []
    if not results:
        records.write_json(folder / records.ENVIRONMENT, records.environment(1))
    kinds = chosen()
    known = {one["mutant"] for one in results}
    left = {name: kind for name, kind in kinds.items() if name not in known}
    for name, kind in track(left.items(), "mutants", total=len(left)):
        results.append(judged(name, kind))
        records.write_results(folder, results)
    for row in table(results):
        print(*row, sep="\t")


if __name__ == "__main__":
    main()
