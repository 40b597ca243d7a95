"""Wrong answers to the exercises of chapter 7."""

import torch


def wrong_answers(sheet):
    weights = torch.tensor(sheet.numbers("by-hand")["weights"]).double()
    pi = weights / weights.sum()

    def reading(offset, *, tokens=0, dim=-1, log=True, start=None):
        def answer(logits, lines, width):
            count = lines.shape[1] - width
            first = width - 1 + offset if start is None else start
            rows = (logits.log_softmax(dim) if log else logits.softmax(dim))[:, first:]
            said = lines[:, width + tokens :][:, :count, None]
            return rows[:, :count].gather(-1, said)[..., 0]

        return answer

    def sampler(exponent):
        return weights**exponent / (weights**exponent).sum()

    def with_ratios(mu):
        return torch.stack([mu, pi / mu])

    def chat(tokens, user, assistant, eos, *, marker=False, end=True, pad=False, who=None):
        who = assistant if who is None else who
        mask = torch.zeros_like(tokens, dtype=torch.bool)
        for row, line in enumerate(tokens.tolist()):
            speaking = False
            for column, token in enumerate(line):
                closes = token in (user, assistant) or (token == eos and not pad)
                said = speaking and token not in (user, assistant) and (end or token != eos)
                mask[row, column] = said or (marker and token == who)
                speaking = token == who or (speaking and not closes)
        return mask

    def turns(tokens, user, assistant, eos, keep):
        mask = chat(tokens, user, assistant, eos)
        for row, line in enumerate(tokens.tolist()):
            markers = [i for i, token in enumerate(line) if token == assistant]
            if keep == "first" and len(markers) > 1:
                mask[row, markers[1] :] = False
            if keep == "last" and markers:
                mask[row, : markers[-1]] = False
        return mask

    def after_the_first(tokens, user, assistant, eos):
        markers = (tokens == assistant).long()
        return markers.cumsum(1) - markers > 0

    def finished_only(tokens, user, assistant, eos):
        mask = chat(tokens, user, assistant, eos)
        return mask & (tokens[:, -1:] == eos)

    def suspects(logits, tokens, log_probs, *, leave_out=(), reduce=torch.max, tau=0.6):
        chose = logits[:-1]
        candidates = {
            "right": chose.log_softmax(-1),
            "shifted": logits[1:].log_softmax(-1),
            "temperature": (chose / tau).log_softmax(-1),
            "truncated": chose - chose.topk(3).values.logsumexp(-1, keepdim=True),
            "rounded": chose.bfloat16().log_softmax(-1).float(),
        }
        gaps = {
            word: reduce((log_pi.gather(-1, tokens[:, None])[:, 0] - log_probs).abs())
            for word, log_pi in candidates.items()
            if word not in leave_out
        }
        return min(gaps, key=gaps.get)

    def pushes(z, tau, k, *, top=True, normalise=True, scored_by="learner", flip=False):
        p = z.softmax(0)
        mu = (z / tau).softmax(0)
        kept = z >= z.topk(k).values.min() if top else z > -torch.inf
        mu = torch.where(kept, mu, 0.0)
        mu = mu / mu.sum() if normalise else mu
        ratio = torch.where(kept, mu / p if flip else p / mu, 0.0)
        own = p if scored_by == "learner" else mu
        return torch.stack([w - w.sum() * own for w in (mu, mu * ratio)])

    def with_the_ratio(z, k):
        leaf, kept = z.clone().requires_grad_(), z >= z.topk(k).values.min()
        log_p = leaf.log_softmax(0)
        return torch.autograd.grad((log_p.exp() * log_p)[kept].sum(), leaf)[0]

    def searched(z, a, of, *, largest=True):
        grid = torch.arange(0.05, 20.0, 0.02, dtype=torch.float64)
        values = torch.stack([of(z.double() / tau, a) for tau in grid])
        return grid[values.argmax() if largest else values.argmin()].item()

    def log_likelihood(z, a):
        return z.log_softmax(-1).gather(-1, a[:, None]).sum()

    return {
        "mend-the-shift": {
            "its own position": (reading(1), "scored by the logits of its own position"),
            "two before": (reading(-1), "two positions before the token"),
            "from the beginning": (reading(0, start=0), "from the beginning of the line"),
            "the tokens shifted, too": (reading(0, tokens=-1), "the tokens one place before"),
            "logits": (
                lambda z, lines, w: z[:, w - 1 : -1].gather(-1, lines[:, w:, None])[..., 0],
                "these are logits",
            ),
            "probabilities": (reading(0, log=False), "and not their logarithms"),
            "softmax over positions": (reading(0, dim=1), "the softmax runs over the positions"),
            "a column": (
                lambda z, lines, w: z[:, w - 1 : -1].log_softmax(-1).gather(-1, lines[:, w:, None]),
                "Expected shape (1, 2), got (1, 2, 1)",
            ),
            "all rows first": (
                lambda z, lines, w: (
                    reading(0)(z, lines, w) + 0 * z.sum(dim=(1, 2), keepdim=True)[..., 0]
                ),
                "NaN at the first and at the last position",
            ),
        },
        "by-hand": {
            "temperature 2": (lambda: with_ratios(sampler(0.5)), "the probabilities at τ = 2"),
            "weights as logits": (
                lambda: with_ratios((weights / 0.5).softmax(0)),
                "you took the weights themselves for",
            ),
            "not normalised": (lambda: with_ratios(pi**2), "have not been divided by their sum"),
            "upside down": (
                lambda: torch.stack([sampler(2), sampler(2) / pi]),
                "the ratio is upside down",
            ),
            "a difference": (
                lambda: torch.stack([sampler(2), pi - sampler(2)]),
                "the second is a difference",
            ),
            "probabilities over temperature": (
                lambda: with_ratios(pi / 0.5),
                "and not the probabilities",
            ),
            "probabilities over temperature, normalised": (
                lambda: with_ratios((pi / 0.5) / (pi / 0.5).sum()),
                "that is π itself",
            ),
            "rounded in between": (
                lambda: torch.stack(
                    [
                        sampler(2).round(decimals=2),
                        pi.round(decimals=2) / sampler(2).round(decimals=2),
                    ]
                ),
                "the ratios were formed from rounded numbers",
            ),
            "columns": (lambda: with_ratios(sampler(2)).T, "Expected shape (2, 3), got (3, 2)"),
            "rounded to one decimal": (
                lambda: with_ratios(sampler(2)).round(decimals=1) + 0.03,
                "Wrong for your tokens",
            ),
        },
        "chat-mask": {
            "by value": (lambda *a: chat(*a, end=False), "the ends are missing"),
            "the marker": (lambda *a: chat(*a, marker=True), "written by the template"),
            "padding": (lambda *a: chat(*a, pad=True), "padding is trained"),
            "after the first marker": (after_the_first, "everything after the first A"),
            "the last turn": (lambda *a: turns(*a, "last"), "only the last of"),
            "the first turn": (lambda *a: turns(*a, "first"), "only the first of"),
            "finished lines": (finished_only, "a turn that was cut off has no EOS"),
            "the user": (lambda t, u, a, e: chat(t, u, a, e, who=u), "the turns of the user"),
            "numbers": (lambda *a: chat(*a).long(), "Expected dtype torch.bool"),
        },
        "explain-the-gap": {
            "everything is right": (lambda *a: "right", "far more than float32 would explain"),
            "a wide tolerance": (
                lambda z, t, p: (
                    "right"
                    if (z[:-1].log_softmax(-1).gather(-1, t[:, None])[:, 0] - p).abs().max() < 0.1
                    else suspects(z, t, p)
                ),
                "and far less than another policy",
            ),
            "blind to the shift": (
                lambda *a: suspects(*a, leave_out=("shifted",)),
                "with the *next* row of the logits",
            ),
            "the temperature multiplied": (
                lambda *a: suspects(*a, tau=1 / 0.6),
                "divide the logits by 0.6",
            ),
            "blind to top-k": (
                lambda *a: suspects(*a, leave_out=("truncated",)),
                "by minus the log of what the three likeliest",
            ),
            "suspicious": (
                lambda *a: suspects(*a, leave_out=("right",)),
                "There is nothing",
            ),
            "another word": (lambda *a: "top-p", "Expected one of 'right', 'rounded'"),
        },
        "what-the-ratio-mends": {
            "the temperature forgotten": (
                lambda z, tau, k: torch.stack([pushes(z, 1.0, k)[0], pushes(z, tau, k)[1]]),
                "right for a sampler at τ = 1",
            ),
            "top-k forgotten": (
                lambda z, tau, k: pushes(z, tau, k, top=False),
                "top-k has been forgotten",
            ),
            "everything mended": (
                lambda *a: pushes(*a) * torch.tensor([[1.0], [0.0]]),
                "what is never drawn cannot be weighted",
            ),
            "the sampler's score": (
                lambda *a: pushes(*a, scored_by="sampler"),
                "you have used the sampler's own score",
            ),
            "the loss": (lambda *a: -pushes(*a), "the sign is that of the loss"),
            "rows exchanged": (lambda *a: pushes(*a).flip(0), "the two rows are exchanged"),
            "renormalised": (
                lambda z, tau, k: torch.stack([pushes(z, tau, k)[0], pushes(z, 1.0, k)[0]]),
                "the ratio as it is does not add up to 1",
            ),
            "the ratio differentiated": (
                lambda z, tau, k: torch.stack([pushes(z, tau, k)[0], with_the_ratio(z, k)]),
                "the ratio was differentiated as well",
            ),
            "the ratio upside down": (
                lambda *a: pushes(*a, flip=True),
                "the weight is learner over sampler",
            ),
            "not renormalised": (
                lambda *a: pushes(*a, normalise=False),
                "have to be divided by their sum",
            ),
            "infinity times 0": (
                lambda *a: pushes(*a) + torch.tensor([[0.0], [torch.nan]]),
                "sum over the tokens that are kept",
            ),
            "one push": (lambda *a: pushes(*a)[0], "Expected shape (2, 3), got (3,)"),
            "always two": (
                lambda z, tau, k: pushes(z, tau, 2),
                "Wrong for six random logits",
            ),
        },
        "which-temperature": {
            "inverse": (
                lambda z, a: 1 / searched(z, a, log_likelihood),
                "that is 1/τ",
            ),
            "no normaliser": (
                lambda z, a: searched(z, a, lambda x, b: x.gather(-1, b[:, None]).sum()),
                "The normaliser of the softmax also depends",
            ),
            "the wrong way": (
                lambda z, a: searched(
                    z, a, lambda x, b: (x.softmax(-1) * x.log_softmax(-1)).sum(), largest=False
                ),
                "the search goes the wrong way",
            ),
            "states thrown together": (
                lambda z, a: searched(z, a, lambda x, b: log_likelihood(x.mean(0).expand_as(x), b)),
                "the logits of different states were thrown together",
            ),
            "a product": (
                lambda z, a: searched(
                    z, a, lambda x, b: x.softmax(-1).gather(-1, b[:, None]).prod()
                ),
                "add logarithms",
            ),
            "a coarse grid": (
                lambda z, a: round(4 * searched(z, a, log_likelihood)) / 4,
                "Wrong for logits [1, 0] four times",
            ),
            "a tensor": (
                lambda z, a: torch.tensor([searched(z, a, log_likelihood)]),
                "Expected one number",
            ),
        },
    }
