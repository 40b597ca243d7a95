"""A run's memory by owner and by phase, under settings that a reader moves."""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product

from IPython.display import HTML

from nbcourse.budget import machines, prediction
from nbcourse.budget.prompts import USUAL_PROMPT
from nbcourse.budget.shapes import shape_of
from nbcourse.display.in_page import in_page
from nbcourse.training import recipe

MEGABYTE = 1_000_000
CARDS = ("T4", "RTX 4090", "A100-80GB", "H200")
# What a reader moves: a key of recipes, or what stands in a recipe's name, and its positions.
MODEL, ALGORITHM = "model", "algorithm"
PRECISION, TWICE = "model.precision", "model.gradient_checkpointing"
LEARNED, SAMPLED = "optimiser.prompts_at_once", "rollouts.prompts_at_once"
LENGTH = "rollouts.max_new_tokens"
POSITIONS: dict[str, Sequence[object]] = {
    MODEL: ("0.5b", "1.5b"),
    ALGORITHM: ("grpo", "ppo"),
    PRECISION: ("float32", "bfloat16"),
    TWICE: (False, True),
    LEARNED: (1, 2, 4, 8, 16, 32),
    SAMPLED: (4, 16, 64),
    LENGTH: (100, 200, 400, 800, 1600),
}
START = {TWICE: True, PRECISION: "bfloat16", LEARNED: 4, SAMPLED: 64, LENGTH: 400}
# What a phase depends on: no more is computed, and sent to the page.
PHASES = {
    "sample": (MODEL, ALGORITHM, PRECISION, SAMPLED, LENGTH),
    "consult": (MODEL, ALGORITHM, PRECISION, LEARNED, SAMPLED, LENGTH),
    "learn": (MODEL, ALGORITHM, PRECISION, TWICE, LEARNED, LENGTH),
    "evaluate": (MODEL, ALGORITHM, PRECISION, LENGTH),
}
STANDING = ("weights", "gradients", "moments", "reference", "critic")
PASSING = ("copies", "keys and values", "activations", "logits", "working set")


def explore_memory() -> HTML:
    """Move the settings of the book's GSM8K recipes: bytes by owner and phase, and what fits.

    Every number is `budget.predict`'s, computed here for each position of the settings that its
    phase depends on; the page only selects, adds and draws them.

    Returns:
        What a cell shows when it is its last line; the same in a live notebook and on the site.

    Book: equations (eq-memory), (eq-kv-cache).
    """
    data = {
        "keys": list(POSITIONS),
        "positions": [list(map(_shown, values)) for values in POSITIONS.values()],
        "start": [values.index(START.get(key, values[0])) for key, values in POSITIONS.items()],
        "cards": [[name, machines.DATASHEETS[name].memory / 1e9] for name in CARDS],
        "phases": {phase: list(keys) for phase, keys in PHASES.items()},
        "owners": [*STANDING, *PASSING],
        "standing": _megabytes("sample", (MODEL, ALGORITHM), STANDING),
        "passing": {phase: _megabytes(phase, keys, PASSING) for phase, keys in PHASES.items()},
    }
    return in_page("memory", data, parts=["curves", "numbers"])


@cache
def _recipe(model: object, algorithm: object) -> recipe.Recipe:
    return recipe.load(f"gsm8k-qwen2.5-{model}-{algorithm}", [])


def _memory(chosen: Mapping[str, object]) -> Mapping[str, Mapping[str, int]]:
    """Bytes by phase and owner of a recipe with some settings; the others are as at the start."""
    settings = {key: START.get(key, values[0]) for key, values in POSITIONS.items()}
    settings |= chosen
    asked = _recipe(settings.pop(MODEL), settings.pop(ALGORITHM))
    for key, value in settings.items():
        table, field = key.split(".")
        changed = getattr(asked, table).model_copy(update={field: value})
        asked = asked.model_copy(update={table: changed})
    return prediction.predict(
        asked,
        shape_of(asked),
        machines.DATASHEETS[CARDS[-1]],
        prompt_tokens=USUAL_PROMPT,
        response_tokens=1,  # of the time, which is not wanted; memory goes by the limit
    ).memory


def _megabytes(phase: str, keys: Sequence[str], owners: Sequence[str]) -> list[list[int]]:
    """What some owners have in a phase, at each position of these settings."""
    found = []
    for chosen in product(*(POSITIONS[key] for key in keys)):
        memory = _memory(dict(zip(keys, chosen, strict=True)))[phase]
        found.append([round(memory.get(owner, 0) / MEGABYTE) for owner in owners])
    return found


def _shown(value: object) -> str:
    if value == "bfloat16":
        return "bfloat16, float16"  # as many bytes
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
