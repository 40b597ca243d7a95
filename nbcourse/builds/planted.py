"""A trainer in one file, made of the book's pieces, healthy or with faults in it.

Each way to plant a fault is an edit of a piece, as the mistakes are, with a run's fault as its
name: the trainer and the recorded run of a hunt are wrong in the same respect. Forms are edits that
change nothing; they differ from student to student, so that a difference is not yet a fault.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from nbcourse.builds import pieces
from nbcourse.builds.mistakes import MISTAKES, Edits, Way

TRAINER = "trainer"  # the module

# Row of the table of algorithms → piece → what a trainer of it takes from there, in its order.
_SAMPLING = ("sample", "response_log_probs", "score", "collect")
CONTENTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "rloo": {
        "estimator": ("policy_gradient", "leave_one_out"),
        "reinforce": (*_SAMPLING, "update", "train"),
    },
    "ppo": {
        "gae": ("gae",),
        "clip": ("ppo_clip",),
        "reinforce": _SAMPLING,
        "ppo": ("Critic", "token_rewards", "whiten", "update", "train"),
    },
    "grpo": {
        "clip": ("ppo_clip",),
        "reinforce": _SAMPLING,
        "grpo": ("group_advantages", "weights", "update", "train"),
    },
}
HEAD = '''"""A trainer of a language model that adds, with one, two or three mistakes.

What each function should do is said in its docstring, and the docstrings are right. Keep the names
of functions and their arguments. `python trainer.py` trains for a minute.

