"""Laws of the pieces that train a language model.

Everything is recomputed in double precision from what a piece returns: weights, rollouts, and the
batches that its loop says it learned from. So a law is a difference that is 0, and not a curve; the
curve comes last, when all the others hold.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from nbcourse.builds import oracle
from nbcourse.builds.bench import (
    RESTLESS,
    WARM,
    Bench,
    Law,
    blamed,
    calling,
    close,
    compared,
    laws,
    named,
    with_each_mistake,
)
from nbcourse.functional import advantages as book
from nbcourse.mistakes.findings import Finding

ADVANTAGES = torch.tensor([1.0, -0.5, 2.0, 0.25, -1.5, 0.75], dtype=torch.float64)
MICRO_BATCH = 4  # of six rows: the second micro-batch is smaller
RATE = 0.5
GROUPS = {"prompts": 12, "group_size": 4}
SIZES: Mapping[str, Mapping[str, Any]] = {
    "reinforce": GROUPS,
    "ppo": {"prompts": 48, "epochs": 2, "beta": 0.5},
    "grpo": GROUPS | {"epochs": 2},
}
# What `train` yields besides a rollout, for each response and for each token.
RESPONSES = {
    "reinforce": ("rewards", "advantages"),
    "ppo": ("scores",),
    "grpo": ("rewards", "advantages"),
}
TOKENS = {
    "reinforce": (),
    "ppo": ("old_log_probs", "rewards", "values", "advantages", "returns"),
    "grpo": ("old_log_probs",),
}
STEPS, GAIN = 30, 0.15  # of the curve, and of the share of right answers to held-out problems
MODES = ("sequence", "token", "length")  # of averages
ONE_GRADIENT = "gradient of a step, from its weights"
TWO_GRADIENTS = "sum of two gradients, from the weights"
Z = 5.0  # standard errors, of a test with fixed draws

# ---------------------------------------------------------------- the sampler


def _rollout(bench: Bench) -> Any:
    problems = oracle.TASK.draw(384, split="train", generator=torch.Generator().manual_seed(1))
    prompt, mask = oracle.given().encode([problem.prompt for problem in problems])
    return bench.once(("rollout",), "sampled", RESTLESS.single, prompt, mask, 0)


def _form(bench: Bench) -> Finding | None:
    rollout = _rollout(bench)
    if problem := oracle.problem_with(rollout):
        return blamed("", problem)
    mask, finished = oracle.ended(rollout["tokens"])
    ends = (rollout["tokens"] == oracle.given().EOS) & mask
    if not torch.equal(rollout["mask"], mask):
        evidence = (
            f"the mask is wrong in {int((rollout['mask'] != mask).any(1).sum())} of {len(mask)} "
            "responses"
        )
        by_value = rollout["tokens"] != oracle.given().EOS
        if any(torch.equal(rollout["mask"], wrong) for wrong in (mask & ~ends, by_value)):
            return blamed("mask-by-value", evidence)
        more = (rollout["mask"] & ~mask).any() and not (mask & ~rollout["mask"]).any()
        return blamed("endless-mask" if more else "", evidence)
    if not torch.equal(rollout["finished"], finished):
        wrong = int((rollout["finished"] != finished).sum())
        return blamed("finished-by-last-column", f"wrong in {wrong} of {len(mask)} responses")
    if finished.all() or not finished.any():
        return blamed("", "all responses ended alike, but this policy's do not")
    return None


def _off_by(found: Tensor, weights: oracle.Weights, rollout: oracle.Rollout) -> float:
    """The largest difference, in nats, of log-probs (B, T) from those of these weights."""
    off = found - oracle.log_probs(weights, rollout)
    return float(off.masked_fill(~rollout["mask"], 0.0).abs().max())


def _gap(bench: Bench) -> Finding | None:
    rollout = _rollout(bench)
    gap = _off_by(rollout["log_probs"], RESTLESS.single, rollout)
    return None if gap < 1e-3 else blamed("sampler-gap", f"up to {gap:.3g} nats")


def _draws(bench: Bench) -> Finding | None:
    """Tokens are as likely, on average, as the policy's entropy says."""
    rollout = _rollout(bench)
    table = oracle.distributions(RESTLESS.double, rollout)[:, :-1]
    entropy = -(table.exp() * table).sum(dim=-1)
    variance = (table.exp() * table.square()).sum(dim=-1) - entropy.square()
    surplus = (oracle.chosen(table, rollout) + entropy)[rollout["mask"]].sum()
    z = float(surplus / variance[rollout["mask"]].sum().sqrt())
    return None if abs(z) < Z else blamed("cold-sampler", f"{z:+.1f} standard deviations")


