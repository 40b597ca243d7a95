"""Several faults at once: what goes together, what a student is dealt, and what can be seen."""

import re
from collections import Counter

import pytest
import torch

from nbcourse.diagnosis.faults import FAULTS
from nbcourse.experiments import hunt, records
from nbcourse.experiments.combinations import MOST, OF_A_TRAINER, Apart, drawn, pairs, together
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


def test_students_are_dealt_one_to_three_faults_that_go_together():
    dealt = [hunt.faults_of(f"student {number}", "key") for number in range(400)]
    for names in dealt:
        together(*names)
    sizes = Counter(map(len, dealt))
    # each of three sizes with probability 1/3: 133 ± 9.4, and five standard errors are 47
    assert set(sizes) == {1, 2, 3}
    assert min(sizes.values()) >= 133 - 47
    assert {name for names in dealt for name in names} == set(OF_A_TRAINER)
    assert not {"no-signal", "all-truncated"} & set(OF_A_TRAINER)  # of a recipe, not of a trainer


def test_another_key_deals_other_faults_and_the_same_key_the_same():
    students = [f"student {number}" for number in range(20)]
    one, again, other = (
        [hunt.faults_of(name, key) for name in students] for key in ("key", "key", "other")
    )
    assert one == again
    assert sum(a == b for a, b in zip(one, other, strict=True)) <= 3


def test_three_is_the_most():
    source = torch.Generator().manual_seed(0)
    assert max(len(drawn(source)) for _ in range(50)) == MOST == 3
    assert {len(drawn(source, most=1)) for _ in range(20)} == {1}


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
    seen = causes(hunt.train(names, SEED, "several"))
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
    mark = hunt.mark(("masked-eos", "mixed-groups", "kl-sign-in-loss"), named)
    assert tuple(map(len, (mark.found, mark.missed, mark.false))) == (found, missed, false)
    assert mark.share == pytest.approx(share)


def test_what_is_no_cause_is_refused():
    with pytest.raises(ValueError, match=re.escape("there is no cause 'mixed-group'")):
        hunt.mark(("masked-eos",), ["mixed-group"])


def test_a_student_gets_a_run_and_not_the_answer(tmp_path, capsys):
    hunt.main(["new", "ada", "--key", "K", "--out", str(tmp_path)])
    planted = hunt.faults_of("ada", "K")
    content = (tmp_path / "ada.zip").read_bytes()
    left = hunt.evidence.read(tmp_path / "ada.zip")
    assert len(left.history) == 20
    assert left.witnesses
    for text in (content, *(witness.to_bytes() for witness in left.witnesses)):
        assert not any(name.encode() in text for name in planted)
    hunt.main(["mark", "ada", *(FAULTS[name].cause for name in planted), "--key", "K"])
    assert f"found {len(planted)} of {len(planted)}, accused 0 falsely: 100%" in (
        capsys.readouterr().out
    )


def test_the_recorded_pairs_are_of_a_commit_and_their_score_is_that_of_the_results():
    folder = records.RUNS / "two-faults"
    results = records.read_results(folder)
    possible = set(pairs())
    recorded = records.read_json(folder / hunt.SCORE)
    assert recorded == {"pairs_possible": len(possible), **hunt.score_of(results)}
    assert {tuple(one["faults"]) for one in results} <= possible
    assert records.read_json(folder / records.ENVIRONMENT)["uncommitted_changes"] is False


def test_pairs_are_counted_by_what_was_missed():
    results = [{"missed": [], "false": ["wrong-kl"]}, {"missed": ["kl-sign"], "false": []}]
    results += [{"missed": ["kl-sign", "masked-eos"], "false": ["wrong-kl", "wrong-loss"]}]
    found = hunt.score_of(results)
    assert [found[key] for key in ("pairs", "both_named", "one_named", "none_named")] == [
        3,
        1,
        1,
        1,
    ]
    assert found["false_names"] == 3
    # Wilson at 1 of 3: (1/3 + 0.64 ± 1.96 √(2/27 + 0.1067)) / 2.2805, worked out by hand
    assert found["both_named_interval_95"] == pytest.approx([0.0615, 0.7923], abs=1e-3)
