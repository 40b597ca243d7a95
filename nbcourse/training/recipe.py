"""A recipe: everything that a training run depends on, in one TOML file, checked before it starts.

A key that the chosen algorithm would not look at is refused: `critic.clip` in a recipe for GRPO
rests on a misunderstanding, and the run would be another one than was meant.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import floor
from pathlib import Path
from textwrap import indent
from typing import Annotated, Any, Self, TypeVar

import torch
from pydantic import Field, PrivateAttr, ValidationError, ValidationInfo, model_validator

from nbcourse import rows
from nbcourse.errors import UserError
from nbcourse.seeds import generator
from nbcourse.tasks.table import TASKS
from nbcourse.tasks.task import in_epochs
from nbcourse.training import own_code, recipe_files, recipe_kl, reward_functions
from nbcourse.training.algorithms import Algorithm, Penalty
from nbcourse.training.named_sections import (
    AlgorithmSection,
    AnyAlgorithm,
    AnyTask,
    TaskSection,
    chosen,
)
from nbcourse.training.own_code import OwnCode
from nbcourse.training.recipe_kl import KLSection
from nbcourse.training.recipe_sections import (
    ONE_UPDATE,
    AnswersSection,
    CheckpointSection,
    CriticSection,
    EvaluationSection,
    ModelSection,
    OptimiserSection,
    PromptSection,
    RewardModelSection,
    RewardSection,
    RolloutSection,
    Rule,
    Section,
    Share,
    StageSection,
    WarmStartSection,
    Whole,
    WitnessSection,
    explain,
)

SHAPE = {"layers", "width", "heads", "vocabulary"}

Kind = TypeVar("Kind", bound="Section")


Code = Annotated[str | None, Field(description="a Python file with rows and tasks of your own")]


class RunSection(Section):
    """What recipes of both kinds have: the reader's own code, if they name a file."""

    _own_code: OwnCode = PrivateAttr(own_code.NONE)

    def model_post_init(self, context: Any) -> None:
        if context:
            self._own_code = context["code"]

    @property
    def own_code(self) -> OwnCode:
        """The rows and tasks of the reader's file."""
        return self._own_code

    def _checked(
        self, info: ValidationInfo, unused: Iterable[Rule], impossible: Iterable[str]
    ) -> Self:
        """The recipe, if a run would look at every key that was chosen, and could do as it says."""
        problems = [
            f"{self._prefix(section)}{key} is not used: {reason}"
            for section, keys, reason in unused
            for key in sorted(keys & section.model_fields_set)
            if chosen(info)
        ]
        if problems := [*problems, *impossible]:
            raise ValueError("\n".join(problems))
        return self

    def _prefix(self, section: Section) -> str:
        """What its keys have in front of them: "critic." """
        fields = type(self).model_fields
        return next((f"{name}." for name in fields if getattr(self, name) is section), "")


