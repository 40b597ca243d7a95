"""Wrong answers to the exercises of chapter 4."""

import torch


def wrong_answers(sheet):
    hand = sheet.numbers("by-hand")

    def loss(
        log_probs, values, rewards, gamma, *, advantage=None, wanted=None, critic=0.25, sign=1
    ):
        """With other advantages, another target or another weight than it should have."""
        target = rewards + gamma * values[1:].detach()
        target = target if wanted is None else wanted(rewards, values, gamma)
        own = (target - values[:-1]).detach()
        own = own if advantage is None else advantage(rewards, values, gamma)
        error = target - values[:-1]
        return -sign * (own * log_probs).mean() + critic * error.square().mean()

    def td_error(rewards, values, gamma):
        return rewards + gamma * values[1:] - values[:-1]

    def followed(rewards, values, gamma):
        return rewards + gamma * values[1:]

    def upside_down(log_probs, values, rewards, gamma):
        """The right number, with the critic's gradient reversed."""
        right = loss(log_probs, values, rewards, gamma)
        error = followed(rewards, values, gamma).detach() - values[:-1]
        critic = 0.25 * error.square().mean()
        return right - 2 * critic + 2 * critic.detach()

    def step(*, score=None, sign=1.0, limit="norm", mean=3.0, norm=0.5):
        """The update by hand, with a switch for each mistake."""
        p = torch.tensor(hand["right"], dtype=torch.float64)
        went = torch.tensor([a == "right" for a in hand["actions"]])
        scores = torch.where(went, 1 - p, -p) if score is None else score(went, p)
        found = sign * torch.tensor(hand["advantages"], dtype=torch.float64) * scores / mean
        if limit == "each":
            return found.clamp(-0.5, 0.5)
        return found * norm / found.norm() if limit == "norm" else found

    def weights(
        ages,
        terminated,
        truncated,
        mask,
        gamma,
        *,
        ends=None,
        counts=None,
        silent=None,
        early=False,
        first=0,
        last="grown",
    ):
        """The right loop, with a switch for each mistake."""
        ends = terminated | truncated if ends is None else ends
        counts = mask if counts is None else counts
        silent = ~mask if silent is None else silent
        found, before = [], ages
        for over, grows, quiet in zip(ends, counts, silent, strict=True):
            ages = torch.where(over, 0, ages) if early else ages
            found.append(torch.where(quiet, 0.0, gamma ** (ages + first)))
            before, grown = ages, ages + grows
            ages = grown if early else torch.where(over, 0, grown)
        return torch.stack(found), {"grown": ages, "before": before, "unended": grown}[last]

    def in_place(ages, terminated, truncated, mask, gamma):
        found = []
        for over, counts in zip(terminated | truncated, mask, strict=True):
            found.append(torch.where(counts, gamma**ages, 0.0))
            ages += counts
            ages[over] = 0
        return torch.stack(found), ages.clone()

    returns = torch.tensor([0.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    flattered = (returns + 100, returns)
    slandered = (0.5 - 0.004 * returns, 0.5 + 0.001 * returns)

    def batches(first=flattered, second=slandered):
        return lambda: {"flattered": first, "slandered": second}

    return {
        "mend-the-gradient": {
            "as it was": (
                lambda p, v, r, g: loss(p, v, r, g, advantage=td_error, wanted=followed),
                "nothing is detached",
            ),
            "the target alone": (
                lambda p, v, r, g: loss(p, v, r, g, advantage=td_error),
                "the policy's loss moves the critic",
            ),
            "the baseline still moves": (
                lambda p, v, r, g: loss(
                    p, v, r, g, advantage=lambda r, v, g: r + g * v[1:].detach() - v[:-1]
                ),
                "through the value that is subtracted",
            ),
            "the advantage alone": (
                lambda p, v, r, g: loss(p, v, r, g, wanted=followed),
                "the target is not detached",
            ),
            "the present value alone": (
                lambda p, v, r, g: loss(
                    p,
                    v,
                    r,
                    g,
                    advantage=lambda r, v, g: r + g * v[1:] - v[:-1].detach(),
                    wanted=followed,
                ),
                "only the value of the present state is detached",
            ),
            "everything detached": (
                lambda p, v, r, g: loss(p, v.detach(), r, g),
                "No gradient flows through the result",
            ),
            "upside down": (upside_down, "the critic learns in the wrong direction"),
            "the sign of the policy's loss": (
                lambda p, v, r, g: loss(p, v, r, g, sign=-1),
                "the policy's loss has the wrong sign",
            ),
            "one half": (
                lambda p, v, r, g: loss(p, v, r, g, critic=0.5),
                "itself half a mean square, counts only half",
            ),
            "no half at all": (
                lambda p, v, r, g: loss(p, v, r, g, critic=1.0),
                "is half a mean square, and half of that counts",
            ),
            "no critic": (
                lambda p, v, r, g: loss(p, v, r, g, critic=0.0),
                "the critic's loss is missing",
            ),
            "a sum": (lambda p, v, r, g: loss(p, v, r, g) * len(r), "a sum was taken"),
            "no γ": (lambda p, v, r, g: loss(p, v, r, 1.0), "γ is missing"),
            "a loss for each step": (
                lambda p, v, r, g: -(td_error(r, v, g).detach() * p),
                "Expected one number, got a tensor of shape (2,)",
            ),
        },
        "by-hand": {
            "no limit": (lambda: step(limit="none"), "the gradient was not limited"),
            "no limit and no mean": (
                lambda: step(limit="none", mean=1.0),
                "neither limited nor divided by 3",
            ),
            "each by itself": (
                lambda: step(limit="each"),
                "each of the three was limited by itself",
            ),
            "the gradient": (lambda: step(sign=-1.0), "descent goes the other way"),
            "norm 1": (lambda: step(norm=1.0), "brought down to 1"),
            "left like right": (
                lambda: step(score=lambda went, p: torch.where(went, 1 - p, p)),
                "the derivative of log π(left) with respect to θ is −p",
            ),
            "exchanged": (
                lambda: step(score=lambda went, p: torch.where(went, p, p - 1)),
                "p and 1 − p are exchanged",
            ),
            "plus or minus one": (
                lambda: step(score=lambda went, p: 2.0 * went - 1.0),
                "is not just plus or minus one",
            ),
        },
        "fool-the-monitor": {
            "twice the returns": (
                batches((300 + 200 * returns, returns)),
                "but not by the *same* amount",
            ),
            "a small offset": (batches((returns + 1, returns)), "is wrong by 1 only"),
            "all the same returns": (
                batches(second=(torch.tensor([0.5, 0.51, 0.5, 0.51]), torch.full((4,), 0.5))),
                "no variance to divide by",
            ),
            "returns of 200": (
                batches((200 * returns + 100, 200 * returns)),
                "the returns must lie between 0 and 1",
            ),
            "against large returns": (
                batches(second=(1 - returns, returns)),
                "make the denominator small",
            ),
            "a small error beside large returns": (
                batches(second=(returns + 0.01 * (2 * returns - 1), returns)),
                "beside the spread of your returns the errors are small",
            ),
            "always the same": (
                batches(second=(torch.full((4,), 0.5005).double(), 0.5 + 0.001 * returns)),
                "A critic that always predicts the same has 0",
            ),
            "two numbers": (
                batches((returns[:2] + 100, returns[:2])),
                "of four numbers or more",
            ),
            "a return missing": (
                batches((returns + 100, returns.repeat(2))),
                "Expected shape (8,), got (4,)",
            ),
            "one batch only": (lambda: {"flattered": flattered}, "with the two entries"),
        },
        "forgotten-discount": {
            "one long episode": (
                lambda a, e, c, m, g: weights(a, e, c, m, g, ends=e & c & ~m),
                "a new episode does not begin anew",
            ),
            "a cut goes on": (
                lambda a, e, c, m, g: weights(a, e, c, m, g, ends=e),
                "only a termination begins a new episode",
            ),
            "an end goes on": (
                lambda a, e, c, m, g: weights(a, e, c, m, g, ends=c),
                "only a truncation begins a new episode",
            ),
            "a reset is a step": (
                lambda a, e, c, m, g: weights(a, e, c, m, g, counts=torch.ones_like(m)),
                "the row that only resets made the episode older",
            ),
            "a reset has a weight": (
                lambda a, e, c, m, g: weights(a, e, c, m, g, silent=torch.zeros_like(m)),
                "the row that only resets has a weight",
            ),
            "one row too early": (
                lambda a, e, c, m, g: weights(a, e, c, m, g, early=True),
                "the last step of an episode is counted as the first",
            ),
            "no memory": (
                lambda a, e, c, m, g: weights(a * 0, e, c, m, g),
                "the first environment's episode has begun before",
            ),
            "from one": (
                lambda a, e, c, m, g: weights(a, e, c, m, g, first=1),
                "it counts from t = 0",
            ),
            "the last row's ages": (
                lambda a, e, c, m, g: weights(a, e, c, m, g, last="before"),
                "these are the ages in the last row",
            ),
            "the old ages": (
                lambda a, e, c, m, g: (weights(a, e, c, m, g)[0], a),
                "these are the ages at the beginning",
            ),
            "an end in the last row": (
                lambda a, e, c, m, g: weights(a, e, c, m, g, last="unended"),
                "an episode that ends in the last row",
            ),
            "in place": (in_place, "changed its argument number 1 in place"),
            "weights only": (
                lambda a, e, c, m, g: weights(a, e, c, m, g)[0],
                "Expected two tensors",
            ),
        },
    }
