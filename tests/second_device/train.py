"""What `test_second_device.py` runs: `train.py FOLDER` does everything on both devices.

It writes `report.json` into the folder.
"""

import json
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from nbcourse.budget import prompts
from nbcourse.experiments import evaluation, pretraining, run
from nbcourse.training import models
from nbcourse.training.processes import Processes
from nbcourse.training.recipe import check
from tests import hub
from tests.second_device.device import NAME
from tests.small import base_recipe, tables, without_costs

# Slow enough that the rounding of two devices does not send the samples another way.
CALM = {"warm_start": {"steps": 15, "batch_size": 32}, "steps": 2}
HUB = {
    "steps": 2,
    "algorithm": {"name": "reinforce"},
    "reward": {"truncation_penalty": 1.0},
    "task": {"name": "word-problems", "max_steps": 1},
    "rollouts": {"prompts": 4, "max_new_tokens": 6},
    "kl": {"beta": 0.1, "placement": "reward"},
    "evaluation": {"problems": 4},
}
RECIPES: dict[str, dict[str, Any]] = {
    "ppo, everything": {
        "algorithm": {"name": "ppo"},
        "rollouts": {"prompts_at_once": 3},
        "critic": {"shared": False},
        "optimiser": {"epochs": 2, "minibatches": 2, "prompts_at_once": 2},
        "kl": {"beta": 0.1, "controller": "adaptive", "target": 0.01, "horizon": 100.0},
        "reward": {"source": "reward_model"},
        "reward_model": {"comparisons": 8, "steps": 2, "batch_size": 4},
        "model": {"gradient_checkpointing": True},
        **CALM,
    },
    "dapo, exact KL, truncated importance sampling": {
        "algorithm": {"name": "dapo"},
        "kl": {"beta": 0.1, "placement": "surrogate", "estimator": "exact"},
        "optimiser": {"epochs": 2, "truncated_importance_sampling": 2.0},
        **CALM,
    },
    "bfloat16, static engine": {
        "model": {"precision": "bfloat16"},
        "rollouts": {"engine": "static"},
        **CALM,
    },
    "float16, process supervision": {
        "algorithm": {"name": "grpo-process"},
        "task": {"name": "running-sums", "numbers": 2},
        "model": {"precision": "float16"},
        **CALM,
    },
}


def trained(changes: dict[str, Any], **folder: Any) -> list[dict[str, float]]:
    return without_costs(run.train(check(tables(**changes)), progress=False, **folder)[1])


def of_a_hub(source: Path, folder: Path) -> list[dict[str, float]]:
    """An adapter beside the weights of a folder as the hub keeps it, and what it learned."""
    model = {"source": str(source), "lora_rank": 2}
    history = run.train(check({**HUB, "model": model}), folder=folder, progress=False)[1]
    result = evaluation.evaluate(folder, problems=2, samples=2, progress=False)
    return [*without_costs(history), {"mean_tokens": result["after"]["mean_tokens"]}]


def base(folder: Path) -> list[dict[str, float]]:
    few = {"pretraining": {"steps": 2}, "supervised": {"steps": 2}}
    made = pretraining.pretrain(base_recipe(**few), folder=folder, progress=False)
    return without_costs(made[2])


def stopped_and_resumed(folder: Path) -> list[dict[str, float]]:
    def stopped(*arguments):
        for row in steps(*arguments):
            if row["step"] == 1:
                signal.raise_signal(signal.SIGTERM)
            yield row

    steps, run.steps = run.steps, stopped
    with suppress(KeyboardInterrupt):
        trained(CALM, folder=folder)
    run.steps = steps
    return trained(CALM, folder=folder, resume=True)


def refused() -> dict[str, bool]:
    """What a GPU refuses and what it allows, and whether this device refuses it."""
    here, there = torch.ones(3), torch.ones(3, device=NAME)
    index = torch.tensor([0, 2])

    def counted(step: torch.Tensor) -> None:
        """AdamW's update of a tensor, whose moments are 0."""
        moments = [torch.zeros_like(there) for _ in range(2)]
        numbers = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8}
        lists = ([there.clone()], [there], moments[:1], moments[1:], [], [step])
        torch._fused_adamw_(*lists, **numbers, amsgrad=False, maximize=False)

    attempts: dict[str, Callable[[], object]] = {
        "a sum": lambda: here + there,
        "a product": lambda: there @ here,
        "a choice": lambda: torch.where(here > 0, there, there),
        "a list": lambda: torch.cat([there, here]),
        "values of an index": lambda: there.index_put((index,), torch.ones(2)),
        "an index for the CPU": lambda: here[index.to(NAME)],
        "a fused update's counter": lambda: counted(torch.ones(())),
        "a generator": lambda: torch.rand(3, device=NAME, generator=torch.Generator()),
        "NumPy": lambda: there.numpy(),
        "a number": lambda: there + torch.tensor(2.0),
        "an index from the CPU": lambda: there[index],
        "a copy": lambda: here.to(NAME).cpu() + here,
        "a counter where it belongs": lambda: counted(torch.ones((), device=NAME)),
        "its own generator": lambda: torch.rand(3, device=NAME, generator=torch.Generator(NAME)),
    }
    found = {}
    for name, attempt in attempts.items():
        try:
            attempt()
        except (RuntimeError, TypeError):
            found[name] = True
        else:
            found[name] = False
    return found


def main(folder: Path) -> None:
    report: dict[str, Any] = {"refused": refused()}
    source = hub.checkpoint(folder / "hub")
    models.TEXTS = 60  # from which a tokenizer is learned
    prompts.PROMPTS = 20  # of which a plan takes the longest
    for device in ("cpu", NAME):
        here = torch.device(device)
        run.connect = pretraining.connect = lambda here=here: Processes(0, 1, here)
        evaluation.own_device = lambda here=here: here
        report[device] = {
            **{name: trained(changes) for name, changes in RECIPES.items()},
            "a model of the hub": of_a_hub(source, folder / device / "of a hub"),
            "a base model": base(folder / device / "base"),
            "stopped and resumed": stopped_and_resumed(folder / device / "stopped"),
        }
    (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
