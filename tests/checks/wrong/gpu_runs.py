"""Wrong answers to the exercises of chapter 15."""

import math

import torch


def wrong_answers(sheet):
    layers, heads, shared, width, prompt, answer, free = sheet.numbers("by-hand").values()

    def rows(*, kinds=2, of=shared, columns=prompt + answer, width_of_a_number=2):
        return free * 1e9 / (kinds * layers * of * width * columns * width_of_a_number)

    def standing(parameters, frozen, *, weight=4, gradient=4, moments=8, reference=4):
        return (weight + reference) * parameters + (gradient + moments) * (parameters - frozen)

    def half_way(weight, *, bits=8):
        return 2.0 ** (math.floor(math.log2(weight)) - bits)

    def in_bfloat16_throughout(weight, step):
        moved = (torch.tensor(weight).bfloat16() + torch.tensor(step).bfloat16()).item()
        return math.inf if moved == weight else 1

    def half(limit, size, cache, bandwidth):
        return limit / 2 * size / (bandwidth - limit / 2 * cache)

    def limits(n, c, s, b, *, choose=min, weight_bytes=2, operations=2):
        limit = choose(s / (operations * n), b / c)
        return torch.tensor([limit, half(limit, weight_bytes * n, c, b)])

    def added(n, c, s, b):
        limit = 1 / (2 * n / s + c / b)
        reached = limit / 2 * 2 * n / b / (1 - limit / 2 * (2 * n / s + c / b))
        return torch.tensor([limit, reached])

    def limit_itself(n, c, s, b, *, part=1.0):
        limit, found = limits(n, c, s, b).tolist()
        if limit < b / c:
            found = part * limit * 2 * n / (b - limit * c)
        return torch.tensor([limit, found])

    def heavy_cache(n, c, s, b):
        return torch.tensor([min(s / (2 * n), b / c), 2 * n / c])

    def memory_alone(n, c, s, b):
        return torch.tensor([b / c, 2 * n / c])

    def without_cache(n, c, s, b):
        limit, found = limits(n, c, s, b).tolist()
        return torch.tensor([limit, found if limit == b / c else limit * n / b])

    return {
        "mend-the-estimate": {
            "two bytes": (
                lambda p, f: standing(p, f) // 2,
                "that is the precision of the file",
            ),
            "no moments": (
                lambda p, f: standing(p, f, moments=0),
                "AdamW's two moments are missing",
            ),
            "no gradients": (
                lambda p, f: standing(p, f, gradient=0),
                "four bytes for each parameter that learns are missing",
            ),
            "frozen ones with gradients": (
                lambda p, f: standing(p, f) + 4 * f,
                "frozen parameters were given gradients;",
            ),
            "frozen ones learn": (
                lambda p, f: standing(p, 0),
                "frozen parameters were given gradients and moments",
            ),
            "no frozen weights": (
                lambda p, f: standing(p, f) - 4 * f,
                "the frozen parameters' own weights are missing",
            ),
            "no frozen parameters at all": (
                lambda p, f: standing(p - f, 0),
                "missing from weights and reference",
            ),
            "no reference": (
                lambda p, f: standing(p, f, reference=0),
                "the reference is a whole model",
            ),
            "a reference as in the file": (
                lambda p, f: standing(p, f, reference=2),
                "the reference or the weights were counted as in the file",
            ),
            "a reference that learns": (
                lambda p, f: standing(p, f) + 12 * (p - f),
                "the reference never learns",
            ),
            "in words": (lambda p, f: f"{standing(p, f)} bytes", "Expected one number, got str"),
        },
        "by-hand": {
            "not rounded": (rows, "round down"),
            "rounded up": (lambda: math.ceil(rows()), "the last answer does not fit"),
            "keys only": (
                lambda: math.floor(rows(kinds=1)),
                "keys and values are two things",
            ),
            "all heads": (lambda: math.floor(rows(of=heads)), "several heads share them"),
            "float32": (
                lambda: math.floor(rows(width_of_a_number=4)),
                "four bytes for each number are float32",
            ),
            "no prompt": (
                lambda: math.floor(rows(columns=answer)),
                "the prompt's keys and values are missing",
            ),
            "binary gigabytes": (
                lambda: math.floor(rows() * 2**30 / 1e9),
                "a gigabyte was taken for",
            ),
            "one layer": (lambda: math.floor(rows() * layers), "the layers are missing"),
        },
        "micro-batches-that-add-up": {
            "the micro-batch's own mean": (
                lambda x, m, n, k: x[m].mean(),
                "that is the mean over the tokens of this micro-batch",
            ),
            "no processes": (lambda x, m, n, k: x[m].sum() / n, "a sixth of the gradient would be"),
            "divided by the processes": (
                lambda x, m, n, k: x[m].sum() / n / k,
                "their mean divides once more",
            ),
            "mean of means": (
                lambda x, m, n, k: (torch.where(m, x, 0).sum(1) / m.sum(1)).mean(),
                "the tokens of short answers count more",
            ),
            "padding counted": (lambda x, m, n, k: x.sum() * k / n, "the padding was counted"),
            "the sum": (lambda x, m, n, k: x[m].sum(), "you are asked for a mean over those of"),
            "the sum, times the processes": (
                lambda x, m, n, k: x[m].sum() * k,
                "divide by the tokens of the minibatch",
            ),
            "own means, times the processes": (
                lambda x, m, n, k: x[m].mean() * k,
                "the means of all micro-batches are added up",
            ),
            "the mean over answers": (
                lambda x, m, n, k: torch.where(m, x, 0).sum(1).mean() * k / n,
                "divided by the number of answers in the micro-batch",
            ),
            "the mask multiplied in": (
                lambda x, m, n, k: (x * m).sum() * k / n,
                "NaN times 0 is NaN",
            ),
            "detached": (
                lambda x, m, n, k: x.detach()[m].sum() * k / n,
                "No gradient flows through the result",
            ),
            "one row": (lambda x, m, n, k: (x * m).sum(1) * k / n, "Expected shape (), got (2,)"),
        },
        "steps-until-seen": {
            "the whole way": (
                lambda w, s: math.floor(2 * half_way(w) / s) + 1,
                "more than *half* the way",
            ),
            "one too few": (lambda w, s: math.floor(half_way(w) / s), "the next one is"),
            "in proportion": (
                lambda w, s: math.floor(w * 2**-8 / s) + 1,
                "proportional to the weight",
            ),
            "float16": (
                lambda w, s: math.floor(half_way(w, bits=11) / s) + 1,
                "right for float16",
            ),
            "a bit too many": (
                lambda w, s: math.floor(half_way(w, bits=9) / s) + 1,
                "the leading one included",
            ),
            "never": (in_bfloat16_throughout, "with weights in float32 no step is lost"),
            "towards zero": (
                lambda w, s: math.floor(2.0 ** (int(math.log2(w)) - 8) / s) + 1,
                "rounded towards zero",
            ),
            "as between 1 and 2": (
                lambda w, s: math.floor(2.0**-8 / s) + 1,
                "smaller ones lie closer together",
            ),
        },
        "half-of-the-limit": {
            "the larger limit": (
                lambda *a: limits(*a, choose=max),
                "the larger of the two limits was taken",
            ),
            "one byte": (
                lambda *a: limits(*a, weight_bytes=1),
                "the weights have two bytes for each parameter",
            ),
            "times added": (added, "the two times were added"),
            "the order": (lambda *a: limits(*a).flip(0), "in the wrong order"),
            "as heavy as the weights": (heavy_cache, "it is half of the limit only if"),
            "the limit itself": (limit_itself, "half of it comes sooner"),
            "half the answers": (
                lambda *a: limit_itself(*a, part=0.5),
                "tokens per second do not rise in proportion",
            ),
            "memory alone": (memory_alone, "arithmetic does not allow that much"),
            "one operation": (
                lambda *a: limits(*a, operations=1),
                "are two operations",
            ),
            "no cache": (without_cache, "the keys and values were left out"),
            "the limit only": (lambda *a: limits(*a)[:1], "Expected shape (2,), got (1,)"),
        },
    }
