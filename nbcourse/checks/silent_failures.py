"""Checks of chapter 16: laws of a witness batch, and tests that catch what they should."""

import math
from collections.abc import Callable, Collection, Mapping
from itertools import combinations, product
from typing import Any

import torch
from torch import Generator, Tensor

from nbcourse.checks.attempt import Attempt, NotRight
from nbcourse.checks.sheet import Exercises, Numbers

EXERCISES = Exercises()
MANY_NUMBERS = "The check draws more than 15,000 numbers, too many for this page to carry."

Estimate = Callable[[Tensor, int], Tensor]


@EXERCISES.add("16.4 Masks and rewards: what counts, and what it earns")
def mend_the_law(attempt: Attempt, generator: Generator) -> None:
    padded_by_itself, padded_by_another = [5, 0, 0, 0], [5, 0, 3, 3]
    cut, full = [5, 6, 7, 8], [5, 6, 7, 0]
    rows = [
        *[(padded_by_itself, 2)] * 2,
        (padded_by_itself, 1),
        (full, 3),
        *[(padded_by_another, 1)] * 3,
        *[(cut, 4)] * 3,
        *[(full, 4)] * 3,
        (padded_by_another, 2),
    ]
    tokens = torch.tensor([row for row, _ in rows])
    mask = torch.arange(4) < torch.tensor([[trained] for _, trained in rows])
    attempt.equal(
        attempt(tokens, mask, 0),
        5,
        case="14 responses, of which 11 ended, 5 of them with an end that is not trained",
        mistakes={
            "a response that is padded with its own end token is counted, though its end is "
            "trained: only the *first* end token ends a response, the others are padding": 7,
            "responses that were cut off are counted; they have no end that could be trained": 8,
            "only the last column is looked at; where padding is another token, the end of a "
            "response comes before it": 4,
            "those are the ends that *are* trained": 6,
            "that is a share; you are asked for a number of responses": 5 / 11,
        },
    )
    attempt.equal(
        attempt(
            torch.tensor([[5, 6, 7, 8], [5, 0, 0, 3]]),
            torch.tensor([[False, True, True, True], [True, False, True, False]]),
            0,
        ),
        1,
        case="a response that was cut off, and one whose padding is under the mask and not its end",
        mistakes={
            "the response that was cut off is judged by its first token, where argmax points if "
            "nothing is found": 2,
            "end tokens in the padding count as its end; it is the first one alone": 0,
        },
    )
    for _ in range(3):
        tokens = torch.randint(0, 4, (40, 6), generator=generator)
        mask = torch.rand(40, 6, generator=generator) < 0.7
        first = [row.index(0) if 0 in row else None for row in tokens.tolist()]
        untrained = [at is not None and not bool(mask[i, at]) for i, at in enumerate(first)]
        somewhere = [at is not None and not bool(mask[i].all()) for i, at in enumerate(first)]
        attempt.equal(
            attempt(tokens, mask, 0),
            sum(untrained),
            case="40 random responses and masks",
            mistakes={
                "a hole anywhere in the mask is counted; the law asks for the end token alone": (
                    sum(somewhere)
                )
            },
        )


def two_probabilities(generator: Generator) -> Numbers:
    """A token's probability by the policy, and as the sampler reports it."""
    temperatures, probabilities = (0.5, 0.6, 0.7, 0.8), (0.65, 0.7, 0.75, 0.8)
    while True:
        temperature = temperatures[int(torch.randint(0, 4, (), generator=generator))]
        policy = probabilities[int(torch.randint(0, 4, (), generator=generator))]
        if policy != 0.7 or temperature < 0.65:  # or the ratio of the odds is nearly τ, too
            break
    odds = (policy / (1 - policy)) ** (1 / temperature)
    return {"policy": policy, "sampler": round(odds / (1 + odds), 4)}


