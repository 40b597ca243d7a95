"""Checks of chapter 7: which logits chose a token, who said what, and whom the sampler was."""

import math

import torch
from torch import Generator, Tensor

from nbcourse.checks.attempt import Attempt, as_tensor
from nbcourse.checks.sheet import Exercises, Numbers

EXERCISES = Exercises()


@EXERCISES.add("Shift by one")
def mend_the_shift(attempt: Attempt, generator: Generator) -> None:
    probs = torch.tensor([[0.5, 0.5], [0.7, 0.3], [0.25, 0.75], [0.2, 0.8], [0.1, 0.9]])
    logits, lines = (probs.log() + 3.0)[None], torch.tensor([[1, 0, 1, 0, 1]])
    pi = probs.tolist()
    attempt.equal(
        attempt(logits, lines, 3),
        torch.tensor([[pi[2][0], pi[3][1]]]).log(),
        case="probabilities [0.5, 0.5], [0.7, 0.3], [0.25, 0.75], [0.2, 0.8], [0.1, 0.9] at the "
        "positions of the line [1, 0, 1 | 0, 1]",
        mistakes={
            "each token is scored by the logits of its own position; those were made when the "
            "token was there already, and chose the next one": (
                torch.tensor([[pi[3][0], pi[4][1]]]).log()
            ),
            "the logits are those of two positions before the token": (
                torch.tensor([[pi[1][0], pi[2][1]]]).log()
            ),
            "the logits are read from the beginning of the line; the first answer token was chosen "
            "at the end of the prompt": torch.tensor([[pi[0][0], pi[1][1]]]).log(),
            "the logits are right, but they score the tokens one place before": (
                torch.tensor([[pi[2][1], pi[3][0]]]).log()
            ),
            "these are logits; without the softmax they are log-probabilities up to a constant "
            "that is different in each state": torch.tensor([[pi[2][0], pi[3][1]]]).log() + 3.0,
            "these are probabilities, and not their logarithms": (
                torch.tensor([[pi[2][0], pi[3][1]]])
            ),
            "the softmax runs over the positions; it is the tokens of one position that compete": (
                logits.log_softmax(dim=1)[:, 2:4].gather(-1, lines[:, 3:, None])[..., 0]
            ),
        },
    )
    logits = torch.randn(3, 7, 5, generator=generator, dtype=torch.float64)
    lines = torch.randint(0, 5, (3, 7), generator=generator)
    expected = torch.empty(3, 5, dtype=torch.float64)
    for b in range(3):
        for t in range(5):
            z = logits[b, 2 + t - 1].tolist()
            expected[b, t] = z[lines[b, 2 + t]] - math.log(sum(map(math.exp, z)))
    attempt.equal(attempt(logits, lines, 2), expected, case="three random lines, prompts of two")
    logits[:, [0, 6]] = math.nan
    attempt.equal(
        attempt(logits, lines, 2),
        expected,
        case="the same lines, with NaN in the logits of the first and of the last position",
        mistakes={
            "NaN at the first and at the last position changed the result. The first chose a token "
            "of the prompt, and the last one chose nothing": math.nan
        },
    )


def three_weights(generator: Generator) -> Numbers:
    """Whole numbers that the probabilities of three tokens are proportional to, all different."""
    return {"weights": (torch.randperm(6, generator=generator)[:3] + 1).tolist()}


