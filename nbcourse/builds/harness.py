"""What runs beside a reader's files: it loads them, and answers with plain data.

This file stands on torch alone. Graded in a class, its text is the first thing that a confined
process runs, so nothing here judges anything: every verdict is made elsewhere, from what the
functions below return.
"""

import importlib.abc
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

Tensors = dict[str, Tensor]
FUNCTIONS = ("call", "sampled", "log_probs", "values", "gradient", "stepped", "learned", "tested")
CRITIC = "critic."  # begins the names of its weights beside those of the policy


class Files(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules from texts, found before all others."""

    def __init__(self) -> None:
        self.sources: dict[str, str] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.sources:
            return None
        return importlib.util.spec_from_loader(name, self, origin=f"{name}.py")

    def exec_module(self, module: Any) -> None:
        name = module.__name__
        module.__file__ = f"{name}.py"
        exec(compile(self.sources[name], f"{name}.py", "exec"), module.__dict__)


FILES = Files()


def install(sources: dict[str, str]) -> None:
    """Name of a module → its text; what was installed before is forgotten."""
    for name in FILES.sources:
        sys.modules.pop(name, None)
    FILES.sources = dict(sources)
    if FILES not in sys.meta_path:
        sys.meta_path.insert(0, FILES)


@contextmanager
def installed(sources: dict[str, str]) -> Iterator[None]:
    """Have these modules for a while, and then those again that there were before."""
    before = FILES.sources
    modules = {name: sys.modules[name] for name in before if name in sys.modules}
    install(sources)
    try:
        yield
    finally:
        install(before)
        sys.modules.update(modules)


def split(weights: Tensors) -> tuple[Tensors, Tensors]:
    """The weights of the policy, and those of the critic without `CRITIC` before their names."""
    critic = {n.removeprefix(CRITIC): w for n, w in weights.items() if n.startswith(CRITIC)}
    return {n: w for n, w in weights.items() if not n.startswith(CRITIC)}, critic


def call(module: str, function: str, arguments: list[Any]) -> Any:
    """Call one of the reader's functions."""
    return getattr(importlib.import_module(module), function)(*arguments)


def sampled(weights: Tensors, prompt: Tensor, prompt_mask: Tensor, seed: int) -> Tensors:
    """A rollout by the reader's sampler."""
    draws = torch.Generator().manual_seed(seed)
    return call("reinforce", "sample", [_policy(weights), prompt, prompt_mask, draws])


def log_probs(weights: Tensors, rollout: Tensors) -> Tensor:
    """(B, T) the reader's log-probs of a rollout."""
    return call("reinforce", "response_log_probs", [_policy(weights), rollout]).detach()


def values(weights: Tensors, rollout: Tensors) -> dict[str, Tensor]:
    """(B, T) the reader's values: as the critic starts, and with the weights that are given.

    Before the second answer, the policy's weights change, which are not the critic's.
    """
    policy, critic = _models("ppo", split(weights)[0])
    start = critic(rollout).detach()
    _fill(critic, weights)
    for parameter in policy.parameters():
        parameter.data.add_(1.0)
    return {"start": start, "values": critic(rollout).detach()}


def gradient(module: str, weights: Tensors, arguments: list[Any]) -> Tensors:
    """What an update takes the gradient to be: one step of plain descent, of size 1.

    Before it, every parameter has a gradient of ones, as if left over from another step.
    """
    models = _models(module, weights)
    for parameter in _parameters(models):
        parameter.grad = torch.ones_like(parameter)
    before = _weights(models)
    descent = torch.optim.SGD(_parameters(models), lr=1.0)
    call(module, "update", [*models, descent, *arguments])
    return {name: before[name] - after for name, after in _weights(models).items()}


def stepped(
    module: str, weights: Tensors, seed: int, rate: float, sizes: dict[str, int]
) -> list[dict[str, Any]]:
    """Two steps of plain descent: what each learned from, and the weights after it."""
    models = _models(module, weights)
    descent = torch.optim.SGD(_parameters(models), lr=rate)
    draws = torch.Generator().manual_seed(seed)
    train = importlib.import_module(module).train
    return [
        {**batch, "weights": _weights(models)}
        for batch in train(*models, descent, 2, draws, **sizes)
    ]


def learned(module: str, weights: Tensors, seed: int, steps: int) -> Tensors:
    """The policy's weights after some steps of Adam."""
    models = _models(module, weights)
    adam = torch.optim.Adam(_parameters(models), lr=1e-3)
    train = importlib.import_module(module).train
    for _ in train(*models, adam, steps, torch.Generator().manual_seed(seed)):
        pass
    return models[0].weights()


def tested(weights: Tensors, sources: dict[str, str], names: list[str]) -> list[list[str]]:
    """Run the tests of some modules against these files: the name of each, and how it failed.

    The weights are those of `warm`, which has no file to read here.
    """
    install(sources)
    vars(importlib.import_module("given"))["warm"] = lambda: _policy(weights)
    found = []
    for name in names:
        try:
            module = importlib.import_module(name)
        except Exception as error:
            found.append([name, f"cannot be imported: {_said(error)}"])
            continue
        for key, test in list(vars(module).items()):
            if key.startswith("test_") and callable(test):
                torch.manual_seed(0)
                found.append([f"{name}.{key}", _outcome(test)])
    return found


def _outcome(test: Any) -> str:
    try:
        test()
    except Exception as error:
        return _said(error)
    return ""


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}".rstrip(": ")


def _policy(weights: Tensors) -> Any:
    return importlib.import_module("given").Policy(weights)


def _models(module: str, weights: Tensors) -> list[Any]:
    """What a trainer trains: the policy, and the critic where it has one."""
    policy = _policy(split(weights)[0])
    if module != "ppo":
        return [policy]
    critic = importlib.import_module(module).Critic(policy)
    _fill(critic, weights)
    return [policy, critic]


def _fill(critic: Any, weights: Tensors) -> None:
    """Give the critic the weights that are its own, as far as there are any."""
    for name, weight in split(weights)[1].items():
        (critic.head if name == "head" else critic.trunk[name]).data.copy_(weight)


def _parameters(models: list[Any]) -> list[Any]:
    return [parameter for model in models for parameter in model.parameters()]


def _weights(models: list[Any]) -> Tensors:
    """Name → weights, those of the critic with `CRITIC` before the name."""
    found = models[0].weights()
    for critic in models[1:]:
        own = critic.trunk.weights() | {"head": critic.head.detach().clone()}
        found |= {CRITIC + name: weight for name, weight in own.items()}
    return found
