"""Wrong answers to the exercises of chapter 2."""

import math

import torch


def wrong_answers(sheet):
    rewards = torch.tensor(sheet.numbers("by-hand")["rewards"], dtype=torch.float64)
    others = (rewards.sum() - rewards) / 3

    def leave_one_out(r, p, *, alone=0.0, own=False, sign=1.0):
        result = torch.full_like(r, alone)
        for i in range(len(r)):
            group = [r[j] for j in range(len(r)) if p[j] == p[i] and (own or j != i)]
            if len(group) > own:
                result[i] = sign * (r[i] - sum(group) / len(group))
        return result

    def ungrouped(r, p):
        return r - (r.sum() - r) / (len(r) - 1)

    def neighbours(r, p):
        _, inverse = torch.unique_consecutive(p, return_inverse=True)
        return leave_one_out(r, inverse)

    def without_front_factor(r, m, g):
        r = torch.where(m, r, 0.0)
        result = torch.zeros_like(r)
        for t in reversed(range(r.shape[1])):
            result[:, t] = r[:, t] + (g * result[:, t + 1] if t + 1 < r.shape[1] else 0)
        return torch.where(m, result, 0.0)

    def powers(r, g):
        return g ** torch.arange(r.shape[1], dtype=r.dtype)

    def weights(r, m, g):
        return torch.where(
            m, (torch.where(m, r, 0.0) * powers(r, g)).flip(1).cumsum(1).flip(1), 0.0
        )

    def sigmoid(x):
        return 1 / (1 + math.exp(-x))

    def push(theta, short, long, *, stop=1.0, going=-1.0):
        p = sigmoid(theta)
        return p * short * stop * (1 - p) + (1 - p) * long * going * p

    return {
        "mend-the-groups": {
            "the wrong layout": (
                lambda r, g: r.view(g, -1).mean(0).repeat_interleave(g),
                "the rows are read as if all first rollouts came before",
            ),
            "repeat instead of repeat_interleave": (
                lambda r, g: r.view(-1, g).mean(1).repeat(g),
                "`repeat` repeats the whole row of means",
            ),
            "the batch mean": (lambda r, g: r.mean().expand(len(r)), "the mean of the whole batch"),
            "the sum": (
                lambda r, g: r.view(-1, g).sum(1).repeat_interleave(g),
                "that is the sum of each group",
            ),
            "the mean of the others": (
                lambda r, g: (
                    (r.view(-1, g).sum(1, keepdim=True) - r.view(-1, g)) / (g - 1)
                ).flatten(),
                "that is the leave-one-out baseline",
            ),
            "one mean for each group": (
                lambda r, g: r.view(-1, g).mean(1),
                "Expected shape (6,), got (2,)",
            ),
            "a column": (
                lambda r, g: r.view(-1, g).mean(1).repeat_interleave(g)[:, None],
                "Expected shape (6,), got (6, 1)",
            ),
            "nothing returned": (lambda r, g: None, "is there a `return`?"),
            "centred in place": (
                lambda r, g: (
                    r.view(-1, g).copy_(r.view(-1, g).mean(1, keepdim=True).expand(-1, g)).view(-1)
                ),
                "changed its argument number 1 in place",
            ),
        },
        "by-hand": {
            "the own reward too": (lambda: rewards - rewards.mean(), "its own among them"),
            "the sign": (lambda: others - rewards, "good rollouts would be made rarer"),
            "a division by four": (
                lambda: rewards - (rewards.sum() - rewards) / 4,
                "the sum of the other three was divided by 4",
            ),
            "standard scores": (
                lambda: (rewards - rewards.mean()) / rewards.std(),
                "these are standard scores",
            ),
            "the best as baseline": (lambda: rewards - rewards.max(), "with the best one"),
            "the baselines": (lambda: others, "these are the baselines"),
            "the right numbers in another order": (
                lambda: (rewards - others).flip(0),
                "Wrong for your rewards",
            ),
        },
        "unequal-groups": {
            "the own reward too": (
                lambda r, p: leave_one_out(r, p, own=True),
                "the baseline contains the response's own reward",
            ),
            "divided by the whole group": (
                lambda r, p: torch.stack(
                    [r[i] - (r[p == p[i]].sum() - r[i]) / (p == p[i]).sum() for i in range(len(r))]
                ),
                "they are one fewer",
            ),
            "others of the whole batch": (ungrouped, "also those that answered another prompt"),
            "the sign": (
                lambda r, p: leave_one_out(r, p, sign=-1.0),
                "the sign is the wrong way round",
            ),
            "zero by zero": (lambda r, p: leave_one_out(r, p, alone=math.nan), "came out as NaN"),
            "its own reward when alone": (
                lambda r, p: torch.where((p[:, None] == p).sum(1) == 1, r, leave_one_out(r, p)),
                "a response without others has nothing to be compared with",
            ),
            "neighbours only": (neighbours, "do not lie side by side"),
            "at most two responses": (
                lambda r, p: leave_one_out(r, p) if len(r) < 17 else torch.zeros_like(r),
                "Wrong for 17 responses to 4 prompts",
            ),
        },
        "discounted-weights": {
            "no factor in front": (without_front_factor, "the factor γᵗ in front is missing"),
            "from the next token on": (
                lambda r, m, g: weights(r, m, g) - torch.where(m, r * powers(r, g), 0.0),
                "the token's own reward is missing",
            ),
            "its own reward": (
                lambda r, m, g: torch.where(m, r * powers(r, g), 0.0),
                "each token got its own reward only",
            ),
            "padding counted": (
                lambda r, m, g: (r * powers(r, g)).flip(1).cumsum(1).flip(1),
                "the reward in the padding was counted",
            ),
            "padding counted and then cleared": (
                lambda r, m, g: torch.where(m, (r * powers(r, g)).flip(1).cumsum(1).flip(1), 0.0),
                "it is cleared after the sum, and not before",
            ),
            "the whole return": (
                lambda r, m, g: torch.where(m, weights(r, m, g)[:, :1], 0.0),
                "past rewards included",
            ),
            "sums from the left": (
                lambda r, m, g: torch.where(
                    m, (torch.where(m, r, 0.0) * powers(r, g)).cumsum(1), 0.0
                ),
                "with what comes *after* it",
            ),
            "counted from one": (
                lambda r, m, g: g * weights(r, m, g) if g < 1 else weights(r, m, g),
                "its factor is γ⁰ = 1",
            ),
            "the mask multiplied in": (
                lambda r, m, g: (r * m * powers(r, g)).flip(1).cumsum(1).flip(1) * m,
                "NaN times 0 is NaN",
            ),
            "an integer mask": (
                lambda r, m, g: weights(r, m, g).sum(1),
                "Expected shape (2, 3), got (2,)",
            ),
        },
        "length-bias": {
            "the expected reward": (push, "that is the gradient of the expected reward"),
            "the sign of the loss": (
                lambda t, s, long: -push(t, s, long, going=-0.5),
                "the sign is that of the loss",
            ),
            "the short response only": (
                lambda t, s, long: push(t, s, 0.0),
                "that is the short response's share",
            ),
            "no probabilities": (
                lambda t, s, long: s * (1 - sigmoid(t)) - long / 2 * sigmoid(t),
                "the probabilities of the two responses are missing",
            ),
            "the objective itself": (
                lambda t, s, long: sigmoid(t) * s + (1 - sigmoid(t)) * long / 2,
                "that is E[R/|y|] itself",
            ),
            "the sign of going on": (
                lambda t, s, long: push(t, s, long, going=0.5),
                "the long response's share has the wrong sign",
            ),
            "both divided by two": (
                lambda t, s, long: push(t, s / 2, long / 2),
                "both were divided by 2",
            ),
            "the lengths swapped": (
                lambda t, s, long: push(t, s, long, stop=0.5),
                "the short response was divided by 2",
            ),
            "a tensor of one element": (
                lambda t, s, long: torch.tensor([push(t, s, long)]),
                "Expected one number, got a tensor of shape (1,)",
            ),
        },
    }
