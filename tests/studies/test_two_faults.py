"""Several faults at once: what goes together, and what can be seen of it."""

import re

import pytest

from book.studies import two_faults
from nbcourse.diagnosis.faults import FAULTS
from nbcourse.experiments import combinations, records
from nbcourse.experiments.combinations import OF_A_TRAINER, Apart, pairs, together
from tests.diagnosis.runs import SEED, causes


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("mixed-groups", "padded-whitening"), "mixed-groups and padded-whitening spoil one"),
        (("kl-sign", "inverted-kl"), "kl-sign and inverted-kl spoil one quantity: the charge"),
        (("mixed-groups", "value-target-rewards"), "no algorithm has all of mixed-groups, value"),
        (
            ("left-padding", "amplified-flat-groups"),
            "amplified-flat-groups needs reward.overlong_buffer = 3, another 4",
        ),
        (("left-padding", "paid-truncation"), "expected less than rollouts.max_new_tokens = 2"),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_reason(names, why):
    with pytest.raises(Apart, match=re.escape(why)):
        together(*names)


def test_a_recipe_has_what_each_of_its_faults_needs():
    assert together("left-padding", "kl-sign-in-loss", "stale-old-log-probs") == {
        "algorithm": {"name": "grpo"},
        "task": {"digits": 2},
        "reward": {"overlong_buffer": 4},
        "kl": {"beta": 0.1},
        "optimiser": {"epochs": 4, "minibatches": 2},
    }
    assert together("masked-eos", "misplaced-reward") == {"algorithm": {"name": "ppo"}}
    assert FAULTS["left-padding"].recipe["task"] == {"digits": 2}  # and is not changed by merging


def test_another_algorithm_can_be_asked_for_if_it_has_all_of_them():
    assert together("masked-eos", algorithm="ppo") == {"algorithm": {"name": "ppo"}}
    with pytest.raises(Apart, match="no algorithm has all of mixed-groups"):
        together("mixed-groups", algorithm="ppo")


def test_mistakes_of_a_recipe_are_none_of_a_trainer():
    assert not {"no-signal", "all-truncated"} & set(OF_A_TRAINER)


def test_pairs_are_all_that_go_together_once():
    found = list(pairs())
    assert len({frozenset(pair) for pair in found}) == len(found)
    for one in ("mixed-groups", "masked-eos"):
        partners = {name for pair in found if one in pair for name in pair} - {one}
        for name in OF_A_TRAINER:
            try:
                together(one, name)
            except Apart:
                assert name not in partners
            else:
                assert name in partners


@pytest.mark.parametrize(
    "names",
    [
        ("mixed-groups", "masked-eos"),
        ("sampler-temperature", "idle-optimiser"),
        ("shifted-rewards", "flipped-loss", "learner-temperature"),
        ("value-target-rewards", "misplaced-reward"),
    ],
)
def test_each_of_several_faults_is_named(names):
    run = combinations.train(names, SEED, "several")
    assert run.name == "several"
    seen = causes(run)
    assert set(seen) == {FAULTS[name].cause for name in names}


@pytest.mark.parametrize(
    ("named", "found", "missed", "false", "share"),
    [
        (["masked-eos", "mixed-groups", "kl-sign"], 3, 0, 0, 1.0),
        (["masked-eos", "mixed-groups"], 2, 1, 0, 2 / 3),
        (["masked-eos", "mixed-groups", "inverted-kl"], 2, 1, 1, 1 / 3),
        (["masked-eos", "inverted-kl", "inverted-ratio", "wrong-kl"], 1, 2, 3, 0.0),
        (["masked-eos", "masked-eos"], 1, 2, 0, 1 / 3),
        ([], 0, 3, 0, 0.0),
    ],
)
def test_marks_count_what_was_found_and_what_was_falsely_accused(
    named, found, missed, false, share
):
    """kl-sign is the cause of the fault kl-sign-in-loss: causes are named, not faults."""
    mark = combinations.mark(("masked-eos", "mixed-groups", "kl-sign-in-loss"), named)
    assert tuple(map(len, (mark.found, mark.missed, mark.false))) == (found, missed, false)
    assert mark.share == pytest.approx(share)


def test_what_is_no_cause_is_refused():
    with pytest.raises(ValueError, match=re.escape("there is no cause 'mixed-group'")):
        combinations.mark(("masked-eos",), ["mixed-group"])


def test_the_recorded_pairs_are_of_a_commit_and_their_score_is_that_of_the_results():
    folder = records.RUNS / "two-faults"
    results = records.read_results(folder)
    possible = set(pairs())
    recorded = records.read_json(folder / two_faults.SCORE)
    assert recorded == {"pairs_possible": len(possible), **two_faults.score_of(results)}
    assert {tuple(one["faults"]) for one in results} <= possible
    assert records.read_json(folder / records.ENVIRONMENT)["uncommitted_changes"] is False


def test_pairs_are_counted_by_what_was_missed():
    results = [{"missed": [], "false": ["wrong-kl"]}, {"missed": ["kl-sign"], "false": []}]
    results += [{"missed": ["kl-sign", "masked-eos"], "false": ["wrong-kl", "wrong-loss"]}]
    found = two_faults.score_of(results)
    assert [found[key] for key in ("pairs", "both_named", "one_named", "none_named")] == [
        3,
        1,
        1,
        1,
    ]
    assert found["false_names"] == 3
    # Wilson at 1 of 3: (1/3 + 0.64 ± 1.96 √(2/27 + 0.1067)) / 2.2805, worked out by hand
    assert found["both_named_interval_95"] == pytest.approx([0.0615, 0.7923], abs=1e-3)