class Pretraining(RunSection):
    """Everything that the making of a base model depends on, before any reinforcement.

    Two stages: on whole texts, as language models are pre-trained, and on solutions to questions.
    A model that is pre-trained already needs the second one alone.
    """

    pretraining: StageSection = StageSection()
    supervised: StageSection = StageSection()
    seed: Whole = 0
    code: Code = None
    task: AnyTask
    gsm8k_share: Share = Field(
        0.0, description="of the examples, GSM8K's training problems instead of the task's"
    )
    prompt: PromptSection = PromptSection()
    model: ModelSection = ModelSection()
    evaluation: AnswersSection = AnswersSection()
    checkpoint: CheckpointSection = CheckpointSection()

    @property
    def steps(self) -> int:
        """Updates in both stages."""
        return self.pretraining.steps + self.supervised.steps

    def examples(self, count: int, source: torch.Generator) -> list[Any]:
        """Training problems of the task, some of them replaced by GSM8K's, in random proportion."""
        task = self.task.build()
        others = int((torch.rand(count, generator=source) < self.gsm8k_share).sum())
        drawn = task.draw(count - others, split="train", generator=source)
        return drawn + (
            TASKS["gsm8k"]().draw(others, split="train", generator=source) if others else []
        )

    def batch(self, stage: str, step: int) -> list[Any]:
        """The training problems of a step, which depend on seed, stage and step alone.

        Of a finite list, every problem is drawn once before any is drawn again.
        """
        size = getattr(self, stage).batch_size
        before, after = (floor(n * size * self.gsm8k_share) for n in (step, step + 1))
        found = []
        for task, first, count in (
            (self.task.build(), step * size - before, size - (after - before)),
            (TASKS["gsm8k"](), before, after - before),
        ):
            if count and (there := task.listed("train")):
                found += in_epochs(there, first, count, seed=self.seed, purpose=stage)
            elif count:
                source = generator(self.seed, stage, step)
                found += task.draw(count, split="train", generator=source)
        return found

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> "Pretraining":
        if type(self.task) is TaskSection:
            return self  # the record of a run whose task is not known here
        return self._checked(info, self._unused(), self._impossible())

    def _unused(self) -> Iterator[Rule]:
        yield from _shape_of_a_given_model(self.model)
        yield from _beside_a_plain_question(self.prompt)
        if self.task.name == "gsm8k":
            yield self, {"gsm8k_share"}, "the task is gsm8k as it is"
        for name, stage in (("pretraining", self.pretraining), ("supervised", self.supervised)):
            if stage.steps == 0:
                keys = set(StageSection.model_fields) - {"steps"}
                yield stage, keys, f"{name}.steps is 0"

    def _impossible(self) -> Iterator[str]:
        yield from _impossible_model(self.model, self.task)
        task = self.task.build()
        if not task.worked_solutions:
            yield f"task.name is {self.task.name!r}, which has no worked solutions to learn from"
        if self.gsm8k_share and self.model.source == "tiny" and task.characters:
            yield (
                f"gsm8k_share is {self.gsm8k_share:g}, expected 0: {self.task.name} is read by "
                "characters, and GSM8K's problems have others"
            )
        if self.steps == 0:
            yield "pretraining.steps and supervised.steps are both 0"


def _beside_a_plain_question(prompt: PromptSection) -> Iterator[Rule]:
    if prompt.style == "plain":
        yield prompt, {"system"}, "prompt.style is 'plain', and a text has no system message"


def _shape_of_a_given_model(model: ModelSection) -> Iterator[Rule]:
    if model.source != "tiny":
        yield model, SHAPE, f"the model comes from {model.source!r} as it is"


def _impossible_model(model: ModelSection, task: TaskSection) -> Iterator[str]:
    """Values of these two sections that do not go together."""
    if model.source != "tiny":
        return
    if model.width % (2 * model.heads):
        yield (
            f"model.width is {model.width}, expected a multiple of "
            f"2 * model.heads = {2 * model.heads}"
        )
    kind = task.build()
    if kind.characters is not None:
        if model.vocabulary is not None:
            yield f"model.vocabulary is {model.vocabulary}, but {task.name} is read by characters"
    elif not kind.worked_solutions:
        yield (
            f"model.source is 'tiny', but {task.name} has neither characters nor worked solutions "
            "to learn a vocabulary from"
        )
    elif model.vocabulary is None:
        yield f"model.vocabulary is missing: a vocabulary for {task.name} has to be learned"


