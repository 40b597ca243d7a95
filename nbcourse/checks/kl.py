"""Checks of chapter 11: what an estimate estimates, what it pushes at, and where answers lead."""

import math
from collections.abc import Callable
from itertools import product

import torch
from torch import Generator, Tensor

from nbcourse.checks.attempt import Attempt, NotRight, as_tensor
from nbcourse.checks.sheet import Exercises, Numbers

EXERCISES = Exercises()

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
NATS = 0.1


@EXERCISES.add("11.2 Estimating the KL: k1, k2 and k3")
def mend_the_curve(attempt: Attempt, generator: Generator) -> None:
    log_probs = torch.tensor([[0.5, 0.2, 0.3, 0.5]]).log()
    ref_log_probs = torch.tensor([[0.25, 0.8, 0.3, 0.9]]).log()
    mask = torch.tensor([[True, True, True, False]])
    d = log_probs - ref_log_probs

    def masked(k: Tensor) -> Tensor:
        return k.masked_fill(~mask, 0.0)

    result = masked((-d).expm1() + d)
    attempt.equal(
        attempt(log_probs, ref_log_probs, mask),
        result,
        case="π_ref/π = 1/2, 4 and 1, and padding",
        mistakes={
            "the ratio is upside down: π/π_ref − 1 has no mean of 0 under π, the mean of this one "
            "is χ² − KL": masked(d.expm1() - d),
            "that is k1, the log-ratio itself": masked(d),
            "that is −k1": masked(-d),
            "that is k2, half the square of the log-ratio, whose mean is not the KL": masked(
                d**2 / 2
            ),
            "that is the control variate alone, π_ref/π − 1; k1 has to be added": masked(
                (-d).expm1()
            ),
            "k1 has the wrong sign: the tangent of e^(−d) at 0 is 1 − d, and that is what comes "
            "off": masked((-d).expm1() - d),
            "the estimate of padding is not 0": (-d).expm1() + d,
        },
    )
    garbage = torch.tensor([[math.nan, -math.inf]])
    attempt.equal(
        attempt(garbage, garbage.flip(1), torch.zeros(1, 2, dtype=torch.bool)),
        torch.zeros(1, 2),
        case="padding with log-probabilities of NaN and −∞",
        mistakes={
            "a product with the mask; 0 · NaN is NaN. Choose instead of multiplying": math.nan
        },
    )
    small = torch.tensor([[2.0**-13, -(2.0**-13), 2.0**-12, -(2.0**-11)]])
    found = as_tensor(
        attempt(small - 1, torch.full_like(small, -1.0), torch.ones(1, 4, dtype=torch.bool))
    )
    true = (-small.double()).expm1() + small.double()
    attempt.holds(
        bool(((found / true - 1).abs() < 0.01).all()),
        "two right digits in float32 near the reference",
        otherwise=f"In float32 and for d = 2⁻¹³ k3 is {true[0, 0]:.3g}, and yours is "
        f"{found[0, 0]:.3g}. Likely mistake: e^(−d) is so near 1 that rounding takes the rest; "
        "torch.expm1(−d) is e^(−d) − 1 without the subtraction.",
    )
    pair = torch.tensor([[0.5, 0.2], [0.5, 0.2]]).log(), torch.tensor([[0.25, 0.8]] * 2).log()
    first, second = result[0, :2].tolist()
    attempt.equal(
        attempt(*pair, torch.tensor([[True, False], [True, True]])),
        torch.tensor([[first, 0.0], [first, second]]),
        case="two answers of different lengths, π_ref/π = 1/2 and 4",
    )
    _mean_is_the_kl(attempt, generator)


def _mean_is_the_kl(attempt: Attempt, generator: Generator) -> None:
    policy, reference = (_rows(generator, 3, 5) for _ in range(2))
    estimates = as_tensor(
        attempt(policy.log(), reference.log(), torch.ones(3, 5, dtype=torch.bool))
    )
    attempt.equal(
        (policy * estimates).sum(dim=1),
        (policy * (policy / reference).log()).sum(dim=1),
        case="the mean under π over five tokens, for three random pairs; it has to be the KL",
    )


def _rows(generator: Generator, *shape: int) -> Tensor:
    """Random distributions along the last dimension, float64."""
    return (1.5 * torch.randn(shape, generator=generator, dtype=torch.float64)).softmax(dim=-1)


