"""The tables of a recipe whose keys are always the same, each checked by itself."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from torch import Tensor

from nbcourse.errors import did_you_mean
from nbcourse.lm.bpe import BYTES
from nbcourse.lm.forwards import FORWARDS
from nbcourse.lm.sampling import ENGINES

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
AtLeastOne = Annotated[float, Field(ge=1, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]

VLLM = "vllm"  # the one engine that this package has not, and TRL has


class Section(BaseModel):
    """A table of the recipe: no unknown key, no silent conversion, no change afterwards."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Rule = tuple[Section, set[str], str]
"""A section, its keys that a run would not look at, and why it would not."""

ONE_UPDATE = "with one update for each batch the policy that learns is the one that sampled"


class Example(Section):
    """A question, and an answer to it as the model should give one."""

    question: str
    answer: str


class PromptSection(Section):
    """How a question is put to the model."""

    style: Literal["plain", "chat"] = Field(
        "plain", description="the question alone, or a message in the tokenizer's chat template"
    )
    instruction: str = Field("", description="before a plain question, or after it in a message")
    system: str = Field("", description="the system message of a chat; the template's if not given")
    examples: Annotated[tuple[Example, ...], Field(strict=False)] = Field(
        (),
        description="questions with answers that are put before, each as [[prompt.examples]] with "
        "`question` and `answer`",
    )

    def said(self) -> dict[str, Any]:
        """What stands beside the question, as `lm.prompts` takes it."""
        shown = [(example.question, example.answer) for example in self.examples]
        return {"instruction": self.instruction, "system": self.system, "examples": shown}


class ModelSection(Section):
    """Which model learns."""

    source: str = Field(
        "tiny",
        description="`tiny`, a new one; a folder; a name that `nbcourse model` knows, or the hub's",
    )
    layers: Count = Field(2, description="of a tiny model")
    width: Annotated[int, Field(ge=8)] = Field(64, description="of a tiny model's hidden states")
    heads: Count = Field(16, description="of a tiny model's attention")
    vocabulary: Annotated[int, Field(gt=BYTES)] | None = Field(
        None, description="tokens learned from the task's texts; its characters if not given"
    )
    lora_rank: Count | None = Field(
        None, description="of an adapter that learns in place of the weights; none if not given"
    )
    precision: Literal["float32", "bfloat16", "float16"] = Field(
        "float32",
        description="of the matrix products; the weights are always float32. float16 is for cards "
        "without bfloat16, and scales the loss so that small gradients survive",
    )
    saved_as: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="the numbers of the model that is kept at the end; in bfloat16 it takes half "
        "the room, and is rounded. Checkpoints are as they are",
    )
    gradient_checkpointing: bool = Field(
        False, description="compute activations twice, to bound memory; same gradient"
    )
    forward: Literal[tuple(FORWARDS)] = Field(  # type: ignore[valid-type]
        "transformers",
        description="what computes the log-probs to learn from: the layers of transformers, or "
        "the same in fewer operations (packed), for models of the Llama and Qwen2 shapes without "
        "adapter, critic and gradient checkpointing; packed-compiled has torch compile them. On a "
        "CPU they take as long; on a GPU they are untried",
    )


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

    prompts: Count = Field(128, description="in a batch")
    group_size: Count = Field(8, description="responses to each prompt")
    max_new_tokens: Count = Field(8, description="length of the longest response")
    temperature: Positive = 1.0
    dynamic_sampling: bool | None = Field(None, description="the algorithm's choice if not given")
    prompts_at_once: Count | None = Field(
        None, description="prompts sampled together, to bound memory; all if not given"
    )
    engine: Literal[(*ENGINES, VLLM)] = Field(  # type: ignore[valid-type]
        "eager",
        description="what generates responses, also in evaluations: token by token (eager), or "
        "with fixed shapes, checked every 32 tokens (static); static-graphs records a step as a "
        "CUDA graph, on an H100 3 to 5 times as fast as eager; packed and packed-graphs do the "
        "same in half as many operations a layer, for models of the Llama and Qwen2 shapes without "
        "an adapter, and are untried on a GPU. With --engine trl these answer evaluations; vllm is "
        "for it alone, untried, and evaluates as eager does",
    )

    @property
    def own_engine(self) -> str:
        """What generates responses where this package does it itself, as in evaluations."""
        return "eager" if self.engine == VLLM else self.engine

    @property
    def responses(self) -> int:
        """Responses in a batch."""
        return self.prompts * self.group_size


def _rewarded(source: str) -> str:
    file, colon, function = source.rpartition(":")
    own = colon and file.endswith(".py") and function.isidentifier()
    if source not in ("verifier", "reward_model") and not own:
        raise ValueError(
            f"reward.source is {source!r}, expected 'verifier', 'reward_model' or a function of "
            "yours, such as 'mine.py:score'"
        )
    return source


