"""The exam bank: every chapter is asked about, and each number in a key is computed here again."""

import re
from math import log

import pytest
import torch

from nbcourse.budget import machines
from nbcourse.functional import accuracy, advantages, aggregation, kl, returns, surrogates
from nbcourse.lm.log_probs import token_log_probs
from nbcourse.lm.reward_model import bradley_terry_loss
from nbcourse.publishing import chapters
from nbcourse.tasks import answers
from nbcourse.toys import bandit

EXAM = (chapters.SOLUTIONS / "course" / "exam.md").read_text(encoding="utf-8")
GUIDE = (chapters.BOOK / "appendix-d-instructors.md").read_text(encoding="utf-8")
QUESTION = re.compile(
    r"^### (?P<number>\d+\.\d+) .*?\n\n\*(?P<points>\d+) points, (?P<minutes>\d+) minutes\.\*"
    r".*?^:::\{admonition\} Key\n:class: dropdown\n(?P<key>.*?)^:::$",
    re.MULTILINE | re.DOTALL,
)
KEYS = {found["number"]: found["key"] for found in QUESTION.finditer(EXAM)}
WITHOUT_NUMBERS = ["0.1", "4.2", "6.2", "7.3", "8.3", "9.2", "11.2", "12.2", "13.2", "16.1"]


def row(*numbers):
    return torch.tensor([numbers], dtype=torch.float64)


def group(*rewards):
    return torch.tensor(rewards, dtype=torch.float64)


def gae(rewards, values, lam):
    A, R = returns.token_gae(row(*rewards), row(*values), row(*rewards) < torch.inf, lam=lam)
    return A[0], R[0]


def td_error(*, terminated):
    flags = torch.tensor([[terminated]]), torch.tensor([[not terminated]])
    A, _ = returns.env_gae(row(1), row(8), row(10), *flags, gamma=0.9, lam=0.5)
    return A.item()


def clipped(A):
    log_prob = torch.tensor([[log(1.5)]], dtype=torch.float64, requires_grad=True)
    loss = surrogates.ppo_clip(log_prob, 0 * log_prob.detach(), row(A)).sum()
    return [loss.item(), torch.autograd.grad(loss, log_prob)[0].item()]


def weight_of_a_long_token(mode):
    mask = torch.arange(8) < torch.tensor([[2], [8]])
    each = torch.zeros(2, 8, dtype=torch.float64, requires_grad=True)
    loss = aggregation.aggregate(each, mask, mode)
    return torch.autograd.grad(loss, each)[0][1, 0].item()


def standard_error():
    differences = torch.tensor([1.0] * 15 + [-1.0] * 5 + [0.0] * 180)
    return (differences.mean(), (differences.var(correction=0) / 200).sqrt())


def intensity():
    card = machines.DATASHEETS["H100"]
    return card.speed["bfloat16"] / card.bandwidth


def under_strict_reading():
    asked = ["#### 1,000", "#### 1,00", "#### 1000 or 2000", "The answer is 1000.", "#### $1000"]
    paid = [answers.is_correct(text, 1000, strict=True) for text in asked]
    assert paid == [True, False, False, False, True]
    return sum(paid)


def temperatures():
    logits, token = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[0]])
    learner, sampler = (token_log_probs(logits, token, temperature=t) for t in (1.0, 0.5))
    return (learner - sampler).exp().item()


def after_a_batch():
    return kl.AdaptiveKL(0.1, target=6.0, horizon=10_000).update(12.0, 256)


def token_rewards():
    d = row(0.5, -0.2, 0.3)
    return kl.rewards_with_kl(group(1), d, 0 * d, d < torch.inf, beta=0.1)[0]


def flat(p, size):
    """By enumeration of all groups."""
    verdicts = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * size)
    chances = torch.where(verdicts == 1, p, 1 - p).prod(dim=1)
    even = (advantages.mean_baseline(verdicts.flatten(), group_size=size) == 0).view(-1, size)
    return chances[even.all(dim=1)].sum()