def two_probabilities(generator: Generator) -> Numbers:
    """π(A) and π_ref(A), in tenths, far enough apart for two decimals to tell mistakes apart."""
    while True:
        p, q = (int(x) / 10 for x in torch.randint(1, 10, (2,), generator=generator))
        far = abs(p - q) > 0.25 and abs(p + q - 1) > 0.05 and p != 0.5
        reverse, _, reward = _loss_and_reward(p, q).tolist()
        if far and abs(reward) > 0.05 and abs(reverse + reward) > 0.05:
            return {"policy": p, "reference": q}


def _loss_and_reward(p: float, q: float, *, sampler: float | None = None) -> Tensor:
    """Mean derivatives by the logit of A: k2 in the loss, k3 in the loss, k3 in the reward."""
    often = p if sampler is None else sampler
    total = torch.zeros(3, dtype=torch.float64)
    for chance, d, score in (
        (often, math.log(p / q), 1 - p),
        (1 - often, math.log((1 - p) / (1 - q)), -p),
    ):
        ratio = math.exp(-d)
        slopes = torch.tensor([d, 1 - ratio, ratio - 1 + d], dtype=torch.float64)
        total += chance * score * slopes
    return total


@EXERCISES.add("11.1 Two answers, by hand", numbers=two_probabilities)
def by_hand(attempt: Attempt, generator: Generator) -> None:
    given = two_probabilities(generator)
    p, q = given["policy"], given["reference"]
    result = _loss_and_reward(p, q)
    reverse, forward, reward = result.tolist()
    d_a, d_b = math.log(p / q), math.log((1 - p) / (1 - q))
    attempt.equal(
        attempt(),
        result,
        case=f"π(A) = {p}, π_ref(A) = {q}",
        mistakes={
            "all signs are the wrong way round: you are asked for the derivative of a cost, which "
            "training then goes against": -result,
            "the last sign is the wrong way round: k3's value under the policy is the reverse "
            "divergence, and of its derivative the loss has the forward one; the reward has what "
            "is left": torch.tensor([reverse, forward, -reward]),
            "those are derivatives with respect to the probability of A; with respect to its logit "
            "each is p(1 − p) times that": result / (p * (1 - p)),
            "the factor p(1 − p) is missing in the first number: the score is 1 − p for A and −p "
            "for B, and they come with the chances p and 1 − p": torch.tensor(
                [d_a - d_b, forward, reward]
            ),
            "k2 and k3 are exchanged: k2 in the loss has the derivative of the reverse "
            "divergence, k3 that of the forward one": torch.tensor([forward, reverse, reward]),
            "you averaged with the reference's probabilities; samples come from the policy": (
                _loss_and_reward(p, q, sampler=q)
            ),
            "those are mean values of k2 and k3, not derivatives": torch.tensor(
                [
                    (p * d_a**2 + (1 - p) * d_b**2) / 2,
                    p * d_a + (1 - p) * d_b,
                    p * d_a + (1 - p) * d_b,
                ]
            ),
            "k3 in the reward is not k3 in the loss: there the value multiplies the score, here "
            "the slope does": torch.tensor([reverse, forward, forward]),
            "not every unbiased estimate may be used in the reward; with k1 you would be right": (
                torch.tensor([reverse, forward, reverse])
            ),
        },
        tolerance=6e-3,
    )


@EXERCISES.add("11.6 May another estimate be used in the reward?", travels="code")
def which_way(attempt: Attempt, generator: Generator) -> None:
    others = (0.75 + 0.24 * torch.rand(3, generator=generator, dtype=torch.float64)).tolist()
    for q in (0.9, 0.75, 0.25, *others, *(1 - other for other in others)):
        away, back = _two_probabilities(attempt, q)
        if _far(away, q) and _far(back, q) and _pulled_back(away, q) > _pulled_back(back, q):
            raise NotRight(
                f"With q = {q:.3g} the policy π(A) = {away:.3g} is pulled back and {back:.3g} is "
                "driven away. Hand them in the other way round: the one driven away comes first."
            )
        for p in (away, back):
            _far_enough(attempt, p, q)
        attempt.holds(
            not _pulled_back(away, q),
            "the first policy is driven away",
            otherwise=f"With q = {q:.3g} the policy π(A) = {away:.3g} is pulled back. Its p(1 − p) "
            "is larger than on average on the way to the reference; look for a policy that is "
            "surer, of whichever answer.",
        )
        says = f"With q = {q:.3g} the policy π(A) = {back:.3g} is driven away, too. "
        if (back - 0.5) * (q - 0.5) < 0:
            says += (
                "It is too sure of the other answer. How far off a policy is does not help, only "
                "how undecided it is."
            )
        else:
            says += "It is surer of the answer than the reference; look for an undecided one."
        attempt.holds(_pulled_back(back, q), "the second policy is pulled back", otherwise=says)