# ---------------------------------------------------------------- log-probs and rewards


def _log_probs(bench: Bench) -> Finding | None:
    rollout = oracle.example()
    mask = rollout["mask"]
    found = bench("log_probs", WARM.double, rollout)
    if not isinstance(found, Tensor) or found.shape != mask.shape:
        return named(found, rollout["log_probs"], what="log-probs")
    finding = compared(
        bench,
        "reinforce",
        lambda asked: torch.where(mask, asked("log_probs", WARM.double, rollout), 0.0),
        oracle.log_probs(WARM.double, rollout),
        what="log-probs of six responses, in nats",
    )
    if finding and not finding.id and _tempered(torch.where(mask, found, 0.0), rollout):
        return blamed("tempered-log-probs", finding.evidence)
    return finding


def _tempered(found: Tensor, rollout: oracle.Rollout) -> bool:
    """Whether some temperature explains all log-probs."""
    logits = oracle.logits(WARM.double, rollout)[:, :-1]
    for temperature in torch.arange(0.05, 3.0, 0.05).tolist():
        tried = oracle.chosen((logits / temperature).log_softmax(dim=-1), rollout)
        if close(found, torch.where(rollout["mask"], tried, 0.0), 1e-5):
            return True
    return False


def _score(bench: Bench) -> Finding | None:
    """A pair of equal texts, one of them cut off, and what else a verifier may overlook."""
    said = oracle.responses(["42", "41", "10800", "427", "", "1042"], behind=9)
    answers = ["42", "42", "10800", "42", "7", "1042"]
    rollout = oracle.example() | said
    right = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    return compared(
        bench,
        "reinforce",
        calling("call", "reinforce", "score", [rollout, answers]),
        right,
        what="rewards of six responses, one of them cut off",
    )


# ---------------------------------------------------------------- updates


def _direction(
    bench: Bench,
    module: str,
    arguments: list[Any],
    right: Tensor,
    what: str,
) -> Finding | None:
    """The gradient of an update against that of Σ coefficient · log-prob, coefficients (B, T)."""
    rollout = oracle.example()

    def answer(asked: Bench) -> Tensor:
        return oracle.flat(asked("gradient", module, WARM.double, [rollout, *arguments]))

    def explained() -> Iterator[tuple[str, Tensor]]:
        yield from with_each_mistake(module, answer)
        last = right * (torch.arange(6) >= MICRO_BATCH)[:, None]
        yield "last-micro-batch-only", _gradient_of_six(last)
        yield "idle", torch.zeros_like(_gradient_of_six(right))  # no step of the optimiser

    what = f"gradient of six responses, {what}"
    return named(answer(bench), _gradient_of_six(right), explained(), what=what)


def _gradient_of_six(coefficients: Tensor) -> Tensor:
    """Of Σ coefficient · log-prob, coefficients (6, 5), all entries in a row."""
    return oracle.flat(oracle.gradient(WARM.double, oracle.example(), coefficients))


def _update(bench: Bench) -> Finding | None:
    right = -ADVANTAGES[:, None] * oracle.example()["mask"] / 6
    findings = (
        _direction(bench, "reinforce", [ADVANTAGES, size], right, f"{size} at a time")
        for size in (MICRO_BATCH, 6)
    )
    return next(filter(None, findings), None)


def ratio_derivative(log_ratio: Tensor, A: Tensor) -> Tensor:
    """The derivative of PPO's token loss by the log-prob, with a clip of 0.2."""
    ratio = log_ratio.exp()
    clipped = ((A > 0) & (ratio > 1.2)) | ((A < 0) & (ratio < 0.8))
    return -(ratio * A).masked_fill(clipped, 0.0)


def _grpo_update(bench: Bench) -> Finding | None:
    rollout = oracle.example()
    mask, A = rollout["mask"], ADVANTAGES[:, None].expand(6, 5)
    log_ratio = oracle.drawn(6, 5) / 2
    old = oracle.log_probs(WARM.double, rollout) - log_ratio
    findings = (
        _direction(
            bench,
            "grpo",
            [old, ADVANTAGES, MICRO_BATCH, mode],
            ratio_derivative(log_ratio, A) * _weights(mask, mode),
            f'{MICRO_BATCH} at a time, mode "{mode}"',
        )
        for mode in MODES
    )
    return next(filter(None, findings), None)


