"""Laws of the planner: bytes that are there all the time, those of the cache, and seconds."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from nbcourse.budget import prediction, shapes
from nbcourse.budget.machines import DATASHEETS, Machine, roofline
from nbcourse.budget.shapes import Shape
from nbcourse.builds.bench import Bench, Finding, Law, laws, named

MODELS = list(shapes.PUBLISHED.values())
CARDS = [DATASHEETS[name] for name in ("H100", "T4")]
Case = tuple[Any, ...]
Rule = Callable[..., float]
_cache = partial(prediction.cache_bytes, precision="float32")  # as all numbers of this piece


def _static(N: int, *, learns: int = 16, reference: int = 4, critic: int = 0) -> int:
    return N * (learns + reference + critic)


STATIC: Mapping[str, Rule] = {
    "": lambda shape, own: _static(shape.parameters, critic=16 * own),
    "missing-moment": lambda shape, own: _static(shape.parameters, learns=12, critic=12 * own),
    "no-moments": lambda shape, own: _static(shape.parameters, learns=8, critic=8 * own),
    "reference-forgotten": lambda shape, own: _static(
        shape.parameters, reference=0, critic=16 * own
    ),
    "reference-that-learns": lambda shape, own: _static(
        shape.parameters, reference=16, critic=16 * own
    ),
    "frozen-critic": lambda shape, own: _static(shape.parameters, critic=4 * own),
    "critic-for-nothing": lambda shape, own: _static(shape.parameters),
}
CACHE: Mapping[str, Rule] = {
    "": _cache,
    "keys-without-values": lambda *case: _cache(*case) / 2,
    "key-for-each-query": lambda shape, *case: (
        _cache(shape, *case) * shape.heads / shape.key_value_heads
    ),
    "one-layer": lambda shape, *case: _cache(shape, *case) / shape.layers,
    "one-row": lambda shape, rows, columns: _cache(shape, 1, columns),
    "cache-in-bits": lambda *case: _cache(*case) * 8,
}


def _rows(shape: Shape, memory: int, columns: int, own: bool, *, static: bool = True) -> float:
    left = memory - static * STATIC[""](shape, own)
    return left / _cache(shape, 1, columns)


ROWS: Mapping[str, Rule] = {
    "": lambda *case: max(0, _rows(*case) // 1),
    "less-than-none": lambda *case: _rows(*case) // 1,
    "one-too-many": lambda *case: max(0, -(-_rows(*case) // 1)),
    "fraction-of-a-row": lambda *case: max(0, _rows(*case)),
    "static-forgotten": lambda *case: _rows(*case, static=False) // 1,
}
ROOFLINE: Mapping[str, Rule] = {
    "": roofline,
    "one-after-the-other": lambda flops, moved, card: (
        flops / card.speed["float32"] + moved / card.bandwidth
    ),
    "faster-than-it-can": lambda flops, moved, card: min(
        flops / card.speed["float32"], moved / card.bandwidth
    ),
    "arithmetic-alone": lambda flops, moved, card: flops / card.speed["float32"],
}


def _drawn(
    shape: Shape, rows: int, prompt: int, response: int, card: Machine, **wrong: Any
) -> float:
    """Seconds of a step's sampling, or of a wrong way to count them."""
    N = shape.parameters
    seconds = 0.0
    for t in range(response):
        columns = wrong.get("columns", lambda t: prompt + t)(t)
        weights = 4 * N * (rows if wrong.get("each_row") else 1)
        moved = weights + _cache(shape, rows, columns)
        seconds += roofline(wrong.get("factor", 2) * N * rows, moved, card)
    return seconds


def _sample(**wrong: Any) -> Rule:
    return lambda shape, rows, prompt, response, epochs, card: _drawn(
        shape, rows, prompt, response, card, **wrong
    )


def _pass(factor: int, *, passes: bool = False, answers: bool = False) -> Rule:
    def seconds(
        shape: Shape, rows: int, prompt: int, response: int, epochs: int, card: Machine
    ) -> float:
        tokens = rows * (response if answers else prompt + response)
        flops = factor * shape.parameters * tokens * (epochs if passes else 1)
        return flops / card.speed["float32"]

    return seconds