def _two_probabilities(attempt: Attempt, q: float) -> list[float]:
    found = attempt.numbers(attempt(q), 2, "two probabilities of A")
    for p in found:
        if not 0 < p < 1:
            raise NotRight(
                f"With q = {q:.3g} you gave π(A) = {p:.4g}. A probability of a policy with a "
                "logit lies strictly between 0 and 1."
            )
    return found


def _divergence(p: float, q: float) -> float:
    return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))


def _far(p: float, q: float) -> bool:
    return _divergence(p, q) >= NATS - 1e-9


def _pulled_back(p: float, q: float) -> bool:
    """Whether a step against the mean of k3 × score moves π(A) towards the reference."""
    return _loss_and_reward(p, q)[2].item() * (p - q) > 0


def _far_enough(attempt: Attempt, p: float, q: float) -> None:
    says = (
        f"With q = {q:.3g} the policy π(A) = {p:.3g} is only {_divergence(p, q):.3g} nats from "
        f"the reference, and {NATS} are asked for."
    )
    if _divergence(q, p) >= NATS:
        says += (
            f" KL(π_ref‖π) would be {_divergence(q, p):.3g}, but the divergence of the exercise is "
            "averaged over the policy's answers."
        )
    elif (p - q) * (q - 0.5) > 0:
        says += " On that side there is little room: go nearer to certainty, if that is far enough."
    else:
        says += " Near the reference nearly nothing pulls; go farther."
    attempt.holds(_far(p, q), f"both at least {NATS} nats away", otherwise=says)


@EXERCISES.add("11.3 Answers of many tokens")
def endless_answers(attempt: Attempt, generator: Generator) -> None:
    policy = torch.tensor([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]], dtype=torch.float64)
    reference = torch.tensor([[0.75, 0.125, 0.125], [0.25, 0.25, 0.5]], dtype=torch.float64)
    here, swapped = _row_divergences(policy, reference), _row_divergences(reference, policy)
    visits = _visits(policy)
    tokens_only = (policy * (policy / reference).log())[:, :-1].sum(dim=1)
    once = torch.tensor([1.0, 0.0], dtype=torch.float64)
    attempt.equal(
        attempt.number(attempt(policy, reference)),
        (visits @ here).item(),
        case="two tokens: rows [1/2, 1/4, 1/4] twice, reference [3/4, 1/8, 1/8] and "
        "[1/4, 1/4, 1/2]; token 0 comes by 3 times on average, token 1 once",
        mistakes={
            "the rows are counted as often as the reference visits them; the answers are the "
            "policy's": (_visits(reference) @ here).item(),
            "both divergences are the wrong way round: each row is averaged over what the policy "
            "says next": (visits @ swapped).item(),
            "that is KL(π_ref‖π), with everything exchanged": (_visits(reference) @ swapped).item(),
            "that the answer is over is a decision, too: the last column belongs to the "
            "divergence of a row": (visits @ tokens_only).item(),
            "the table was used the wrong way round: P[i, j] is the chance to go from i to j": (
                torch.linalg.solve(torch.eye(2).double() - policy[:, :-1].T, here)[0].item()
            ),
            "that is the divergence of the first token only; the answer goes on": here[0].item(),
            "each row is counted once; an answer comes by token 0 three times on average": (
                here.sum().item()
            ),
            "the first visit to token 0 is not counted: the prompt ends there, and the first token "
            "of the answer is chosen there": ((visits - once) @ here).item(),
            "that is the mean for one token; the divergence of an answer adds up over its tokens": (
                (visits @ here / visits.sum()).item()
            ),
        },
    )
    policy, reference = (_ending_with(_rows(generator, 4, 4), end) for end in (0.2, 0.3))
    here = _row_divergences(policy, reference)
    attempt.equal(
        attempt.number(attempt(policy, reference)),
        _followed(policy, here),
        case="four tokens, followed until next to none is left",
        tolerance=1e-5,
    )
    policy = _ending_with(_rows(generator, 3, 3), 1e-4)
    reference = _ending_with(_rows(generator, 3, 3), 2e-4)
    expected = (_visits(policy) @ _row_divergences(policy, reference)).item()
    found = attempt.number(attempt(policy, reference))
    attempt.holds(
        abs(found / expected - 1) < 1e-4,
        "answers of ten thousand tokens",
        otherwise=f"For answers of 10,000 tokens on average you get {found:.6g} instead of "
        f"{expected:.6g}. Likely mistake: you follow the answer for a number of steps that was "
        "enough for short ones, or sample; the sum over all lengths has a closed form.",
    )


