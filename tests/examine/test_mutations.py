"""Small changes of right losses: whatever changes an expected gradient changes the report.

Each mutant changes one place of one loss: a sign, an operator, a mask, a mean, a detach, a pair of
names, an axis, a number, a position. What it does is computed here by itself, by differentiating
the sum over every batch of three worlds that `examine` does not use.
"""

import ast
import inspect
import itertools
import random
from functools import cache
from typing import Any

import pytest
import torch

from nbcourse.errors import UserError
from nbcourse.examine.subject import LossInputs, Subject
from nbcourse.examine.worlds import BRANCHING, STAIRS, away, coin, prompt
from tests import mutants
from tests.effort import swept
from tests.examine import originals
from tests.examine.parts import mistakes, report_of
from tests.mutants import METHODS, OPERATORS

# ---------------------------------------------------------------- mutants

LEFT_OUT = {"detach", "masked_fill", "exp", "cumsum", "clamp"}
NAMES = {
    "log_probs": ["old_log_probs", "log_probs.detach()", "log_probs.roll(1, 1)"],
    "old_log_probs": ["log_probs", "ref_log_probs", "old_log_probs.roll(1, 1)"],
    "ref_log_probs": ["old_log_probs", "ref_log_probs.roll(1, 1)"],
    "mask": ["torch.ones_like(mask)", "mask.roll(1, 1)"],
    "rewards": ["rewards.roll(1)", "rewards.abs().sqrt()"],
    "advantages": ["advantages.abs()", "advantages.square()"],
    "groups": ["groups.T.reshape(groups.shape)", "groups.detach() * 2"],
}


def variants(node: ast.AST, taken: set[str]) -> list[ast.AST]:
    """What may stand in the place of an expression."""
    found: list[ast.AST] = []
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        found.append(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        found.append(ast.BinOp(node.left, OPERATORS[type(node.op)], node.right))
    if isinstance(node, ast.Constant) and isinstance(node.value, float) and node.value:
        found.append(ast.Constant(node.value * 1.1))
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        for text in NAMES.get(node.id, []):
            named = text.split(".")[0].split("(")[0]
            if named in taken or named == "torch" or named == node.id:
                found.append(ast.parse(text, mode="eval").body)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        method, owner = node.func.attr, node.func.value
        for other in METHODS.get(method, []):
            found.append(
                ast.Call(ast.Attribute(owner, other, ast.Load()), node.args, node.keywords)
            )
        if method in LEFT_OUT and not (isinstance(owner, ast.Name) and owner.id == "torch"):
            found.append(owner)
        if any(keyword.arg == "dim" for keyword in node.keywords):
            other_axis = [
                ast.keyword("dim", ast.Constant(0)) if keyword.arg == "dim" else keyword
                for keyword in node.keywords
            ]
            found.append(ast.Call(node.func, node.args, other_axis))
    return found


def variants_of(original: Any) -> Any:
    taken = set(inspect.signature(original).parameters)
    return lambda node: variants(node, taken)


def names() -> list[str]:
    """Every mutant: of which loss, at which place in it, which of the variants, and what it is."""
    return [
        f"{original.__name__} {place}.{which}: {change}"
        for original in originals.ORIGINALS
        for place, which, change in mutants.places(
            inspect.getsource(original), variants_of(original)
        )
    ]


def mutant(name: str) -> Any:
    """The function that a name of `names` stands for."""
    loss, at, _ = name.split(" ", 2)
    original = getattr(originals, loss)
    place, which = map(int, at.rstrip(":").split("."))
    tree = mutants.changed(inspect.getsource(original), variants_of(original), place, which)
    scope: dict[str, Any] = {"torch": torch}
    exec(compile(tree, loss, "exec"), scope)
    return scope[loss]


CHOSEN = sorted(random.Random(0).sample(names(), 200))


# ---------------------------------------------------------------- what they do, computed here


def expected_gradients(loss: Any) -> torch.Tensor:
    """E[∇L] in three worlds, by differentiating Σ p(batch) L(batch); NaN if the loss raises."""
    subject, found = Subject.of(loss), []
    stairs, forks = prompt(STAIRS, 21), prompt(BRANCHING, 22)
    for prompts, distance in (([stairs], 0.1), ([forks], 0.7), ([coin(0.3), coin(0.6)], 0.3)):
        leaves = [one.logits.clone().requires_grad_() for one in prompts]
        olds = [away(one, distance, 31 + i) for i, one in enumerate(prompts)]
        refs = [away(one, 0.4, 41 + i) for i, one in enumerate(prompts)]
        tables = [
            [one.space.log_probs(logits) for one, logits in zip(prompts, policies, strict=True)]
            for policies in (leaves, olds, refs)
        ]
        total = torch.zeros((), dtype=torch.float64)
        sizes = [len(one.rewards) for one in prompts]
        for rows in itertools.product(*(range(n) for n in sizes for _ in range(2))):
            members = [torch.tensor(rows[2 * i : 2 * i + 2]) for i in range(len(prompts))]

            def pick(parts: list[torch.Tensor], members: list[torch.Tensor] = members) -> Any:
                return torch.cat(
                    [part[chosen] for part, chosen in zip(parts, members, strict=True)]
                )

            learner, sampler, reference = map(pick, tables)
            mask = pick([one.space.mask for one in prompts])
            one = LossInputs(
                learner, sampler, reference, mask, pick([p.rewards for p in prompts]), 2
            )
            quantities = {**subject.quantities(one), "log_probs": learner}
            total = total + sampler.sum().exp() * subject.loss(quantities)
        if not total.requires_grad:
            found += [torch.zeros_like(leaf).flatten() for leaf in leaves]
            continue
        gradients = torch.autograd.grad(total, leaves, allow_unused=True)
        found += [
            torch.zeros_like(leaf).flatten() if part is None else part.flatten()
            for leaf, part in zip(leaves, gradients, strict=True)
        ]
    return torch.cat(found)


def said(loss: Any) -> Any:
    """The report without names, or the line with which the loss is refused."""
    try:
        report = report_of(loss).as_dict()
    except UserError as error:
        return str(error).split(" ", 1)[1]
    return rounded({key: value for key, value in report.items() if key not in ("name", "verdict")})


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.8g}") if isinstance(value, float) else value


@cache
def of_original(name: str) -> tuple[torch.Tensor, Any]:
    original = getattr(originals, name)
    return expected_gradients(original), said(original)


def changes(name: str) -> bool:
    """Whether the expected gradient of a mutant is another one, or none."""
    original, _ = of_original(name.split()[0])
    try:
        found = expected_gradients(mutant(name))
    except UserError:
        return True
    return not bool(((found - original).abs() <= 1e-8).all())


KEPT = CHOSEN[::20]


@pytest.mark.parametrize("name", swept(CHOSEN, keep=KEPT))
def test_whatever_changes_an_expected_gradient_changes_the_report(name):
    if changes(name):
        _, original = of_original(name.split()[0])
        assert said(mutant(name)) != original


def test_most_mutants_change_something():
    """Or the test above would ask for nothing."""
    assert sum(map(changes, KEPT)) >= 0.7 * len(KEPT)


@pytest.mark.parametrize("original", originals.ORIGINALS)
def test_the_originals_are_right(original):
    assert not mistakes(report_of(original))