# ---------------------------------------------------------------- what a loop learned from


def batches(bench: Bench, module: str) -> list[dict[str, Any]]:
    """What two steps of plain descent learned from, and the weights before and after each."""
    found = bench.once(
        ("steps", module), "stepped", module, WARM.double, 3, RATE, dict(SIZES[module])
    )
    for batch in found:
        if problem := oracle.problem_with(batch.get("rollout")):
            raise ValueError(f"train yields no valid rollout: {problem}")
        tokens = tuple(batch["rollout"]["mask"].shape)
        shapes = {key: (48,) for key in RESPONSES[module]} | {key: tokens for key in TOKENS[module]}
        for key, shape in shapes.items():
            if not isinstance(batch.get(key), Tensor) or batch[key].shape != shape:
                raise ValueError(f"train yields no tensor {key!r} of the shape {shape}")
    if len(found) != 2:
        raise ValueError(f"two steps were asked for, but train yields {len(found)} times")
    start: oracle.Weights = WARM.double
    if module == "ppo":
        start = oracle.with_critic(start, torch.zeros(64, dtype=torch.float64))
    first, second = found
    return [{**first, "begun": start}, {**second, "begun": first["weights"]}]


def _groups(module: str, mixed: str, bench: Bench) -> Finding | None:
    asked = []
    for batch in batches(bench, module):
        rollout = batch["rollout"]
        asked.append(oracle.texts(rollout["prompt"], rollout["prompt_mask"]))
        for i in range(0, 48, 4):
            if len(set(asked[-1][i : i + 4])) > 1:
                return blamed(mixed, f"rows {i} to {i + 3} answer {asked[-1][i : i + 4]}")
    if asked[0] == asked[1]:
        return blamed("same-draws", f"both steps ask {asked[0][0]}, {asked[0][4]}, …")
    return None


def right_rewards(module: str, bench: Bench) -> Finding | None:
    """Whether those of each step are those of its responses."""
    for batch in batches(bench, module):
        right, found = oracle.rewards(batch["rollout"]), batch[RESPONSES[module][0]]
        if finding := named(found, right, what="rewards of a step"):
            return blamed("other-rewards", finding.evidence)
    return None


def sampled_now(module: str, bench: Bench) -> Finding | None:
    """Whether each step was sampled by the weights that it began with."""
    for step, batch in enumerate(batches(bench, module), 1):
        rollout = batch["rollout"]
        sampled = rollout["log_probs"]
        if (gap := _off_by(sampled, batch["begun"], rollout)) > 1e-6:
            stale = step > 1 and _off_by(sampled, WARM.double, rollout) < 1e-6
            return blamed("stale-sampler" if stale else "", f"step {step}: up to {gap:.3g} nats")
    return None


def _credit(
    module: str, estimate: Callable[[Tensor], Tensor], without: str, bench: Bench
) -> Finding | None:
    for batch in batches(bench, module):
        found, rewards = batch["advantages"], batch["rewards"]
        known = [(without, rewards)]
        if finding := named(found, estimate(rewards), known, what="advantages of a step"):
            return finding
    return None


def old_log_probs(module: str, bench: Bench) -> Finding | None:
    """Whether those of each step are the learner's, before its first update."""
    for batch in batches(bench, module):
        off = _off_by(batch["old_log_probs"], batch["begun"], batch["rollout"])
        if off > 1e-6:
            return blamed("old-log-probs-too-late", f"off by up to {off:.3g} nats")
    return None


def moves(
    module: str,
    gradient: Callable[[Mapping[str, Any], oracle.Weights], oracle.Weights],
    what: str,
    mistake: str,
    bench: Bench,
) -> Finding | None:
    """Whether the weights move by the gradients of what a step says that it used.

    Args:
        module: the trainer.
        gradient: batch, weights → what one update on the batch takes off these weights.
        what: in words.
        mistake: that is blamed where they do not.
        bench: that answers.
    """
    for batch in batches(bench, module):
        right = batch["begun"]
        for _ in range(SIZES[module].get("epochs", 1)):
            slopes = gradient(batch, right)
            right = {name: right[name] - RATE * slopes[name] for name in right}
        moved, expected = (
            (oracle.flat(batch["begun"]) - oracle.flat(after)) / RATE
            for after in (batch["weights"], right)
        )
        if finding := named(moved, expected, what=what):
            return blamed(mistake, finding.evidence)
    return None


