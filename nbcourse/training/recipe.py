"""A recipe: everything that a training run depends on, in one TOML file, checked before it starts.

A key that the chosen algorithm would not look at is refused: whoever sets `critic.clip` for GRPO
believes something that is not so.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import torch
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from nbcourse.functional.kl import ESTIMATORS, WEIGHTS
from nbcourse.lm.bpe import BYTES
from nbcourse.tasks.arithmetic import Arithmetic
from nbcourse.tasks.questions import GSM8K, WordProblems
from nbcourse.tasks.task import Task
from nbcourse.tasks.word_problems import MAX_STEPS
from nbcourse.training import recipe_files
from nbcourse.training.algorithms import ALGORITHMS, Algorithm, Penalty

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Steps = Annotated[int, Field(ge=1, le=MAX_STEPS)]


Kind = TypeVar("Kind", bound="Section")


class Section(BaseModel):
    """A table of the recipe: no unknown key, no silent conversion, no change afterwards."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class AlgorithmSection(Section):
    """Which row of the table, and the settings of the row's functions that differ from theirs."""

    name: str = Field(description="a row of the table of algorithms")
    clip_low: Annotated[float, Field(gt=0, le=1)] | None = None
    clip_high: Positive | None = None
    dual_clip: Annotated[float, Field(gt=1, allow_inf_nan=False)] | None = None
    eps: NonNegative | None = None
    decay: Share | None = None
    gamma: Share | None = None
    lam: Share | None = None
    whiten: bool | None = None
    whiten_rewards: bool | None = None


class AnyTaskSection(Section):
    """What the sections of all tasks have in common."""

    name: str

    def build(self) -> Task:
        """The task itself."""
        raise NotImplementedError


class ArithmeticSection(AnyTaskSection):
    """Sums such as `12+34=`."""

    name: Literal["arithmetic"] = "arithmetic"
    digits: Annotated[int, Field(ge=1, le=9)] = 2
    operations: Annotated[str, Field(pattern=r"^[+*-]+$")] = "+"

    def build(self) -> Task:
        return Arithmetic(digits=self.digits, operations=self.operations)


class WordProblemsSection(AnyTaskSection):
    """Word problems of our own."""

    name: Literal["word-problems"]
    min_steps: Steps = 1
    max_steps: Steps = MAX_STEPS
    distractors: Share = 0.2
    stories: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="share of the stories that are told"
    )

    def build(self) -> Task:
        return WordProblems(self.min_steps, self.max_steps, self.distractors, self.stories)


class GSM8KSection(AnyTaskSection):
    """The data set."""

    name: Literal["gsm8k"]
    path: str | None = Field(None, description="a folder; NBCOURSE_GSM8K or the hub if not given")

    def build(self) -> Task:
        return GSM8K(self.path)


def _name_of_task(section: Any) -> Any:
    if isinstance(section, dict):
        return section.get("name", "arithmetic")
    return getattr(section, "name", None)


TASKS: dict[str, type[AnyTaskSection]] = {
    "arithmetic": ArithmeticSection,
    "word-problems": WordProblemsSection,
    "gsm8k": GSM8KSection,
}
TaskSection = Annotated[
    Annotated[ArithmeticSection, Tag("arithmetic")]
    | Annotated[WordProblemsSection, Tag("word-problems")]
    | Annotated[GSM8KSection, Tag("gsm8k")],
    Discriminator(_name_of_task),
]
"""Where prompts come from, and what is right."""


class PromptSection(Section):
    """How a question is put to the model."""

    style: Literal["plain", "chat"] = Field(
        "plain", description="the question alone, or a message in the tokenizer's chat template"
    )
    instruction: str = Field("", description="before the question if plain, behind it in a message")


class ModelSection(Section):
    """Which model learns."""

    source: str = Field("tiny", description="`tiny`, a folder, or a name on the hub")
    layers: Count = 2
    width: Annotated[int, Field(ge=8)] = 64
    heads: Count = 16
    vocabulary: Annotated[int, Field(gt=BYTES)] | None = Field(
        None, description="tokens learned from the task's texts; its characters if not given"
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="of the matrix products; the weights are float32 in any case"
    )
    gradient_checkpointing: bool = Field(
        False, description="compute activations twice, to bound memory; same gradient"
    )


