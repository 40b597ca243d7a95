"""Fixtures for comparisons with TRL, imported only where a test asks for them."""

import pytest

from nbcourse.examine.peers import trl_loss


@pytest.fixture(scope="session")
def trl_utils():
    return pytest.importorskip("trl.trainer.utils")


@pytest.fixture(scope="session")
def trl_grpo_loss():
    """TRL's own GRPO loss on given log-probabilities: the loss, and what TRL would log."""
    pytest.importorskip("trl.trainer.grpo_trainer")

    def loss(log_probs, old_log_probs, advantages, mask, *, bias_correction=False, **settings):
        value, metrics = trl_loss(
            log_probs=log_probs,
            old_log_probs=old_log_probs,
            advantages=advantages,
            mask=mask,
            use_bias_correction_kl=bias_correction,
            **settings,
        )
        return value, {name: entries[-1] for name, entries in metrics.items()}

    return loss