@EXERCISES.add("16.3 Sampler and log-probs: who samples, and who scores", numbers=two_probabilities)
def by_hand(attempt: Attempt, generator: Generator) -> None:
    numbers = two_probabilities(generator)
    p, q = numbers["policy"], numbers["sampler"]
    log_odds = [math.log(x / (1 - x)) for x in (p, q)]
    result = log_odds[0] / log_odds[1]
    attempt.equal(
        attempt(),
        result,
        case=f"the policy gives {p}, the sampler reports {q}",
        mistakes={
            "that is 1/τ: a colder sampler has τ below 1, and larger log-odds": 1 / result,
            "log-probs are not divided by the temperature; logits are, and the difference of the "
            "two logits is the logarithm of the *odds*, p/(1 − p)": math.log(p) / math.log(q),
            "that is the ratio of the probabilities; the temperature acts on their logarithms, "
            "and the other answer is there, too": p / q,
            "that is the ratio of the odds; take their logarithms first": (
                p / (1 - p) / (q / (1 - q))
            ),
            "a temperature divides the log-odds; you have subtracted them": (
                log_odds[1] - log_odds[0]
            ),
        },
        tolerance=6e-3,
    )


# ---------------------------------------------------------------- a test, by what it catches


def _z_scores(
    rewards: Tensor,
    size: int,
    eps: float = 1e-4,
    *,
    centre: Tensor | None = None,
    power: int = 1,
) -> Tensor:
    """GRPO's advantages; wrong ones with another centre, or another power of the deviation."""
    r = rewards.view(-1, size)
    spread = r.amax(dim=1, keepdim=True) > r.amin(dim=1, keepdim=True)
    centre = r.mean(dim=1, keepdim=True) if centre is None else centre
    z = (r - centre) / (r.std(dim=1, keepdim=True) ** power + eps)
    return torch.where(spread, z, 0.0).flatten()


def _across_prompts(rewards: Tensor, size: int) -> Tensor:
    order = torch.arange(len(rewards)).view(size, -1).T.flatten()
    return _z_scores(rewards[order], size)[order.argsort()]


def _of_the_next_group(rewards: Tensor, size: int) -> Tensor:
    return _z_scores(rewards, size).roll(size)


def _divided_in_any_case(rewards: Tensor, size: int) -> Tensor:
    r = rewards.view(-1, size)
    return ((r - r.mean(dim=1, keepdim=True)) / (r.std(dim=1, keepdim=True) + 1e-9)).flatten()


HEALTHY: Mapping[str, Estimate] = {
    "with ε = 1e-4": _z_scores,
    "with ε = 1e-8": lambda r, size: _z_scores(r, size, 1e-8),
    "in float64": lambda r, size: _z_scores(r.double(), size, 1e-6).float(),
}
BROKEN: Mapping[str, tuple[Estimate, str]] = {
    "compares responses to different prompts": (
        _across_prompts,
        "take two prompts at least, of which one is easier than the other",
    ),
    "subtracts the mean of the whole batch": (
        lambda r, size: _z_scores(r, size, centre=r.mean()),
        "let a group with a spread have another mean than the batch",
    ),
    "has the wrong sign": (
        lambda r, size: -_z_scores(r, size),
        "let some group have a spread, or every advantage is 0",
    ),
    "divides by the variance": (
        lambda r, size: _z_scores(r, size, power=2),
        "let a group's standard deviation be another number than 1",
    ),
    "divides flat groups by their rounding error": (
        _divided_in_any_case,
        "let all members of a group earn a number whose mean is not exact in float32, and let "
        "the group be large enough for that to show (section 16.5)",
    ),
}