SHAPE = {"layers", "width", "heads", "vocabulary"}


class WarmStartSection(Section):
    """Supervised steps before reinforcement learning; 0 steps for none."""

    steps: Whole = 0
    batch_size: Count = 128
    learning_rate: Positive = 5e-3
    careless_steps: Whole = Field(
        0, description="further steps, at a fifth of the rate, with a teacher who forgets to carry"
    )
    careless_share: Share = Field(0.9, description="of the demonstrations of those steps")


class RolloutSection(Section):
    """What is sampled at each step."""

    prompts: Count = 128
    group_size: Count = 8
    max_new_tokens: Count = 8
    temperature: Positive = 1.0
    dynamic_sampling: bool | None = Field(None, description="the algorithm's choice if not given")
    prompts_at_once: Count | None = Field(
        None, description="sampled together, to bound memory; all if not given"
    )


class RewardSection(Section):
    """What a response earns."""

    source: Literal["verifier", "reward_model"] = "verifier"
    truncation_penalty: NonNegative = Field(
        0.0, description="taken off the score of a response that did not end itself"
    )
    overlong_buffer: Whole = Field(
        0, description="DAPO: the last tokens before the limit, over which a penalty grows to 1"
    )


class RewardModelSection(Section):
    """How the reward model is trained, before the policy is."""

    comparisons: Count = 4096
    steps: Count = 200
    batch_size: Count = 128
    learning_rate: Positive = 3e-4


class KLSection(Section):
    """The KL to the model as it was before reinforcement learning."""

    beta: NonNegative = Field(
        0.0,
        description="price of a nat; under 'surrogate' never divided by a length (section 8.12)",
    )
    placement: Literal["reward", "loss", "surrogate"] | None = Field(
        None, description="the algorithm's choice if not given"
    )
    estimator: Literal[ESTIMATORS] | None = None  # type: ignore[valid-type]
    weight: Literal[WEIGHTS] = Field(  # type: ignore[valid-type]
        "prefix", description="of the surrogate; only prefix and sequence have the right gradient"
    )
    controller: Literal["fixed", "adaptive"] = "fixed"
    target: Positive = Field(1.0, description="nats for a whole response")
    horizon: Positive = Field(10_000.0, description="responses")


class CriticSection(Section):
    """The critic, for algorithms that have one."""

    shared: bool = Field(True, description="one backbone for policy and critic, or two")
    coefficient: NonNegative = 0.1
    clip: Positive | None = None
    learning_rate: Positive | None = Field(
        None, description="of the critic's own parameters; the policy's if not given"
    )


class OptimiserSection(Section):
    """How the weights move."""

    learning_rate: Positive = 3e-4
    warm_up: Whole = Field(0, description="steps over which the learning rate rises")
    weight_decay: NonNegative = 0.0
    max_grad_norm: Positive = 1.0
    epochs: Count = 1
    minibatches: Count = 1
    target_kl: Positive | None = Field(
        None, description="leave the batch when the KL to the policy that sampled exceeds this"
    )
    prompts_at_once: Count | None = Field(
        None, description="in one backward pass, to bound memory; does not change the gradient"
    )


class EvaluationSection(Section):
    """The held-out problems asked along the way, greedily."""

    every: Count = 10
    problems: Count = 512


class CheckpointSection(Section):
    """How much a kill may cost."""

    every: Count = 10


class StageSection(Section):
    """Supervised steps of one kind; 0 steps for none."""

    steps: Whole = 0
    batch_size: Count = 64
    at_once: Count = Field(
        16, description="texts in one backward pass, to bound memory; does not change the gradient"
    )
    learning_rate: Positive = 1e-3


class AnswersSection(EvaluationSection):
    """The held-out problems asked along the way, and how long an answer may be."""

    max_new_tokens: Count = 256


