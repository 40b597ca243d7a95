"""The losses of other libraries, as they are installed: TRL's, torchrl's, and those of polgrad.

polgrad carries verl's and OpenRLHF's losses, from commits that it names. A library's loss is a
method that reads its trainer: here it runs as it is installed, on a stand-in that has the settings
and returns our log-probs in place of a model's.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import MethodType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from nbcourse.examine.subject import Subject

BETA = 0.1  # of a KL in the loss: large enough to be seen, and the book's usual one


@dataclass(frozen=True)
class Peer:
    """A loss of a library.

    Attributes:
        library: whose loss it is.
        package: in which it is installed, by its name on the package index.
        settings: what was chosen, in the library's words.
        subject: to examine.
    """

    library: str
    package: str
    settings: str
    subject: Subject


def trl_loss(
    *,
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    ref_log_probs: Tensor | None = None,
    loss_type: str = "grpo",
    **settings: Any,
) -> tuple[Tensor, dict[str, list[float]]]:
    """TRL's installed `GRPOTrainer.compute_loss` on given log-probabilities.

    Args:
        log_probs: (B, T), and so are `old_log_probs`, `mask` and `ref_log_probs`.
        old_log_probs: of the policy that sampled.
        advantages: (B,), as TRL hands them to its loss, or (B, T).
        mask: True on tokens.
        ref_log_probs: of the reference, where `beta` is not 0.
        loss_type: one of TRL's.
        settings: of the trainer or of its arguments, by TRL's names: `beta`, `epsilon_low`, ….

    Returns:
        The loss, and the metrics that TRL would log.
    """
    from trl.trainer.grpo_trainer import GRPOTrainer

    unknown = settings.keys() - TRAINER.keys() - ARGUMENTS.keys()
    if unknown:
        raise TypeError(f"not settings of TRL's loss here: {', '.join(sorted(unknown))}")
    metrics: dict[str, list[float]] = defaultdict(list)
    stand_in = _stand_in(log_probs, metrics, loss_type, settings)
    for name in ("_compute_loss", "get_gamma_weights"):
        if hasattr(GRPOTrainer, name):
            setattr(stand_in, name, _bound(GRPOTrainer, name, stand_in))
    ids = torch.zeros(mask.shape, dtype=torch.long)
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": torch.ones_like(ids[:, :1]),
        "completion_ids": ids,
        "completion_mask": mask.long(),
        "advantages": advantages,
        "old_per_token_logps": old_log_probs,
        "ref_per_token_logps": ref_log_probs,
        "num_items_in_batch": mask.sum(),
    }
    loss: Tensor = GRPOTrainer.compute_loss(stand_in, stand_in.model, inputs)
    return loss, metrics


# What TRL's loss reads of its trainer, and of the trainer's arguments, where nothing is said.
TRAINER: Mapping[str, Any] = {
    "beta": 0.0,
    "epsilon_low": 0.2,
    "epsilon_high": 0.2,
    "importance_sampling_level": "token",
    "max_completion_length": 4096,
    "top_entropy_quantile": 1.0,
    "off_policy_mask_threshold": None,
}
ARGUMENTS: Mapping[str, Any] = {
    "delta": None,
    "use_bias_correction_kl": False,
    "steps_per_generation": 1,
    "report_to": [],
    "sapo_temperature_pos": 1.0,
    "sapo_temperature_neg": 1.05,
    "vespo_k_pos": 2.0,
    "vespo_lambda_pos": 3.0,
    "vespo_k_neg": 3.0,
    "vespo_lambda_neg": 2.0,
}


def _stand_in(
    log_probs: Tensor,
    metrics: dict[str, list[float]],
    loss_type: str,
    settings: Mapping[str, Any],
) -> SimpleNamespace:
    """A trainer whose model says these log-probs, and which keeps its metrics there."""
    forward = (log_probs, torch.zeros_like(log_probs), None)
    trainer, arguments = (
        {name: settings.get(name, default) for name, default in table.items()}
        for table in (TRAINER, ARGUMENTS)
    )
    return SimpleNamespace(
        **trainer,
        loss_type=loss_type,
        args=SimpleNamespace(**arguments),
        model=SimpleNamespace(training=True),
        accelerator=SimpleNamespace(
            gather=lambda x: x,
            reduce=lambda x, reduction: x,
            num_processes=1,
            sync_gradients=True,
            is_main_process=True,
        ),
        current_gradient_accumulation_steps=1,
        aux_loss_enabled=False,
        use_vllm=False,
        _entropy_bonus_enabled=False,
        _metrics={"train": metrics},
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: forward,
    )


def _bound(owner: type, name: str, stand_in: SimpleNamespace) -> Callable[..., Any]:
    method = vars(owner)[name]
    return method.__func__ if isinstance(method, staticmethod) else MethodType(method, stand_in)


TAKES = ("log_probs", "old_log_probs", "advantages", "mask")
WITH_REFERENCE = (*TAKES, "ref_log_probs")


def _trl() -> Iterator[Peer]:
    """TRL's own loss types, and the switches that change what they descend."""
    import trl  # noqa: F401

    plain = ("grpo", "bnpo", "dr_grpo", "dapo", "sapo", "vespo", "luspo")
    chosen: list[dict[str, Any]] = [{"loss_type": name} for name in plain]
    chosen += [
        {"loss_type": "cispo", "epsilon_high": 5.0},
        {"loss_type": "grpo", "importance_sampling_level": "sequence"},
        {"loss_type": "luspo", "importance_sampling_level": "sequence"},
        {"loss_type": "grpo", "beta": BETA},
        {"loss_type": "dr_grpo", "beta": BETA},
        {"loss_type": "dr_grpo", "beta": BETA, "use_bias_correction_kl": True},
    ]
    for settings in chosen:
        yield Peer("TRL", "trl", _words(settings), _subject(_of_trl(settings), "beta" in settings))


