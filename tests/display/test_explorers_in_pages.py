"""What explorers that travel with their program are made of; a browser tests what they do."""

import re

import pytest
import torch

from nbcourse.diagnosis.diagnose import Evidence
from nbcourse.diagnosis.witness import Witness
from nbcourse.display import (
    explore_beta,
    explore_credit,
    explore_frozen,
    explore_group,
    explore_guesses,
    explore_lengths,
    explore_mismatch,
    explore_passes,
    explore_ratios,
    explore_stages,
    explore_tokens,
    explore_updates,
    explore_verifiers,
)
from nbcourse.display.in_page import in_page
from nbcourse.examine import known
from nbcourse.examine.groups import Groups
from nbcourse.examine.worlds import Prompt
from nbcourse.experiments import evidence, records
from nbcourse.toys.sequences import SequenceSpace
from tests import five_answers

PAIRS = SequenceSpace(2, 2)
REF, ZEROS = torch.zeros(3, 2), torch.zeros(4)


ONE_STEP = {
    "observations": torch.zeros(1, 3, 4),
    "rewards": torch.ones(1, 3),
    "truncated": torch.zeros(1, 3, dtype=torch.bool),
    "mask": torch.tensor([[True, True, False]]),
}


def stages(columns=(0, 1), **start):
    return explore_stages(ONE_STEP, torch.ones(1, 3), torch.ones(1, 3), columns=columns, **start)


def ratios(samples=4, **start):
    drawn = torch.zeros(samples, dtype=torch.int64)
    return explore_ratios(torch.zeros(2), torch.ones(2), drawn, drawn, **start)


def updates(states=("here",), *, step=1.0, **start):
    """A policy of one state, and a row that pushes it one way or the other."""
    both = torch.tensor([[[1.0, -1.0]], [[-1.0, 1.0]]]) + torch.tensor([step, -step])
    row = Groups(torch.tensor([0.5, 0.5]).double(), both.double(), torch.tensor([1, 1]))
    return explore_updates({"row": row}, torch.ones(1, 2), states, axis="", **start)


@pytest.fixture(scope="module")
def witness():
    return evidence.read(records.RUNS / "smollm2-word-problems-batch").witnesses[-1]


def test_the_output_is_the_same_each_time_and_another_for_another_state():
    one, two = (explore_group().data for _ in range(2))
    assert one == two
    identity = re.compile(r'id="(nb-explorer-\w+)"')
    assert identity.search(one)[1] != identity.search(explore_group(group_size=5).data)[1]


def test_no_text_ends_the_program(witness):
    html = in_page("tokens", {"prompts": ["</script><script>alert(1)"]}, [0, 1]).data
    assert html.count("</script>") == 1


@pytest.mark.parametrize(
    ("step", "expected", "said"),
    [(1, 1, "1 update for each batch"), (20, 80, "4 updates for each batch"), (20, None, None)],
)
def test_the_updates_of_a_run_are_told_where_they_are_known(witness, step, expected, said):
    facts = {**witness.facts, "step": step, "updates_expected": expected}
    runs = {"1": Evidence("1", (Witness(facts, witness.tensors),))}
    html = explore_guesses(runs, {"1": {"cause": None, "witness": [], "curves": []}}).data
    told = re.search(r"in the witness(, [^,\"]*)?", html)[1]
    assert told == (said and f", {said}")


def test_the_inspector_is_small_and_asks_no_other_host(witness):
    html = explore_tokens(witness).data
    assert len(html) < 120_000
    assert "//" not in re.sub(r"^ *// .*$|; // .*$", "", html, flags=re.M)


def test_rows_are_stored_once_and_without_the_noise_of_rounding():
    prompt = Prompt(five_answers.SPACE, five_answers.LOGITS, five_answers.RIGHT)
    rows = {
        name: Groups.of(known.row(name, beta=0.0), prompt, 3) for name in ("rloo", "grpo", "gspo")
    }
    html = explore_updates(rows, prompt.gradient(), "0123", axis="ones").data
    data = html[html.index("explore(root, {") :]
    assert '"rows":[["rloo",0],["grpo",1],["gspo",1]]' in data
    assert data.count('"weights"') == 2
    assert not re.search(r"\de-\d", data)


