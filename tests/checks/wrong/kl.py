"""Wrong answers to the exercises of chapter 11."""

import torch


def wrong_answers(sheet):
    p, q = torch.tensor(list(sheet.numbers("by-hand").values()))
    d = torch.stack([p / q, (1 - p) / (1 - q)]).log()
    probs, score = torch.stack([p, 1 - p]), torch.stack([1 - p, -p])
    reverse = p * (1 - p) * (d[0] - d[1])
    forward = p - q

    def per_token(estimate):
        """An estimate as a function of d, set to 0 at padding."""
        return lambda lp, ref, mask: estimate((lp - ref).masked_fill(~mask, 0.0))

    def three(*values):
        return lambda: torch.stack([torch.as_tensor(value) for value in values])

    def averaged(chances):
        slopes = torch.stack([d, -(-d).expm1(), (-d).expm1() + d])
        return lambda: slopes @ (chances * score)

    def divergences(policy, reference):
        return (policy * (policy / reference).log()).sum(dim=1)

    def to_come(table, here):
        eye = torch.eye(len(table)).to(table)
        return torch.linalg.solve(eye - table[:, :-1], here)[0].item()

    def visits(table):
        eye = torch.eye(len(table)).to(table)
        return torch.linalg.solve(eye - table[:, :-1].T, eye[0])

    def followed(policy, reference, steps=200):
        alive, spent = torch.eye(len(policy)).to(policy)[0], 0.0
        for _ in range(steps):
            spent += (alive @ divergences(policy, reference)).item()
            alive = alive @ policy[:, :-1]
        return spent

    def ends_with_the_reference(policy, reference):
        return to_come(reference, divergences(reference, policy))

    def loss(value):
        """A loss for each answer, from log-probs without padding; its mean over the batch."""

        def answer(log_probs, old_log_probs, mask):
            now, then = (x.masked_fill(~mask, 0.0) for x in (log_probs, old_log_probs))
            return value(now, then, mask).mean()

        return answer

    def prefix(now, then):
        return (now - then).cumsum(dim=1).exp()

    def right(now, then, mask):
        return (prefix(now, then) * now).sum(dim=1)

    def unmasked(log_probs, old_log_probs, mask):
        weight = (log_probs - old_log_probs).sum(dim=1, keepdim=True).exp()
        return (weight * log_probs * mask).sum(dim=1).mean()

    return {
        "mend-the-curve": {
            "the first answer's padding for all": (
                lambda new, ref, m: per_token(lambda d: (-d).expm1() + d)(
                    new, ref, m[:1].expand_as(m)
                ),
                "two answers of different lengths",
            ),
            "upside down": (per_token(lambda d: d.expm1() - d), "the ratio is upside down"),
            "k1": (per_token(lambda d: d), "that is k1, the log-ratio itself"),
            "k1 of the other sign": (per_token(lambda d: -d), "that is −k1"),
            "k2": (per_token(lambda d: d**2 / 2), "that is k2"),
            "the control variate": (
                per_token(lambda d: (-d).expm1()),
                "that is the control variate alone",
            ),
            "the tangent's sign": (
                per_token(lambda d: (-d).expm1() - d),
                "k1 has the wrong sign",
            ),
            "no mask": (
                lambda lp, ref, mask: (ref - lp).expm1() - (ref - lp),
                "the estimate of padding is not 0",
            ),
            "times the mask": (
                lambda lp, ref, mask: ((ref - lp).expm1() - (ref - lp)) * mask,
                "0 · NaN is NaN",
            ),
            "exp minus one": (
                per_token(lambda d: (-d).exp() - 1 + d),
                "rounding takes the rest",
            ),
            "the second order alone": (
                per_token(lambda d: d**2 / 2 - d**3 / 6 + d**4 / 24),
                "Wrong for π_ref/π = 1/2, 4 and 1",
            ),
            "the mean": (
                lambda lp, ref, mask: per_token(lambda d: (-d).expm1() + d)(lp, ref, mask).mean(),
                "Expected shape (1, 4), got ()",
            ),
        },
        "by-hand": {
            "all signs": (three(-reverse, -forward, forward - reverse), "all signs"),
            "the last sign": (
                three(reverse, forward, forward - reverse),
                "the last sign is the wrong way round",
            ),
            "by the probability": (
                lambda: averaged(probs)() / (p * (1 - p)),
                "with respect to the probability of A",
            ),
            "no p(1 − p)": (
                three(d[0] - d[1], forward, reverse - forward),
                "the factor p(1 − p) is missing",
            ),
            "k2 and k3 exchanged": (
                three(forward, reverse, reverse - forward),
                "k2 and k3 are exchanged",
            ),
            "averaged over the reference": (
                averaged(torch.stack([q, 1 - q])),
                "you averaged with the reference's probabilities",
            ),
            "values": (
                three(probs @ d**2 / 2, probs @ ((-d).expm1() + d), probs @ d),
                "those are mean values",
            ),
            "the slope in the reward": (
                three(reverse, forward, forward),
                "there the value multiplies the score",
            ),
            "k1 in the reward": (
                three(reverse, forward, reverse),
                "not every unbiased estimate may be used in the reward",
            ),
            "two of them": (three(reverse, forward), "Expected shape (3,), got (2,)"),
        },
        "which-way": {
            "exchanged": (lambda q: (0.5, 1 - q), "Hand them in the other way round"),
            "near the reference": (
                lambda q: (1 - q, 0.95 * q + 0.025),
                "Near the reference nearly nothing pulls",
            ),
            "surer of the same answer": (
                lambda q: (q + 0.9 * (1 - q) if q > 0.5 else 0.1 * q, 0.5),
                "averaged over the policy's answers",
            ),
            "a little surer": (
                lambda q: ((1 + q) / 2 if q > 0.5 else q / 2, 0.5),
                "On that side there is little room",
            ),
            "undecided twice": (lambda q: (0.5, 0.5), "look for a policy that is surer"),
            "as far as possible": (
                lambda q: (1 - q, 0.01 if q > 0.5 else 0.99),
                "It is too sure of the other answer",
            ),
            "for one reference": (
                lambda q: (0.25, 0.5),
                "With q = 0.25 the policy π(A) = 0.25 is only 0 nats",
            ),
            "certainty": (lambda q: (round(1 - q) * 1.0, 0.5), "strictly between 0 and 1"),
            "whole distributions": (
                lambda q: ([1 - q, q], [0.5, 0.5]),
                "Expected one number, got list [0.",
            ),
            "one policy": (lambda q: 1 - q, "Expected two probabilities of A, got 0."),
        },
        "endless-answers": {
            "visits of the reference": (
                lambda pi, ref: to_come(ref, divergences(pi, ref)),
                "as often as the reference visits them",
            ),
            "rows the wrong way round": (
                lambda pi, ref: to_come(pi, divergences(ref, pi)),
                "both divergences are the wrong way round",
            ),
            "the forward divergence": (ends_with_the_reference, "that is KL(π_ref‖π)"),
            "no end": (
                lambda pi, ref: to_come(pi, (pi * (pi / ref).log())[:, :-1].sum(dim=1)),
                "that the answer is over is a decision, too",
            ),
            "transposed": (
                lambda pi, ref: torch.linalg.solve(
                    torch.eye(len(pi)).to(pi) - pi[:, :-1].T, divergences(pi, ref)
                )[0].item(),
                "P[i, j] is the chance to go from i to j",
            ),
            "the first token": (
                lambda pi, ref: divergences(pi, ref)[0].item(),
                "that is the divergence of the first token only",
            ),
            "each row once": (
                lambda pi, ref: divergences(pi, ref).sum().item(),
                "each row is counted once",
            ),
            "after the first": (
                lambda pi, ref: to_come(pi, divergences(pi, ref)) - divergences(pi, ref)[0].item(),
                "the first visit to token 0 is not counted",
            ),
            "for one token": (
                lambda pi, ref: to_come(pi, divergences(pi, ref)) / visits(pi).sum().item(),
                "that is the mean for one token",
            ),
            "two hundred steps": (followed, "enough for short ones"),
            "right for two tokens": (
                lambda pi, ref: to_come(pi[:2, [0, 1, -1]], divergences(pi, ref)[:2]),
                "followed until next to none is left",
            ),
            "the row as a vector": (
                lambda pi, ref: divergences(pi, ref),
                "Expected one number, got a tensor of shape (2,)",
            ),
        },
        "entropy-bonus": {
            "log π": (loss(lambda now, then, mask: now.sum(dim=1)), "nothing in it knows"),
            "a detached weight": (
                loss(lambda now, then, mask: (prefix(now, then).detach() * now).sum(dim=1)),
                "If the weight is detached, stale samples become fresh",
            ),
            "the weight alone": (
                loss(lambda now, then, mask: prefix(now, then).sum(dim=1)),
                "a weight alone has the mean 1",
            ),
            "the token's ratio": (
                loss(lambda now, then, mask: ((now - then).exp() * now).sum(dim=1)),
                "the ratio of the single token",
            ),
            "half the square, weighed": (
                loss(
                    lambda now, then, mask: (
                        (prefix(now, then).detach() * now.square()).sum(dim=1) / 2
                    )
                ),
                "each token is charged for its own log π only",
            ),
            "half the square, tokens": (
                loss(lambda now, then, mask: now.square().sum(dim=1) / 2),
                "half the square of each token's log π",
            ),
            "half the square, answer": (
                loss(lambda now, then, mask: now.sum(dim=1).square() / 2),
                "half the square of the answer's log π",
            ),
            "frozen": (
                loss(lambda now, then, mask: (prefix(now, then) * then).sum(dim=1)),
                "frozen at the policy that sampled",
            ),
            "without the token itself": (
                loss(
                    lambda now, then, mask: (prefix(now, then) / (now - then).exp() * now).sum(
                        dim=1
                    )
                ),
                "the weight leaves out the token itself",
            ),
            "divided by the length": (
                loss(lambda now, then, mask: right(now, then, mask) / mask.sum(dim=1)),
                "divided by the length of each answer",
            ),
            "the sign": (
                loss(lambda now, then, mask: -right(now, then, mask)),
                "the sign: this loss lowers the entropy",
            ),
            "the weight's inverse": (
                loss(lambda now, then, mask: (prefix(then, now) * now).sum(dim=1)),
                "Wrong for answers of one or two tokens",
            ),
            "padding in the weight": (unmasked, "What is at padding changes the gradient"),
            "the sum over answers": (
                lambda *x: loss(right)(*x) * len(x[0]),
                "the answers are added up; take their mean",
            ),
            "one for each answer": (
                lambda now, then, mask: right(
                    now.masked_fill(~mask, 0.0), then.masked_fill(~mask, 0.0), mask
                ),
                "Expected shape (), got (2,)",
            ),
            "no gradient": (
                lambda now, then, mask: loss(right)(now.detach(), then, mask),
                "No gradient flows",
            ),
        },
    }
