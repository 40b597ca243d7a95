"""What is said of facts: every sentence is written down, and its numbers are those of its fact."""

import math
from dataclasses import replace

import pytest
import torch

from book.studies import published_losses as originals
from nbcourse.examine import decode, hygiene, kernel
from nbcourse.examine.attribution import UNTURNED
from nbcourse.examine.direction import Direction, Worst
from nbcourse.examine.hygiene import Split
from nbcourse.examine.kernel import Kernel
from nbcourse.examine.known import Nearest
from nbcourse.examine.ratio import Side
from nbcourse.examine.report import Report
from nbcourse.examine.subject import Subject
from nbcourse.mistakes.catalogue import CATALOGUE
from nbcourse.mistakes.findings import CHOICE, MISTAKE, NOTE, Finding
from tests.examine import (
    test_families,
    test_inputs,
    test_mistakes,
    test_right,
    test_size,
)
from tests.examine.parts import SENTENCES, k3, mean_of_sums, report_of, safe, with_kl


def test_each_finding_is_written_down_once():
    written = [name for _, _, name, _ in SENTENCES]
    of_a_loss = {MISTAKE, CHOICE, NOTE}
    named = {
        name
        for name, row in CATALOGUE.items()
        if {how.partition(":")[0] for how in row.evidence} & of_a_loss
    }
    assert named == set(written)
    losses = {loss for loss, *_ in SENTENCES}
    rooms = (test_mistakes, test_right, test_families, test_inputs, test_size)
    assert all(any(hasattr(room, name) for room in rooms) for name in losses)


# ---------------------------------------------------------------- one fact changed


@pytest.fixture(scope="module")
def facts():
    return report_of(originals.grpo).facts


def said(facts, code):
    """The evidence of a finding; None if it is not among them."""
    return {finding.id: finding.evidence for finding in decode.findings(facts)}.get(code)


DOWNHILL = "; it can point downhill: cosine -0.25 with ∇J at one token, p = (0.5, 0.5), r = (1, 2)"


@pytest.mark.parametrize(
    ("cosine", "further"), [(0.25, ""), (0.0, ""), (-0.005, ""), (-0.25, DOWNHILL)]
)
def test_a_scaled_advantage_points_downhill_where_the_worst_cosine_is_negative(
    facts, cosine, further
):
    worst = Worst(cosine, [0.5, 0.5], [1.0, 2.0])
    text = said(replace(facts, worst=worst, hard_beside_middle=1.5), "spread-divided")
    assert text == (
        "a prompt that is solved one time in ten counts 1.50 times as much as one that is solved "
        "every second time, in groups of four" + further
    )


@pytest.mark.parametrize(
    ("influence", "name", "so"),
    [
        ("batch", "baseline-of-micro-batches", ""),
        ("group", "micro-batch-means", ", for responses of four tokens and of one"),
    ],
)
def test_micro_batches_differ_by_the_baseline_only_if_it_is_the_batchs(facts, influence, name, so):
    changed = replace(facts, influence=influence, micro_batches=Split("neither", 0.34))
    mean = "the mean of the gradients of two micro-batches is off by 34% from that of the batch"
    assert said(changed, name) == mean + so


@pytest.mark.parametrize(
    ("influence", "name"), [("batch", "padded-whitening"), ("none", "padding-in-statistics")]
)
def test_padding_is_whitened_only_where_the_batch_is(facts, influence, name):
    changed = replace(facts, influence=influence, padding="direction")
    assert said(changed, name) == (
        "two more empty columns change how much the tokens count relative to each other"
    )


CAP, KEPT = Side("held", edge=5.0, value=5.0), Side("kept")


@pytest.mark.parametrize(
    ("positive", "negative", "capped"),
    [
        (CAP, CAP, True),
        (CAP, KEPT, False),
        (CAP, Side("lost", edge=5.0), False),
        (Side("held", edge=2.0, value=0.5), Side("held", edge=2.0, value=0.5), False),
        (KEPT, KEPT, False),
    ],
)
def test_a_cap_is_one_for_advantages_of_either_sign(facts, positive, negative, capped):
    sides = {(1, 1): positive, (1, -1): KEPT, (-1, 1): negative, (-1, -1): KEPT}
    text = said(replace(facts, clip=replace(facts.clip, sides=sides)), "ratio-capped")
    assert text == ("at 5" if capped else None)


def test_the_strength_of_a_penalty_is_that_of_where_it_is(facts):
    """In the reward a value is read whose gradient is another; in the loss what it descends."""
    descent = replace(facts.descent, descends="other", beta=-0.3)
    paid = replace(
        facts, descent=descent, kernel=Kernel("none", 0.0), kernel_in_reward=Kernel("k2", -0.2)
    )
    in_loss = replace(facts, descent=descent, kernel=Kernel("k3", -0.1))
    for changed, beta in ((paid, "-0.2"), (in_loss, "-0.3")):
        assert said(changed, "kl-sign") == (
            f"it drives the policy away from the reference (β = {beta}, where the reward counts 1)"
        )


def test_what_none_of_the_divergences_explains_is_said(facts):
    other = replace(facts.descent, descends="other", beta=0.1, cosine=0.5)
    assert said(replace(facts, descent=other), "kl-other") == ("cosine 0.50 with ∇KL(π‖π_ref)")
    moved = replace(facts, flat="something", kernel=Kernel("none", 0.0))
    assert said(moved, "flat-moves") == ""


