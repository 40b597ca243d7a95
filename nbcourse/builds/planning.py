"""Laws of the planner: bytes that are there all the time, those of the cache, and seconds."""

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

from nbcourse.budget import shapes
from nbcourse.budget.machines import DATASHEETS, Machine, roofline
from nbcourse.budget.passes import cache_bytes
from nbcourse.budget.shapes import Shape
from nbcourse.builds import bench
from nbcourse.builds.bench import Law, laws

MODELS = list(dict.fromkeys(shapes.PUBLISHED.values()))
CARDS = [DATASHEETS[name] for name in ("H100", "T4")]
Case = tuple[Any, ...]
_cache = partial(cache_bytes, precision="float32")  # as all numbers of this piece


def _static(shape: Shape, own: bool) -> float:
    return shape.parameters * (16 + 4 + 16 * own)


def _rows(shape: Shape, memory: int, columns: int, own: bool) -> float:
    return max(0, (memory - _static(shape, own)) / _cache(shape, 1, columns) // 1)


def _drawn(
    shape: Shape, rows: int, prompt: int, response: int, epochs: int, card: Machine
) -> float:
    """Seconds of a step's sampling."""
    N = shape.parameters
    columns = range(prompt, prompt + response)
    return sum(roofline(2 * N * rows, 4 * N + _cache(shape, rows, c), card) for c in columns)


def _reference(
    shape: Shape, rows: int, prompt: int, response: int, epochs: int, card: Machine
) -> float:
    """Seconds of a forward pass over all tokens."""
    return 2 * shape.parameters * rows * (prompt + response) / card.speed["float32"]


def _learned(
    shape: Shape, rows: int, prompt: int, response: int, epochs: int, card: Machine
) -> float:
    return 6 * shape.parameters * rows * (prompt + response) * epochs / card.speed["float32"]


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


_law = partial(bench.numbers, "planner", plain=_plain)

OWN = list(product(MODELS, (False, True)))
FILLED = list(product(MODELS, (1, 48), (100, 720)))
CARDS_FULL = [(model, memory * 10**9, 720, own) for model, own in OWN for memory in (16, 24, 80)]
WORK = list(product((1e12, 3e13), (1e9, 8e11), CARDS))
STEPS = list(product(MODELS, (1, 512), (50,), (40,), (1, 3), CARDS))

LAWS: Sequence[Law] = laws(
    "planner",
    ("static", "static bytes", "15.2 Static memory", (), _law("static_bytes", OWN, _static), 2),
    (
        "cache",
        "keys and values",
        "15.3 Activation memory",
        (),
        _law("cache_bytes", FILLED, _cache),
        2,
    ),
    (
        "rows",
        "how many responses fit",
        "15.4 What each setting saves in memory and costs in time",
        ("static", "cache"),
        _law("rows_that_fit", CARDS_FULL, _rows),
    ),
    ("roofline", "the bound by the machine", "15.5 Time", (), _law("at_least", WORK, roofline)),
    *(
        (
            part,
            sentence,
            "15.5 Time",
            ("cache", "roofline"),
            _law("step_seconds", STEPS, rule, parts=(part,)),
        )
        for part, sentence, rule in (
            ("sample", "token by token, the weights read once for all rows", _drawn),
            ("reference", "a forward pass over all tokens", _reference),
            ("learn", "three times that, in each epoch", _learned),
        )
    ),
)
