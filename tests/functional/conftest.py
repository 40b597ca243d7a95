"""Fixtures for comparisons with TRL, imported only where a test asks for them."""

from collections import defaultdict
from types import MethodType, SimpleNamespace

import pytest
import torch


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "peer: compares with another library; skipped where it is not installed"
    )


@pytest.fixture(scope="session")
def trl_utils():
    return pytest.importorskip("trl.trainer.utils")


@pytest.fixture(scope="session")
def trl_grpo_loss():
    """TRL's own GRPO loss on given log-probabilities.

    `GRPOTrainer.compute_loss` runs on a stand-in for the trainer whose model returns the
    log-probabilities of the test. Returns the loss and the metrics that TRL would log.
    """
    trainer = pytest.importorskip("trl.trainer.grpo_trainer").GRPOTrainer

    def loss(
        log_probs,
        old_log_probs,
        advantages,
        mask,
        *,
        ref_log_probs=None,
        beta=0.0,
        delta=None,
        bias_correction=False,
        **settings,
    ):
        metrics = defaultdict(list)
        forward = (log_probs, torch.zeros_like(log_probs), None)
        stand_in = SimpleNamespace(
            _get_per_token_logps_and_entropies=lambda *args, **kwargs: forward,
            model=SimpleNamespace(training=True),
            args=SimpleNamespace(
                delta=delta,
                use_bias_correction_kl=bias_correction,
                steps_per_generation=1,
                report_to=[],
            ),
            accelerator=SimpleNamespace(
                gather=lambda x: x,
                reduce=lambda x, reduction: x,
                num_processes=1,
                sync_gradients=True,
                is_main_process=True,
            ),
            beta=beta,
            current_gradient_accumulation_steps=1,
            top_entropy_quantile=1.0,
            off_policy_mask_threshold=None,
            aux_loss_enabled=False,
            use_vllm=False,
            _entropy_bonus_enabled=False,
            _metrics={"train": metrics},
        )
        defaults = {"importance_sampling_level": "token", "epsilon_low": 0.2, "epsilon_high": 0.2}
        vars(stand_in).update(defaults | settings)
        stand_in._compute_loss = MethodType(trainer._compute_loss, stand_in)
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
        value = trainer.compute_loss(stand_in, stand_in.model, inputs)
        return value, {name: entries[-1] for name, entries in metrics.items()}

    return loss