class Recipe(RunSection):
    """Everything a run depends on; with `steps = 0` it keeps the model that it would start from."""

    steps: Whole
    algorithm: AnyAlgorithm
    seed: Whole = 0
    code: Code = None
    task: AnyTask = Field({}, validate_default=True)  # type: ignore
    prompt: PromptSection = PromptSection()
    model: ModelSection = ModelSection()
    warm_start: WarmStartSection = WarmStartSection()
    rollouts: RolloutSection = RolloutSection()
    reward: RewardSection = RewardSection()
    reward_model: RewardModelSection = RewardModelSection()
    kl: KLSection = KLSection()
    critic: CriticSection = CriticSection()
    optimiser: OptimiserSection = OptimiserSection()
    evaluation: EvaluationSection = EvaluationSection()
    checkpoint: CheckpointSection = CheckpointSection()
    witness: WitnessSection = WitnessSection()

    def examples(self, count: int, source: torch.Generator) -> list[Any]:
        """Training problems."""
        return self.task.build().draw(count, split="train", generator=source)

    @property
    def known(self) -> bool:
        """Whether row and task are: those of a record may have come from a file that is gone."""
        return type(self.algorithm) is not AlgorithmSection and type(self.task) is not TaskSection

    @property
    def row(self) -> Algorithm:
        """The row of the table of algorithms.

        Raises:
            ValueError: if it is the record of a run whose row is not known here.
        """
        return self.own_code.algorithm(self.algorithm.name)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the row's functions, the recipe's own first."""
        return self.algorithm.settings

    @property
    def penalty(self) -> Penalty:
        """The KL as it is asked for: nowhere if beta is 0."""
        return recipe_kl.penalty_of(self.kl, self.row)

    @property
    def dynamic_sampling(self) -> bool:
        """Whether prompts without spread are replaced."""
        own = self.rollouts.dynamic_sampling
        return self.row.dynamic_sampling if own is None else own

    @property
    def asks_reference(self) -> bool:
        """Whether what is learned takes the reference's log-probs of every response."""
        return self.penalty.placement != "none" or self.row.needs("ref_log_probs")

    def evaluates(self, step: int) -> bool:
        """Whether this step, counted from 1, ends with the held-out problems.

        Every so many do, and the last.
        """
        return step % self.evaluation.every == 0 or step == self.steps

    def measures_kl(self, step: int) -> bool:
        """Whether this step, counted from 1, measures the KL to the reference.

        Each does if the reference is asked anyway. Otherwise that takes a pass of its own, for the
        log alone: the first step does, and those that evaluate.
        """
        return self.asks_reference or step == 1 or self.evaluates(step)

    def in_use(self) -> dict[str, Any]:
        """The tables of the recipe without the keys that nothing reads beside the others."""
        tables = self.model_dump()
        for section, unused, _ in self._unused():
            place = tables[self._prefix(section)[:-1]] if section is not self else tables
            for key in unused:
                place.pop(key, None)
        return tables

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> "Recipe":
        if not self.known:
            return self
        if self.reward.function and chosen(info):
            reward_functions.load(self.reward.function)
        return self._checked(info, self._unused(), self._impossible())

    def _unused(self) -> Iterator[Rule]:
        """What a run would not look at beside what else the recipe says."""
        one_update = self.optimiser.updates == 1
        if not self.row.needs("values"):
            yield self, {"critic"}, f"{self.algorithm.name} has no critic"
        if self.reward.source != "reward_model":
            yield self, {"reward_model"}, f"reward.source is {self.reward.source!r}"
        if self.reward.source != "verifier":
            yield self.reward, {"lenient"}, f"reward.source is {self.reward.source!r}"
        yield from recipe_kl.unused(self.kl, self.row, one_update=one_update)
        yield from _shape_of_a_given_model(self.model)
        yield from _beside_a_plain_question(self.prompt)
        if self.witness.every == 0:
            reason = "witness.every is 0, so there are no witness batches"
            yield self.witness, {"tokens"}, reason
        warm_start = self.warm_start
        if warm_start.steps == 0:
            keys = set(WarmStartSection.model_fields) - {"steps"}
            yield warm_start, keys, "warm_start.steps is 0"
        if warm_start.careless_steps == 0:
            yield warm_start, {"careless_share"}, "warm_start.careless_steps is 0"
        if "careless_share" not in rows.settings_of(type(self.task.build()).demonstrate):
            reason = f"the task is {self.task.name}, whose teacher makes no mistakes"
            yield warm_start, {"careless_steps"}, reason
        if one_update:
            yield self.optimiser, {"target_kl"}, ONE_UPDATE
        if self.optimiser.truncated_importance_sampling is None:
            reason = "optimiser.truncated_importance_sampling is not given"
            yield self.optimiser, {"truncated_importance_floor"}, reason

    def _impossible(self) -> Iterator[str]:
        """Values that are each in range and do not go together."""
        name, row, rollouts = self.algorithm.name, self.row, self.rollouts
        if (row.needs("group_size") or self.dynamic_sampling) and rollouts.group_size < 2:
            yield (
                f"rollouts.group_size is {rollouts.group_size}, expected at least 2: "
                f"{name} compares responses to the same prompt"
            )
        if row.needs("sampler_log_probs") and self.optimiser.importance_bounds:
            yield (
                "optimiser.truncated_importance_sampling is "
                f"{self.optimiser.truncated_importance_sampling}, expected none: {name} compares "
                "with the policy that sampled itself, and a token would be weighed twice"
            )
        for key in () if row.has_ratio else ("epochs", "minibatches"):
            if (value := getattr(self.optimiser, key)) > 1:
                yield (
                    f"optimiser.{key} is {value}, expected 1: {name} has no importance ratio, so "
                    "a batch is good for one step"
                )
        if self.witness.every and self.model.precision == "float16":
            yield (
                f"witness.every is {self.witness.every}, expected 0: with model.precision = "
                "'float16' the loss is scaled and updates may be skipped, which a witness does "
                "not record"
            )
        if self.optimiser.minibatches > rollouts.prompts:
            yield (
                f"optimiser.minibatches is {self.optimiser.minibatches}, "
                f"expected at most rollouts.prompts = {rollouts.prompts}"
            )
        yield from recipe_kl.impossible(self.kl, row, name, responses=rollouts.responses)
        if self.reward.overlong_buffer >= rollouts.max_new_tokens:
            yield (
                f"reward.overlong_buffer is {self.reward.overlong_buffer}, expected less than "
                f"rollouts.max_new_tokens = {rollouts.max_new_tokens}"
            )
        warm_up = f"warm_start.steps is {self.warm_start.steps}, expected 0: "
        if self.warm_start.steps and not self.task.build().has_teacher():
            yield f"{warm_up}{self.task.name} has no teacher to imitate"
        if self.model.lora_rank and self.warm_start.steps:
            yield (
                f"{warm_up}with model.lora_rank the reference is the model without its adapter, "
                "as it was before the warm start"
            )
        if self.model.lora_rank and rollouts.engine.startswith("packed"):
            yield (
                f"rollouts.engine is {rollouts.engine!r}, expected eager or static with "
                "model.lora_rank: a packed engine takes no adapter"
            )
        if self.model.forward != "transformers":
            yield from self._impossible_packed()
        if self.model.lora_rank and self.reward.source == "reward_model":
            yield (
                "reward.source is 'reward_model', expected 'verifier': with model.lora_rank there "
                "is no copy of the model that could learn to judge"
            )
        yield from _impossible_model(self.model, self.task)

    def _impossible_packed(self) -> Iterator[str]:
        """What packed layers do not go together with."""
        model, given = self.model, []
        if model.lora_rank:
            given.append("model.lora_rank: packed layers take no adapter")
        if model.gradient_checkpointing:
            given.append("model.gradient_checkpointing: packed layers keep what they compute")
        if self.row.needs("values"):
            given.append(f"{self.algorithm.name}: its critic asks the layers of transformers")
        for what in given:
            yield f"model.forward is {model.forward!r}, expected 'transformers' with {what}"


