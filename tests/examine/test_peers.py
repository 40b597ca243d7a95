"""Losses of other libraries, as installed: none is accused of what it does not do."""

import json

import pytest
import torch

from book.studies import field
from nbcourse.examine import examine, peers
from nbcourse.experiments import records
from nbcourse.functional.aggregation import aggregate
from nbcourse.functional.surrogates import ppo_clip
from tests.effort import swept
from tests.examine.parts import mistakes

# By its own source: which row of the table a loss type has the steps of, where it is one.
ROWS = {
    "loss_type=grpo": "grpo",
    "loss_type=dr_grpo": "dr-grpo",
    "loss_type=cispo, epsilon_high=5.0": "cispo",
    "loss_type=grpo, beta=0.1": "grpo",
}


def trl_peers():
    return list(peers.PACKAGES["trl"]()) if "trl" in peers.installed(("trl",))[1] else []


TRL = trl_peers()
# with a KL and without, with a clip, a cap, and weights for stale samples
KEPT = {"loss_type=grpo, beta=0.1", "loss_type=cispo, epsilon_high=5.0"}
KEPT |= {"loss_type=dr_grpo, beta=0.1, use_bias_correction_kl=True"}


@pytest.mark.peer
@pytest.mark.parametrize(
    "peer",
    swept(TRL, keep=[peer for peer in TRL if peer.settings in KEPT]),
    ids=lambda peer: peer.settings,
)
def test_no_loss_of_trl_is_accused(peer):
    report = examine(peer.subject)
    assert mistakes(report) == set()
    if peer.settings in ROWS:
        assert report.nearest.row == ROWS[peer.settings]
        assert report.nearest.same


@pytest.mark.peer
def test_a_gate_without_an_end_is_a_choice():
    (sapo,) = (peer for peer in TRL if peer.settings == "loss_type=sapo")
    assert "soft-clip" in {finding.id for finding in examine(sapo.subject).findings}


@pytest.mark.peer
def test_torchrl_is_told_what_it_does():
    pytest.importorskip("torchrl")
    found = {peer.settings: examine(peer.subject) for peer in peers.PACKAGES["torchrl"]()}
    named = {settings: mistakes(report) for settings, report in found.items()}
    assert named.pop("CISPOLoss, clip_epsilon=(0.2, 0.28)") == {"clip-without-min"}
    assert named.pop("GRPOLoss, kl_to_ref_coeff=0.1") == {"padding-in-statistics"}
    assert set().union(*named.values()) == set()


@pytest.mark.peer
@pytest.mark.parametrize(
    ("settings", "clip_high", "average"),
    [
        ("GRPOLoss", 0.2, "token-mean"),
        ("GRPOLoss, aggregation=prompt_mean", 0.2, "seq-mean-token-mean"),
        ("DAPO, clip_epsilon=(0.2, 0.28)", 0.28, "token-mean"),
    ],
)
def test_value_and_gradient_of_torchrl_are_ours(settings, clip_high, average):
    pytest.importorskip("torchrl")
    (peer,) = (peer for peer in peers.PACKAGES["torchrl"]() if peer.settings == settings)
    source = torch.Generator().manual_seed(0)
    log_probs, old, advantages = torch.randn(3, 6, 9, generator=source, dtype=torch.float64)
    old_log_probs = log_probs + 0.2 * old  # ratios inside of the interval and on either side
    mask = torch.arange(9) < torch.tensor([[9], [1], [4], [7], [2], [9]])
    log_probs.requires_grad_()
    theirs = peer.subject.function(
        log_probs=log_probs, old_log_probs=old_log_probs, advantages=advantages, mask=mask
    )
    per_token = ppo_clip(log_probs, old_log_probs, advantages, clip_low=0.2, clip_high=clip_high)
    ours = aggregate(per_token, mask, average)
    # torchrl keeps the ends of the interval in float32.
    torch.testing.assert_close(theirs, ours, rtol=1e-7, atol=0)
    gradients = (torch.autograd.grad(loss, log_probs)[0] for loss in (theirs, ours))
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-14)


@pytest.mark.peer
def test_a_setting_that_trl_s_loss_has_not_is_refused():
    (one, *_) = TRL
    with pytest.raises(TypeError, match="not settings of TRL's loss here: epsilon"):
        peers.trl_loss(epsilon=0.2, **dict.fromkeys(one.subject.takes))


def test_what_is_recorded_can_be_read(tmp_path, monkeypatch):
    def plain(*, log_probs, mask, advantages, **rest):
        return -(log_probs * advantages)[mask].sum() / len(mask)

    one = peers.Peer("a library", "torch", "its settings", peers._subject(plain, False))
    monkeypatch.setattr(field, "installed", lambda: ([one], {"torch": "1"}))
    field.main([str(tmp_path)])
    (kept,) = records.read_results(tmp_path)
    assert kept["direction"]["fresh"]["verdict"] == "exact"
    assert kept["settings"] == "its settings"
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert environment["peers"] == {"torch": "1"}