class RewardSection(Section):
    """What a response earns."""

    source: Annotated[str, AfterValidator(_rewarded)] = Field(
        "verifier",
        description="`verifier`, the task's own; `reward_model`, one that learns from comparisons; "
        "or `FILE.py:FUNCTION`, a function of yours beside the recipe, as TRL takes them: "
        "f(prompts, completions, **columns) → a number for each",
    )
    lenient: bool = Field(
        False,
        description="whether the verifier's reward is paid for the right answer in any form; "
        "accuracies stay strict",
    )
    shuffled: bool = Field(
        False,
        description="deal the scores of each group out among its responses: a control, from which "
        "nothing can be learned",
    )
    accept_truncated: bool = Field(
        False, description="whether a response without an end-of-sequence token may be right"
    )
    truncation_penalty: NonNegative = Field(
        0.0, description="subtracted from the score of a response without an end-of-sequence token"
    )
    overlong_buffer: Whole = Field(
        0, description="the last tokens before the limit, over which DAPO's penalty grows to 1"
    )

    @property
    def function(self) -> str | None:
        """The file and the function that pay, if one of the reader's own does."""
        return None if self.source in ("verifier", "reward_model") else self.source

    def verdicts(self, right: Tensor, truncated: Tensor) -> Tensor:
        """What responses are worth whose texts say the right answer or not: (B,) of 0 and 1."""
        return right if self.accept_truncated else right.masked_fill(truncated, 0.0)


class RewardModelSection(Section):
    """How the reward model is trained, before the policy is."""

    comparisons: Count = 4096
    steps: Count = 200
    batch_size: Count = 128
    learning_rate: Positive = 3e-4


class CriticSection(Section):
    """The critic, for algorithms that have one."""

    shared: bool = Field(True, description="one backbone for policy and critic, or two")
    coefficient: NonNegative = Field(0.1, description="of the value loss")
    clip: Positive | None = Field(None, description="of a value's change; no clip if not given")
    learning_rate: Positive | None = Field(
        None, description="of the critic's own parameters; the policy's if not given"
    )


class OptimiserSection(Section):
    """How the weights move."""

    learning_rate: Positive = 3e-4
    warm_up: Whole = Field(0, description="steps over which the learning rate rises")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="how the learning rate falls after that, to 0 after the last step"
    )
    betas: Annotated[tuple[Decay, Decay], Field(strict=False)] = Field(
        (0.9, 0.999), description="how slowly AdamW forgets: of its means of gradients and squares"
    )
    weight_decay: NonNegative = 0.0
    max_grad_norm: Positive = Field(1.0, description="to which a longer gradient is scaled down")
    epochs: Count = Field(1, description="passes over each batch")
    minibatches: Count = Field(1, description="updates in each pass")
    target_kl: Positive | None = Field(
        None, description="no further update once the KL to the policy that sampled exceeds this"
    )
    truncated_importance_sampling: AtLeastOne | None = Field(
        None,
        description="cap of the weight π_old/π_sampler on each token's loss, for a sampler that "
        "rounds differently from the learner; no weight if not given",
    )
    truncated_importance_floor: Share = Field(
        0.0, description="the least that this weight may be, so that no token is all but left out"
    )
    prompts_at_once: Count | None = Field(
        None,
        description="prompts in one backward pass, or more where responses are shorter than the "
        "limit; bounds memory, does not change the gradient; all if not given",
    )

    @property
    def importance_bounds(self) -> dict[str, Any] | None:
        """Floor and cap of the weight for the sampler; None for no weight."""
        cap = self.truncated_importance_sampling
        return None if cap is None else {"floor": self.truncated_importance_floor, "cap": cap}

    @property
    def updates(self) -> int:
        """Updates on each batch, at most."""
        return self.epochs * self.minibatches

    def share_of_rate(self, step: int, steps: int) -> float:
        """What part of the learning rate a step takes.

        Args:
            step: from 0.
            steps: of the whole run.
        """
        if step < self.warm_up:
            return (step + 1) / (self.warm_up + 1)
        if self.schedule == "constant":
            return 1.0
        left = (steps - step) / (steps - self.warm_up)
        return left if self.schedule == "linear" else (1 - math.cos(math.pi * left)) / 2


class EvaluationSection(Section):
    """The held-out problems asked along the way, greedily."""

    every: Count = Field(10, description="steps from one evaluation to the next")
    problems: Count = 512


class CheckpointSection(Section):
    """How often a run is saved, and so how many steps a kill may cost."""

    every: Count = Field(10, description="steps from one checkpoint to the next")


class WitnessSection(Section):
    """Small batches that a run keeps whole, for `nbcourse diagnose`."""

    every: Whole = Field(
        0, description="n: the first step and every n-th one keep a batch; 0 for none"
    )
    tokens: Count = Field(
        1024, description="of responses in each batch, at most; whole groups, and at least one"
    )


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


def explain(kind: type[BaseModel], problem: Any, *, below: tuple[str, ...] = ()) -> str:
    """What pydantic refuses, in words of a recipe: the place, the value, and what would do.

    Args:
        kind: the table that was checked.
        problem: one of the errors that it found.
        below: where that table lies in the recipe.
    """
    location, what, value = (*below, *problem["loc"]), problem["type"], problem["input"]
    place = ".".join(map(str, location))
    if what == "value_error":
        return str(problem["ctx"]["error"])
    if what == "extra_forbidden":
        known = _section(kind, location[:-1]).model_fields
        return (
            f"{place} is unknown; expected one of {', '.join(known)}"
            f"{did_you_mean(str(location[-1]), known)}"
        )
    if what == "missing":
        return f"{place} is missing"
    rule = problem["msg"].replace("Input should be", "expected")
    return f"{place} is {value!r}: {rule}"


def _section(section: type[BaseModel], location: Sequence[Any]) -> type[BaseModel]:
    for key in location:
        if not isinstance(key, int):  # the number of a table among several of one name
            found: Any = section.model_fields[key].annotation
            section = next(iter(get_args(found)), found)
    return section
