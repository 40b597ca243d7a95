"""The recorded distillation: what its methods multiply scores by, and what it leaves behind."""

import pytest
import torch

from book.studies import distillation
from nbcourse.experiments import records
from nbcourse.lm import loading
from nbcourse.lm.sampling import sample


@pytest.fixture(scope="module")
def student():
    return loading.load(distillation.STUDENT, torch.device("cpu"))


@pytest.fixture(scope="module")
def rollout(student):
    tokenizer, policy = student
    source = torch.Generator().manual_seed(0)
    prompts = ["17+25=", "3+4="]
    return sample(policy, tokenizer, prompts, max_new_tokens=8, group_size=8, generator=source)


def test_a_teacher_that_is_the_student_pays_nothing(student, rollout):
    _, policy = student
    for method in ("distil", "distil-to-go"):
        paid = distillation.weights(method, rollout, torch.zeros(16), policy)
        assert paid.abs().max() < 1e-4


def test_discount_zero_pays_the_token_and_discount_one_all_that_follow(rollout):
    teacher = loading.load(distillation.STUDENT, torch.device("cpu"))[1]
    with torch.no_grad():
        for weight in teacher.parameters():
            weight.mul_(1.1)
    now, to_go = (
        distillation.weights(method, rollout, torch.zeros(16), teacher)
        for method in ("distil", "distil-to-go")
    )
    later = now.flip(1).cumsum(1).flip(1)
    assert (later - now).abs().max() > 0.1
    torch.testing.assert_close(to_go * rollout.mask, later * rollout.mask, atol=1e-5, rtol=1e-5)


def test_the_record_has_a_line_for_each_method_rate_and_seed(tmp_path):
    plan = distillation.Plan(rates=(1e-3,), seeds=(4,), steps=1, every=1, teacher_steps=1)
    distillation.record(plan, tmp_path, progress=False)
    results = records.read_results(tmp_path)
    assert [(r["method"], r["rate"], r["seed"]) for r in results] == [
        (method, 1e-3, 4) for method in distillation.METHODS
    ]
    assert all(len(r["held_out"]) == 2 for r in results)
    assert len({r["held_out"][0] for r in results}) == 1  # all begin as the same student
