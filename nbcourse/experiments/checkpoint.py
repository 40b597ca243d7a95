"""Checkpoints: everything a run needs to go on as if it had never stopped.

A checkpoint is a folder, written under another name and renamed when it is complete, so that at
every moment there is one whole checkpoint and a kill loses the steps since, and nothing else. It
holds tensors as safetensors and numbers as JSON; nothing in it can run code when it is read.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nbcourse import durable
from nbcourse.errors import NotFound, UserError
from nbcourse.lm.loading import disk
from nbcourse.lm.lora import own_parameters
from nbcourse.lm.reward_model import RewardModel
from nbcourse.training.learner import Learner, assemble
from nbcourse.training.loop import State, begin
from nbcourse.training.models import frozen, load_model, reference_of
from nbcourse.training.recipe import Recipe

FORMAT = 2
START = "start"
TENSORS = "tensors.safetensors"
NUMBERS = "numbers.json"
LOSS_SCALE = "loss_scale"
OPTIMISER = ("step", "exp_avg", "exp_avg_sq")  # what AdamW keeps for each parameter


def save_start(folder: Path, learner: Learner) -> None:
    """Keep what never changes in a run: the reference and the reward model."""
    tensors = _prefixed("reference", learner.reference)
    if learner.reward_model is not None:
        tensors |= _prefixed("reward_model", learner.reward_model)
    _write(folder / START, tensors, {})


def save(folder: Path, learner: Learner, state: State) -> None:
    """Write a checkpoint of a step of reinforcement learning, then remove older ones."""
    numbers = {
        "taken": state.draws.taken,
        "beta": state.controller.beta,
        "average": state.average,
    }
    scaler = learner.scaler
    save_step(folder, state.step, learner.trained(), learner.optimiser, scaler, numbers)


def load(folder: Path, recipe: Recipe, device: torch.device) -> tuple[Learner, State] | None:
    """The learner and the state of the last checkpoint, or None if there is none yet.

    Raises:
        ValueError: if a checkpoint is damaged or belongs to another recipe.
    """
    if not _steps(folder):
        return None
    tokenizer, policy = load_model(recipe, device)
    reference = reference_of(policy)
    start = load_start(folder, reference)
    reward_model = None
    if recipe.reward.source == "reward_model":
        reward_model = frozen(RewardModel(policy)).to(device)
        _fill(reward_model, "reward_model", start, folder / START)
    learner = assemble(recipe, tokenizer, policy, reference, reward_model)
    numbers = load_step(folder, learner.trained(), learner.optimiser, learner.scaler)
    state = begin(recipe)
    try:
        state.step = numbers["step"]
        state.draws.taken = numbers["taken"]
        state.controller.beta = numbers["beta"]
        state.average = numbers["average"]
    except KeyError as error:
        raise _lacks(folder, str(error)) from error
    return learner, state


def last_step(folder: Path) -> int | None:
    """The step of the last checkpoint, 0 for the one before the first; None without any."""
    return max(map(_step, _steps(folder)), default=None)


def load_start(folder: Path, reference: nn.Module) -> dict[str, Tensor]:
    """Fill in the model as it was before reinforcement learning; returns all that was kept of then.

    Raises:
        FileNotFoundError: if nothing was kept.
        ValueError: if it is damaged or does not fit.
    """
    if not (folder / START).is_dir():
        raise NotFound(f"no checkpoint in {folder}: expected a folder {START}")
    start, _ = _read(folder / START)
    _fill(reference, "reference", start, folder / START)
    return start


def save_step(
    folder: Path,
    step: int,
    trained: Iterable[tuple[str, nn.Parameter]],
    optimiser: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    numbers: dict[str, Any],
) -> None:
    """Write weights, AdamW's moments, the loss's scale and some numbers, then remove older ones."""
    if scaler.is_enabled():
        numbers = {**numbers, LOSS_SCALE: scaler.state_dict()}
    tensors: dict[str, Tensor] = {}
    for name, parameter in trained:
        tensors[f"weights.{name}"] = parameter.detach()
        moments = optimiser.state[parameter] or fresh_moments(parameter)
        tensors |= {f"optimiser.{key}.{name}": moments[key] for key in OPTIMISER}
    path = _folder_of(folder, step)
    _write(path, tensors, {"step": step, **numbers})
    for other in _steps(folder):
        if other != path:
            shutil.rmtree(other)


def load_step(
    folder: Path,
    trained: Iterable[tuple[str, nn.Parameter]],
    optimiser: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
) -> dict[str, Any]:
    """Fill in what `save_step` keeps of the last step; returns its numbers, {} without one.

    Raises:
        ValueError: if it is damaged or does not fit.
    """
    found = _steps(folder)
    if not found:
        return {}
    tensors, numbers = _read(found[-1])
    if "step" not in numbers:
        raise _lacks(folder, "'step'")
    if found[-1] != _folder_of(folder, numbers["step"]):
        raise UserError(f"{found[-1]} is damaged: it says that it is of step {numbers['step']}")
    if scaler.is_enabled():
        if LOSS_SCALE not in numbers:
            raise _lacks(folder, repr(LOSS_SCALE))
        scaler.load_state_dict(numbers[LOSS_SCALE])
    for name, parameter in trained:
        _copy(parameter, f"weights.{name}", tensors, found[-1])
        moments = fresh_moments(parameter)
        for key, moment in moments.items():
            _copy(moment, f"optimiser.{key}.{name}", tensors, found[-1])
        optimiser.state[parameter] = moments
    return numbers


def fresh_moments(parameter: Tensor) -> dict[str, Tensor]:
    """What AdamW keeps for a parameter that it has not yet moved."""
    zero = torch.zeros_like(parameter.detach())
    return {
        "step": torch.zeros((), device=parameter.device),
        "exp_avg": zero,
        "exp_avg_sq": zero.clone(),
    }


def _folder_of(folder: Path, step: int) -> Path:
    return folder / f"step-{step:06d}"


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _lacks(folder: Path, key: str) -> UserError:
    return UserError(f"{folder} is not a checkpoint of this program: it has no {key}")


def _steps(folder: Path) -> list[Path]:
    """The complete checkpoints, oldest first."""
    found = (path for path in folder.glob("step-*") if path.name[5:].isdigit())
    return sorted(found, key=_step)


def _prefixed(prefix: str, module: nn.Module) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": p.detach() for name, p in own_parameters(module)}


def _fill(module: nn.Module, prefix: str, tensors: dict[str, Tensor], source: Path) -> None:
    for name, parameter in own_parameters(module):
        _copy(parameter, f"{prefix}.{name}", tensors, source)


@torch.no_grad()
def _copy(parameter: Tensor, name: str, tensors: dict[str, Tensor], source: Path) -> None:
    there = tensors.get(name)
    if there is None or there.shape != parameter.shape:
        found = "nothing" if there is None else f"shape {tuple(there.shape)}"
        raise UserError(
            f"{source} does not fit this recipe: expected {name} of shape "
            f"{tuple(parameter.shape)}, found {found}"
        )
    parameter.copy_(there)


def _write(path: Path, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
    """Write a folder under another name, make sure it is on the disk, and rename it."""
    from safetensors.torch import save_file

    unfinished = path.with_name("unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    with disk(unfinished):
        save_file({k: v.contiguous().cpu() for k, v in tensors.items()}, unfinished / TENSORS)
    numbers = {"format": FORMAT, **numbers, "tensors": durable.sha256(unfinished / TENSORS)}
    content = json.dumps({**numbers, "sha256": _digest_of(numbers)}, indent=1)
    (unfinished / NUMBERS).write_bytes(content.encode())
    durable.sync_folder(unfinished)
    if path.exists():
        shutil.rmtree(path)
    unfinished.rename(path)
    durable.sync_names(path.parent)


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    from safetensors.torch import load_file

    try:
        numbers = json.loads((path / NUMBERS).read_text(encoding="utf-8"))
        whole = (
            numbers["format"] == FORMAT
            and numbers.pop("sha256") == _digest_of(numbers)
            and numbers["tensors"] == durable.sha256(path / TENSORS)
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not a checkpoint, or a damaged one: {error}") from error
    if not whole:
        raise UserError(f"{path} is damaged, or of another version of this program")
    with disk(path):
        return load_file(path / TENSORS), numbers


def _digest_of(numbers: dict[str, Any]) -> str:
    """Of their values, whichever way they are laid out."""
    return hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()