def _row_divergences(policy: Tensor, reference: Tensor) -> Tensor:
    return (policy * (policy / reference).log()).sum(dim=1)


def _visits(policy: Tensor) -> Tensor:
    """How often each token is the last one written when the next is chosen."""
    start = torch.zeros(len(policy), dtype=policy.dtype)
    start[0] = 1.0
    return torch.linalg.solve(torch.eye(len(policy)).to(policy) - policy[:, :-1].T, start)


def _followed(policy: Tensor, here: Tensor) -> float:
    """The same without a closed form: step by step, until nothing is left."""
    alive, spent = [1.0] + [0.0] * (len(policy) - 1), 0.0
    while sum(alive) > 1e-9:
        spent += sum(a * c for a, c in zip(alive, here.tolist(), strict=True))
        alive = [
            sum(alive[i] * policy[i, j].item() for i in range(len(alive)))
            for j in range(len(alive))
        ]
    return spent


def _ending_with(rows: Tensor, chance: float) -> Tensor:
    return torch.cat([rows * (1 - chance), torch.full((len(rows), 1), chance).to(rows)], dim=1)


@EXERCISES.add("The fix: an attached importance weight", travels="code")
def entropy_bonus(attempt: Attempt, generator: Generator) -> None:
    policy, old = torch.tensor([0.5, 0.8]).double(), torch.tensor([0.25, 0.5]).double()
    lines, old_lines, mask = (x[:2] for x in _listed(policy, old))
    attempt.tensor(attempt(lines, old_lines, mask), ())
    # Batches of two with their probabilities: a baseline made of the other answer is no mistake.
    by_hand = torch.tensor([-0.25 * _entropy(0.8), 0.5 * 0.16 * math.log(4)], dtype=torch.float64)
    attempt.equal(
        _averaged(attempt.gradient, policy, old, batch=2),
        by_hand,
        case="answers of one or two tokens, π(go on) = 0.5 and then 0.8, π_old(go on) = 0.25 and "
        "then 0.5, the mean gradient by the two logits over all batches of two; "
        "H = h(p₁) + p₁ h(p₂), and h′(1/2) = 0",
        mistakes={
            says: _mean_gradient(loss, policy, old) for says, loss in MISTAKEN_ENTROPIES.items()
        }
        | {
            "the sign: this loss lowers the entropy when it is descended": -by_hand,
            "the answers are added up; take their mean": 2 * by_hand,
        },
    )
    for sampler in ("another policy", "the policy itself"):
        policy, old = (0.2 + 0.6 * torch.rand(2, 4, generator=generator)).double()
        if sampler == "the policy itself":
            old = policy
        attempt.equal(
            _averaged(attempt.gradient, policy, old, batch=2),
            _minus_entropy_gradient(policy),
            case=f"answers of up to four tokens, sampled by {sampler}, all of them listed",
        )
    lines, old_lines, mask = _listed(policy, old)
    spoilt = [x.masked_fill(~mask, y) for x, y in ((lines, -7.0), (old_lines, -3.0))]
    clean, padded = (attempt.gradient(*x, mask) for x in ((lines, old_lines), spoilt))
    attempt.holds(
        torch.allclose(padded, clean.masked_fill(~mask, 0.0)),
        "padding counts for nothing",
        otherwise="What is at padding changes the gradient. Put zeros there before you add up "
        "anything, and not afterwards.",
    )


