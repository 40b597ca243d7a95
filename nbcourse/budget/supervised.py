"""The steps in which a model imitates worked solutions: those of a base model, or a warm start.

Chapter 15 begins with a base model that was trained in such steps.

Such a step is the learning phase of a REINFORCE step with one response to each prompt: one forward
and one backward pass over texts that are there already. So it is planned as one, by a recipe that
stands in for it. Two things differ: the logits are whole, whatever the vocabulary, and there is no
reference. And nothing has to be guessed about the lengths, since the texts are there to be looked
at.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from nbcourse.budget.memory import learning_bytes, standing_bytes
from nbcourse.budget.plan import Plan
from nbcourse.budget.shapes import Shape
from nbcourse.budget.work import Work, learning_work
from nbcourse.seeds import generator
from nbcourse.training.models import load_tokenizer
from nbcourse.training.preparation import demonstrations, texts_of
from nbcourse.training.recipe import Pretraining, Recipe
from nbcourse.training.recipe_sections import ModelSection

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BATCHES = 20  # looked at, spread over the steps
SHAPE_KEYS = {"layers", "width", "heads", "vocabulary"}  # of a tiny model; the shape has them
Batch = Sequence[tuple[str, str]]  # prompts and the responses to them


class Lengths(NamedTuple):
    """Tokens of a text: of its prompt, and of the response to it with its end."""

    prompt: int
    response: int


@dataclass(frozen=True)
class Texts:
    """How long the texts are, in those batches that were looked at.

    Attributes:
        shortest: of all texts, prompt and response each for itself.
        usual: what texts are filled up to, the longest prompt and the longest response of those
            that are learned from at once; means.
        longest: of all texts.
    """

    shortest: Lengths
    usual: Lengths
    longest: Lengths


class SupervisedPlan(Plan):
    """A supervised step as the learning phase of a REINFORCE step, but with whole logits."""

    @property
    def chunked(self) -> bool:
        """Whether the logits are never whole."""
        return False


def stand_in_for(model: ModelSection, steps: int, **sections: Any) -> Recipe:
    """A recipe for REINFORCE with this model, whose task does not matter."""
    given = model.model_dump(exclude=SHAPE_KEYS)
    row = {"name": "reinforce"}
    return Recipe.model_validate({"steps": steps, "algorithm": row, "model": given, **sections})


@dataclass(frozen=True)
class Stage:
    """Supervised steps of one kind.

    Attributes:
        name: of the stage.
        steps: how many.
        batch_size: texts in each.
        at_once: texts in one backward pass.
        model: settings of the model, with the precision of these steps.
        texts: their lengths.
    """

    name: str
    steps: int
    batch_size: int
    at_once: int
    model: ModelSection
    texts: Texts

    def plan(self, shape: Shape, lengths: Lengths, *, card: bool = False) -> SupervisedPlan:
        """A step whose texts all have these lengths."""
        rollouts = {
            "prompts": self.batch_size,
            "group_size": 1,
            "max_new_tokens": lengths.response,
        }
        at_once = {"prompts_at_once": min(self.at_once, self.batch_size)}
        stand_in = stand_in_for(self.model, self.steps, rollouts=rollouts, optimiser=at_once)
        return SupervisedPlan(stand_in, shape, lengths.prompt, card)

    def memory(self, shape: Shape, *, card: bool = False) -> dict[str, int]:
        """Bytes by owner, on a GPU or not, in a step whose texts are all as long as the longest."""
        plan = self.plan(shape, self.texts.longest, card=card)
        standing = standing_bytes(plan)
        standing.pop("reference", None)
        return standing | learning_bytes(plan)

    def work(self, shape: Shape, lengths: Lengths) -> dict[str, Work]:
        """FLOPs and bytes moved of a step whose texts all have these lengths, by part."""
        return learning_work(self.plan(shape, lengths), lengths.response)


def stages_of(recipe: Pretraining) -> list[Stage]:
    """The stages in which a base model is made.

    Raises:
        OSError: if tokenizer or texts are not on this machine.
    """
    tokenizer, found = load_tokenizer(recipe, local=True), []
    for name in ("pretraining", "supervised"):
        stage = getattr(recipe, name)
        if stage.steps:
            batch = partial(texts_of, recipe, tokenizer, name)
            texts = look_at(batch, tokenizer, stage.steps, stage.at_once)
            numbers = stage.steps, stage.batch_size, stage.at_once
            found.append(Stage(name, *numbers, recipe.model, texts))
    return found


def warm_start_of(recipe: Recipe) -> list[Stage]:
    """The stages of a recipe's warm start: the careful teacher's, and the careless one's.

    Its steps are taken in float32, and a batch in one piece.

    Raises:
        OSError: if the tokenizer or the problems are not on this machine.
    """
    settings, found = recipe.warm_start, []
    if not settings.steps:
        return []
    tokenizer = load_tokenizer(recipe, local=True)
    model = recipe.model.model_copy(update={"precision": "float32"})
    for name, steps, careless in (
        ("warm start", settings.steps, 0.0),
        ("careless teacher", settings.careless_steps, settings.careless_share),
    ):
        if steps:
            source = generator(recipe.seed, "lengths of the warm start")

            def batch(_: int, careless: float = careless, source: Any = source) -> Batch:
                return demonstrations(recipe, tokenizer, source, careless, settings.batch_size)

            size = settings.batch_size
            texts = look_at(batch, tokenizer, steps, size)
            found.append(Stage(name, steps, size, size, model, texts))
    return found


def look_at(
    batch: Callable[[int], Batch],
    tokenizer: "PreTrainedTokenizerBase",
    steps: int,
    at_once: int,
) -> Texts:
    """How long the texts are that are learned from, in some batches that lie far apart."""
    every, usual = [], []
    for step in sorted({round(i * (steps - 1) / (BATCHES - 1)) for i in range(BATCHES)}):
        asked, answered = (
            [len(ids) for ids in tokenizer(list(texts), add_special_tokens=False).input_ids]
            for texts in zip(*batch(step), strict=True)
        )
        pairs = sorted((a + 1, p) for p, a in zip(asked, answered, strict=True))  # + 1: its end
        for first in range(0, len(pairs), at_once):
            part = pairs[first : first + at_once]
            usual.append((max(p for _, p in part), max(a for a, _ in part)))
        every += pairs
    responses, prompts = zip(*every, strict=True)
    return Texts(
        Lengths(min(prompts), min(responses)),
        Lengths(*(round(fmean(column)) for column in zip(*usual, strict=True))),
        Lengths(max(prompts), max(responses)),
    )