def _reinforce_gradient(batch: Mapping[str, Any], weights: oracle.Weights) -> oracle.Weights:
    rollout, A = batch["rollout"], batch["advantages"].double()[:, None]
    return oracle.gradient(weights, rollout, -A * rollout["mask"] / 48)


def _grpo_gradient(batch: Mapping[str, Any], weights: oracle.Weights) -> oracle.Weights:
    rollout, A = batch["rollout"], batch["advantages"].double()[:, None]
    log_ratio = oracle.log_probs(weights, rollout) - oracle.log_probs(batch["begun"], rollout)
    c = ratio_derivative(log_ratio, A) * _weights(rollout["mask"], "sequence")
    return oracle.gradient(weights, rollout, c)


def curve(module: str, bench: Bench) -> Finding | None:
    """Whether some steps of Adam answer more of the held-out problems."""
    weights = bench("learned", module, WARM.single, 0, STEPS)
    before, after = oracle.accuracy(WARM.single), oracle.accuracy(weights)
    if after - before >= GAIN:
        return None
    return blamed(
        "", f"held-out problems right: {before:.2f} before, {after:.2f} after {STEPS} steps"
    )


# ---------------------------------------------------------------- groups and averages


def _z_scores(rewards: Tensor) -> Tensor:
    """Written out a second way: group by group."""
    found = []
    for group in rewards.double().split(4):
        same = bool((group == group[0]).all())
        found.append(group * 0 if same else (group - group.mean()) / (group.std() + 1e-4))
    return torch.cat(found)


def _group_advantages(bench: Bench) -> Finding | None:
    for seed in range(3):
        source = torch.Generator().manual_seed(seed)
        rewards = torch.rand(12, generator=source, dtype=torch.float64) * 3
        across = torch.arange(12).view(4, 3).T.flatten()
        # A mean across prompts may be put back in its place, or not.
        back = _z_scores(rewards[across])[across.argsort()]
        answer = calling("call", "grpo", "group_advantages", [rewards, 4])
        wrong = chain(with_each_mistake("grpo", answer), [("groups-of-every-pth-row", back)])
        what = "advantages of three groups of four"
        if finding := named(answer(bench), _z_scores(rewards), wrong, what=what):
            return finding
    return None


def _flat_groups(bench: Bench) -> Finding | None:
    """All rewards equal, and a mean that float32 cannot hold."""
    for value in (0.1, 1 / 3, -0.7, 1.0):
        rewards = torch.full((14,), value, dtype=torch.float32)
        found = bench("call", "grpo", "group_advantages", [rewards, 7])
        if not isinstance(found, Tensor) or found.shape != (14,) or found.any():
            return blamed("amplified-rounding", f"all rewards are {value:.3g}: {found[0]:.3g}")
    return None


def _weights(mask: Tensor, mode: str) -> Tensor:
    """Written out a second way: response by response."""
    rows = torch.zeros(mask.shape, dtype=torch.float64)
    for i, row in enumerate(mask):
        length = int(row.sum())
        denominator = {
            "sequence": len(mask) * length,
            "token": int(mask.sum()),
            "length": len(mask) * mask.shape[1],
        }[mode]
        rows[i, row] = 1 / denominator
    return rows


def _averages(bench: Bench) -> Finding | None:
    mask = oracle.example()["mask"]
    for mode in MODES:
        answer, right = calling("call", "grpo", "weights", [mask, mode, 5]), _weights(mask, mode)
        found = answer(bench)
        finding = named(found, right, with_each_mistake("grpo", answer), what=f'mode "{mode}"')
        if finding is None:
            continue
        if isinstance(found, Tensor) and found.shape == mask.shape:
            inside = named(torch.where(mask, found, 0.0), right, what="")
            if inside is None:
                return blamed("weights-of-padding", finding.evidence)
        return finding
    return None


SECTION = {
    "group": "10.2 The group baseline",
    "sampler": "7.5 Sampling with a KV cache",
    "log-probs": "7.3 The log-probability of a token",
    "reward": "16.4 Masks and rewards: what counts, and what it earns",
    "update": "7.7 REINFORCE on a transformer",
    "credit": "16.5 Advantages: whose credit it is",
    "moves": "16.6 Loss and optimiser: what is minimised, and what moves",
}
SAMPLER = ("rollout", "gap", "draws")

Row = tuple[Any, ...]  # of `laws`; those below are of each piece that has a loop