class Pretraining(Section):
    """Everything that the making of a model from scratch depends on, before any reinforcement.

    Two stages: on whole texts, as language models are pre-trained, and on solutions to questions.
    """

    pretraining: StageSection
    supervised: StageSection
    seed: Whole = 0
    task: TaskSection
    gsm8k_share: Share = Field(
        0.0, description="of the examples, from GSM8K's training problems instead of the task's"
    )
    prompt: PromptSection = PromptSection()
    model: ModelSection = ModelSection()
    evaluation: AnswersSection = AnswersSection()
    checkpoint: CheckpointSection = CheckpointSection()

    @property
    def steps(self) -> int:
        """Updates in both stages."""
        return self.pretraining.steps + self.supervised.steps

    def examples(self, count: int, generator: torch.Generator) -> list[Any]:
        """Training problems of the task, some of them replaced by GSM8K's, in random proportion."""
        task = self.task.build()
        others = int((torch.rand(count, generator=generator) < self.gsm8k_share).sum())
        drawn = task.draw(count - others, split="train", generator=generator)
        return drawn + (GSM8K().draw(others, split="train", generator=generator) if others else [])

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> "Pretraining":
        problems = [
            *(_named(self, self._unused()) if _chosen(info) else ()),
            *impossible_model(self.model, self.task),
        ]
        if self.task.name == "arithmetic":
            problems.append("task.name is 'arithmetic': expected 'word-problems' or 'gsm8k'")
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


Rule = tuple[Section, set[str], str]
"""A section, its keys that a run would not look at, and why it would not."""


def _chosen(info: ValidationInfo) -> bool:
    """Whether somebody chose to set the keys that are given."""
    return not (info.context and info.context["complete"])


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


def impossible_model(model: ModelSection, task: AnyTaskSection) -> list[str]:
    """Values of these two sections that do not go together."""
    found = []
    if model.source == "tiny" and model.width % (2 * model.heads):
        found.append(
            f"model.width is {model.width}, expected a multiple of "
            f"2 * model.heads = {2 * model.heads}"
        )
    if model.source == "tiny" and (model.vocabulary is None) != (task.name == "arithmetic"):
        found.append(
            f"model.vocabulary is {model.vocabulary}: arithmetic is read character by character, "
            f"every other task needs a vocabulary, and the task is {task.name}"
        )
    if isinstance(task, WordProblemsSection) and task.min_steps > task.max_steps:
        found.append(
            f"task.min_steps is {task.min_steps}, "
            f"expected at most task.max_steps = {task.max_steps}"
        )
    return found


