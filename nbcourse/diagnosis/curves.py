"""What curves alone can show: little, and never one cause to the exclusion of others."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import mean

from nbcourse.diagnosis.report import POSSIBLE, Finding, seen

GAP = 0.05  # nats between sampler and learner in float32
COARSE = 1.5  # in bfloat16, in which a real model has up to 1
LATE = 2  # the last half of a run
NEARLY_ALL, HARDLY_ANY = 0.9, 0.05

History = Sequence[Mapping[str, float]]

# What other trainers call these numbers.
NAMES: Mapping[str, str] = {
    "frac_reward_zero_std": "no_spread",
    "completions/clipped_ratio": "truncated",
    "completions/mean_length": "length",
    "sampling/sampling_logp_difference/max": "gap_in_any_precision",
    "clip_ratio/low_mean": "clip_low",
    "clip_ratio/high_mean": "clip_high",
    "cispo_clip_ratio": "clip_high",
    "loss": "policy_loss",
    "critic/score/mean": "reward",
    "response_length/mean": "length",
    "response_length/clip_ratio": "truncated",
    "actor/entropy": "entropy",
    "actor/grad_norm": "grad_norm",
    "actor/pg_loss": "policy_loss",
    "training/rollout_probs_diff_max": "probability_gap",
}


def findings(history: History, *, precision: str = "float32") -> Iterator[Finding]:
    """What the curves of a run make one suspect."""
    late = history[len(history) // LATE :]
    reward = _mean(late, "accuracy", "reward")
    cut, flat = _mean(late, "truncated"), _mean(late, "no_spread")
    if cut is not None and cut >= NEARLY_ALL:
        yield seen("all-truncated", POSSIBLE, steps=len(late), cut=cut)
    elif flat is not None and reward is not None and flat >= NEARLY_ALL and reward <= HARDLY_ANY:
        yield seen("no-signal", POSSIBLE, steps=len(late), flat=flat, reward=reward)
    gaps = [gap for gap in _values(history, "gap") if gap > GAP and precision == "float32"]
    gaps += [gap for gap in _values(history, "gap_in_any_precision") if gap > COARSE]
    if gaps:
        yield seen("sampler-mismatch", POSSIBLE, gap=max(gaps))
    distances, norms = _values(history, "kl_ref"), _values(history, "grad_norm")
    steps = max(
        (n for n, row in enumerate(history, start=1) if _values([row], "kl_ref")), default=0
    )
    if steps >= 5 and max(map(abs, distances)) < 1e-9 and max(norms, default=0.0) > 0:
        yield seen("idle-optimiser", POSSIBLE, steps=steps)


def notes(history: History) -> Iterator[str]:
    """Metrics that look wrong and are not."""
    if not history:
        return
    clipped = [*_values(history, "clip_low"), *_values(history, "clip_high")]
    if clipped and max(clipped) == 0 and _one_update(history):
        yield (
            "The clip fraction is 0 because there is one update for each batch: the ratio is 1 "
            "(section 5.9)."
        )
    losses = _values(history, "policy_loss")
    if losses and max(map(abs, losses)) < 0.02:
        yield (
            "The loss is near 0 because advantages add up to about 0 and the ratio is near 1; it "
            "says nothing about progress (section 1.4)."
        )


def _one_update(history: History) -> bool:
    """Whether the log says that there was one update for each batch."""
    return max(_values(history, "updates"), default=2) <= 1


def translated(row: Mapping[str, float]) -> dict[str, float]:
    """A line of another trainer's log under our names."""
    bare = {name.removeprefix("train/"): value for name, value in row.items()}
    return {NAMES.get(name, name): value for name, value in bare.items()}


def _values(history: History, name: str) -> list[float]:
    values = (row.get(name) for row in history)
    return [v for v in values if isinstance(v, int | float) and math.isfinite(v)]


def _mean(history: History, *names: str) -> float | None:
    for name in names:
        if values := _values(history, name):
            return mean(values)
    return None