def grouped(module: str, mixed: str, after: tuple[str, ...]) -> Row:
    """Of groups, and of draws that are new in each step."""
    sentence = "the rows of a group share a prompt, and each step draws new prompts"
    return "groups", sentence, SECTION["credit"], after, partial(_groups, module, mixed)


def rewarded(module: str, after: tuple[str, ...]) -> Row:
    """Of the rewards that a step has used."""
    sentence = "rewards are those of the responses"
    return "rewards", sentence, SECTION["credit"], after, partial(right_rewards, module)


def fresh(module: str, after: tuple[str, ...]) -> Row:
    """Of the weights that a step was sampled by."""
    sentence = "each step is sampled by the weights that it changes"
    section = "7.8 When the sampler is not the learner"
    return "fresh", sentence, section, after, partial(sampled_now, module)


def old_ones(module: str, after: tuple[str, ...], points: int) -> Row:
    """Of the log-probs before the first update of a step."""
    sentence = "old log-probs are the learner's before its first update"
    section = "10.6 PPO's clip, without a critic"
    return "old log-probs", sentence, section, after, partial(old_log_probs, module), points


def gains(module: str, section: str, after: tuple[str, ...]) -> Row:
    """Of the curve, which comes last."""
    sentence = f"{STEPS} steps of Adam gain {GAIN:.0%} of held-out problems"
    return "curve", sentence, section, after, partial(curve, module), 2


LAWS: Sequence[Law] = (
    *laws(
        "reinforce",
        ("rollout", "mask and `finished` follow from the tokens", SECTION["sampler"], (), _form, 2),
        (
            "gap",
            "the sampler's log-probs are those of the weights (sampler–learner gap)",
            SECTION["sampler"],
            ("rollout",),
            _gap,
        ),
        ("draws", "tokens are drawn from the policy", SECTION["sampler"], ("gap",), _draws),
        ("log-probs", "log-probs, to the last digit", SECTION["log-probs"], (), _log_probs, 2),
        ("reward", "a cut and a finished response", SECTION["reward"], (), _score, 2),
        (
            "update",
            "the gradient: every EOS trained, no padding, and the same for every micro-batch",
            SECTION["update"],
            ("log-probs",),
            _update,
            3,
        ),
        grouped("reinforce", "mixed-groups", SAMPLER),
        rewarded("reinforce", ("groups", "reward")),
        fresh("reinforce", ("groups",)),
        (
            "flat groups",
            "advantages compare, so that a group without spread moves nothing",
            SECTION["credit"],
            ("groups",),
            partial(
                _credit, "reinforce", partial(book.leave_one_out, group_size=4), "no-baseline"
            ),
            2,
        ),
        (
            "moves",
            "the weights move by the gradient of the batch",
            SECTION["moves"],
            ("update", "groups"),
            partial(moves, "reinforce", _reinforce_gradient, ONE_GRADIENT, "idle"),
            2,
        ),
        gains(
            "reinforce",
            SECTION["update"],
            (*SAMPLER, "update", "rewards", "fresh", "flat groups", "moves"),
        ),
    ),
    *laws(
        "grpo",
        ("advantages", "z-scores within a group", SECTION["group"], (), _group_advantages, 2),
        (
            "flat groups",
            "a group without spread has advantages of exactly 0",
            "10.4 Zero-variance groups",
            ("advantages",),
            _flat_groups,
        ),
        ("averages", "three averages", "10.7 The mean over tokens", (), _averages, 3),
        (
            "update",
            "the gradient of the clipped loss, the same for every micro-batch",
            "10.6 PPO's clip, without a critic",
            ("averages",),
            _grpo_update,
            3,
        ),
        grouped("grpo", "scattered-groups", ()),
        rewarded("grpo", ("groups",)),
        fresh("grpo", ("groups",)),
        (
            "credit",
            "advantages are those of the rewards",
            SECTION["credit"],
            ("advantages", "flat groups", "groups"),
            partial(_credit, "grpo", _z_scores, "rewards-for-advantages"),
        ),
        old_ones("grpo", ("groups",), 2),
        (
            "moves",
            "the weights move by two updates on the batch",
            SECTION["moves"],
            ("update", "old log-probs"),
            partial(moves, "grpo", _grpo_gradient, TWO_GRADIENTS, "one-epoch"),
            2,
        ),
        gains(
            "grpo",
            "10.10 The algorithms compared after equally many answers",
            ("update", "rewards", "fresh", "credit", "moves"),
        ),
    ),
)  # fmt: skip