@EXERCISES.add("7.3 The log-probability of a token", numbers=three_weights)
def by_hand(attempt: Attempt, generator: Generator) -> None:
    weights = torch.tensor(three_weights(generator)["weights"]).double()
    pi = weights / weights.sum()

    def tempered(exponent: float) -> Tensor:
        return weights**exponent / (weights**exponent).sum()

    mu = tempered(2.0)
    exponentiated = (weights / 0.5).softmax(dim=0)
    mu_on_paper = mu.round(decimals=2)
    attempt.equal(
        attempt(),
        torch.stack([mu, pi / mu]),
        case=f"your tokens {[int(w) for w in weights]}",
        mistakes={
            "those are the probabilities at τ = 2, with square roots; dividing logits by ½ doubles "
            "them, and the probabilities are squared": (
                torch.stack([tempered(0.5), pi / tempered(0.5)])
            ),
            "the logits are the *logarithms* of these weights; you took the weights themselves for "
            "logits": torch.stack([exponentiated, pi / exponentiated]),
            "the squares have not been divided by their sum": torch.stack([pi**2, 1 / pi]),
            "the first row is right, but the ratio is upside down: learner over sampler": (
                torch.stack([mu, mu / pi])
            ),
            "the first row is right; the second is a difference, and should be a ratio": (
                torch.stack([mu, pi - mu])
            ),
            "the first row is right; the ratios were formed from rounded numbers. "
            "Round only at the end": torch.stack([mu_on_paper, pi / mu_on_paper]),
            "the first row is right; the ratios were formed from rounded numbers, π and μ alike. "
            "Round only at the end": torch.stack([mu_on_paper, pi.round(decimals=2) / mu_on_paper]),
            "that is π itself: probabilities that are all divided by one number and normalised "
            "again are what they were; the temperature divides the logits": (
                torch.stack([pi, torch.ones_like(pi)])
            ),
            "the temperature divides the logits, and not the probabilities": (
                torch.stack([2 * pi, torch.full_like(pi, 0.5)])
            ),
        },
        tolerance=6e-3,
    )


@EXERCISES.add("7.4 Masks by position")
def chat_mask(attempt: Attempt, generator: Generator) -> None:
    user, assistant, eos = 1, 2, 0
    tokens = torch.tensor(
        [
            [1, 5, 0, 2, 6, 7, 0, 1, 8, 0, 2, 9, 0, 0, 0],
            [1, 5, 4, 0, 2, 6, 7, 8, 9, 6, 7, 8, 9, 6, 7],
        ]
    )
    right = _who("....xxx....xx..", ".....xxxxxxxxxx")
    found = attempt(tokens, user, assistant, eos)
    attempt.tensor(found, (2, 15), dtype=torch.bool)
    attempt.equal(
        found,
        right,
        case="the two lines [U 5 E A 6 7 E U 8 E A 9 E | E E] and [U 5 4 E A 6 7 8 …], with "
        "U = 1, A = 2, E = 0",
        mistakes={
            "the ends are missing: that the assistant stopped was its own choice, and must be "
            "trained": _who("....xx.....x...", ".....xxxxxxxxxx"),
            "the markers are written by the template and not chosen by the policy": (
                _who("...xxxx...xxx..", "....xxxxxxxxxxx")
            ),
            "padding is trained: the policy's turn is over with its first EOS": (
                _who("....xxx....xxxx", ".....xxxxxxxxxx")
            ),
            "everything after the first A is trained, also what the user said in between": (
                _who("....xxxxxxxxxxx", ".....xxxxxxxxxx")
            ),
            "only the last of the assistant's turns is there": (
                _who("...........xx..", ".....xxxxxxxxxx")
            ),
            "only the first of the assistant's turns is there": (
                _who("....xxx........", ".....xxxxxxxxxx")
            ),
            "a turn that was cut off has no EOS, and is trained all the same": (
                _who("....xxx....xx..", "...............")
            ),
            "these are the turns of the user": _who(".xx.....xx.....", ".xxx..........."),
        },
    )
    lines, masks = [], []
    for _ in range(8):
        line, mask = [], []
        for speaker in (user, assistant, user, assistant):
            count = int(torch.randint(0, 4, (), generator=generator))
            said = torch.randint(3, 9, (count,), generator=generator).tolist()
            line += [speaker, *said, eos]
            mask += [False] + [speaker == assistant] * (count + 1)
        lines.append(line + [eos] * (24 - len(line)))
        masks.append(mask + [False] * (24 - len(mask)))
    attempt.equal(
        attempt(torch.tensor(lines), user, assistant, eos),
        torch.tensor(masks),
        case="eight random conversations of four turns, some of them empty",
    )


def _who(*rows: str) -> Tensor:
    return torch.tensor([[mark == "x" for mark in row] for row in rows])