@EXERCISES.add("16.5 Advantages: whose credit it is", travels="code")
def catch_five(attempt: Attempt, generator: Generator) -> None:
    rewards, size, expected = _a_test_case(attempt())
    for name, estimate in HEALTHY.items():
        found = estimate(rewards, size)
        if _passes(found, expected):
            continue
        row = int((found - expected).abs().argmax())
        says = (
            f"Your test accuses a healthy estimator, the one {name}: for row {row} you expect "
            f"{expected[row]:.4g}, and it gives {found[row]:.4g}."
        )
        of_population = _z_scores(rewards, size) * math.sqrt(size / (size - 1))
        if _passes(of_population, expected):
            says += " Likely mistake: the standard deviation has the denominator G − 1."
        elif _passes(_z_scores(rewards, size, power=0), expected):
            says += " Likely mistake: you expect distances from the mean, not divided by anything."
        elif any(_passes(broken(rewards, size), expected) for broken, _ in BROKEN.values()):
            says += " Likely mistake: you expect what one of the *broken* estimators gives."
        raise NotRight(says)
    attempt.holds(True, "no healthy estimator is accused", otherwise="")
    for name, (estimate, advice) in BROKEN.items():
        attempt.holds(
            not _passes(estimate(rewards, size), expected),
            f"caught: one that {name}",
            otherwise=f"Your test passes an estimator that {name}. To catch it, {advice}.",
        )


def _passes(found: Tensor, expected: Tensor) -> bool:
    return bool(torch.allclose(found, expected, rtol=0.0, atol=1e-2))


def _a_test_case(result: Any) -> tuple[Tensor, int, Tensor]:
    if not isinstance(result, tuple | list) or len(result) != 3:
        raise NotRight(
            f"Expected three things, rewards, group_size and expected, got {result!r:.80}."
        )
    size = result[1]
    rewards, expected = (torch.as_tensor(part).float() for part in result[::2])
    size = size.item() if isinstance(size, Tensor) and not size.dim() else size
    if isinstance(size, float) and size.is_integer():
        size = int(size)
    if isinstance(size, bool) or not isinstance(size, int) or size < 2:
        raise NotRight(f"group_size is {size!r}, expected a whole number, 2 or more.")
    if rewards.dim() != 1 or not 0 < len(rewards) <= 64 or len(rewards) % size:
        raise NotRight(
            f"rewards have shape {tuple(rewards.shape)}, expected (B,) with B at most 64 and a "
            f"multiple of the group size {size}."
        )
    if expected.shape != rewards.shape:
        raise NotRight(
            f"expected has shape {tuple(expected.shape)}, and there are {len(rewards)} rewards: "
            "one advantage for each."
        )
    return rewards, size, expected


# ---------------------------------------------------------------- which fault it is

FAULTS = ("sampler", "old", "ends", "groups")
WORDS = ("healthy", *FAULTS)
SIZE = 4


