"""Answers to sheet 3 as readers may type them in its page: with lists, right and wrong."""

TARGETS = """def td_targets(rewards, values, final_values, terminated, truncated, gamma):
    targets = []
    for t in range(len(rewards)):
        row = []
        for i in range(len(rewards[t])):
            after = final_values[t][i] if truncated[t][i] else values[t + 1][i]
            row.append(rewards[t][i] + gamma * (0.0 if terminated[t][i] else after))
        targets.append(row)
    return targets
"""
MULTIPLIED = TARGETS.replace(
    "final_values[t][i] if truncated[t][i] else values[t + 1][i]",
    "truncated[t][i] * final_values[t][i] + (not truncated[t][i]) * values[t + 1][i]",
)
IN_PLACE = """def td_targets(rewards, values, final_values, terminated, truncated, gamma):
    targets = rewards
    for t, row in enumerate(targets):
        for i in range(len(row)):
            after = final_values[t][i] if truncated[t][i] else values[t + 1][i]
            row[i] += 0.0 if terminated[t][i] else gamma * after
    return targets
"""
# The numbers that stand above it are those of the page.
ADVANTAGES = """
def my_advantages():
    after = given["value_after"] if given["last_step"] == "truncated" else 0.0
    rewards, values = given["rewards"], [*given["values"], after]
    found, later = [], 0.0
    for t in (2, 1, 0):
        delta = rewards[t] + 0.5 * values[t + 1] - values[t]
        print("delta", t, delta)
        later = delta + 0.4 * later
        found.insert(0, later)
    return found
"""
SUSPECTS = """
def gae(after_the_cut, carried):
    found, later = [], 0.0
    for t in (4, 3, 2, 1, 0):
        cut = given["truncated"][t]
        followed = after_the_cut if cut else given["next_values"][t]
        delta = given["rewards"][t] + 0.9 * followed - given["values"][t]
        later = delta + 0.72 * (carried if cut else 1) * later
        found.insert(0, later)
    return found


def whose_advantages():
    really, anew = given["next_values"][2], given["values"][3]
    suspects = {
        "right": gae(really, 0),
        "done": gae(0.0, 0),
        "reset": gae(anew, 0),
        "leak": gae(really, 1),
        "seamless": gae(anew, 1),
    }
    return {
        name: min(suspects, key=lambda word: abs(suspects[word][2] - seen[2]))
        for name, seen in given["programs"].items()
    }
"""
LAMBDA = """def lam_for(share, go_on, gamma):
    return (1 - share) / (1 - share * gamma * go_on)
"""
STEPS = """def n_step_targets(rewards, next_values, terminated, truncated, n, gamma):
    targets = rewards.tolist()
    for start in range(len(rewards)):
        for i in range(len(rewards[0])):
            total = 0.0
            for t in range(start, len(rewards)):
                taken = t - start + 1
                total += gamma ** (taken - 1) * rewards[t][i]
                if terminated[t][i]:
                    break
                if truncated[t][i] or taken == n or t == len(rewards) - 1:
                    total += gamma**taken * next_values[t][i]
                    break
            targets[start][i] = total
    return targets
"""
SILENCED = STEPS.replace(
    """                if terminated[t][i]:
                    break
                if truncated[t][i] or taken == n or t == len(rewards) - 1:
                    total += gamma**taken * next_values[t][i]
""",
    """                ended = terminated[t][i] or truncated[t][i]
                if ended or taken == n or t == len(rewards) - 1:
                    total += gamma**taken * next_values[t][i] * (not terminated[t][i])
""",
)
# exercise → code: what is said
SAID = {
    "mend-the-reset": {
        TARGETS.replace("range(len(rewards)):", "range(len(values)):"): "IndexError",
        TARGETS.replace("final_values[t][i] if truncated[t][i] else ", ""): (
            "the value of the *next* episode's first state"
        ),
        MULTIPLIED: "NaN times 0 is NaN",
        IN_PLACE: "changed its argument number 1 in place",
        TARGETS.replace("targets.append(row)", "targets += row"): "Expected shape (3, 2), got (6,)",
        TARGETS: "mend-the-reset: right.",
    },
    "by-hand": {
        ADVANTAGES.replace("0.4 * later", "0.0"): "these are the TD errors",
        ADVANTAGES.replace('if given["last_step"] == "truncated" else 0.0', "* 0"): (
            "the critic's value of the state after it belongs in its TD error"
        ),
        ADVANTAGES: "by-hand: right.",
    },
    "whose-advantages": {
        'def whose_advantages():\n    return ["leak", "right", "done", "reset"]\n': (
            "Expected a dict with one word for each"
        ),
        SUSPECTS.replace("gae(anew, 1)", "gae(anew, 0)"): "in program B the row of the cut would",
        SUSPECTS: "whose-advantages: right.",
    },
    "how-much-lambda": {
        LAMBDA.replace(" / (1 - share * gamma * go_on)", ""): "does not fall in proportion",
        LAMBDA.replace("gamma * ", ""): "γ is missing",
        LAMBDA.replace("(1 - share) / (1 - share * gamma * go_on)", "5 / 6"): "your λ leaves",
        LAMBDA: "how-much-lambda: right.",
    },
    "n-steps-to-the-edge": {
        STEPS.replace("truncated[t][i] or ", ""): "counted across the cut",
        STEPS.replace("gamma**taken * next", "gamma**n * next"): "fewer than n rewards",
        SILENCED: "NaN times 0 is NaN",
        STEPS: "n-steps-to-the-edge: right.",
    },
}
# What `make test` types: each exercise's right answer, and of each way to be told the first.
KEPT = [
    *((exercise, f"{exercise}: right.") for exercise in SAID),
    ("how-much-lambda", "your λ leaves"),  # wrong by no mistake that has a name
    ("mend-the-reset", "IndexError"),
    ("mend-the-reset", "NaN times 0 is NaN"),
    ("mend-the-reset", "changed its argument number 1 in place"),
    ("whose-advantages", "Expected a dict with one word for each"),
]