def _listed(policy: Tensor, old: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Every answer of 'go on' (as long as it may) and 'stop': log π, log π_old, mask, (T+1, T)."""
    length = len(policy)
    went_on = torch.ones(length + 1, length, dtype=torch.bool).tril(-1)
    mask = torch.ones(length + 1, length, dtype=torch.bool).tril()
    log_probs, old_log_probs = (
        torch.where(went_on, p.log(), (1 - p).log()).masked_fill(~mask, 0.0) for p in (policy, old)
    )
    return log_probs, old_log_probs, mask


def _averaged(
    gradient: Callable[..., Tensor], policy: Tensor, old: Tensor, *, batch: int = 1
) -> Tensor:
    """(T,) mean over batches of π_old of a loss's gradient by the logit of 'go on' in each place.

    `gradient` is that of the loss of a batch by its log-probs, (batch, T).
    """
    lines = _listed(policy, old)
    went_on = torch.ones(len(policy) + 1, len(policy)).double().tril(-1)
    scores, chances = (went_on - policy) * lines[2], lines[1].sum(dim=1).exp()
    total = torch.zeros_like(policy)
    for answers in product(range(len(policy) + 1), repeat=batch):
        rows = list(answers)
        slopes = gradient(*(x[rows] for x in lines))
        total += chances[rows].prod() * (slopes * scores[rows]).sum(dim=0)
    return total


def _mean_gradient(loss: Loss, policy: Tensor, old: Tensor) -> Tensor:
    def gradient(log_probs: Tensor, old_log_probs: Tensor, mask: Tensor) -> Tensor:
        leaf = log_probs.clone().requires_grad_()
        return torch.autograd.grad(loss(leaf, old_log_probs, mask), leaf)[0]

    return _averaged(gradient, policy, old)


def _entropy(p: float) -> float:
    return -p * math.log(p) - (1 - p) * math.log(1 - p)


def _minus_entropy_gradient(policy: Tensor) -> Tensor:
    """By differentiating the sum over all answers."""
    logits = policy.logit().requires_grad_()
    log_probs = _listed(logits.sigmoid(), policy)[0].sum(dim=1)
    return torch.autograd.grad((log_probs.exp() * log_probs).sum(), logits)[0]


def _prefix(now: Tensor, then: Tensor) -> Tensor:
    return (now - then).cumsum(dim=1).exp()


MISTAKEN_ENTROPIES: dict[str, Loss] = {
    "that is log π, differentiated: on average it does nothing while samples are fresh, and on "
    "stale ones it drives away from π_old; nothing in it knows of the entropy": (
        lambda now, then, mask: now.sum()
    ),
    "on average this does nothing. If the weight is detached, stale samples become fresh ones, and "
    "there log π in the loss has the mean gradient 0; and a weight alone has the mean 1, whatever "
    "the parameters are. It takes the product, with the derivatives of both": (
        lambda now, then, mask: (_prefix(now, then).detach() * now).sum()
    ),
    "the weight is the ratio of the single token: right in each place, but the places are those "
    "of π_old, and where a token leads does not count": (
        lambda now, then, mask: ((now - then).exp() * now).sum()
    ),
    "states and places are weighed rightly, but each token is charged for its own log π only; with "
    "the weight detached, what it leads to does not count": lambda now, then, mask: (
        (_prefix(now, then).detach() * now.square()).sum() / 2
    ),
    "half the square of each token's log π has the right gradient in each place only, and only "
    "on fresh samples; for whole answers it lacks the path": lambda now, then, mask: (
        now.square().sum() / 2
    ),
    "half the square of the answer's log π is right on fresh samples; on stale ones it needs the "
    "answer's ratio, detached": lambda now, then, mask: now.sum().square() / 2,
    "the log π in it is frozen at the policy that sampled: that is a cross-entropy, and descending "
    "it leads to whatever π_old found unlikely": lambda now, then, mask: (
        _prefix(now, then) * then
    ).sum(),
    "the weight leaves out the token itself; that is allowed only where the mean over this token "
    "was taken by hand, as with exact entropies": lambda now, then, mask: (
        _prefix(now, then) / (now - then).exp() * now
    ).sum(),
    "the sum is divided by the length of each answer, and so the length of answers is "
    "rewarded or punished besides": lambda now, then, mask: (
        (_prefix(now, then) * now).sum() / mask.sum()
    ),
}