'''
IMPORTS = f"""
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from {pieces.GIVEN} import EOS, LONGEST, Policy, decode, draw, encode, warm

Rollout = dict[str, Tensor]
"""


def functions(way: Way) -> tuple[str, ...]:
    """The functions and classes of its piece that a way to write it changes."""
    right, wrong = (_definitions(text) for text in (pieces.solution(way.piece), way.text()))
    return tuple(name for name, source in right.items() if wrong[name] != source)


def _fits(way: Way, algorithm: str) -> bool:
    """Whether a trainer of the algorithm has what it changes."""
    return set(functions(way)) <= set(CONTENTS[algorithm].get(way.piece, ()))


def trainer(algorithm: str, ways: Iterable[Way] = (), forms: Iterable[int] = ()) -> str:
    """The text of a trainer.

    Args:
        algorithm: a key of `CONTENTS`.
        ways: to plant faults, each in functions of its own.
        forms: places in `FORMS` of edits that change nothing; those are left out whose text a fault
            has changed.
    """
    texts = {name: pieces.solution(name) for name in CONTENTS[algorithm]}
    for way in ways:
        texts[way.piece] = _replaced(texts[way.piece], way.edits)
    for form in (FORMS[place] for place in forms):
        if all(texts.get(form.piece, "").count(old) == 1 for old, _ in form.edits):
            texts[form.piece] = _replaced(texts[form.piece], form.edits)
    parts = [
        _definitions(texts[piece])[name]
        for piece, names in CONTENTS[algorithm].items()
        for name in names
    ]
    last = texts[list(texts)[-1]]
    parts.append(last[last.index('if __name__ == "__main__":') :])
    return (
        _head()
        + _imports(algorithm)
        + "\n\n"
        + "\n\n\n".join(part.rstrip() for part in parts)
        + "\n"
    )


@cache
def _head() -> str:
    """What the file says of itself, and what the book's sampler says of rollouts."""
    said = ast.get_docstring(ast.parse(pieces.solution("reinforce")), clean=False) or ""
    return f'{HEAD}{said[said.index("A rollout is") :]}"""\n'


def _replaced(text: str, edits: Edits) -> str:
    for old, new in edits:
        text = text.replace(old, new)
    return text


def healed(text: str, algorithm: str, functions: Iterable[str]) -> str:
    """A trainer with some of its functions as the book has them."""
    right = _definitions(trainer(algorithm))
    return "\n\n\n".join([text, _imports(algorithm), *(right[name] for name in functions)])


def _imports(algorithm: str) -> str:
    return IMPORTS if algorithm == "ppo" else IMPORTS.replace(", nn", "")  # for its critic


def modules(text: str, algorithm: str) -> dict[str, str]:
    """The trainer as the modules that a bench asks: each of its pieces is the same one file."""
    return {TRAINER: text} | {name: f"from {TRAINER} import *\n" for name in CONTENTS[algorithm]}


@cache
def ways_of(fault: str, algorithm: str) -> Sequence[Way]:
    """How a fault can be planted into a trainer of an algorithm."""
    return [way for way in PLANTS[fault] if _fits(way, algorithm)]


@cache
def _definitions(text: str) -> dict[str, str]:
    """Name → source of each function and class of a text, decorators included."""
    lines = text.splitlines(keepends=True)
    return {
        node.name: "".join(
            lines[
                min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1 : node.end_lineno
            ]
        )
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }


def _known(*names: str) -> tuple[Way, ...]:
    """Mistakes that are known of the pieces."""
    return tuple(MISTAKES[name] for name in names)


def _ways(piece: str, old: str, *news: str) -> tuple[Way, ...]:
    """Several replacements of one text."""
    return tuple(Way(piece, ((old, new),)) for new in news)


def _in_each(loops: Sequence[str], *edits: Edits) -> tuple[Way, ...]:
    """The same edits in several pieces."""
    return tuple(Way(piece, edit) for edit in edits for piece in loops)


LOOPS = ("reinforce", "ppo", "grpo")
NEXT = "distribution = model(tokens, mask)[:, -1].log_softmax(dim=-1)"
DRAWN = "chosen = torch.multinomial(distribution.exp(), 1, generator=generator)"
GROWN = "        mask = torch.cat([mask, running[:, None]], dim=1)\n"
ENDED = "        running = running & (chosen[:, 0] != EOS)\n"
SCORED = "distribution = model(tokens, mask)[:, -T - 1 : -1].log_softmax(dim=-1)"
SEEN = 'mask = torch.cat([rollout["prompt_mask"], rollout["mask"]], dim=1)'
RIGHT = "decode(t[m]) == answer"
ROWS = 'zip(rollout["tokens"], rollout["mask"], rollout["finished"], answers, strict=True)'
PAID = f"    return torch.tensor([float(end and {RIGHT}) for t, m, end, answer in rows])\n"


def _paid_if(test: str) -> str:
    """`PAID` with another test, which takes it two more lines."""
    return (
        f"    return torch.tensor(\n        [float({test}) for t, m, end, answer in rows]\n    )\n"
    )


SCORES = "return rollout, answers, score(rollout, answers)"
STEPS = "    for _ in range(steps):\n"
COPIED = (
    STEPS.replace("_", "step")
    + "        if step % 8 == 0:\n            {} = Policy(model.weights())\n"
)
PARTS = "    for rows in torch.arange(len(advantages)).split(micro_batch):\n"
CLEARED, STEPPED = "    optimiser.zero_grad()\n", "    optimiser.step()\n"
CLIPPED = "return -torch.minimum(ratio * A, ratio.clamp(1 - clip, 1 + clip) * A)"
COUNT = '    count = rollout["mask"].sum()\n'
SUMMED = '(torch.where(part["mask"], losses, 0.0).sum() / count).backward()'
UNDER, INSIDE = 'part["mask"]', '(part["tokens"] != EOS)'
LAST = "last = torch.arange(mask.shape[1]) == mask.sum(dim=1, keepdim=True) - 1"

PLANTS: Mapping[str, tuple[Way, ...]] = {
    # ---------------------------------------------------------------- who samples, who scores
    "stale-sampler": _in_each(
        LOOPS,
        (
            (STEPS, "    sampler = Policy(model.weights())\n" + STEPS),
            ("= collect(model,", "= collect(sampler,"),
        ),
        ((STEPS, COPIED.format("sampler")), ("= collect(model,", "= collect(sampler,")),
    ),
    "sampler-temperature": _ways(
        "reinforce",
        NEXT,
        "distribution = (model(tokens, mask)[:, -1] / 0.7).log_softmax(dim=-1)",
        "distribution = (1.4 * model(tokens, mask)[:, -1]).log_softmax(dim=-1)",
    ),
    "sampler-temperature-unreported": _ways(
        "reinforce",
        DRAWN,
        "chosen = torch.multinomial((distribution / 0.7).softmax(dim=-1), 1, generator=generator)",
        "chosen = torch.multinomial(distribution.exp() ** 1.5, 1, generator=generator)",
    ),
    "sampler-top-p": _ways(
        "reinforce",
        NEXT,
        "logits = model(tokens, mask)[:, -1]\n"
        "        least = logits.topk(4).values[:, -1:]\n"
        "        distribution = logits.masked_fill(logits < least, -torch.inf).log_softmax(dim=-1)",
        "logits = model(tokens, mask)[:, -1]\n"
        "        rare = logits.softmax(dim=-1) < 0.05\n"
        "        distribution = logits.masked_fill(rare, -torch.inf).log_softmax(dim=-1)",
    ),
    "sampler-top-p-unreported": _ways(
        "reinforce",
        DRAWN,
        "likely, places = distribution.exp().topk(4)\n"
        "        chosen = places.gather(1, torch.multinomial(likely, 1, generator=generator))",
        "probs = distribution.exp()\n"
        "        chosen = torch.multinomial(probs * (probs > 0.05), 1, generator=generator)",
    ),
    "sampler-rounding": _ways(
        "reinforce",
        NEXT,
        "distribution = model(tokens, mask)[:, -1].bfloat16().log_softmax(dim=-1).float()",
        "distribution = model(tokens, mask)[:, -1].to(torch.bfloat16).float().log_softmax(dim=-1)",
    ),
    "shifted-log-probs": (
        *_known("shifted-log-probs"),
        *_ways(
            "reinforce", SCORED, "distribution = model(tokens, mask).log_softmax(dim=-1)[:, -T:]"
        ),
    ),
    "learner-temperature": _ways(
        "reinforce",
        SCORED,
        "distribution = (model(tokens, mask)[:, -T - 1 : -1] / 0.7).log_softmax(dim=-1)",
        "distribution = (0.8 * model(tokens, mask)[:, -T - 1 : -1]).log_softmax(dim=-1)",
    ),
    "left-padding": (
        *_known("attended-padding"),
        *_ways(
            "reinforce",
            SEEN,
            'mask = torch.cat([torch.ones_like(rollout["prompt_mask"]), rollout["mask"]], dim=1)',
        ),
    ),
    "stale-old-log-probs": _in_each(
        ["grpo"],
        (
            (STEPS, "    first = Policy(model.weights())\n" + STEPS),
            ("response_log_probs(model, rollout)", "response_log_probs(first, rollout)"),
        ),
        (
            (STEPS, COPIED.format("before")),
            ("response_log_probs(model, rollout)", "response_log_probs(before, rollout)"),
        ),
    ),
    "following-old-log-probs": _known("fresh-old-log-probs", "old-log-probs-too-late"),
    # ---------------------------------------------------------------- what counts, what it earns
    "masked-eos": (
        *_known("mask-by-value", "untrained-eos"),
        *_ways("reinforce", GROWN + ENDED, ENDED + GROWN),
        *_ways("ppo", SUMMED, SUMMED.replace(UNDER, f"{UNDER} & {INSIDE}")),
        *_ways(
            "grpo",
            f"        torch.where({UNDER}, ",
            f"        kept = {UNDER} & {INSIDE}\n        torch.where(kept, ",
        ),
    ),
    "trained-padding": (
        *_known("endless-mask", "trained-padding"),
        *_ways(
            "reinforce",
            GROWN,
            "        mask = torch.cat([mask, torch.ones_like(chosen, dtype=torch.bool)], dim=1)\n",
        ),
        *_ways("ppo", SUMMED, "(losses.sum() / count).backward()"),
    ),
    "lenient-verifier": _ways(
        "reinforce",
        PAID,
        _paid_if("end and decode(t[m]).startswith(answer)"),
        PAID.replace(RIGHT, "answer in decode(t[m])"),
    ),
    "silent-verifier": _ways(
        "reinforce",
        PAID,
        _paid_if("end and decode(t[m]).zfill(3) == answer"),
        _paid_if("end and decode(t[m]).rjust(3) == answer"),
    ),
    "paid-truncation": (
        Way(
            "reinforce",
            (
                (ROWS, 'zip(rollout["tokens"], rollout["mask"], answers, strict=True)'),
                (PAID, f"    return torch.tensor([float({RIGHT}) for t, m, answer in rows])\n"),
            ),
        ),
        *_ways("reinforce", PAID, _paid_if(f"(end or m.all()) and {RIGHT}")),
    ),
    "shifted-rewards": (
        *_known("other-rewards"),
        *_ways("reinforce", SCORES, SCORES + ".roll(1)", SCORES + ".roll(-1)"),
    ),
    "misplaced-reward": _ways(
        "ppo",
        LAST,
        "last = torch.arange(mask.shape[1]) == mask.int().argmax(dim=1, keepdim=True)",
        "last = mask.cumsum(dim=1) == 1",
    ),
    "kl-sign": (
        *_known("drift-rewarded"),
        *_ways("ppo", "-beta * (log_probs - ref_log_probs)", "-beta * (ref_log_probs - log_probs)"),
    ),
    # ---------------------------------------------------------------- whose credit it is
    "mixed-groups": (
        *_known("mixed-groups", "groups-of-every-pth-row"),
        *_ways(
            "grpo",
            "groups = rewards.view(-1, group_size)",
            "groups = rewards.unflatten(0, (group_size, -1)).T",
        ),
    ),
    "missing-baseline": (
        *_known("no-baseline"),
        *_ways(
            "estimator",
            "    others = (groups.sum(dim=1, keepdim=True) - groups) / (group_size - 1)\n"
            "    return (groups - others).flatten()",
            "    return groups.flatten()",
        ),
    ),
    "amplified-flat-groups": (
        Way(
            "grpo",
            (
                ("    spread = (groups != groups[:, :1]).any(dim=1, keepdim=True)\n", ""),
                ("torch.where(spread, z, 0.0).flatten()", "z.flatten()"),
            ),
        ),
        *_ways(
            "grpo",
            "(groups != groups[:, :1]).any(dim=1, keepdim=True)",
            "(groups != groups.mean(dim=1, keepdim=True)).any(dim=1, keepdim=True)",
        ),
    ),
    "padded-whitening": (
        *_known("whitened-with-padding"),
        Way(
            "ppo",
            (
                ("    kept = advantages[mask]\n", ""),
                (
                    "(advantages - kept.mean()) / (kept.var() + 1e-8).sqrt()",
                    "(advantages - advantages.mean()) / (advantages.var() + 1e-8).sqrt()",
                ),
            ),
        ),
    ),
    "value-target-rewards": (
        *_known("rewards-as-targets"),
        *_ways("gae", "return A, A + values", "return A, rewards"),
        *_ways(
            "ppo",
            "batch = old_log_probs, advantages, returns",
            "batch = old_log_probs, advantages, rewards",
        ),
    ),
    # ---------------------------------------------------------------- what is minimised
    "inverted-ratio": _ways(
        "clip",
        "(log_probs - old_log_probs.detach()).exp()",
        "(old_log_probs.detach() - log_probs).exp()",
        "(log_probs - old_log_probs.detach()).exp().reciprocal()",
    ),
    "inverted-clip": _ways(
        "clip",
        CLIPPED,
        "return -torch.minimum(ratio, ratio.clamp(1 - clip, 1 + clip)) * A",
        "sides = ratio * A, ratio.clamp(1 - clip, 1 + clip) * A\n"
        "    return -torch.where(A >= 0, torch.minimum(*sides), torch.maximum(*sides))",
    ),
    "flipped-loss": (
        *_known("climbed", "clip-climbed"),
        *_ways("reinforce", "loss = policy_gradient(", "loss = -policy_gradient("),
        *_in_each(["ppo", "grpo"], (("losses = ppo_clip(", "losses = -ppo_clip("),)),
    ),
    "micro-batch-means": _in_each(
        ["ppo"],
        ((COUNT, ""), (".sum() / count)", '.sum() / part["mask"].sum())')),
        ((COUNT, ""), (SUMMED, 'losses[part["mask"]].mean().backward()')),
    ),
    "padding-in-denominator": _ways(
        "ppo", COUNT, COUNT.replace("sum", "numel"), '    count = rollout["tokens"].numel()\n'
    ),
    "dropped-micro-batches": _in_each(
        LOOPS,
        ((CLEARED + PARTS, PARTS + "    " + CLEARED),),
        ((PARTS, PARTS.replace("(advantages)", "(advantages) // micro_batch * micro_batch")),),
    ),
    # ---------------------------------------------------------------- how the weights move
    "idle-optimiser": (
        *_in_each(LOOPS, ((CLEARED + PARTS, PARTS), (STEPPED, CLEARED + STEPPED))),
        *_in_each(
            LOOPS,
            (
                (STEPS, "    learner = Policy(model.weights())\n" + STEPS),
                (" update(model, ", " update(learner, "),
            ),
        ),
    ),
    "rounded-updates": _in_each(
        LOOPS,
        (
            (
                STEPPED,
                STEPPED + "    for parameter in model.parameters():\n"
                "        parameter.data = parameter.data.bfloat16().to(parameter.dtype)\n",
            ),
        ),
        (
            (
                STEPPED,
                STEPPED + "    with torch.no_grad():\n"
                "        for parameter in model.parameters():\n"
                "            parameter.copy_(parameter.to(torch.bfloat16))\n",
            ),
        ),
    ),
}

# Right as well. Some look as wrong as a fault does.
FORMS: Sequence[Way] = tuple(
    Way(piece, ((old, new),))
    for piece, old, new in (
        ("estimator", "return (groups - others).flatten()", "return (groups - others).reshape(-1)"),
        (
            "estimator",
            "return -(advantages.detach() * responses).mean()",
            "return (-advantages.detach() * responses).mean()",
        ),
        ("gae", "return A, A + values", "return A, values + A"),
        ("gae", "rewards + gamma * after - values", "rewards - values + gamma * after"),
        ("clip", CLIPPED, "return torch.maximum(-ratio * A, -ratio.clamp(1 - clip, 1 + clip) * A)"),
        ("clip", CLIPPED, "return -torch.minimum(ratio.clamp(1 - clip, 1 + clip) * A, ratio * A)"),
        ("reinforce", DRAWN, DRAWN.replace(".exp()", ".softmax(dim=-1)")),
        ("reinforce", NEXT, "distribution = model(tokens, mask).log_softmax(dim=-1)[:, -1]"),
        ("reinforce", "running & (chosen[:, 0] != EOS)", "running & ~(chosen[:, 0] == EOS)"),
        ("reinforce", "P = prompt.shape[1]", "P = prompt_mask.shape[1]"),
        (
            "reinforce",
            'distribution.gather(2, rollout["tokens"][..., None]).squeeze(2)',
            'distribution.gather(-1, rollout["tokens"].unsqueeze(-1)).squeeze(-1)',
        ),
        ("reinforce", f"end and {RIGHT}", f"{RIGHT} and end"),
        (
            "reinforce",
            " * len(rows) / len(advantages)).backward()",
            " / len(advantages) * len(rows)).backward()",
        ),
        (
            "grpo",
            "groups.std(dim=1, keepdim=True) + eps",
            "groups.var(dim=1, keepdim=True).sqrt() + eps",
        ),
        ("grpo", "(groups != groups[:, :1])", "(groups != groups[:, -1:])"),
        ("grpo", "losses * every[rows]", "every[rows] * losses"),
        ("ppo", "-beta * (log_probs - ref_log_probs)", "beta * (ref_log_probs - log_probs)"),
        (
            "ppo",
            "(critic(part) - returns[rows]).square()",
            "(returns[rows] - critic(part)).square()",
        ),
        ("ppo", "/ (kept.var() + 1e-8).sqrt()", "* (kept.var() + 1e-8).rsqrt()"),
    )
)
