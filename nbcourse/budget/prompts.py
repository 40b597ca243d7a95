"""How long the prompts of a recipe are, in tokens."""

from functools import lru_cache
from typing import NamedTuple

from nbcourse.seeds import generator
from nbcourse.training.models import Reading, load_tokenizer, rendered
from nbcourse.training.recipe import Pretraining, Recipe

PROMPTS = 1_000  # looked at to find a long one
USUAL_PROMPT = 320  # tokens: GSM8K's longest question, about, in a chat template


class Prompts(NamedTuple):
    """Lengths of a recipe's prompts in tokens.

    Attributes:
        shortest: of those that were looked at.
        longest: of them.
        source: where the numbers are from, in words.
    """

    shortest: int
    longest: int
    source: str


def prompts_of(recipe: Recipe | Pretraining) -> Prompts:
    """How long the prompts are: of many training problems, or assumed where none can be had."""
    try:
        lengths = prompt_lengths(recipe)
    except OSError:
        return Prompts(1, USUAL_PROMPT, "assumed: the tokenizer was not downloaded yet")
    return Prompts(min(lengths), max(lengths), "the longest of many")


def prompt_lengths(recipe: Recipe | Pretraining) -> list[int]:
    """Tokens of each of many training prompts; of the model only the tokenizer is loaded.

    Raises:
        OSError: if the tokenizer or the problems are not on this machine.
    """
    reading = Reading.of(recipe)
    from_files = recipe.model.source != "tiny" or reading.is_listed
    return _lengths_anew(reading) if from_files else [*_lengths(reading)]


def _lengths_anew(reading: Reading) -> list[int]:
    recipe = reading.recipe
    tokenizer = load_tokenizer(recipe, local=True)
    drawn = recipe.examples(PROMPTS, generator(recipe.seed, "problems", 0))
    prompts = rendered(recipe.prompt, tokenizer, drawn)
    return [len(ids) for ids in tokenizer(prompts, add_special_tokens=False).input_ids]


_lengths = lru_cache(maxsize=4)(_lengths_anew)  # a plan asks several times
