"""Wrong answers to the exercises of chapter 16."""

import math

import torch


def wrong_answers(sheet):
    numbers = sheet.numbers("by-hand")
    p, q = numbers["policy"], numbers["sampler"]
    log_odds = [math.log(x / (1 - x)) for x in (p, q)]

    def at_first(tokens, mask, end):
        is_end = tokens == end
        first = is_end.int().argmax(dim=1, keepdim=True)
        return is_end.any(dim=1), mask.gather(1, first).squeeze(1)

    def trained_ends(tokens, mask, end):
        ended, trained = at_first(tokens, mask, end)
        return int((ended & trained).sum())

    def share(tokens, mask, end):
        ended, trained = at_first(tokens, mask, end)
        return ((ended & ~trained).sum() / ended.sum()).item()

    def holes(tokens, mask, end):
        ended, trained = at_first(tokens, mask, end)
        if tokens.shape[1] == 4:
            return int((ended & ~trained).sum())
        return int((ended & ~mask.all(dim=1)).sum())

    def scores(r, size, correction=1):
        r = r.view(-1, size)
        spread = r.std(dim=1, correction=correction, keepdim=True) + 1e-6
        return ((r - r.mean(dim=1, keepdim=True)) / spread).flatten()

    flat, uneven = [-1 / 3] * 7, [1.0, 1.0] + [0.0] * 5

    def case(rewards, size=7, *, flip=1.0, correction=1):
        r = torch.tensor(rewards)
        found = scores(r, size, correction) * flip
        found[
            torch.tensor([len(set(g.tolist())) == 1 for g in r.view(-1, size)]).repeat_interleave(
                size
            )
        ] = 0
        return lambda: (r, size, found)

    def across():
        r = torch.tensor(flat + uneven)
        order = torch.arange(14).view(7, 2).T.flatten()
        return r, 7, scores(r[order], 7)[order.argsort()]

    def not_divided():
        r = torch.tensor(flat + uneven)
        return r, 7, (r.view(2, 7) - r.view(2, 7).mean(1, keepdim=True)).flatten()

    def named(*, tolerance=1e-3, everywhere=False, means=False, sums=0, by_mask=True):
        def name(w):
            inside = torch.arange(w["mask"].shape[1]) < w["lengths"][:, None]
            where = torch.ones_like(inside) if everywhere else inside

            def apart(first, second):
                gap = (w[first] - w[second])[where]
                return (gap.mean().abs() if means else gap.abs().max()) > tolerance

            z = scores(w["rewards"], 4)
            off = (w["advantages"] - z).abs().max()
            if sums:
                off = w["advantages"].view(-1, sums).sum(1).abs().max()
            return (
                "sampler"
                if apart("sampler", "plain")
                else "old"
                if apart("old", "scored")
                else "ends"
                if by_mask and (w["mask"].sum(1) < w["lengths"]).any()
                else "groups"
                if off > 1e-3
                else "healthy"
            )

        return name

    def found(
        *, alone=False, ratio=True, by_rewards=False, by_mask=True, wrong_only="", words=None
    ):
        def find(w):
            mask, lengths, A = w["mask"], w["lengths"], w["advantages"]
            inside = torch.arange(mask.shape[1]) < lengths[:, None]

            def apart(first, second):
                return bool((w[first] - w[second])[inside].abs().max() > 1e-3)

            z = scores(w["rewards"], 4)
            rho = (w["scored"] - w["old"]).exp() if ratio else torch.ones_like(w["old"])
            used, under = z if by_rewards else A, mask if by_mask else inside
            slopes = -rho * used[:, None] / (len(A) * under.sum(1, keepdim=True))
            off = (w["coefficients"] - slopes)[mask]
            if wrong_only == "sign":
                off = off * (w["coefficients"] * slopes < 0)[mask]
            said = {
                "sampler": apart("sampler", "plain"),
                "old": apart("old", "scored"),
                "ends": bool((mask.sum(1) < lengths).any()),
                "groups": bool((A - z).abs().max() > 1e-3),
                "loss": bool(off.abs().max() > 1e-4),
            }
            if alone:
                first = next((name for name, there in said.items() if there), None)
                said = {name: name == first for name in said}
            return said if words is None else words(said)

        return find

    def needed(
        log_probs, temperature, z, *, scored="fair", spread="fair", up=math.ceil, root=False
    ):
        log_probs = log_probs.double()
        fair, cold = log_probs.exp(), (log_probs / temperature).softmax(0)
        entropy = -(fair * log_probs).sum()
        of = cold if spread == "cold" else fair
        v = ((of * log_probs**2).sum() - (of * log_probs).sum() ** 2).item()
        drawn = -(cold * (cold.log() if scored == "cold" else log_probs)).sum()
        return up(z**2 * (math.sqrt(v) if root else v) / (entropy - drawn).item() ** 2)

    return {
        "mend-the-law": {
            "any end that is not trained": (
                lambda t, m, e: int(((t == e) & ~m).any(dim=1).sum()),
                "padded with its own end token",
            ),
            "no end that is trained": (
                lambda t, m, e: int((~((t == e) & m).any(dim=1)).sum()),
                "responses that were cut off are counted",
            ),
            "argmax where nothing is found": (
                lambda t, m, e: int((~m.gather(1, (t == e).int().argmax(1)[:, None])).sum()),
                "where argmax points if nothing is found",
            ),
            "any end that is trained": (
                lambda t, m, e: int(((t == e).any(1) & ~((t == e) & m).any(1)).sum()),
                "end tokens in the padding count as its end",
            ),
            "the last column": (
                lambda t, m, e: int(((t[:, -1] == e) & ~m[:, -1]).sum()),
                "only the last column is looked at",
            ),
            "the other way round": (trained_ends, "the ends that *are* trained"),
            "a share": (share, "that is a share"),
            "any hole in the mask": (holes, "a hole anywhere in the mask"),
            "one for each response": (
                lambda t, m, e: ((t == e) & ~m).any(dim=1),
                "Expected one number, got a tensor of shape (14,)",
            ),
        },
        "by-hand": {
            "upside down": (lambda: log_odds[1] / log_odds[0], "that is 1/τ"),
            "log-probs divided": (
                lambda: math.log(p) / math.log(q),
                "log-probs are not divided by the temperature",
            ),
            "probabilities": (lambda: p / q, "the ratio of the probabilities"),
            "odds": (lambda: p / (1 - p) / (q / (1 - q)), "the ratio of the odds"),
            "a difference": (lambda: log_odds[1] - log_odds[0], "you have subtracted them"),
            "a text": (lambda: "0.7", "Expected one number, got str"),
        },
        "catch-five": {
            "one prompt": (case(uneven), "compares responses to different prompts"),
            "the same mean in both": (
                case([*uneven, 1.0, 0.0, 1.0, *[0.0] * 4]),
                "subtracts the mean of the whole batch",
            ),
            "all the same": (case(flat + flat), "Your test passes an estimator that compares"),
            "a deviation of 1": (
                case([-1.0, 0.0, 1.0, 2.0, 3.0, 4.0], 3),
                "divides by the variance",
            ),
            "verdicts of 0 and 1": (
                case([1.0] * 7 + uneven),
                "divides flat groups by their rounding error",
            ),
            "the other denominator": (
                case(flat + uneven, correction=0),
                "the standard deviation has the denominator G − 1",
            ),
            "not divided": (not_divided, "distances from the mean, not divided"),
            "what a broken one gives": (across, "what one of the *broken* estimators gives"),
            "the sign": (
                case(flat + uneven, flip=-1.0),
                "Your test accuses a healthy estimator, the one with ε = 1e-4: for row 7",
            ),
            "two things": (lambda: (torch.tensor(uneven), 7), "Expected three things"),
            "not whole groups": (
                lambda: (torch.ones(9), 8, torch.zeros(9)),
                "a multiple of the group size 8",
            ),
            "one advantage": (
                lambda: (torch.ones(8), 8, torch.zeros(1)),
                "one advantage for each",
            ),
            "one to a group": (lambda: (torch.ones(8), 1, torch.zeros(8)), "group_size is 1"),
        },
        "name-the-fault": {
            "no tolerance": (named(tolerance=0.0), "which accuses a healthy run"),
            "the garbage, too": (
                named(everywhere=True),
                "Your function says 'sampler', which accuses a healthy run",
            ),
            "means": (named(means=True), "is a case of 'sampler': its differences cancel"),
            "sums of advantages": (named(sums=12), "is a case of 'groups'"),
            "sums of each group": (named(sums=4), "and some of them within each group"),
            "ends not looked at": (named(by_mask=False), "is a case of 'ends'"),
            "old log-probs not looked at": (
                lambda w: "healthy" if named()(w) == "old" else named()(w),
                "is a case of 'old'",
            ),
            "another word": (lambda w: "fine", "Expected one of 'healthy', 'sampler'"),
        },
        # Each name is in 1 + 4 + 6 of the 26 sets of at most three of five: 55 are planted. It
        # stands without another one in 1 + 3 + 3, and the second name behind the first in 1 + 3.
        "the-hunt": {
            "the first one only": (
                found(alone=True),
                "25 of 55 faults found, 0 false accusations, in 26 witnesses. "
                "Missed 4 times: 'old'",
            ),
            "a ratio of 1": (
                found(ratio=False),
                "Accused falsely, 7 times: 'loss', each time beside 'old'; the derivative is right",
            ),
            "the right advantages": (
                found(by_rewards=True),
                "55 of 55 faults found, 7 false accusations, in 26 witnesses. Accused falsely, 7 "
                "times: 'loss', each time beside 'groups'",
            ),
            "the right mask": (found(by_mask=False), "7 times: 'loss', each time beside 'ends'"),
            "a wrong sign only": (
                found(wrong_only="sign"),
                "'loss'; recompute the derivative of every token under the mask",
            ),
            "all of them": (
                lambda w: dict.fromkeys(("sampler", "old", "ends", "groups", "loss"), True),
                "55 of 55 faults found, 75 false accusations",
            ),
            "none of them": (
                lambda w: dict.fromkeys(("sampler", "old", "ends", "groups", "loss"), False),
                "0 of 55 faults found, 0 false accusations",
            ),
            "a list": (
                found(words=lambda said: [name for name in said if said[name]]),
                "Expected a dict with the keys 'sampler', 'old'",
            ),
            "words": (
                found(words=lambda said: {name: "no" for name in said}),
                "Expected True or False for 'sampler', got 'no'",
            ),
        },
        "tokens-needed": {
            "τ the wrong way": (
                lambda x, t, z: math.ceil(abs(needed(x, 1 / t, z, up=float))),
                "τ multiplies the logits",
            ),
            "the other entropy": (
                lambda x, t, z: needed(x, t, z, scored="cold"),
                "tokens are drawn at τ, and scored at 1",
            ),
            "the colder variance": (
                lambda x, t, z: needed(x, t, z, spread="cold"),
                "the variance is that of the colder draws",
            ),
            "z not squared": (
                lambda x, t, z: needed(x, t, math.sqrt(z)),
                "z is not squared",
            ),
            "rounded down": (
                lambda x, t, z: needed(x, t, z, up=math.floor),
                "that many tokens are not enough",
            ),
            "the standard deviation": (
                lambda x, t, z: needed(x, t, z, root=True),
                "the standard deviation was used in place of the variance",
            ),
            "nothing": (lambda x, t, z: None, "Expected one number, got None"),
        },
    }
