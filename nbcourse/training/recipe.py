"""A recipe: everything that a training run depends on, in one TOML file, checked before it starts.

A key that the chosen algorithm would not look at is refused: `critic.clip` in a recipe for GRPO
rests on a misunderstanding, and the run would be another one than was meant.
"""

from collections.abc import Sequence
from math import floor
from pathlib import Path
from typing import Annotated, Any, TypeVar

import torch
from pydantic import Field, PrivateAttr, ValidationError, ValidationInfo, model_validator

from nbcourse import rows
from nbcourse.errors import UserError
from nbcourse.functional.kl import WEIGHTS
from nbcourse.seeds import generator
from nbcourse.tasks.table import TASKS
from nbcourse.tasks.task import in_epochs
from nbcourse.training import own_code, recipe_files
from nbcourse.training.algorithms import ROW, SURROGATE_ESTIMATORS, Algorithm, Penalty
from nbcourse.training.named_sections import (
    AlgorithmSection,
    AnyAlgorithm,
    AnyTask,
    TaskSection,
    chosen,
)
from nbcourse.training.own_code import OwnCode
from nbcourse.training.recipe_sections import (
    AnswersSection,
    CheckpointSection,
    CriticSection,
    EvaluationSection,
    KLSection,
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

PRODUCTS = ("prefix", "sequence")  # weights that are products of ratios, and may overflow
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
        problems = [
            *(_named(self, self._unused()) if chosen(info) else ()),
            *impossible_model(self.model, self.task),
        ]
        if not self.task.build().worked_solutions:
            problems.append(
                f"task.name is {self.task.name!r}, which has no worked solutions to learn from"
            )
        if self.gsm8k_share and self.model.source == "tiny" and self.task.build().characters:
            problems.append(
                f"gsm8k_share is {self.gsm8k_share:g}, expected 0: {self.task.name} is read by "
                "characters, and GSM8K's problems have others"
            )
        if self.steps == 0:
            problems.append("pretraining.steps and supervised.steps are both 0")
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _unused(self) -> "list[Rule]":
        stages = {"pretraining": self.pretraining, "supervised": self.supervised}
        return [
            _shape_of_a_given_model(self.model),
            (
                self,
                {"gsm8k_share"} if self.task.name == "gsm8k" else set(),
                "the task is gsm8k as it is",
            ),
            *(
                (
                    stage,
                    set() if stage.steps else set(StageSection.model_fields) - {"steps"},
                    f"{name}.steps is 0",
                )
                for name, stage in stages.items()
            ),
        ]


def _named(recipe: Section, rules: Sequence[Rule]) -> list[str]:
    """The keys that were given although the run would not look at them."""
    places = {id(getattr(recipe, key)): f"{key}." for key in type(recipe).model_fields}
    return [
        f"{places.get(id(section), '')}{key} is not used: {reason}"
        for section, keys, reason in rules
        for key in sorted(keys & section.model_fields_set)
    ]


def _shape_of_a_given_model(model: ModelSection) -> Rule:
    keys = set() if model.source == "tiny" else SHAPE
    return model, keys, f"the model comes from {model.source!r} as it is"


def impossible_model(model: ModelSection, task: TaskSection) -> list[str]:
    """Values of these two sections that do not go together."""
    found = []
    if model.source == "tiny" and model.width % (2 * model.heads):
        found.append(
            f"model.width is {model.width}, expected a multiple of "
            f"2 * model.heads = {2 * model.heads}"
        )
    kind = task.build()
    if model.source != "tiny":
        return found
    if kind.characters is not None:
        if model.vocabulary is not None:
            found.append(
                f"model.vocabulary is {model.vocabulary}, but {task.name} is read by characters"
            )
    elif not kind.worked_solutions:
        found.append(
            f"model.source is 'tiny', but {task.name} has neither characters nor worked solutions "
            "to learn a vocabulary from"
        )
    elif model.vocabulary is None:
        found.append(f"model.vocabulary is missing: a vocabulary for {task.name} has to be learned")
    return found


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
        asked = self.kl
        placement = (asked.placement or self.row.kl) if asked.beta > 0 else "none"
        estimator = asked.estimator or ("k3" if placement == "surrogate" else self.row.kl_estimator)
        if placement not in ("advantage", "surrogate"):
            return Penalty(placement, estimator, asked.beta)
        weight = asked.weight or (ROW if placement == "advantage" else "prefix")
        cap = asked.weight_cap if weight in PRODUCTS else None
        return Penalty(placement, estimator, asked.beta, weight, cap, asked.recomputed)

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
            place = tables if section is self else tables[self._place(section)]
            for key in unused:
                place.pop(key, None)
        return tables

    def _place(self, section: Section) -> str:
        return next(name for name in type(self).model_fields if getattr(self, name) is section)

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> "Recipe":
        if not self.known:
            return self
        problems = [
            *(_named(self, self._unused()) if chosen(info) else ()),
            *self._impossible(),
        ]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _unused(self) -> list[Rule]:
        name, row, penalty = self.algorithm.name, self.row, self.penalty
        placement = penalty.placement
        one_update = self.optimiser.updates == 1
        careless = "careless_share" in rows.settings_of(type(self.task.build()).demonstrate)
        return [
            (self, set() if row.needs("values") else {"critic"}, f"{name} has no critic"),
            (
                self,
                set() if self.reward.source == "reward_model" else {"reward_model"},
                "reward.source is 'verifier'",
            ),
            (
                self.kl,
                set() if self.kl.beta > 0 else set(KLSection.model_fields) - {"beta"},
                "kl.beta is 0, so there is no KL penalty",
            ),
            (
                self.kl,
                {"estimator"} if placement in ("reward", "advantage") else set(),
                f"in the {placement} only k1 has the right gradient",
            ),
            (
                self.kl,
                {"weight", "weight_cap"} if placement in ("reward", "loss") else set(),
                f"with the KL in the {placement} nothing is weighted",
            ),
            (
                self.kl,
                {"weight_cap"}
                if placement in ("advantage", "surrogate") and penalty.weight not in PRODUCTS
                else set(),
                f"kl.weight is {penalty.weight!r}, which is not a product of ratios",
            ),
            (
                self.kl,
                {"recomputed"} if placement in ("loss", "surrogate") else set(),
                f"with the KL in the {placement} it is that of the policy that learns in any case",
            ),
            (
                self.kl,
                {"recomputed"} if placement == "advantage" and one_update else set(),
                "with one update for each batch the policy that learns is the one that sampled",
            ),
            (
                self.kl,
                {"target", "horizon"} if self.kl.controller == "fixed" else set(),
                "kl.controller is 'fixed'",
            ),
            _shape_of_a_given_model(self.model),
            (
                self.witness,
                set() if self.witness.every else {"tokens"},
                "witness.every is 0, so there are no witness batches",
            ),
            (
                self.warm_start,
                set() if self.warm_start.steps else set(WarmStartSection.model_fields) - {"steps"},
                "warm_start.steps is 0",
            ),
            (
                self.warm_start,
                set() if self.warm_start.careless_steps else {"careless_share"},
                "warm_start.careless_steps is 0",
            ),
            (
                self.warm_start,
                set() if careless else {"careless_steps"},
                f"the task is {self.task.name}, whose teacher makes no mistakes",
            ),
            (
                self.optimiser,
                {"target_kl"} if one_update else set(),
                "with one update for each batch the policy that learns is the one that sampled",
            ),
        ]

    def _impossible(self) -> list[str]:
        """Values that are each in range and do not go together."""
        name, row, rollouts = self.algorithm.name, self.row, self.rollouts
        found = []
        if (row.needs("group_size") or self.dynamic_sampling) and rollouts.group_size < 2:
            found.append(
                f"rollouts.group_size is {rollouts.group_size}, expected at least 2: "
                f"{name} compares responses to the same prompt"
            )
        if not row.needs("old_log_probs"):
            found += [
                f"optimiser.{key} is {value}, expected 1: {name} has no importance ratio, so "
                "a batch is good for one step"
                for key in ("epochs", "minibatches")
                if (value := getattr(self.optimiser, key)) > 1
            ]
        if self.witness.every and self.model.precision == "float16":
            found.append(
                f"witness.every is {self.witness.every}, expected 0: with model.precision = "
                "'float16' the loss is scaled and updates may be skipped, which a witness does "
                "not record"
            )
        if self.optimiser.minibatches > rollouts.prompts:
            found.append(
                f"optimiser.minibatches is {self.optimiser.minibatches}, "
                f"expected at most rollouts.prompts = {rollouts.prompts}"
            )
        if self.kl.beta > 0 and self.penalty.placement == "none":
            found.append(
                f"kl.beta is {self.kl.beta:g}, but {name} was published without a KL penalty: "
                "say kl.placement = 'reward', 'advantage', 'loss' or 'surrogate'"
            )
        found += self._impossible_penalty()
        if self.kl.controller == "adaptive" and self.kl.horizon <= rollouts.responses / 5:
            found.append(
                f"kl.horizon is {self.kl.horizon:g}, expected more than a fifth of the "
                f"{rollouts.responses} responses of a step"
            )
        if self.reward.overlong_buffer >= rollouts.max_new_tokens:
            found.append(
                f"reward.overlong_buffer is {self.reward.overlong_buffer}, expected less than "
                f"rollouts.max_new_tokens = {rollouts.max_new_tokens}"
            )
        if self.warm_start.steps and not self.task.build().has_teacher():
            found.append(
                f"warm_start.steps is {self.warm_start.steps}, expected 0: {self.task.name} has no "
                "teacher to imitate"
            )
        if self.model.lora_rank and self.warm_start.steps:
            found.append(
                f"warm_start.steps is {self.warm_start.steps}, expected 0: with model.lora_rank "
                "the reference is the model without its adapter, as it was before the warm start"
            )
        if self.model.lora_rank and self.reward.source == "reward_model":
            found.append(
                "reward.source is 'reward_model', expected 'verifier': with model.lora_rank there "
                "is no copy of the model that could learn to judge"
            )
        return [*found, *impossible_model(self.model, self.task)]

    def _impossible_penalty(self) -> list[str]:
        penalty, placement = self.penalty, self.penalty.placement
        found = []
        if placement == "reward" and not self.row.needs("rewards"):
            found.append(
                f"kl.placement is 'reward', but the advantages of {self.algorithm.name} are made "
                "of the rewards of steps: say kl.placement = 'advantage', 'loss' or 'surrogate'"
            )
        if placement == "reward" and self.kl.recomputed:
            found.append(
                "kl.recomputed is True, but a KL in the reward is in the advantages before the "
                "first update: say kl.placement = 'advantage'"
            )
        if placement == "loss" and penalty.estimator == "exact":
            found.append(
                "kl.estimator is 'exact', whose own derivative is a partial gradient: say "
                "kl.placement = 'surrogate'"
            )
        if placement == "surrogate" and penalty.estimator not in SURROGATE_ESTIMATORS:
            found.append(
                f"kl.estimator is {penalty.estimator!r}, expected one of "
                f"{', '.join(map(repr, SURROGATE_ESTIMATORS))}: the surrogate of a biased estimate "
                "is biased"
            )
        if placement == "surrogate" and penalty.weight == ROW:
            found.append(
                f"kl.weight is {ROW!r}, expected one of {', '.join(map(repr, WEIGHTS))}: the "
                f"surrogate of the KL does not pass through that of {self.algorithm.name}"
            )
        if penalty.exact and penalty.weight != "prefix":
            found.append(
                f"kl.weight is {penalty.weight!r}, expected 'prefix': the divergence of a state "
                "is weighted by the tokens before it"
            )
        return found


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
        lines = [explain(kind, problem) for problem in error.errors()]
        text = "\n".join(lines)
        one = "\n" not in text  # a single mistake is answered in a single line
        raise UserError(f"{name}: {text.strip()}" if one else f"{name}:\n{text}") from error