@pytest.mark.parametrize(
    ("explore", "message"),
    [
        (lambda _: explore_group(0.255), "p is 0.255, expected a multiple of 0.01 from 0.01 to"),
        (lambda _: explore_group(wrong=2.5), "wrong is 2.5, expected a multiple of 0.1 from -2"),
        (lambda _: explore_group(group_size=1), "group_size is 1, expected a multiple of 1 from 2"),
        (lambda _: explore_passes(k=65), "k is 65, expected a multiple of 1 from 1 to 64"),
        (
            lambda _: explore_beta(["a"], [1.0], [1, 0], [0.5]),
            "names, ref_probs, rewards and scores have lengths [1, 1, 2, 1]",
        ),
        (
            lambda _: explore_beta("ab", [1.0, 0.0], [1, 0], [0, 1]),
            "ref_probs is [1.0, 0.0], expected positive numbers with sum 1",
        ),
        (
            lambda _: explore_beta("ab", [0.5, 0.5], [1, 0], [0, 2]),
            "scores[-1] is 2, expected a multiple of 0.01 from 0 to 1.5",
        ),
        (
            lambda _: explore_beta("a", [1.0], [1], [1], beta=0),
            "beta is 0, expected 0.0316 to 10",
        ),
        (lambda _: explore_lengths((3, 0)), "lengths is (3, 0), expected one to 4 numbers from 1"),
        (lambda _: explore_lengths((1,) * 5), "lengths is (1, 1, 1, 1, 1), expected one to 4"),
        (
            lambda _: explore_frozen(PAIRS, REF, ZEROS, updates=0),
            "updates is 0, expected a multiple",
        ),
        (
            lambda _: explore_frozen(PAIRS, REF, ZEROS, beta=0),
            "beta is 0, expected a number above 0",
        ),
        (lambda _: explore_mismatch(ZEROS, "abc"), "logits has shape (4,), expected (3,)"),
        (lambda _: explore_mismatch(ZEROS, "abcd", top_p=0), "top_p is 0, expected a multiple of"),
        (lambda _: stages(columns=(0,)), "columns is (0,), expected two of them"),
        (lambda _: stages(columns=(0, 2)), "column 2 has no steps, expected an episode"),
        (lambda _: stages(stage=5), "stage is 5, expected a multiple of 1 from 1 to 4"),
        (lambda _: stages(lam=1.5), "lam is 1.5, expected a multiple of 0.01 from 0 to 1"),
        (lambda _: ratios(6), "the number of samples is 6, expected a power of two up to 6"),
        (lambda _: ratios(share=8), "share is 8, expected a power of two up to 4"),
        (lambda _: ratios(clip=0.25), "clip is 0.25, expected one of (0.05,"),
        (lambda _: ratios(learning_rate=1), "learning_rate is 1, expected one of (0.001,"),
        (lambda _: ratios(steps=0), "steps is 0, expected a multiple of 1 from 1 to 40"),
        (
            lambda _: explore_ratios(torch.zeros(2), torch.ones(3), torch.zeros(4), torch.zeros(4)),
            "rewards has shape (3,) and spare (4,), expected those of logits (2,) and drawn (4,)",
        ),
        (lambda _: updates("abcde"), "states has 5 names, expected at most 4"),
        (lambda _: updates("ab"), "gradient has shape (1, 2), expected (2, 2)"),
        (lambda _: updates(), "chosen has 'rloo', expected two of 'row'"),
        (lambda _: updates(chosen=("row", "row"), groups=3), "groups is 3, expected one of (1, 2,"),
        (lambda _: updates(chosen=("row", "row"), step=0), "row has an expected update of 0, exp"),
        (lambda _: explore_credit("ab", [0], [0]), "names, log_ratios and values have lengths"),
        (lambda _: explore_credit("a", [0], [0], lam=2), "lam is 2, expected a multiple of 0.01"),
        (lambda _: explore_verifiers(["x" * 301]), "examples has lengths [301], expected at least"),
        (lambda _: explore_verifiers(["18"], gold=1.5), "gold must be a finite Decimal, an int"),
        (lambda w: explore_tokens(w, rows=("grpo", "remax")), "rows has 'remax', expected two of"),
        (lambda w: explore_guesses({"007": None}, {}), "run '007' has no result"),
        (lambda w: explore_tokens(w, groups=9), "groups is 9, expected 1 to 4"),
    ],
)
def test_what_cannot_be_shown_is_refused_by_name(witness, explore, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        explore(witness)
