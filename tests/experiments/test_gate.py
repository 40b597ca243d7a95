"""The gate: every rule of its verdict at its threshold, its counts by hand, and a model live."""

import json
from dataclasses import replace

import pytest
import torch

from nbcourse.experiments import gate, gauging
from nbcourse.experiments.gate import Estimate, Measurements, Tried, verdict
from tests.command import invoke
from tests.small import recipe

GOOD = Measurements(
    paid=Estimate(0.25, 0.02),
    mixed=0.5,
    prompts=64,
    steps=100,
    lenient=Estimate(0.26, 0.02),
    form=0.97,
    greedy=Estimate(0.27, 0.03),
    best_of=0.6,
    constant=0.03,
    luck=0.012,
    mixed_leniently=0.52,
    lucky=0.15,
    truncated=0.02,
    mismatch=0.02,
    cosine=Estimate(0.1, 0.01),
)


def test_a_good_start_is_trained():
    said = verdict(GOOD)
    assert said.action == "train"
    assert said.further == ()
    assert "26.0% are right, 3.0% by chance" in said.reason


@pytest.mark.parametrize(
    ("changes", "action", "words"),
    [
        ({"mismatch": 0.51}, "do not train", "0.51 nats an answer (more than 0.5)"),
        ({"truncated": 0.3}, "raise the limit", "30% of the answers are cut off"),
        ({"truncated": 1.0}, "raise the limit", "every answer is cut off"),
        ({"tried": (Tried("Box it.", Estimate(0.08, 0.03)),)}, "change the prompt", "'Box it.'"),
        ({"mixed": 0.25}, "pay for form leniently first", "25% of the groups"),
        ({"lenient": Estimate(0.04, 0.01)}, "supervise first", "3.0% are by chance"),
        ({"lucky": 0.3}, "supervise first", "luck explains 30%"),
        ({"mixed": 0.01, "mixed_leniently": 0.015}, "supervise first", "0.8 groups a step"),
        (
            {"mixed": 0, "mixed_leniently": None, "paid": Estimate(0.6), "lenient": None},
            "do not train",
            "in no group",
        ),
        ({"best_of": 0.31}, "do not train", "less than 5% between them"),
        ({"cosine": Estimate(0.0, 0.005)}, "do not train", "take more prompts a step"),
    ],
)
def test_each_fault_alone_is_named_with_its_number(changes, action, words):
    said = verdict(replace(GOOD, **changes))
    assert said.action == action
    assert words in said.reason
    assert said.further == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"mismatch": 0.5},
        {"mismatch": 3.0, "corrected": True},
        {"truncated": 0.16},  # .16 · .26 / .84 = .0495
        {"tried": (Tried("Box it.", Estimate(0.08, 0.05)),)},  # that is not sure
        {"mixed": 0.26},
        {"lenient": Estimate(0.06, 0.01)},
        {"lucky": 0.29},
        {"best_of": 0.33},
        {"cosine": Estimate(0.01, 0.01)},  # it may be .03
    ],
)
def test_just_below_its_threshold_nothing_is_held_against_a_recipe(changes):
    assert verdict(replace(GOOD, **changes)).action == "train"


def test_what_was_not_measured_is_not_held_against_it():
    bare = Measurements(paid=Estimate(0.3), mixed=0.5, prompts=16, steps=10)
    assert verdict(bare).action == "train"


def test_the_fault_that_falsifies_the_others_comes_first():
    said = verdict(replace(GOOD, truncated=0.4, mixed=0.02, best_of=0.28))
    assert said.action == "raise the limit"
    assert [line.split(":")[0] for line in said.further] == [
        "pay for form leniently first",
        "do not train",
    ]


def test_a_model_that_can_do_it_all_is_not_supervised():
    done = replace(
        GOOD,
        paid=Estimate(0.995),
        lenient=Estimate(0.995),
        greedy=Estimate(0.999),
        best_of=1.0,
        mixed=0.01,
        mixed_leniently=0.01,
    )
    assert verdict(done).action == "do not train"


def test_thresholds_follow_from_what_their_comments_say():
    assert pytest.approx(1 - 2**-0.5) == gate.LUCKY
    assert pytest.approx(gate.TWICE) == (1 / (1 - gate.LUCKY)) ** 2
    assert pytest.approx(1 / gate.TWICE) == 1 / (1 + 2 * gate.MISMATCH)


def test_the_cosine_of_halves_says_how_far_a_run_points_at_the_gradient():
    """By simulation: T noisy gradients in two halves; their cosines, and that of the total."""
    source, steps, size = torch.Generator().manual_seed(0), 400, 2_000
    mu = torch.zeros(size, dtype=torch.float64)
    mu[0] = 1.0
    halves = mu + 0.25 * torch.randn(steps, 2, size, generator=source, dtype=torch.float64)
    cosines = torch.cosine_similarity(halves[:, 0], halves[:, 1], dim=-1)
    total = halves.mean(dim=1).sum(dim=0)
    ratio = gate.aim(steps, cosines.mean().item())
    expected = (ratio / (1 + ratio)) ** 0.5
    assert torch.cosine_similarity(total, mu, dim=0).item() == pytest.approx(expected, abs=0.03)


def test_lucky_rates_by_hand():
    answers = [["4", "5"], ["7", "4"], [None, "5"]]
    rates = gauging.lucky_rates(answers, ["4", "5", "4"])
    assert rates.tolist() == [1 / 4, 2 / 4, 2 / 4]  # "4" of 7 4 - 5; "5" of 4 5 - 5; "4" of 4 5 7 4