def _of_trl(settings: dict[str, Any]) -> Callable[..., Tensor]:
    return lambda **given: trl_loss(**given, **settings)[0]


def _torchrl() -> Iterator[Peer]:
    """torchrl's losses for language models."""
    from torchrl.objectives.llm import DAPO, CISPOLoss, GRPOLoss

    for kind, settings in (
        (GRPOLoss, {}),
        (GRPOLoss, {"aggregation": "prompt_mean"}),
        (DAPO, {"clip_epsilon": (0.2, 0.28)}),
        (CISPOLoss, {"clip_epsilon": (0.2, 0.28)}),
        (GRPOLoss, {"kl_to_ref_coeff": BETA}),
    ):
        said = ", ".join(filter(None, [kind.__name__, _words(settings)]))
        subject = _subject(_of_torchrl(kind, settings), "kl_to_ref_coeff" in settings)
        yield Peer("torchrl", "torchrl", said, subject)


def _of_torchrl(kind: Any, settings: dict[str, Any]) -> Callable[..., Tensor]:
    from tensordict import TensorDict

    class OnGivenLogProbs(kind):  # type: ignore[misc]
        """The loss as it is; the model's log-probs are handed in."""

        def _get_cur_log_prob(self, tensordict: Any) -> Any:
            return tensordict["given"], SimpleNamespace(mask=tensordict["mask"]), False

    def loss(*, log_probs: Tensor, mask: Tensor, **given: Tensor) -> Tensor:
        module = OnGivenLogProbs(None, entropy_bonus=False, **settings)
        batch = TensorDict({"given": log_probs, "mask": mask}, batch_size=mask.shape[:1])
        keys = module.tensor_keys
        batch[keys.action] = torch.zeros_like(mask, dtype=torch.long)
        batch[keys.advantage] = given["advantages"][..., None]
        batch[keys.sample_log_prob] = given["old_log_probs"].detach()  # it refuses a gradient
        if "ref_log_probs" in given:
            batch[keys.ref_log_probs] = given["ref_log_probs"]
        losses = module(batch)
        parts = [losses.loss_objective, losses.loss_kl_to_ref]
        total: Tensor = torch.stack([part.sum() for part in parts if part is not None]).sum()
        return total

    return loss


def _polgrad() -> Iterator[Peer]:
    """The losses that polgrad carries: verl's and OpenRLHF's code, at the commits it names."""
    from polgrad.conformance import harness

    for (library, name), function in harness.VENDORED.items():
        if (library, name) not in harness._REIMPLEMENTED:
            yield Peer(library, "polgrad", name, _subject(_of_polgrad(function), False))


def _of_polgrad(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def loss(*, log_probs: Tensor, old_log_probs: Tensor, mask: Tensor, **given: Tensor) -> Tensor:
        return function(logprobs=log_probs, old_logprobs=old_log_probs, response_mask=mask, **given)

    return loss


def _subject(function: Callable[..., Tensor], with_reference: bool) -> Subject:
    return Subject("loss", function, WITH_REFERENCE if with_reference else TAKES)


def _words(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


PACKAGES = {"trl": _trl, "torchrl": _torchrl, "polgrad": _polgrad}


def installed(packages: Sequence[str] = tuple(PACKAGES)) -> tuple[list[Peer], dict[str, str]]:
    """The losses of what is installed, and the versions; what is not installed has none."""
    peers: list[Peer] = []
    versions: dict[str, str] = {}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
        peers += PACKAGES[package]()
    return peers, versions
