"""Small changes of published losses: what has an effect changes the report, as it is recorded.

What a change does is computed by the study itself, on listed prompts, without `examine`.
"""

from collections import Counter

import pytest

from book.studies import mutations, published_losses
from nbcourse.experiments import records
from tests.effort import swept

RECORDED = records.read_results(records.RUNS / "mutations")
# Effects of four sorts, named, told by other findings, or none; in two originals, of which each is
# examined once. What the kinds change otherwise, the planted mistakes of test_mistakes do as well.
PLACES = {"grpo 53.0", "grpo 123.0", "grpo 189.1", "rloo 113.0"}
KEPT = [one for one in RECORDED if one["mutant"].partition(":")[0] in PLACES]


def test_every_kind_is_in_the_record():
    counts = Counter(one["kind"] for one in RECORDED)
    assert set(counts) == set(mutations.KINDS)
    assert {one["changes"] for one in KEPT} == {"direction", "far", "padding", "nothing"}
    assert {one["outcome"] for one in KEPT} == {"named", "other ids", "missed"}
    drawn = mutations.chosen()
    assert [one["mutant"] for one in RECORDED] == list(drawn)[: len(RECORDED)]
    assert all(drawn[one["mutant"]] == one["kind"] for one in RECORDED)


@pytest.mark.parametrize("recorded", swept(RECORDED, keep=KEPT), ids=lambda one: one["mutant"])
def test_an_effect_changes_the_report_and_without_one_nothing_is_accused(recorded):
    found = mutations.judged(recorded["mutant"], recorded["kind"])
    assert found["changes"] == recorded["changes"]
    if found["changes"] in mutations.HARMLESS:
        assert found["outcome"] not in ("named", "refused")
    else:
        assert found["outcome"] != "missed" or recorded["outcome"] == "missed"


@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("dapo: objective turned", "direction"),
        ("dapo: a surprise at twenty times as likely", "far"),
        ("dapo: a score without a mean", "noise"),
        ("reinforce: doubled", "length"),
        ("cispo: padding read", "padding"),
        ("grpo: lengths not clamped", "robustness"),
        ("reinforce: as it is", "nothing"),
    ],
)
def test_an_effect_is_told_from_the_others(name, effect, monkeypatch):
    """Each kind of effect, on a change that is made by hand."""
    loss, _ = name.split(": ")
    original = getattr(published_losses, loss)

    def unclamped(**given):
        return (
            original(**given) + 0 * (1 / given["mask"].sum(dim=1)).sum() * given["log_probs"][0, 0]
        )

    def capped(**given):
        far = given["log_probs"] - given["old_log_probs"] > 2.9
        return original(**given) + (given["log_probs"] * far * given["mask"]).sum()

    changed = {
        "far": capped,
        "noise": lambda **given: (
            original(**given) + (given["log_probs"] - given["old_log_probs"])[:, 0].exp().sum()
        ),
        "direction": lambda **given: -original(**given),
        "length": lambda **given: 2 * original(**given),
        "padding": lambda **given: (
            original(**given) * (1 + given["old_log_probs"][~given["mask"]].sum() ** 2)
        ),
        "robustness": unclamped,
        "nothing": lambda **given: original(**given) + 1,
    }[effect]
    changed.__signature__ = mutations.inspect.signature(original)
    monkeypatch.setattr(mutations, "mutant", lambda name: changed)
    assert mutations.effect(f"{loss} 0.0: by hand") == effect


@pytest.mark.parametrize(
    "original", swept(published_losses.ORIGINALS, keep=[published_losses.grpo])
)
def test_the_originals_are_right(original):
    mistakes, *_ = mutations.said_of(original.__name__)
    assert not mistakes
