"""A recipe put in numbers: how much of what is in memory, and computed, at once."""

from dataclasses import dataclass, replace
from math import ceil

from nbcourse.budget.machines import BYTES, FLOAT32
from nbcourse.budget.passes import Pass, scoring
from nbcourse.budget.shapes import Shape
from nbcourse.errors import UserError
from nbcourse.lm.log_probs import CHUNK, ON_A_CARD
from nbcourse.lm.rollouts import with_room
from nbcourse.lm.sampling import ENGINES
from nbcourse.lm.static import Static
from nbcourse.training.learner import CHUNKED_VOCABULARY
from nbcourse.training.recipe import Recipe


@dataclass(frozen=True)
class Plan:
    """A recipe put in numbers: how much of what is in memory, and computed, at once.

    Attributes:
        recipe: what is to be run.
        shape: of its model.
        prompt_tokens: P, tokens of the longest prompt.
        card: it runs on a GPU.
    """

    recipe: Recipe
    shape: Shape
    prompt_tokens: int
    card: bool = False

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1:
            raise UserError(f"prompt_tokens is {self.prompt_tokens}, expected at least 1")

    @property
    def piece(self) -> int:
        """Logits in float32 at a time, where they are taken in pieces."""
        return ON_A_CARD * CHUNK if self.card else CHUNK

    @property
    def policy(self) -> Shape:
        """Of the model that learns, and of an own critic: with its adapter, if there is one."""
        return replace(self.shape, rank=self.recipe.model.lora_rank or 0)

    @property
    def precision(self) -> str:
        """Of the matrix products."""
        return self.recipe.model.precision

    @property
    def has_critic(self) -> bool:
        """Whether there are values to learn."""
        return self.recipe.row.needs("values")

    @property
    def has_own_critic(self) -> bool:
        """Whether the critic has a backbone of its own."""
        return self.has_critic and not self.recipe.critic.shared

    @property
    def reference_chunked(self) -> bool:
        """Whether the reference's logits are never whole."""
        return self.shape.vocabulary >= CHUNKED_VOCABULARY or self.exact

    @property
    def exact(self) -> bool:
        """Whether the KL is made of divergences over the whole vocabulary."""
        return self.recipe.penalty.exact

    @property
    def chunked(self) -> bool:
        """Whether the policy's logits are never whole while it learns."""
        return self.reference_chunked or (self.has_critic and not self.has_own_critic)

    @property
    def checkpointing(self) -> bool:
        """Whether the learner computes activations twice."""
        return self.recipe.model.gradient_checkpointing

    @property
    def evaluations(self) -> float:
        """In a step, on average: every so many evaluate, and the last."""
        steps = max(1, self.recipe.steps)
        return ceil(steps / self.recipe.evaluation.every) / steps

    @property
    def kl_measurements(self) -> float:
        """In a step, on average, as `Recipe.measures_kl` has them."""
        first = min(self.recipe.evaluation.every, self.recipe.steps) > 1  # and does not evaluate
        return self.evaluations + first / max(1, self.recipe.steps)

    @property
    def feed_forward_bytes(self) -> int:
        """Of a token's vector inside the feed-forward network and one outside."""
        return self.shape.feed_forward * BYTES[self.precision] + self.shape.width * FLOAT32

    @property
    def together(self) -> int:
        """Prompts sampled at once."""
        settings = self.recipe.rollouts
        return min(settings.prompts_at_once or settings.prompts, settings.prompts)

    @property
    def minibatch(self) -> int:
        """Prompts in the largest minibatch."""
        return ceil(self.recipe.rollouts.prompts / self.recipe.optimiser.minibatches)

    @property
    def slice(self) -> int:
        """Prompts in one backward pass."""
        return min(self.recipe.optimiser.prompts_at_once or self.minibatch, self.minibatch)

    @property
    def static(self) -> Static | None:
        """The engine that samples, if its shapes are fixed."""
        engine = ENGINES[self.recipe.rollouts.engine]
        return engine if isinstance(engine, Static) else None

    def room(self, columns: int) -> int:
        """Columns for which the engine that samples makes room, to hold this many."""
        return with_room(columns, self.static.columns) if self.static else with_room(columns)

    def consulting(self, prompts: int, response_tokens: int) -> list[Pass]:
        """The passes in which the reference, if it is asked, or else the critic sees responses."""
        chunked = self.reference_chunked if self.recipe.asks_reference else self.chunked
        return scoring(
            prompts,
            self.recipe.rollouts.group_size,
            self.prompt_tokens,
            response_tokens,
            chunked=chunked,
        )

    def diagnosing(self, prompts: int, response_tokens: int) -> list[Pass]:
        """The pass in which the reference sees one response of each group, for the log's KL."""
        return scoring(prompts, 1, self.prompt_tokens, response_tokens)

    def learning(self, prompts: int, response_tokens: int) -> list[Pass]:
        """The passes in which the policy sees responses that it learns from.

        With gradient checkpointing no prompt is shared: layers that forget their activations take
        no cache.
        """
        return scoring(
            prompts,
            self.recipe.rollouts.group_size,
            self.prompt_tokens,
            response_tokens,
            shared=not self.checkpointing,
            chunked=self.chunked,
        )


def setting_of(plan: Plan, phase: str) -> str:
    """The key of a recipe that decides how much a phase has in memory at once."""
    consulted = plan.recipe.asks_reference or plan.has_critic
    return {
        "sample": "rollouts.prompts_at_once",
        "consult": f"{'rollouts' if consulted else 'optimiser'}.prompts_at_once",
        "learn": "optimiser.prompts_at_once",
        "evaluate": "evaluation.problems",
    }[phase]
