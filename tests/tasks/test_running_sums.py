"""Running totals: what the teacher writes, what a verifier of steps says, and where a step ends."""

import pytest
import torch

from nbcourse.tasks.arithmetic import Problem
from nbcourse.tasks.running_sums import RunningSums, slipped, totals
from nbcourse.training.algorithms import ALGORITHMS, Penalty
from nbcourse.training.experience import Draws, collect, steps_of
from tests.small import ALONE, check, learner, recipe, tables

SUM = Problem("17+25+8+61=", "111")


def test_totals_by_hand():
    assert totals(SUM) == ["42", "50", "111"]


@pytest.mark.parametrize(
    ("addition", "written"),
    [(0, ["32", "40", "101"]), (1, ["42", "40", "101"]), (2, ["42", "50", "11"])],
)
def test_a_slip_is_one_forgotten_carry_and_what_follows_from_it(addition, written):
    """17+25 → 32; 42+8 → 40; 50+61 → 11."""
    assert slipped(SUM, addition) == written


@pytest.mark.parametrize(
    ("response", "steps"),
    [
        ("42 50 111", [(2, 1.0), (5, 1.0)]),
        ("42 40 111", [(2, 1.0), (5, 0.0)]),
        ("32 50 82", [(2, 0.0), (5, 1.0)]),
        ("50 111", [(2, 0.0)]),
        ("111", []),
        ("", []),
        ("42 50 111 111", [(2, 1.0), (5, 1.0), (9, 0.0)]),  # the third total is the answer
        ("+42= 50 1", [(3, 1.0), (7, 1.0)]),
    ],
)
def test_a_total_is_right_in_its_place(response, steps):
    assert RunningSums().steps(response, SUM) == steps


def test_the_answer_is_the_last_total_of_nothing_but_totals():
    task = RunningSums()
    texts = {"42 50 111": "111", "111": "111", "42  111": None, "42 111 ": None, "+111": None}
    for text, answer in texts.items():
        assert task.read(text) == answer


@pytest.mark.parametrize(("numbers", "digits"), [(2, 1), (5, 3)])
def test_sums_have_as_many_numbers_as_asked_for(numbers, digits):
    task = RunningSums(numbers, digits)
    drawn, written = task.demonstrate(200, generator=torch.Generator().manual_seed(0))
    for problem, response in zip(drawn, written, strict=True):
        operands = problem.prompt.removesuffix("=").split("+")
        assert len(operands) == numbers
        assert max(map(len, operands)) <= digits
        assert sum(map(int, operands)) == int(problem.answer) == int(response.split()[-1])
        assert [step.reward for step in task.steps(response, problem)] == [1.0] * (numbers - 2)


# ---------------------------------------------------------------- in a step of training


def made(name, **rollouts):
    task = {"name": "running-sums", "numbers": 3, "digits": 1}
    content = tables(
        algorithm={"name": name},
        rollouts={"max_new_tokens": 6, **rollouts},
        warm_start={"steps": 30, "batch_size": 64},
    )
    return learner(check({**content, "task": task}))


def test_a_step_ends_with_its_last_token():
    """A token of this tokenizer is a character."""
    one = made("grpo-process")
    experience = collect(one, Draws(one.recipe), ALONE)
    task, texts = one.recipe.task.build(), experience.rollout.texts(one.tokenizer)
    _, problems = Draws(one.recipe).next()
    asked = [problem for problem in problems for _ in range(4)]
    assert any(experience.steps)
    for steps, text, problem in zip(experience.steps, texts, asked, strict=True):
        assert steps == [(step.end - 1, step.reward) for step in task.steps(text, problem)]
    of_steps = experience.rewards_of_steps()
    ends, rewards = of_steps["step_ends"], of_steps["step_rewards"]
    lengths = experience.rollout.mask.sum(dim=1)
    assert ends.shape == rewards.shape
    for row, steps in enumerate(experience.steps):
        there = ends[row] >= 0
        assert ends[row][there].tolist() == [*(end for end, _ in steps), lengths[row] - 1]
        assert rewards[row][there].tolist() == [
            *(reward for _, reward in steps),
            experience.scores[row],
        ]


class Halves:
    """A tokenizer whose tokens are two characters."""

    def decode(self, tokens):
        return "".join("ab"[token] * 2 for token in tokens)


def test_a_step_that_ends_within_a_token_ends_with_it():
    one = made("grpo-process")
    experience = collect(one, Draws(one.recipe), ALONE)
    steps = [(1, 0.5), (2, 0.25), (3, 1.0), (8, 0.0)]

    class Fixed(RunningSums):
        def steps(self, response, problem):
            return [type("Step", (), {"end": end, "reward": reward}) for end, reward in steps]

    rollout = experience.rollout
    rollout.tokens.fill_(1)
    one.tokenizer, task = Halves(), Fixed()
    object.__setattr__(one.recipe, "task", type("Section", (), {"build": lambda self: task})())
    found = steps_of(one, rollout, [None] * len(rollout.tokens))
    assert found[0] == [(0, 0.5), (0, 0.25), (1, 1.0), (3, 0.0)]


def test_responses_that_replace_others_bring_their_steps():
    """Dynamic sampling joins and cuts batches; steps stay with their responses."""
    one = made("grpo-process", dynamic_sampling=True)
    draws = Draws(one.recipe)
    experience = collect(one, draws, ALONE)
    assert draws.taken > 1
    assert len(experience.steps) == len(experience.scores)
    texts = experience.rollout.texts(one.tokenizer)
    for steps, text in zip(experience.steps, texts, strict=True):
        ends = [end + 1 for end, _ in steps]
        assert ends == [step.end for step in RunningSums().steps(text, Problem("0+0=", "0"))]


def test_on_a_task_without_steps_the_answer_is_the_only_one():
    """And the advantages are those of plain GRPO."""
    one = learner(recipe("grpo-process", warm_start={"steps": 25, "batch_size": 32}))
    experience = collect(one, Draws(one.recipe), ALONE)
    mask, of_steps = experience.rollout.mask, experience.rewards_of_steps()
    assert of_steps["step_rewards"].tolist() == experience.scores[:, None].tolist()
    found, plain = (
        ALGORITHMS[name].estimate({}, rewards=rewards, mask=mask, group_size=4, **of_steps)
        for name, rewards in (("grpo-process", None), ("grpo", experience.rewards(Penalty())))
    )
    assert plain.advantages.any()
    torch.testing.assert_close(found.advantages, plain.advantages)


def test_steps_are_looked_for_only_where_a_row_asks():
    one = made("grpo")
    experience = collect(one, Draws(one.recipe), ALONE)
    assert experience.steps is None
    assert experience.rewards_of_steps() == {"step_rewards": None, "step_ends": None}
