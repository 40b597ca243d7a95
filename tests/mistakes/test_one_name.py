"""What a diagnosis finds in a run with a fault, an examination finds in a loss that has it."""

import pytest

from nbcourse.diagnosis.faults import FAULTS
from nbcourse.diagnosis.suspects import CHECKS
from tests.examine import test_mistakes as wrong
from tests.examine import test_right as right
from tests.examine.parts import report_of

# the faults of a loss, as a diagnosis plants them → a loss that has them
LOSSES = {
    "masked-eos": wrong.end_masked_away,
    "trained-padding": wrong.no_mask,
    "kl-sign": wrong.kl_paid_out,
    "kl-sign-in-loss": wrong.k3_subtracted,
    "inverted-kl": wrong.k3_upside_down,
    "wrong-kl-estimator": wrong.k1_in_the_loss,
    "mixed-groups": wrong.groups_across_prompts,
    "missing-baseline": right.no_baseline,
    "amplified-flat-groups": wrong.flat_noise,
    "padded-whitening": wrong.whitened_with_the_padding,
    "inverted-ratio": wrong.old_over_new,
    "inverted-clip": wrong.maximum_of_objectives,
    "flipped-loss": wrong.minus_forgotten,
    "micro-batch-means": wrong.micro_batches,
    "padding-in-denominator": wrong.mean_over_the_tensor,
}


def test_these_are_the_faults_of_a_loss():
    """Those that mask, penalty, advantages or loss can tell, but for what is the loop's alone."""
    of_a_loss = [
        c for name in ("mask", "penalty", "advantages", "loss") for c in CHECKS[name].causes
    ]
    assert set(LOSSES) == {name for name, fault in FAULTS.items() if fault.cause in of_a_loss} - {
        "dropped-micro-batches"
    }


@pytest.mark.parametrize("fault", LOSSES)
def test_both_have_one_name_for_it(fault):
    report = report_of(LOSSES[fault])
    assert FAULTS[fault].cause in {finding.id for finding in report.findings}, str(report)