EVIDENCE = {
    "right": "these numbers agree with log π of the tokens to the fifth decimal. There is nothing "
    "to explain.",
    "shifted": "each number agrees with the *next* row of the logits, the one at the token's own "
    "position. Their mean is below chance, as that of a sampler's own tokens is not.",
    "temperature": "divide the logits by 0.6 before the softmax, and the numbers agree.",
    "truncated": "every number is larger than log π, by minus the log of what the three likeliest "
    "tokens of its row hold together.",
    "rounded": "the numbers are off by thousandths, without a pattern: far more than float32 would "
    "explain, and far less than another policy. That is bfloat16.",
}


@EXERCISES.add("7.3 The log-probability of a token")
def explain_the_gap(attempt: Attempt, generator: Generator) -> None:
    for truth in ("right", "rounded", "shifted", "temperature", "truncated"):
        among = {word: EVIDENCE[truth] for word in EVIDENCE if word != truth}
        for _ in range(3):
            logits = 2 * torch.randn(31, 6, generator=generator)
            top = logits[:-1].topk(3, dim=-1)
            drawn = torch.multinomial(top.values.softmax(dim=-1), 1, generator=generator)
            tokens = top.indices.gather(-1, drawn)
            log_pi = {
                "right": logits[:-1].log_softmax(dim=-1),
                "shifted": logits[1:].log_softmax(dim=-1),
                "temperature": (logits[:-1] / 0.6).log_softmax(dim=-1),
                "rounded": logits[:-1].bfloat16().log_softmax(dim=-1).float(),
                "truncated": logits[:-1] - top.values.logsumexp(dim=-1, keepdim=True),
            }[truth]
            found = attempt(logits, tokens[:, 0], log_pi.gather(-1, tokens)[:, 0])
            attempt.choice(found, truth, among)


@EXERCISES.add("7.8 When the sampler is not the learner")
def what_the_ratio_mends(attempt: Attempt, generator: Generator) -> None:
    pi = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    mu = torch.tensor([25.0, 9.0, 0.0]).double() / 34  # the squares of π, kept and normalised
    hot = torch.tensor([5.0, 3.0, 0.0]).double() / 8
    naive, weighted = mu - pi, torch.tensor([0.1, 0.06, -0.16], dtype=torch.float64)
    nothing, ratio = torch.zeros_like(pi), torch.where(mu > 0, pi / mu, 0.0)
    attempt.equal(
        attempt(pi.log(), 0.5, 2),
        torch.stack([naive, weighted]),
        case="π = [0.5, 0.3, 0.2], sampled at τ = ½ from the two likeliest",
        mistakes={
            "the first row would be right for a sampler at τ = 1": (
                torch.stack([hot - pi, weighted])
            ),
            "the third token was drawn: top-k has been forgotten": torch.stack(
                [torch.tensor([25.0, 9.0, 4.0]).double() / 38 - pi, nothing]
            ),
            "the ratio does not repair everything: what is never drawn cannot be weighted": (
                torch.stack([naive, nothing])
            ),
            "you have used the sampler's own score; the learner differentiates log π, and it is "
            "the mismatch of the two that pushes": (
                torch.stack([nothing, pi * (mu > 0) - 0.8 * mu])
            ),
            "the sign is that of the loss": -torch.stack([naive, weighted]),
            "the second row would be right for the learner's probabilities on the kept tokens, "
            "divided by their sum; the ratio as it is does not add up to 1 under the sampler": (
                torch.stack([naive, weighted / 0.8])
            ),
            "the ratio was differentiated as well; it is a weight, a number": torch.stack(
                [naive, _weighted_scores(mu, ratio * (1 + pi.log()), pi)]
            ),
            "the two rows are exchanged": torch.stack([weighted, naive]),
            "the ratio is upside down; the weight is learner over sampler": (
                torch.stack([naive, _weighted_scores(mu, mu / pi, pi)])
            ),
            "after top-k the probabilities have to be divided by their sum": torch.stack(
                [(mu - pi) * 34 / 38, weighted]
            ),
            "for a token that is never drawn π/μ is infinite, and 0 times infinity is NaN; sum "
            "over the tokens that are kept": torch.stack([naive, torch.full_like(pi, math.nan)]),
        },
    )
    for temperature, k in ((0.7, 3), (1.6, 5), (1.0, 1)):
        z = torch.randn(6, generator=generator, dtype=torch.float64)
        kept = sorted(range(6), key=lambda a: -z[a].item())[:k]
        weights = [math.exp(z[a] / temperature) if a in kept else 0.0 for a in range(6)]
        mu, pi = torch.tensor(weights).double() / sum(weights), z.softmax(dim=0)
        ratio = torch.where(mu > 0, pi / mu, 0.0)
        rows = [_weighted_scores(mu, weight, pi) for weight in (torch.ones(6).double(), ratio)]
        attempt.equal(
            attempt(z, temperature, k),
            torch.stack(rows),
            case=f"six random logits, τ = {temperature}, k = {k}",
        )
    mended = as_tensor(attempt(z, 0.3, 6))[1]
    attempt.holds(
        bool(mended.abs().max() < 1e-6),
        "without top-k, the ratio corrects any temperature",
        otherwise="With k = 6 of six tokens all of them are drawn, and the ratio makes the mean "
        "push exactly 0 at any temperature. Yours is not.",
    )


