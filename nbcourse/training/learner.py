"""The models of a run and the optimiser that moves them."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nbcourse.lm import lora
from nbcourse.lm.actor_critic import ActorCritic, Critic
from nbcourse.lm.forwards import FORWARDS
from nbcourse.lm.log_probs import (
    hidden_divergences,
    hidden_log_probs,
    rollout_log_probs,
    rollout_states,
)
from nbcourse.lm.reward_model import RewardModel
from nbcourse.lm.rollouts import Rollout
from nbcourse.training.models import loss_scaler, precision, rendered
from nbcourse.training.recipe import Recipe
from nbcourse.training.watch import Watch

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


# tokens from which on the logits of a batch outweigh all else, and are computed in chunks
CHUNKED_VOCABULARY = 10_000


@dataclass
class Learner:
    """Policy, critic and optimiser, which change; reference and reward model, which do not.

    Attributes:
        recipe: what they were built from.
        tokenizer: of all models.
        policy: the language model that is trained.
        critic: `ActorCritic` around the policy, a `Critic` of its own, or None.
        reference: the policy as it was before reinforcement learning; the policy itself where an
            adapter learns, which is then switched off.
        reward_model: where the reward comes from one.
        watch: is shown what every step does.
        optimiser: over the policy and the critic.
        scaler: of the loss; does nothing unless the recipe's precision is float16.
        warm_start_found: whether the policy's warm start was made by an earlier run.
    """

    recipe: Recipe
    tokenizer: "PreTrainedTokenizerBase"
    policy: "PreTrainedModel"
    reference: "PreTrainedModel"
    critic: ActorCritic | Critic | None = None
    reward_model: RewardModel | None = None
    watch: Watch = field(default_factory=Watch)
    optimiser: torch.optim.Optimizer = field(init=False)
    scaler: torch.amp.GradScaler = field(init=False)
    warm_start_found: bool = False

    def __post_init__(self) -> None:
        settings, critic = self.recipe.optimiser, self.recipe.critic
        own = set(self.policy.parameters())
        rates: dict[float, list[nn.Parameter]] = {}
        for _, parameter in self.trained():
            rate = settings.learning_rate if parameter in own else critic.learning_rate
            rates.setdefault(rate or settings.learning_rate, []).append(parameter)
        self.optimiser = torch.optim.AdamW(
            [{"params": group, "lr": rate, "initial_lr": rate} for rate, group in rates.items()],
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self.scaler = loss_scaler(self.recipe.model, self.device)

    @property
    def device(self) -> torch.device:
        """Where the models are."""
        return self.policy.device

    def trained(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The parameters that are trained, with their names, each once."""
        modules: list[nn.Module] = [self.policy]
        if isinstance(self.critic, ActorCritic):
            modules = [self.critic]
        elif self.critic is not None:
            modules.append(self.critic)
        for module in modules:
            yield from ((name, p) for name, p in module.named_parameters() if p.requires_grad)

    def log_probs_and_values(
        self, rollout: Rollout, *, group_size: int
    ) -> tuple[Tensor, Tensor | None]:
        """log π(token) and, where there is a critic, V: each (B, T), with gradient."""
        temperature = self.recipe.rollouts.temperature
        with self._computing_twice() as twice:
            if twice:  # then transformers' layers take no cache, so nothing to share within a group
                group_size = 1
            if isinstance(self.critic, ActorCritic):
                return self.critic(rollout, temperature=temperature, group_size=group_size)
            log_probs = self._log_probs(self.policy, rollout, group_size)
            values = None if self.critic is None else self.critic(rollout, group_size=group_size)
            return log_probs, values

    def log_probs_values_and_divergences(
        self, rollout: Rollout, *, group_size: int
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """As `log_probs_and_values`, and KL(π‖π_ref) of every token's state: each (B, T)."""
        temperature = self.recipe.rollouts.temperature
        with self._computing_twice() as twice:
            group = 1 if twice else group_size
            states = self._states(self.policy, rollout, group)
            with torch.no_grad(), self.referring():
                ref_states = self._states(self.reference, rollout, group)
            weight, ref_weight = (
                model.get_output_embeddings().weight for model in (self.policy, self.reference)
            )
            values = None
            if isinstance(self.critic, ActorCritic):
                values = self.critic.head(states)
            elif self.critic is not None:
                values = self.critic(rollout, group_size=group)
            log_probs = hidden_log_probs(states, weight, rollout.tokens, temperature=temperature)
            return (
                log_probs,
                values,
                hidden_divergences(states, weight, ref_states, ref_weight, temperature=temperature),
            )

    @torch.no_grad()
    def log_probs(self, rollout: Rollout, *, group_size: int) -> Tensor:
        """log π(token), (B, T), rounded as those are rounded that carry the gradient."""
        if self.recipe.model.gradient_checkpointing:  # there, no prompt is shared within a group
            group_size = 1
        if isinstance(self.critic, ActorCritic):
            return self.log_probs_and_values(rollout, group_size=group_size)[0]
        return self._log_probs(self.policy, rollout, group_size)

    @contextmanager
    def _computing_twice(self) -> Iterator[bool]:
        """Switch gradient checkpointing on, if the recipe asks for it and a gradient follows.

        Yields whether it is on. Transformers' layers checkpoint in training mode only. The modules
        inside them stay in evaluation mode: with dropout the policy that learns would not be the
        one that sampled.
        """
        twice = self.recipe.model.gradient_checkpointing and torch.is_grad_enabled()
        modules = [module for module in (self.policy, self.critic) if module is not None]
        layers = [
            layer
            for module in modules
            for layer in module.modules()
            if getattr(layer, "gradient_checkpointing", False)
        ]
        for layer in layers:
            layer.training = twice
        try:
            yield twice
        finally:
            for layer in layers:
                layer.training = False

    def _states(self, model: "PreTrainedModel", rollout: Rollout, group_size: int) -> Tensor:
        forward = FORWARDS[self.recipe.model.forward]
        return rollout_states(model, rollout, group_size=group_size, forward=forward)

    def _log_probs(self, model: "PreTrainedModel", rollout: Rollout, group_size: int) -> Tensor:
        recipe = self.recipe
        return rollout_log_probs(
            model,
            rollout,
            temperature=recipe.rollouts.temperature,
            # with divergences, the log-probs are taken from the states that these are made from
            chunked=model.config.vocab_size >= CHUNKED_VOCABULARY
            or recipe.penalty.exact
            or recipe.model.forward != "transformers",
            group_size=group_size,
            forward=FORWARDS[recipe.model.forward],
        )

    @torch.no_grad()
    def values(self, rollout: Rollout, *, group_size: int) -> Tensor | None:
        """V of the state that chose each token: (B, T), or None without a critic."""
        if isinstance(self.critic, ActorCritic):
            return self.critic.values(rollout, group_size=group_size)
        return None if self.critic is None else self.critic(rollout, group_size=group_size)

    @torch.no_grad()
    def ref_log_probs(self, rollout: Rollout, *, group_size: int) -> Tensor:
        """log π_ref(token): (B, T)."""
        with self.referring():
            return self._log_probs(self.reference, rollout, group_size)

    def referring(self) -> AbstractContextManager:
        """A context in which `reference` is the initial policy: an adapter is switched off."""
        return lora.off(self.policy) if self.reference is self.policy else nullcontext()

    def prompts(self, problems: Sequence[Any]) -> list[str]:
        """What the model is given for each problem."""
        return rendered(self.recipe.prompt, self.tokenizer, problems)

    def precision(self) -> AbstractContextManager:
        """A context in which matrix products are computed in the recipe's precision."""
        return precision(self.recipe.model, self.device)


def assemble(
    recipe: Recipe,
    tokenizer: "PreTrainedTokenizerBase",
    policy: "PreTrainedModel",
    reference: "PreTrainedModel",
    reward_model: RewardModel | None = None,
) -> Learner:
    """Put the critic that the recipe asks for beside the models, and everything together."""
    critic: ActorCritic | Critic | None = None
    if recipe.row.needs("values"):
        critic = ActorCritic(policy) if recipe.critic.shared else Critic(copy.deepcopy(policy))
        critic.to(policy.device)
    return Learner(recipe, tokenizer, policy, reference, critic, reward_model)
