"""The expected gradient in a file: what changes it, what does not, and what a test then says."""

import json
import re

import pytest
import torch

from nbcourse.examine import assert_gradient
from nbcourse.repository import ROOT

pytest_plugins = "pytester"


def loss(log_probs, old_log_probs, advantages, mask):
    """PPO's clip, averaged over all tokens."""
    ratio = (log_probs - old_log_probs).exp()
    gain = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    return -(gain * mask).sum() / mask.sum()


@pytest.fixture
def file(tmp_path):
    """Where the gradient of `loss` is pinned."""
    path = tmp_path / "loss.json"
    with pytest.raises(AssertionError, match=r"loss\.json is new"):
        assert_gradient(loss, path)
    return path


def test_the_same_loss_written_otherwise_passes(file):
    def other(log_probs, old_log_probs, advantages, mask):
        ratio = torch.where(mask, log_probs - old_log_probs, 0.0).exp()
        clipped = ratio.clamp(0.8, 1.2)
        gain = torch.where(advantages > 0, torch.minimum(ratio, clipped) * advantages, 0.0)
        gain = gain + torch.where(advantages < 0, torch.maximum(ratio, clipped) * advantages, 0.0)
        return -gain.masked_fill(~mask, 0.0).sum() / mask.count_nonzero()

    assert_gradient(loss, file)
    assert_gradient(other, file)


def test_a_factor_is_told_as_one(file):
    with pytest.raises(AssertionError, match="fresh samples: the same direction, 2 times as long"):
        assert_gradient(
            lambda log_probs, old_log_probs, advantages, mask: (
                2 * loss(log_probs, old_log_probs, advantages, mask)
            ),
            file,
        )


def test_a_sign_is_a_cosine_of_minus_one(file):
    def ascent(log_probs, old_log_probs, advantages, mask):
        return -loss(log_probs, old_log_probs, advantages, mask)

    with pytest.raises(AssertionError, match=r"fresh samples: cosine -1\.0000"):
        assert_gradient(ascent, file)


def test_a_clip_that_is_lost_shows_on_samples_from_far_off_alone(file):
    def unclipped(log_probs, old_log_probs, advantages, mask):
        ratio = (log_probs - old_log_probs).exp()
        return -(ratio * advantages * mask).sum() / mask.sum()

    with pytest.raises(AssertionError) as told:
        assert_gradient(unclipped, file)
    assert re.findall(r"^(\w+) samples", str(told.value), re.M) == ["far"]


def test_an_average_that_moved_is_a_cosine(file):
    def by_response(log_probs, old_log_probs, advantages, mask):
        ratio = (log_probs - old_log_probs).exp()
        gain = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
        return -((gain * mask).sum(dim=1) / mask.sum(dim=1)).mean()

    with pytest.raises(AssertionError, match=r"fresh samples: cosine 0\.9\d+ with what was pinned"):
        assert_gradient(by_response, file)


def test_another_edition_of_the_worlds_is_no_verdict_on_the_loss(file):
    kept = json.loads(file.read_text())
    kept["fresh"].pop()
    file.write_text(json.dumps(kept))
    with pytest.raises(AssertionError, match="fresh samples: the small worlds are others"):
        assert_gradient(loss, file)


def test_the_example_of_the_book_runs_as_it_is_printed(pytester):
    text = (ROOT / "book/appendix-h-using.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(from my_trainer .*?)```", text, re.S)
    pytester.makepyfile(
        test_example=example,
        my_trainer=(
            "def policy_loss(per_token_logps, old_per_token_logps, advantages, completion_mask):\n"
            "    kept = completion_mask.bool()\n"
            "    moved = (per_token_logps - old_per_token_logps).masked_fill(~kept, 0.0)\n"
            "    gain = (moved.exp() * advantages[:, None]).masked_fill(~kept, 0.0)\n"
            "    return -gain.sum() / kept.sum().clamp(min=1)\n"
        ),
    )
    once, again = (pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider") for _ in range(2))
    once.stdout.fnmatch_lines("*policy_loss.json is new*")
    once.assert_outcomes(failed=1, passed=1)
    again.assert_outcomes(passed=2)
