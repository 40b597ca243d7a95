"""What the trainer should have done, recomputed here from weights and rollouts."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from nbcourse.builds import harness
from nbcourse.seeds import generator
from nbcourse.tasks.arithmetic import Arithmetic

TASK = Arithmetic(digits=2)
Weights = Mapping[str, Tensor]
Rollout = Mapping[str, Tensor]
KEYS = ("prompt", "prompt_mask", "tokens", "mask", "log_probs", "finished")


def given() -> ModuleType:
    """What readers are given, as a module of this process."""
    return import_module("nbcourse.builds.trainer.given")


def _lines(rollout: Rollout) -> tuple[Tensor, Tensor]:
    """Prompts and responses side by side, and their mask."""
    tokens = torch.cat([rollout["prompt"], rollout["tokens"]], dim=1)
    mask = torch.cat([rollout["prompt_mask"], rollout["mask"]], dim=1)
    return tokens, mask


def with_critic(policy: Weights, head: Tensor) -> Weights:
    """The weights of a policy, and of a critic with this head on a copy of it."""
    critic = {**policy, "head": head}
    return {**policy, **{harness.CRITIC + name: weight for name, weight in critic.items()}}


def logits(weights: Weights, rollout: Rollout) -> Tensor:
    """(B, T + 1, V) for the tokens of a response, and for one more behind it."""
    tokens, mask = _lines(rollout)
    with torch.no_grad():
        found: Tensor = given().Policy(harness.split(dict(weights))[0])(tokens, mask)
    return found[:, -rollout["tokens"].shape[1] - 1 :]


def distributions(weights: Weights, rollout: Rollout) -> Tensor:
    """(B, T + 1, V) the log-probs that `logits` give."""
    return logits(weights, rollout).log_softmax(dim=-1)


def log_probs(weights: Weights, rollout: Rollout) -> Tensor:
    """(B, T) of the sampled tokens, 0 outside the mask."""
    each = chosen(distributions(weights, rollout)[:, :-1], rollout)
    return each.masked_fill(~rollout["mask"], 0.0)


def chosen(table: Tensor, rollout: Rollout) -> Tensor:
    """(B, T) the entries of the sampled tokens in a table (B, T, V)."""
    return table.gather(2, rollout["tokens"][..., None]).squeeze(2)


def gradient(weights: Weights, rollout: Rollout, coefficients: Tensor) -> dict[str, Tensor]:
    """The gradient of Σ coefficient · log-prob over the tokens (B, T) of a rollout."""
    policy = given().Policy(harness.split(dict(weights))[0])
    tokens, mask = _lines(rollout)
    logits = policy(tokens, mask)[:, -rollout["tokens"].shape[1] - 1 : -1]
    (coefficients * chosen(logits.log_softmax(dim=-1), rollout)).sum().backward()
    return {name: policy[name].grad for name in policy.names}


def _critic(weights: Weights, rollout: Rollout) -> tuple[Any, Tensor, Tensor]:
    """The critic's trunk, its head, and (B, T) its values, through which gradients flow."""
    own = harness.split(dict(weights))[1]
    head = own.pop("head").clone().requires_grad_()
    trunk = given().Policy(own)
    states = trunk.hidden(*_lines(rollout))[:, -rollout["tokens"].shape[1] - 1 : -1]
    return trunk, head, states @ head


def values(weights: Weights, rollout: Rollout) -> Tensor:
    """(B, T) what the critic says of the state in which each token was chosen."""
    return _critic(weights, rollout)[2].detach()


