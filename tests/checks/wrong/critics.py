"""Wrong answers to the exercises of chapter 3."""

import torch


def wrong_answers(sheet):
    hand, logged = sheet.numbers("by-hand"), sheet.numbers("whose-advantages")

    def scan(rewards, values, followed, *, gamma=0.5, decay=0.4):
        td_errors = [r + gamma * f - v for r, v, f in zip(rewards, values, followed, strict=True)]
        found, later = [], 0.0
        for td_error in reversed(td_errors):
            later = td_error + decay * later
            found.insert(0, later)
        return torch.tensor(found, dtype=torch.float64)

    def by_hand(*, mistaken_end=False, followed=None, **changes):
        counts = (hand["last_step"] == "truncated") != mistaken_end
        word = hand["value_after"] if counts else 0.0
        followed = followed or [*hand["values"][1:], word]
        return scan(hand["rewards"], hand["values"], followed, **changes)

    def from_the_front():
        found = by_hand(decay=0.0)
        for t in (1, 2):
            found[t] += 0.4 * found[t - 1]
        return found

    def advantages(word, carried):
        """For the five logged steps, with this next value at the cut."""
        found, later = [], 0.0
        for t in reversed(range(5)):
            cut = logged["truncated"][t]
            followed = word if cut else logged["next_values"][t]
            td_error = logged["rewards"][t] + 0.9 * followed - logged["values"][t]
            later = td_error + 0.72 * (carried if cut else 1.0) * later
            found.insert(0, later)
        return found

    really, anew = logged["next_values"][2], logged["values"][3]
    suspects = {
        "right": advantages(really, 0.0),
        "done": advantages(0.0, 0.0),
        "reset": advantages(anew, 0.0),
        "leak": advantages(really, 1.0),
        "seamless": advantages(anew, 1.0),
    }
    truth = {
        program: min(suspects, key=lambda word: abs(suspects[word][2] - seen[2]))
        for program, seen in logged["programs"].items()
    }

    def always(word):
        """Whoever suspects one thing of all programs, but has the first ones right."""
        first = next(program for program, does in truth.items() if does != word)
        return {p: does if p < first else word for p, does in truth.items()}

    def td(rewards, values, finals, terminated, truncated, gamma, *, word=None):
        followed = values[1:] if word is None else word
        followed = torch.where(truncated, finals, followed)
        return rewards + gamma * torch.where(terminated, 0.0, followed)

    def n_steps(
        rewards,
        words,
        terminated,
        truncated,
        n,
        gamma,
        *,
        stops=None,
        silent=None,
        full_power=False,
    ):
        """Forward loops, with a switch for each mistake; `silent`: where the word is 0."""
        stops = terminated | truncated if stops is None else stops
        silent = terminated if silent is None else silent
        found = torch.zeros_like(rewards)
        steps, many = rewards.shape
        for i in range(many):
            for start in range(steps):
                for t in range(start, steps):
                    found[start, i] += gamma ** (t - start) * rewards[t, i]
                    taken = t - start + 1
                    if stops[t, i] or taken == n or t == steps - 1:
                        if not silent[t, i]:
                            power = n if full_power else taken
                            found[start, i] += gamma**power * words[t, i]
                        break
        return found

    def at_most_four(rewards, words, terminated, truncated, n, gamma):
        return n_steps(rewards, words, terminated, truncated, min(n, 4), gamma)

    return {
        "mend-the-reset": {
            "the next episode's first state": (
                lambda r, v, f, end, cut, g: r + g * v[1:] * ~end,
                "the value of the *next* episode's first state",
            ),
            "done is done": (
                lambda r, v, f, end, cut, g: r + g * v[1:] * ~(end | cut),
                "the cut is taken for the end",
            ),
            "something after the end": (
                lambda r, v, f, end, cut, g: r + g * torch.where(cut, f, v[1:]),
                "the first state of the next episode least of all",
            ),
            "the word about a terminal state": (
                lambda r, v, f, end, cut, g: r + g * torch.where(end | cut, f, v[1:]),
                "what the critic says of a terminal state",
            ),
            "exchanged": (
                lambda r, v, f, end, cut, g: td(r, v, f, cut, end, g),
                "terminated and truncated are exchanged",
            ),
            "the state itself": (
                lambda r, v, f, end, cut, g: td(r, v, f, end, cut, g, word=v[:-1]),
                "the value of the state the step started in",
            ),
            "no discount": (
                lambda r, v, f, end, cut, g: td(r, v, f, end, cut, 1.0),
                "the critic's value is not discounted",
            ),
            "the clock before the end": (
                lambda r, v, f, end, cut, g: r + g * torch.where(cut, f, ~end * v[1:]),
                "over is over",
            ),
            "flags as factors": (
                lambda r, v, f, end, cut, g: r + g * (cut * f + ~cut * v[1:]).masked_fill(end, 0.0),
                "NaN times 0 is NaN",
            ),
            "one row too many": (
                lambda r, v, f, end, cut, g: torch.cat([td(r, v, f, end, cut, g), v[-1:]]),
                "Expected shape (3, 2), got (4, 2)",
            ),
            "rewards filled in place": (
                lambda r, v, f, end, cut, g: r.add_(
                    g * torch.where(end, 0.0, torch.where(cut, f, v[1:]))
                ),
                "changed its argument number 1 in place",
            ),
        },
        "by-hand": {
            "the other end": (
                lambda: by_hand(mistaken_end=True),
                {
                    "terminated": "the last step terminated, and after that nothing follows",
                    "truncated": "the last step was truncated: the critic's value",
                }[hand["last_step"]],
            ),
            "TD errors": (lambda: by_hand(decay=0.0), "these are the TD errors"),
            "no λ": (lambda: by_hand(decay=0.5), "λ was left out of the recursion"),
            "no γ in the recursion": (
                lambda: by_hand(decay=0.8),
                "γ was left out of the recursion",
            ),
            "no γ in the TD error": (
                lambda: by_hand(gamma=1.0),
                "the value of the next state was not discounted",
            ),
            "from the front": (from_the_front, "the recursion ran from the front"),
            "targets": (
                lambda: by_hand() + torch.tensor(hand["values"]),
                "these are the critic's targets",
            ),
            "the value twice": (
                lambda: by_hand(followed=hand["values"]),
                "the TD errors contain V(sₜ) twice",
            ),
            "the sign": (lambda: -by_hand(), "the sign is the wrong way round"),
        },
        "whose-advantages": {
            "everybody is right": (lambda: always("right"), "of the state that really followed"),
            "everybody takes the cut for the end": (
                lambda: always("done"),
                "would be its reward minus its value, and nothing else",
            ),
            "everybody bootstraps from the new episode": (
                lambda: always("reset"),
                "whatever the last two rows earn",
            ),
            "everybody leaks": (
                lambda: always("leak"),
                "would be what it should be, plus 0.72 times",
            ),
            "nobody sees the cut": (lambda: always("seamless"), "would be a row like any other"),
            "a word of one's own": (
                lambda: dict.fromkeys("ABCD", "wrong"),
                "Expected one of 'done', 'leak', 'reset', 'right', 'seamless'",
            ),
            "a list": (lambda: list(truth.values()), "Expected a dict with one word for each"),
        },
        "how-much-lambda": {
            "in proportion": (lambda s, q, g: 1 - s, "does not fall in proportion to 1 − λ"),
            "no discount": (lambda s, q, g: (1 - s) / (1 - s * q), "γ is missing"),
            "for ever": (lambda s, q, g: (1 - s) / (1 - s * g), "q is missing"),
            "the share that goes": (
                lambda s, q, g: s / (1 - (1 - s) * g * q),
                "that leaves the share 1 − s",
            ),
            "the share of e": (
                lambda s, q, g: (g * q - s) / (g * q * (1 - s)),
                "that is the share of e",
            ),
            "s": (lambda s, q, g: s, "how much bias is left"),
            "the same always": (lambda s, q, g: 5 / 6, "the bias that your λ leaves"),
            "no λ": (
                lambda s, q, g: 5 / 6 if q == 0.8 else 1.5,
                "λ must lie between 0 and 1",
            ),
            "upside down": (
                lambda s, q, g: (1 - s * g * q) / (1 - s),
                "Wrong for a quarter of the bias",
            ),
        },
        "n-steps-to-the-edge": {
            "the flags multiplied in": (
                lambda r, w, end, cut, n, g: n_steps(
                    r, w * ~end, end, cut, n, g, silent=end & ~end
                ),
                "of a terminal state means nothing",
            ),
            "a cut is the end": (
                lambda r, w, end, cut, n, g: n_steps(r, w, end, cut, n, g, silent=end | cut),
                "a cut is taken for the end",
            ),
            "across the cut": (
                lambda r, w, end, cut, n, g: n_steps(r, w, end, cut, n, g, stops=end),
                "counted across the cut",
            ),
            "across both ends": (
                lambda r, w, end, cut, n, g: n_steps(
                    r, w, end, cut, n, g, stops=end & cut, silent=end & cut
                ),
                "counted across both ends",
            ),
            "the word about a terminal state": (
                lambda r, w, end, cut, n, g: n_steps(r, w, end, cut, n, g, silent=end & cut),
                "after a terminated step the critic's value is added",
            ),
            "exchanged": (
                lambda r, w, end, cut, n, g: n_steps(r, w, cut, end, n, g),
                "terminated and truncated are exchanged",
            ),
            "nothing after the table": (
                lambda r, w, end, cut, n, g: n_steps(
                    r, w, end, cut, n, g, silent=end | (torch.arange(len(r)) == len(r) - 1)[:, None]
                ),
                "at the end of the table nothing is bootstrapped",
            ),
            "always the full power": (
                lambda r, w, end, cut, n, g: n_steps(r, w, end, cut, n, g, full_power=True),
                "even where there are fewer than n rewards",
            ),
            "one step more": (
                lambda r, w, end, cut, n, g: n_steps(r, w, end, cut, n + 1, g),
                "these take n + 1 rewards",
            ),
            "one step always": (
                lambda r, w, end, cut, n, g: n_steps(r, w, end, cut, 1, g),
                "these take one reward only",
            ),
            "at most four steps": (
                at_most_four,
                "Wrong for nine steps of three environments with ends here and there, n = 30",
            ),
            "batch first": (
                lambda r, w, end, cut, n, g: n_steps(r, w, end, cut, n, g).T,
                "Expected shape (6, 2), got (2, 6)",
            ),
        },
    }