def test_the_best_constant_answer_and_mixed_groups():
    assert gauging.constant_accuracy([5, 3, 5, 1]) == 0.5
    assert gauging.mixed_share(torch.tensor([[0.0, 1], [1, 1], [0, 0], [1, 0]])) == 0.5


@pytest.fixture(scope="module")
def small():
    warm = {"steps": 60, "batch_size": 64}
    rollouts = {"prompts": 8, "group_size": 4}
    return recipe("grpo", warm_start=warm, rollouts=rollouts, steps=20)


def test_a_model_is_measured_live(small):
    found = gauging.gauge(small, questions=16, instructions=[""], progress=False)
    assert (found.prompts, found.steps) == (8, 20)
    for share in (found.form, found.best_of, found.mixed, found.truncated, found.lucky):
        assert 0 <= share <= 1
    assert found.paid.mean <= found.lenient.mean <= found.best_of
    assert 0 <= found.mismatch < 1e-4  # float32: sampler and learner round alike
    assert -1 <= found.cosine.mean <= 1
    assert found.tried == (Tried("", Estimate(0.0, 0.0)),)  # as the recipe's own
    again = gauging.gauge(small, questions=16, progress=False)
    assert replace(found, tried=()) == again


def test_a_bar_is_drawn_while_a_model_is_asked(small, capfd):
    gauging.gauge(small, questions=8)
    assert "%|" in "".join(capfd.readouterr())
    gauging.gauge(small, questions=8, progress=False)
    assert "%|" not in "".join(capfd.readouterr())


def test_a_reward_that_is_paid_in_any_form_is_measured_as_it_is_paid(small, monkeypatch):
    """Else the gate would ask a recipe for the very setting that it has."""
    task = type(small.task.build())
    monkeypatch.setattr(task, "rewards", lambda self, texts, problems: torch.zeros(len(texts)))
    strict, lenient = (
        gauging.gauge(small.model_copy(update={"reward": reward}), questions=8, progress=False)
        for reward in (small.reward, small.reward.model_copy(update={"lenient": True}))
    )
    assert strict.paid.mean == 0 < lenient.paid.mean == lenient.lenient.mean
    assert (strict.mixed, lenient.mixed) == (0, lenient.mixed_leniently)


def test_groups_are_mixed_by_what_the_readers_own_function_pays(small, tmp_path):
    """It pays by length, or all alike; what is right stays the verifier's."""
    verifier, *own = (
        gauging.gauge(
            small.model_copy(update={"reward": small.reward.model_copy(update={"source": source})}),
            questions=8,
            progress=False,
        )
        for source in (small.reward.source, pays(tmp_path, "len(c)"), pays(tmp_path, "1.0"))
    )
    longer, alike = own
    assert longer.paid == alike.paid == verifier.paid
    assert (
        (longer.mixed_leniently, longer.lucky) == (None, None) != (verifier.mixed, verifier.lucky)
    )
    assert longer.mixed != verifier.mixed
    assert longer.mixed > alike.mixed == 0
    assert alike.cosine is None
    assert "in no group" in " ".join((verdict(alike).reason, *verdict(alike).further))


def pays(folder, each):
    """A reader's function that pays `each` for every completion `c`."""
    file = folder / f"pays_{sum(map(ord, each))}.py"
    file.write_text(
        f"def score(completions, **columns):\n    return [{each} for c in completions]\n"
    )
    return f"{file}:score"


def test_rows_that_know_the_sampler_are_corrected_for_it(small):
    for name, corrected in (("grpo", False), ("icepop", True), ("dppo", True)):
        other = small.model_copy(update={"algorithm": recipe(name).algorithm})
        assert gauging.gauge(other, questions=8, progress=False).corrected == corrected


def test_a_batch_learned_from_twice_has_halves_that_agree(small, monkeypatch):
    """With the same groups in both halves the cosine is 1."""
    recipe_ = gauging._still(small, 16)
    learner = gauging.build(recipe_, gauging.connect())
    experience = gauging.collect(learner, gauging.Draws(recipe_), gauging.connect())
    whole = torch.arange(8)
    monkeypatch.setattr(torch.Tensor, "tensor_split", lambda self, n: (whole, whole))
    _, cosine = gauging._halves(learner, experience)
    assert cosine == pytest.approx(1.0, abs=1e-6)


def test_the_command_says_why_and_its_exit_status_says_whether(monkeypatch, tmp_path):
    monkeypatch.setattr(gauging, "gauge", lambda *args, **options: replace(GOOD, truncated=0.4))
    done = invoke("gate", "arithmetic-grpo", "--json", str(tmp_path / "gate.json"))
    assert done.exit_code == 3
    assert "raise the limit: 40% of the answers are cut off" in done.stdout
    kept = json.loads((tmp_path / "gate.json").read_text())
    assert kept["verdict"]["action"] == "raise the limit"
    assert kept["measurements"]["truncated"] == 0.4
    refused = invoke("train", "arithmetic-grpo", "--gate", "--out", str(tmp_path / "run"))
    assert refused.exit_code == 3
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(gauging, "gauge", lambda *args, **options: GOOD)
    opened = invoke("gate", "arithmetic-grpo")
    assert (opened.exit_code, "train: " in opened.stdout) == (0, True)
    assert invoke("gate", "word-problems-tiny-base").exit_code == 2