SAMPLE: Mapping[str, Rule] = {
    "": _sample(),
    "weights-for-each-row": _sample(each_row=True),
    "forgotten-prompt": _sample(columns=lambda t: t),
    "one-pass-for-all-tokens": lambda shape, rows, prompt, response, epochs, card: roofline(
        2 * shape.parameters * rows * response,
        4 * shape.parameters + _cache(shape, rows, prompt + response),
        card,
    ),
}
REFERENCE: Mapping[str, Rule] = {
    "": _pass(2),
    "reference-backwards": _pass(6),
    "unread-prompts": _pass(2, answers=True),
}
LEARN: Mapping[str, Rule] = {
    "": _pass(6, passes=True),
    "forward-only": _pass(2, passes=True),
    "one-epoch-planned": _pass(6),
    "prompts-not-learned": _pass(6, passes=True, answers=True),
}


def _plain(value: Any) -> Any:
    """A case's argument as readers have it."""
    if isinstance(value, Shape):
        return {
            "parameters": value.parameters,
            "layers": value.layers,
            "heads": value.heads,
            "kv_heads": value.key_value_heads,
            "head_width": value.width // value.heads,
        }
    if isinstance(value, Machine):
        return {"speed": value.speed["float32"], "bandwidth": value.bandwidth}
    return value


def _law(
    function: str, cases: Sequence[Case], rules: Mapping[str, Rule], part: str = ""
) -> Callable[[Bench], Finding | None]:
    """A function's numbers for all cases, relative to the right ones."""

    def look(bench: Bench) -> Finding | None:
        found = []
        for case in cases:
            answer = bench("call", "planner", function, [_plain(value) for value in case])
            answer = answer[part] if part else answer
            if isinstance(answer, bool) or not isinstance(answer, int | float):
                return Finding("", f"expected a number, got {type(answer).__name__}")
            found.append(answer)
        every = {name: _column(rule, cases) for name, rule in rules.items()}
        right = every.pop("")
        unit = torch.where(right == 0, 1.0, right)
        asked = torch.tensor(found, dtype=torch.float64)
        off = int(((asked - right) / unit).abs().argmax())
        return named(
            asked / unit,
            right / unit,
            {name: wrong / unit for name, wrong in every.items()},
            what=f"{function}: {found[off]:.6g}, expected {float(right[off]):.6g}; as a share",
            tolerance=1e-9,
        )

    return look


def _column(rule: Rule, cases: Sequence[Case]) -> Tensor:
    return torch.tensor([rule(*case) for case in cases], dtype=torch.float64)


OWN = list(product(MODELS, (False, True)))
FILLED = list(product(MODELS, (1, 48), (100, 720)))
CARDS_FULL = [(model, memory * 10**9, 720, own) for model, own in OWN for memory in (16, 24, 80)]
WORK = list(product((1e12, 3e13), (1e9, 8e11), CARDS))
STEPS = list(product(MODELS, (1, 512), (50,), (40,), (1, 3), CARDS))

LAWS: Sequence[Law] = laws(
    "planner",
    ("static", "static bytes", "15.2 Static memory", (), _law("static_bytes", OWN, STATIC), 2),
    (
        "cache",
        "keys and values",
        "15.3 Activation memory",
        (),
        _law("cache_bytes", FILLED, CACHE),
        2,
    ),
    (
        "rows",
        "how many responses fit",
        "15.4 What each setting saves in memory and costs in time",
        ("static", "cache"),
        _law("rows_that_fit", CARDS_FULL, ROWS),
        1,
    ),
    ("roofline", "the bound by the machine", "15.5 Time", (), _law("at_least", WORK, ROOFLINE), 1),
    *(
        (
            part,
            sentence,
            "15.5 Time",
            ("cache", "roofline"),
            _law("step_seconds", STEPS, rules, part),
            1,
        )
        for part, sentence, rules in (
            ("sample", "token by token, the weights read once for all rows", SAMPLE),
            ("reference", "a forward pass over all tokens", REFERENCE),
            ("learn", "three times that, in each epoch", LEARN),
        )
    ),
)