def load(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe from a TOML file, change some keys, and check the whole.

    Args:
        path: the file, or the name of a recipe that comes with the package. It may say
            `extends = "other.toml"`, and then holds what differs from the file of that name beside
            it, or from the package's recipe of that name.
        overrides: such as "rollouts.group_size=4"; the value is TOML, or else text.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming each key that is unknown, unused or out of range, with its value.
    """
    return check(recipe_files.read(path, overrides), name=Path(path).name)


def load_any(path: str | Path, overrides: Sequence[str] = ()) -> Recipe | Pretraining:
    """As `load`, for a recipe of either kind.

    One with a table `pretraining` or `supervised` makes a base model.
    """
    tables = recipe_files.read(path, overrides)
    return validate(kind_of(tables), tables, name=Path(path).name)


def kind_of(tables: dict[str, Any]) -> type[Recipe] | type[Pretraining]:
    """Which kind of recipe these tables are."""
    return Pretraining if {"pretraining", "supervised"} & set(tables) else Recipe


def check(tables: dict[str, Any], *, name: str = "recipe", complete: bool = False) -> Recipe:
    """Make a recipe of nested tables.

    Args:
        tables: such as {"steps": 10, "algorithm": {"name": "grpo"}}.
        name: how messages call it.
        complete: the tables hold every key, as a run records them, and not only those that were
            chosen; keys that the algorithm does not use are then no mistake.

    Raises:
        ValueError: naming each key that is unknown, unused or out of range, with its value.
    """
    return validate(Recipe, tables, name=name, complete=complete)


def validate(
    kind: type[Kind],
    tables: dict[str, Any],
    *,
    name: str,
    complete: bool = False,
    code: OwnCode | None = None,
) -> Kind:
    """Make a recipe of this kind of nested tables; see `check`.

    `code` is what the file that the key `code` names has brought already; None loads it now.
    """
    own = code or own_code.NONE
    if file := tables.get("code"):
        own = code or own_code.load(Path(file))
        tables = {**tables, "code": Path(file).name}
    context = {"complete": complete, "code": own}
    try:
        return kind.model_validate(tables, context=context)
    except ValidationError as error:
        text = "\n".join(explain(kind, problem) for problem in error.errors())
        one = "\n" not in text  # a single mistake is answered in a single line
        raise UserError(f"{name}: {text}" if one else f"{name}:\n{indent(text, '  ')}") from error
