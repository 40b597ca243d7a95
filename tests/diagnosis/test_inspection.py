"""What rows make of a recorded batch: what the run itself recorded, and what a hand computes."""

import pytest
import torch
from torch.testing import assert_close

from nbcourse.diagnosis.inspection import first_groups, inspect, policies, ratios, rows_for
from nbcourse.experiments import evidence, records
from nbcourse.training.algorithms import ALGORITHMS
from tests.diagnosis.runs import sound


@pytest.fixture(scope="module")
def witness():
    return evidence.read(records.RUNS / "smollm2-word-problems-batch").witnesses[-1]


def test_the_row_of_the_run_pushes_as_the_run_did(witness):
    assert len(witness["tokens"]) == witness.facts["batch"]["rows"]  # the whole batch
    found = inspect(ALGORITHMS[witness.facts["algorithm"]], witness)
    assert_close(found.advantages.float(), witness["advantages"], rtol=1e-4, atol=1e-6)
    assert_close(-found.pushes.float(), witness["last_coefficients"], rtol=1e-3, atol=1e-7)


def test_grpo_and_gspo_are_those_of_their_equations(witness):
    batch = first_groups(witness, 3)
    mask, ratio = batch["mask"], ratios(batch)
    r = batch["scores"].double().view(-1, 8)
    A = (r - r.mean(dim=1, keepdim=True)) / (r.std(dim=1, keepdim=True) + 1e-4)
    A = A.view(-1, 1).expand(mask.shape) * mask
    per_token = A * ratio / mask.sum(dim=1, keepdim=True) / len(mask)
    cut = ((A > 0) & (ratio > 1.2)) | ((A < 0) & (ratio < 0.8))
    grpo = inspect(ALGORITHMS["grpo"], batch)
    assert torch.equal(grpo.cut, cut)
    assert 0 < cut.sum() < mask.sum()
    assert_close(grpo.pushes, per_token.masked_fill(cut, 0.0))

    s = (ratio.log().sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True)).exp()
    whole = ((A > 0) & (s > 1 + 4e-4)) | ((A < 0) & (s < 1 - 3e-4))
    gspo = inspect(ALGORITHMS["gspo"], batch)
    assert torch.equal(gspo.cut, whole)
    assert_close(gspo.pushes, (per_token / ratio * s).masked_fill(whole, 0.0))


def test_rows_whose_needs_the_batch_does_not_meet_are_left_out(witness):
    assert {"grpo", "dr-grpo", "gspo", "ppo"} <= rows_for(witness).keys()
    assert "remax" not in rows_for(witness)  # no greedy answers in it


def test_rows_that_took_part_in_no_update_keep_their_log_probs():
    """Groups without a spread are left out of every update; their probabilities are not 1."""
    one, *_ = sound("grpo").witnesses
    unused = one["minibatch"] < 0
    assert unused.any()
    assert not unused.all()
    for table in policies(one):
        assert_close(table[one["mask"]].float(), one["scored_log_probs"][one["mask"]])


@pytest.mark.parametrize("groups", [0, 5])
def test_groups_that_are_not_there_are_refused(witness, groups):
    with pytest.raises(ValueError, match=f"groups is {groups}, expected 1 to 4"):
        first_groups(witness, groups)