def value_gradient(weights: Weights, rollout: Rollout, coefficients: Tensor) -> dict[str, Tensor]:
    """The gradient of Σ coefficient · V over the tokens (B, T) of a rollout, by the critic."""
    trunk, head, values = _critic(weights, rollout)
    (coefficients * values).sum().backward()
    found = {name: trunk[name].grad for name in trunk.names} | {"head": head.grad}
    return {harness.CRITIC + name: grad for name, grad in found.items()}


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Numbers between −1 and 1."""
    source = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, dtype=torch.float64, generator=source) * 2 - 1


def flat(tensors: Weights) -> Tensor:
    """All entries of a gradient or of weights in a row."""
    return torch.cat([tensors[name].flatten() for name in sorted(tensors)])


def ended(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """(B, T) the mask of responses, up to their first EOS, and (B,) whether there is one."""
    is_end = tokens == given().EOS
    before = is_end.cumsum(dim=1) - is_end.long()
    return before == 0, is_end.any(dim=1)


def texts(tokens: Tensor, mask: Tensor) -> list[str]:
    """The characters of each row under a mask."""
    return [given().decode(row[kept]) for row, kept in zip(tokens, mask, strict=True)]


def rewards(rollout: Rollout) -> Tensor:
    """(B,) 1 for a response that ended itself and is the sum of its prompt's numbers."""
    asked = texts(rollout["prompt"], rollout["prompt_mask"])
    return _right(rollout["tokens"], [answer(prompt) for prompt in asked])


def _right(tokens: Tensor, answers: Sequence[str]) -> Tensor:
    mask, finished = ended(tokens)
    right = [said == wanted for said, wanted in zip(texts(tokens, mask), answers, strict=True)]
    return (torch.tensor(right) & finished).double()


def answer(prompt: str) -> str:
    """The answer to a prompt such as "17+25="."""
    left, right = prompt.rstrip("=").split("+")
    return str(int(left) + int(right))


def accuracy(weights: Weights) -> float:
    """The share of held-out sums that the likeliest tokens answer."""
    problems = TASK.draw(256, split="test", generator=generator(0, "builds"))
    tokens, mask = given().encode([problem.prompt for problem in problems])
    policy, width = given().Policy(weights), tokens.shape[1]
    with torch.no_grad():
        for _ in range(given().LONGEST):
            best = policy(tokens, mask)[:, -1].argmax(dim=-1, keepdim=True)
            tokens = torch.cat([tokens, best], dim=1)
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
    return float(_right(tokens[:, width:], [problem.answer for problem in problems]).mean())


def example() -> dict[str, Tensor]:
    """Six responses of every kind: short, long, cut off; behind an end there are digits."""
    prompt, prompt_mask = given().encode(["1+2=", "17+25=", "99+9=", "5+50=", "8+8=", "40+2="])
    return {
        "prompt": prompt,
        "prompt_mask": prompt_mask,
        **responses(["3", "42", "10800", "55", "", "1042"], behind=7),
        "log_probs": torch.zeros(6, 5, dtype=torch.float64),
    }


def responses(said: Sequence[str], *, behind: int) -> dict[str, Tensor]:
    """The part of a rollout that responses of digits are, with a token behind their ends."""
    rows = [[*(2 + int(digit) for digit in text), given().EOS][:5] for text in said]
    tokens = torch.tensor([row + [behind] * (5 - len(row)) for row in rows])
    mask, finished = ended(tokens)
    return {"tokens": tokens, "mask": mask, "finished": finished}


def problem_with(rollout: Any) -> str:
    """What keeps something from being a rollout, in words; empty if nothing does."""
    if not isinstance(rollout, Mapping):
        return f"expected a dict of tensors, got {type(rollout).__name__}"
    for key in KEYS:
        if not isinstance(rollout.get(key), Tensor):
            return f"the rollout has no tensor {key!r}"
    B, T = rollout["tokens"].shape if rollout["tokens"].dim() == 2 else (0, 0)
    shapes = {"mask": (B, T), "log_probs": (B, T), "finished": (B,)}
    for key, shape in shapes.items():
        if tuple(rollout[key].shape) != shape:
            return f"{key} has the shape {tuple(rollout[key].shape)}, expected {shape}"
    for key in ("mask", "finished"):
        if rollout[key].dtype != torch.bool:
            return f"{key} is {rollout[key].dtype}, expected torch.bool"
    return "" if 0 < T <= given().LONGEST else f"tokens has {T} columns, expected 1 to 5"