# ---------------------------------------------------------------- the three sentences


def direction(verdict, factors, cosine=1.0, lengths=(1.0, 1.0), size="group"):
    return Direction(verdict, size, factors, cosine, lengths, torch.zeros(1))


NAN = math.nan


@pytest.mark.parametrize(
    ("fresh", "worst", "sentence"),
    [
        (direction("exact", {2: 1.0}), 1.0, "∇J, exactly, in every world that was listed."),
        (direction("proportional", {2: 0.5, 3: 0.5}), 1.0, "∇J times 0.5."),
        (
            direction("proportional", {2: 0.5, 4: 0.75}, size="batch"),
            1.0,
            "∇J times a constant: 0.5 in batches of 2, 0.75 in batches of 4.",
        ),
        (
            direction("biased", {}, lengths=(0.5, 1.6)),
            1.0,
            "along ∇J in every world, but some prompts count more than others: by factors from "
            "0.5 to 1.6.",
        ),
        (
            direction("biased", {}, 0.966),
            -0.485,
            "not along ∇J: the cosine falls to 0.9660 in the worlds that were listed, and to "
            "-0.485 in the worst one that was found.",
        ),
        (
            direction("biased", {}, 0.966),
            0.99,
            "not along ∇J: the cosine falls to 0.9660 in the worlds that were listed.",
        ),
        (direction("biased", {}, NAN), 1.0, "not a number: some batch gives NaN."),
    ],
)
def test_the_first_sentence_says_where_it_goes(facts, fresh, worst, sentence):
    changed = replace(facts, fresh=fresh, worst=Worst(worst, [], []), shares=UNTURNED)
    first, *_ = Report("x", [], changed, Nearest("grpo", 1.0, 0.0)).verdict()
    assert first == f"On fresh samples its expected step is {sentence}"


@pytest.mark.parametrize(
    ("stale", "sentence"),
    [
        (direction("exact", {2: 1.0}), "On stale samples that stays so."),
        (
            direction("biased", {}, NAN),
            "On stale samples it is not a number: some batch gives NaN.",
        ),
        (
            direction("biased", {}, 0.9704),
            "On samples from a policy a little way off (ratios between .85 and 1.18) the cosine "
            "falls to 0.9704.",
        ),
    ],
)
def test_the_second_says_what_becomes_of_it(facts, stale, sentence):
    report = Report("x", [], replace(facts, stale=stale), Nearest("grpo", 1.0, 0.0))
    assert report.verdict()[1] == sentence


ALIKE = "the nearest row of the table is grpo, "


@pytest.mark.parametrize(
    ("kinds", "nearest", "sentence"),
    [
        (
            (),
            (1.0, 0.0),
            f"No mistake and 0 choices to know of; {ALIKE}and the steps are those of that row.",
        ),
        (
            ("mistake", "choice"),
            (2.0, 0.0),
            f"1 mistake (a) and 1 choice to know of; {ALIKE}and "
            "the steps are those of that row times 2.",
        ),
        (
            ("mistake", "mistake", "note"),
            (1.0, 0.16),
            f"2 mistakes (a, b) and 0 choices to know "
            f"of; {ALIKE}and the expected steps differ from that row's by 0.16 of their length.",
        ),
        (
            (),
            (1.0, NAN),
            f"No mistake and 0 choices to know of; {ALIKE}but how far its steps are "
            "from that row's cannot be said, since some are NaN.",
        ),
    ],
)
def test_the_third_counts_and_says_what_is_nearest(facts, kinds, nearest, sentence):
    findings = [Finding(code, kind) for code, kind in zip("abc", kinds, strict=False)]
    assert Report("x", findings, facts, Nearest("grpo", *nearest)).verdict()[2] == sentence


# ---------------------------------------------------------------- single probes


def test_a_critics_values_may_have_a_gradient():
    def with_a_critic(log_probs, advantages, values, rewards, mask):
        value_loss = safe((values - rewards[:, None]).square(), mask).mean()
        return mean_of_sums(-log_probs * advantages.detach(), mask) + value_loss

    assert hygiene.detached(Subject.of(with_a_critic)) == ["rewards"]


@pytest.mark.parametrize(("low", "clamped"), [(11.5, True), (math.inf, False)])
def test_a_clamp_is_looked_for_where_the_reference_is_likelier(low, clamped):
    """k3 is 11 where the reference is 12 nats less likely, and 162,742 where it is likelier."""

    def loss(log_probs, ref_log_probs, advantages, mask):
        d = safe(log_probs - ref_log_probs.detach(), mask)
        return with_kl(log_probs, advantages, mask, k3(d).clamp(max=low))

    assert kernel.kernel_is_clamped(Subject.of(loss)) is clamped


def test_the_factor_of_a_penalty_in_the_reward_is_that_of_one_response():
    """Beside a response that pays nothing: leave-one-out, halved by the mean over two."""
    found = kernel.kernel_in_reward(Subject.of(test_mistakes.k2_in_the_reward))
    assert found.name == "k2"
    assert found.scale == pytest.approx(0.1)