def _weighted_scores(mu: Tensor, weight: Tensor, scored: Tensor) -> Tensor:
    """Σ μ(a) w(a) (e_a − p), token by token."""
    return sum(
        (mu[a] * weight[a] * (torch.eye(len(mu)).double()[a] - scored) for a in range(len(mu))),
        start=torch.zeros_like(mu),
    )


@EXERCISES.add(
    "The temperature, exactly as sampled",
    elsewhere="The check needs thousands of drawn tokens, which takes a browser minutes.",
)
def which_temperature(attempt: Attempt, generator: Generator) -> None:
    logits, tokens = torch.tensor([[1.0, 0.0]]).repeat(4, 1), torch.tensor([0, 0, 0, 1])
    attempt.equal(
        attempt(logits, tokens),
        1 / math.log(3),
        case="logits [1, 0] four times, tokens [0, 0, 0, 1], where 1/τ = log(0.75/0.25)",
        mistakes={
            "that is 1/τ": math.log(3),
            "that is the smallest temperature allowed. The normaliser of the softmax also depends "
            "on τ, and it is log-probabilities that are added up; or the smallest sum was taken "
            "instead of the largest": 0.05,
            "that is the largest temperature allowed: the search goes the wrong way": 20.0,
        },
        tolerance=6e-3,
    )
    two_states = torch.tensor([[1.0, 0.0], [5.0, 5.0]]).repeat_interleave(4, dim=0)
    attempt.equal(
        attempt(two_states, torch.tensor([0, 0, 0, 1, 0, 1, 1, 1])),
        1 / math.log(3),
        case="the same with four tokens of a state whose logits are equal, and which says nothing "
        "about τ",
        mistakes={
            "the logits of different states were thrown together; each state has a normaliser of "
            "its own": _likeliest(
                two_states.mean(dim=0).expand(8, 2), torch.tensor([0, 0, 0, 1, 0, 1, 1, 1])
            ),
        },
        tolerance=6e-3,
    )
    for true in (0.6, 1.7):
        logits = 2 * torch.randn(1500, 6, generator=generator, dtype=torch.float64)
        tokens = torch.multinomial((logits / true).softmax(dim=-1), 1, generator=generator)[:, 0]
        attempt.equal(
            attempt(logits, tokens),
            _likeliest(logits, tokens),
            case=f"1,500 tokens drawn at τ = {true}",
            mistakes={
                "that is an end of the interval. A product of 1,500 probabilities is 0 in floating "
                "point, for every τ: add logarithms": 0.05,
            },
            tolerance=6e-3,
        )
        moved = logits + torch.randn(1500, 1, generator=generator, dtype=torch.float64)
        attempt.equal(
            attempt(2 * moved, tokens),
            2 * _likeliest(logits, tokens),
            case="logits twice as large, each state's moved by a constant: twice the temperature",
            tolerance=1e-2,
        )


def _likeliest(logits: Tensor, tokens: Tensor) -> float:
    """The temperature at which the mean logit is as large as that of the drawn tokens."""
    low, high = 1 / 20, 1 / 0.05  # of 1/τ
    observed = logits.double().gather(-1, tokens[:, None]).mean()
    for _ in range(60):
        middle = (low + high) / 2
        mean = ((middle * logits.double()).softmax(dim=-1) * logits).sum(dim=-1).mean()
        low, high = (middle, high) if mean < observed else (low, middle)
    return 1 / low