class Recipe(Section):
    """Everything a run depends on."""

    steps: Count
    algorithm: AlgorithmSection
    seed: Whole = 0
    task: TaskSection = ArithmeticSection()
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

    def examples(self, count: int, generator: torch.Generator) -> list[Any]:
        """Training problems."""
        return self.task.build().draw(count, split="train", generator=generator)

    @property
    def row(self) -> Algorithm:
        """The row of the table of algorithms."""
        return ALGORITHMS[self.algorithm.name]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the row's functions, the recipe's own first."""
        own = self.algorithm.model_dump(exclude={"name"}, exclude_none=True)
        return {**self.row.all_settings, **own}

    @property
    def penalty(self) -> Penalty:
        """The KL as it is asked for: nowhere if beta is 0."""
        placement = (self.kl.placement or self.row.kl) if self.kl.beta > 0 else "none"
        estimator = self.kl.estimator or self.row.kl_estimator
        return Penalty(placement, estimator, self.kl.beta, self.kl.weight)

    @property
    def dynamic_sampling(self) -> bool:
        """Whether prompts without spread are replaced."""
        own = self.rollouts.dynamic_sampling
        return self.row.dynamic_sampling if own is None else own

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> "Recipe":
        name = self.algorithm.name
        if name not in ALGORITHMS:
            raise ValueError(
                f"algorithm.name is {name!r}, expected one of {', '.join(map(repr, ALGORITHMS))}"
            )
        problems = [
            *(_named(self, self._unused()) if _chosen(info) else ()),
            *self._impossible(),
        ]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _unused(self) -> list[Rule]:
        name, row = self.algorithm.name, self.row
        settings = ", ".join(row.all_settings) or "none"
        return [
            (
                self.algorithm,
                set(AlgorithmSection.model_fields) - {"name", *row.all_settings},
                f"{name} does not use it; its settings: {settings}",
            ),
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
                {"estimator"} if self.penalty.placement in ("reward", "surrogate") else set(),
                f"with the KL in the {self.penalty.placement} the estimator is fixed "
                "(k1 in the reward, k3 under the weight of the surrogate)",
            ),
            (
                self.kl,
                {"weight"} if self.penalty.placement in ("reward", "loss") else set(),
                f"with the KL in the {self.penalty.placement} nothing is weighted",
            ),
            (
                self.kl,
                {"target", "horizon"} if self.kl.controller == "fixed" else set(),
                "kl.controller is 'fixed'",
            ),
            _shape_of_a_given_model(self.model),
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
                {"careless_steps"} if self.task.name != "arithmetic" else set(),
                f"the task is {self.task.name}, and only arithmetic has a teacher who forgets",
            ),
            (
                self.optimiser,
                {"target_kl"} if self.optimiser.epochs * self.optimiser.minibatches == 1 else set(),
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
        if self.optimiser.minibatches > rollouts.prompts:
            found.append(
                f"optimiser.minibatches is {self.optimiser.minibatches}, "
                f"expected at most rollouts.prompts = {rollouts.prompts}"
            )
        if self.kl.beta > 0 and self.penalty.placement == "none":
            found.append(
                f"kl.beta is {self.kl.beta:g}, but {name} was published without a KL penalty: "
                "say kl.placement = 'reward', 'loss' or 'surrogate'"
            )
        if self.kl.controller == "adaptive" and self.kl.horizon <= self._responses / 5:
            found.append(
                f"kl.horizon is {self.kl.horizon:g}, expected more than a fifth of the "
                f"{self._responses} responses of a step"
            )
        if self.reward.overlong_buffer >= rollouts.max_new_tokens:
            found.append(
                f"reward.overlong_buffer is {self.reward.overlong_buffer}, expected less than "
                f"rollouts.max_new_tokens = {rollouts.max_new_tokens}"
            )
        return [*found, *impossible_model(self.model, self.task)]

    @property
    def _responses(self) -> int:
        return self.rollouts.prompts * self.rollouts.group_size


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
    """As `load`, for a recipe of either kind: one with a table `pretraining` makes a base model."""
    tables = recipe_files.read(path, overrides)
    return validate(kind_of(tables), tables, name=Path(path).name)


def kind_of(tables: dict[str, Any]) -> type[Recipe] | type[Pretraining]:
    """Which kind of recipe these tables are."""
    return Pretraining if "pretraining" in tables else Recipe


def check(tables: dict[str, Any], *, name: str = "recipe", complete: bool = False) -> Recipe:
    """Make a recipe of nested tables.

    Args:
        tables: such as {"steps": 10, "algorithm": {"name": "grpo"}}.
        name: how messages call it.
        complete: the tables hold every key, as a run records them, and not those that somebody
            chose to set; keys that the algorithm does not use are then no mistake.

    Raises:
        ValueError: naming each key that is unknown, unused or out of range, with its value.
    """
    return validate(Recipe, tables, name=name, complete=complete)


def validate(
    kind: type[Kind], tables: dict[str, Any], *, name: str, complete: bool = False
) -> Kind:
    """Make a recipe of this kind of nested tables; see `check`."""
    try:
        return kind.model_validate(tables, context={"complete": complete})
    except ValidationError as error:
        lines = [_explain(kind, problem) for problem in error.errors()]
        raise ValueError("\n".join([f"{name}:", *lines])) from error


def _explain(kind: type[BaseModel], problem: Any) -> str:
    location, what, value = problem["loc"], problem["type"], problem["input"]
    keys = [*location]
    if keys[:1] == ["task"]:
        del keys[1:2]  # which of the tasks it is, put there by the union
    place = ".".join(map(str, keys))
    if what == "value_error":
        return "  " + str(problem["ctx"]["error"]).replace("\n", "\n  ")
    if what == "union_tag_not_found":
        return f"  {place} is {value!r}: expected a table"
    if what == "union_tag_invalid":
        wrong = value["name"]
        return f"  {place}.name is {wrong!r}: expected one of {', '.join(map(repr, TASKS))}"
    if what == "extra_forbidden":
        section = _section(kind, location[:-1])
        return f"  {place} is unknown; expected one of {', '.join(section.model_fields)}"
    if what == "missing":
        return f"  {place} is missing"
    rule = problem["msg"].replace("Input should be", "expected")
    return f"  {place} is {value!r}: {rule}"


def _section(section: type[BaseModel], location: Sequence[Any]) -> type[BaseModel]:
    if location[:1] == ("task",):
        return TASKS[location[1]]
    for key in location:
        section = section.model_fields[key].annotation  # type: ignore[assignment]
    return section