def _witness(
    faults: Collection[str], generator: Generator, *, turn: int | None = None
) -> dict[str, Tensor]:
    """Twelve responses to three prompts; what stands behind an end is garbage.

    Wrong advantages come by turns from other prompts and, with a mean of 0 in every group, from the
    next group; without a turn by chance.
    """
    rows, columns = 3 * SIZE, 6
    lengths = torch.randint(2, columns + 1, (rows,), generator=generator)
    inside = torch.arange(columns) < lengths[:, None]

    def rounding() -> Tensor:
        return 2e-5 * (torch.rand(rows, columns, generator=generator) - 0.5)

    plain = -3 * torch.rand(rows, columns, generator=generator) - 0.05
    other = torch.where(torch.arange(columns) % 2 == 0, 0.2, -0.2).expand(rows, -1).clone()
    other[torch.arange(rows), (lengths - 1) // 2 * 2] *= 0.0 + (lengths % 2 == 0)  # mean 0
    scored = plain + rounding()
    tables = {
        "plain": plain,
        "sampler": plain + rounding() + (other if "sampler" in faults else 0.0),
        "scored": scored,
        "old": scored + (other if "old" in faults else rounding()),
    }
    rewards = torch.randint(0, 2, (rows,), generator=generator).float()
    rewards[:SIZE], rewards[SIZE : SIZE + 2] = 1.0, torch.tensor([1.0, 0.0])
    rewards[-1] = 0.0
    estimate: Estimate = _z_scores
    if "groups" in faults:
        turn = int(lengths.sum()) if turn is None else turn
        estimate = (_across_prompts, _of_the_next_group)[turn % 2]
    untrained = (torch.arange(rows) % 2 == 0) & ("ends" in faults)  # not of every response
    mask = torch.arange(columns) < (lengths - untrained.int())[:, None]
    return {
        **{
            name: torch.where(inside, table, -50 * torch.rand(table.shape, generator=generator))
            for name, table in tables.items()
        },
        "lengths": lengths,
        "mask": mask,
        "rewards": rewards,
        "advantages": estimate(rewards, SIZE),
    }


MISSED = {
    "healthy": "log-probs differ by rounding, up to 1e-4, and after the end of a response there "
    "is garbage that means nothing; neither is a fault",
    "sampler": "its differences cancel in the mean; look at the largest of them, under the mask",
    "old": "the old log-probs are not those of the learner before its first update (`scored`); "
    "their differences cancel in the mean",
    "ends": "compare how many tokens are under the mask with the length of each response",
    "groups": "the advantages add up to 0 over the batch, and some of them within each group as "
    "well; recompute them from the rewards of the four rows with one prompt",
}


@EXERCISES.add("16.2 Seven laws", travels="results", elsewhere=MANY_NUMBERS)
def name_the_fault(attempt: Attempt, generator: Generator) -> None:
    for turn, kind in product(range(6), WORDS):
        said = attempt(_witness([kind], generator, turn=turn))
        if said not in WORDS:
            raise NotRight(f"Expected one of {', '.join(map(repr, WORDS))}, got {said!r:.60}.")
        wrong = (
            "which accuses a healthy run" if kind == "healthy" else f"and it is a case of {kind!r}"
        )
        attempt.holds(
            said == kind,
            "thirty witnesses, six of them healthy",
            otherwise=f"Your function says {said!r}, {wrong}: {MISSED[kind]}.",
        )


# ---------------------------------------------------------------- several faults at once

HUNTED = (*FAULTS, "loss")
MOST = 3
WRONGLY = {
    "sampler": "the sampler is compared with `plain`, over the tokens that were sampled",
    "old": "the old log-probs are compared with `scored`, and with nothing else",
    "ends": "only the mask and the lengths say whether an end is trained",
    "groups": "the advantages are judged by the rewards, and by nothing that comes later",
    "loss": "the derivative is right for the advantages, the ratio and the mask *that the run "
    "used*, wrong ones among them; take these as they are",
}
UNSEEN = MISSED | {
    "loss": "recompute the derivative of every token under the mask: its sign may be wrong, or "
    "the number that it is divided by",
}


def _slopes(witness: Mapping[str, Tensor], *, wrong: str = "") -> Tensor:
    """(R, T) the derivative of the loss by each log-prob, 0 outside of the mask."""
    mask, ratio = witness["mask"], (witness["scored"] - witness["old"]).exp()
    tokens = mask.sum(dim=1, keepdim=True)
    divided_by = mask.shape[1] if wrong == "padding" else tokens
    right = -ratio * witness["advantages"][:, None] / (len(mask) * divided_by)
    return torch.where(mask, -right if wrong == "sign" else right, 0.0)


@EXERCISES.add("16.11 Several faults at once", travels="results", elsewhere=MANY_NUMBERS)
def the_hunt(attempt: Attempt, generator: Generator) -> None:
    planted, found = dict.fromkeys(HUNTED, 0), dict.fromkeys(HUNTED, 0)
    falsely: dict[str, list[set[str]]] = {name: [] for name in HUNTED}  # what was there instead
    for count in range(MOST + 1):
        for faults in combinations(HUNTED, count):
            witness = _witness(faults, generator)
            kind = ("sign", "padding")[int(torch.randint(0, 2, (), generator=generator))]
            witness["coefficients"] = _slopes(witness, wrong=kind if "loss" in faults else "")
            said = _verdicts(attempt(witness))
            for name in HUNTED:
                planted[name] += name in faults
                found[name] += said[name] and name in faults
                falsely[name] += [set(faults)] if said[name] and name not in faults else []
    total = (
        f"{sum(found.values())} of {sum(planted.values())} faults found, "
        f"{sum(map(len, falsely.values()))} false accusations, in 26 witnesses."
    )
    for name in HUNTED:
        missed, instead = planted[name] - found[name], falsely[name]
        beside = ", ".join(map(repr, sorted(set.intersection(*instead)))) if instead else ""
        accused = f"Accused falsely, {len(instead)} times: {name!r}"
        accused += f", each time beside {beside}" if beside else ""
        attempt.holds(
            not missed and not instead,
            f"{name!r}: all {planted[name]} found, and none accused falsely",
            otherwise=f"{total} Missed {missed} times: {name!r}; {UNSEEN[name]}."
            if missed
            else f"{total} {accused}; {WRONGLY[name]}.",
        )


def _verdicts(result: Any) -> dict[str, bool]:
    names = ", ".join(map(repr, HUNTED))
    if not isinstance(result, dict) or set(result) != set(HUNTED):
        raise NotRight(f"Expected a dict with the keys {names}, got {result!r:.80}.")
    said = {}
    for name in HUNTED:
        value = result[name]
        value = value.item() if isinstance(value, Tensor) and not value.dim() else value
        if value not in (True, False):
            raise NotRight(f"Expected True or False for {name!r}, got {value!r:.40}.")
        said[name] = bool(value)
    return said


# ---------------------------------------------------------------- how many tokens


@EXERCISES.add("16.3 Sampler and log-probs: who samples, and who scores")
def tokens_needed(attempt: Attempt, generator: Generator) -> None:
    for probs, temperature, z, case in (
        (torch.tensor([0.8, 0.2]), 0.5, 5.0, "π = (0.8, 0.2), τ = 0.5, z = 5"),
        (
            torch.rand(6, generator=generator).softmax(0) ** 2,
            0.7,
            4.0,
            "six random probabilities, τ = 0.7, z = 4",
        ),
    ):
        log_probs = (probs.double() / probs.double().sum()).log()
        needed = _needed(log_probs, temperature)
        attempt.equal(
            attempt(log_probs, temperature, z),
            math.ceil(needed(z)),
            case=case,
            mistakes={
                "τ multiplies the logits; it should divide them": math.ceil(
                    abs(_needed(log_probs, 1 / temperature)(z))
                ),
                "the entropy of the colder distribution was used in place of its *cross*-entropy: "
                "tokens are drawn at τ, and scored at 1": math.ceil(
                    _needed(log_probs, temperature, scored="cold")(z)
                ),
                "the variance is that of the colder draws; the test divides by what it expects of "
                "a fair sampler": math.ceil(_needed(log_probs, temperature, spread="cold")(z)),
                "z is not squared: the sum grows with n, its standard deviation with √n": (
                    math.ceil(needed(math.sqrt(z)))
                ),
                "that many tokens are not enough: round up": math.floor(needed(z)),
                "the standard deviation was used in place of the variance": math.ceil(
                    _needed(log_probs, temperature, root=True)(z)
                ),
            },
        )


def _needed(
    log_probs: Tensor,
    temperature: float,
    *,
    scored: str = "fair",
    spread: str = "fair",
    root: bool = False,
) -> Callable[[float], float]:
    p, cold = log_probs.exp(), (log_probs / temperature).softmax(0)
    surprisal = -log_probs
    fair = (p * surprisal).sum()
    drawn = -(cold * cold.log()).sum() if scored == "cold" else (cold * surprisal).sum()
    q = cold if spread == "cold" else p
    variance = ((q * surprisal.square()).sum() - (q * surprisal).sum() ** 2).item()
    deficit = (fair - drawn).item()
    return lambda z: z**2 * (math.sqrt(variance) if root else variance) / deficit**2