TWO, NEW = group(0.5, 0.5), group(0.9, 0.1)
COMPUTED = {
    "0.2": lambda: [16 * 8, 16 * 8 * 20, 3 * 8, 3 * 8 + 7],
    "1.1": lambda: bandit.gradient(group(0, 0, 0), group(1, 2, 6)),
    "1.2": lambda: [advantages.variance_optimal_baseline(group(0.8, 0.2), group(1, 0))],
    "1.3": lambda: [bandit.kl_optimum(group(0, 0), group(1, 0), beta=0.5)[0]],
    "2.1": lambda: [
        *advantages.leave_one_out(group(1, 0, 0, 1), group_size=4)[:2],
        advantages.leave_one_out(group(1, 0, 0, 1), group_size=4)[0]
        / advantages.mean_baseline(group(1, 0, 0, 1), group_size=4)[0],
    ],
    "2.2": lambda: returns.discounted_returns(row(1, 0, 4), gamma=0.5)[0],
    "2.3": lambda: [
        advantages.mean_baseline(group(1, 0, 0, 0, 0), group_size=5)[0]
        / advantages.leave_one_out(group(1, 0, 0, 0, 0), group_size=5)[0]
    ],
    "3.1": lambda: [
        *gae((0, 0, 1), (0.5, 0.6, 0.8), 0.5)[0],
        gae((0, 0, 1), (0.5, 0.6, 0.8), 0.5)[1][0],
    ],
    "3.2": lambda: [td_error(terminated=True), td_error(terminated=False)],
    "4.1": lambda: returns.n_step_returns(row(1, 1, 1), row(2, 2, 2, 2), n=2, gamma=0.5)[0, 1:],
    "5.1": lambda: [*clipped(2.0), *clipped(-2.0)],
    "5.2": lambda: [(TWO * NEW / TWO)[0], (TWO * TWO / NEW)[0]],
    "6.1": lambda: [4 * 4, 8 * 128 // 4],
    "7.1": lambda: [3 + 2 + 5, 2 + 1 + 5],
    "7.2": lambda: [temperatures()],
    "8.1": token_rewards,
    "8.2": lambda: [after_a_batch()],
    "9.1": lambda: [
        (-bradley_terry_loss(group(2), group(1))).exp(),
        bradley_terry_loss(group(12), group(11)),
    ],
    "10.1": lambda: [
        *advantages.group_relative(group(1, 0, 0, 0), group_size=4, eps=0.0)[:2],
        *advantages.group_relative(group(1, 0, 0, 0), group_size=4, scale=False)[:2],
    ],
    "10.2": lambda: [
        weight_of_a_long_token(mode) for mode in ("seq-mean-token-mean", "token-mean")
    ],
    "10.3": lambda: [flat(0.9, 8)],
    "11.1": lambda: [kl.estimate(row(0.5), row(0), kind) for kind in ("k1", "k2", "k3")],
    "12.1": lambda: [1 / log(9)],
    "13.1": lambda: [under_strict_reading()],
    "14.1": lambda: [*standard_error(), standard_error()[0] / standard_error()[1]],
    "14.2": lambda: [accuracy.pass_at_k(torch.tensor([[True] * 3 + [False] * 7]), k=2)],
    "15.1": lambda: [4 + 4 + 8 + 4, 4 + 4 + 8 + 4 + 16],
    "15.2": lambda: [intensity()],
    "16.2": lambda: [1 - 0.05 ** (1 / 30)],
    "17.1": lambda: [100 * ((0.25 - 0.05**2) / 128) ** 0.5],
}


def test_every_chapter_is_asked_about_and_every_question_has_a_key():
    headings = re.findall(r"^### (\d+\.\d+) ", EXAM, re.MULTILINE)
    assert headings == list(KEYS)
    assert len(KEYS) >= 30
    assert EXAM.startswith("# Exam bank\n\nForty questions") == (len(KEYS) == 40)
    assert f"is a bank of {len(KEYS)} questions" in GUIDE
    asked = {number.partition(".")[0] for number in KEYS}
    assert asked == {
        str(int(path.stem[:2])) for path in chapters.texts() if path.stem[:2].isdigit()
    }
    assert set(COMPUTED) | set(WITHOUT_NUMBERS) == set(KEYS)


@pytest.mark.parametrize("number", KEYS)
def test_the_numbers_of_a_key_are_those_that_the_package_computes(number):
    stated = re.findall(r"\*\*([−\d.]+?)\*\*", KEYS[number])
    computed = list(COMPUTED[number]()) if number in COMPUTED else []
    assert len(stated) == len(computed)
    for words, value in zip(stated, computed, strict=True):
        digits = len(words.partition(".")[2])
        assert f"{float(value):.{digits}f}" == words.replace("−", "-")


def test_the_reference_of_12_1_is_left_as_far_as_the_key_says():
    found = bandit.kl_optimum(group(0, 0), group(1, 0), beta=1 / log(9))
    assert found[0].item() == pytest.approx(0.9)
