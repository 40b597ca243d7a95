"""The models of a run and the optimiser that moves them."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from nbcourse.lm import bpe, prompts, sampling, tiny
from nbcourse.lm.actor_critic import ActorCritic, Critic
from nbcourse.lm.log_probs import rollout_log_probs
from nbcourse.lm.reward_model import RewardModel, fit
from nbcourse.lm.rollouts import Rollout, concatenate, select
from nbcourse.lm.warm_start import warm_start
from nbcourse.seeds import generator
from nbcourse.training.processes import Processes
from nbcourse.training.recipe import ModelSection, Pretraining, PromptSection, Recipe

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


Model = TypeVar("Model", bound=nn.Module)
LARGE_VOCABULARY = (
    10_000  # from here on the logits of a batch outweigh all else, and are never whole
)
TEXTS = 4_000  # from which a tokenizer is learned


@dataclass
class Learner:
    """Policy, critic and optimiser, which change; reference and reward model, which do not.

    Attributes:
        recipe: what they were built from.
        tokenizer: of all models.
        policy: the language model that is trained.
        critic: `ActorCritic` around the policy, a `Critic` of its own, or None.
        reference: the policy as it was before reinforcement learning.
        reward_model: where the reward comes from one.
        optimiser: over the policy and the critic.
    """

    recipe: Recipe
    tokenizer: "PreTrainedTokenizerBase"
    policy: "PreTrainedModel"
    reference: "PreTrainedModel"
    critic: ActorCritic | Critic | None = None
    reward_model: RewardModel | None = None
    optimiser: torch.optim.Optimizer = field(init=False)

    def __post_init__(self) -> None:
        settings, critic = self.recipe.optimiser, self.recipe.critic
        own = set(self.policy.parameters())
        rates: dict[float, list[nn.Parameter]] = {}
        for _, parameter in self.trained():
            rate = settings.learning_rate if parameter in own else critic.learning_rate
            rates.setdefault(rate or settings.learning_rate, []).append(parameter)
        self.optimiser = torch.optim.AdamW(
            [{"params": group, "lr": rate, "initial_lr": rate} for rate, group in rates.items()],
            weight_decay=settings.weight_decay,
            fused=True,
        )

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
            yield from module.named_parameters()

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

    @contextmanager
    def _computing_twice(self) -> Iterator[bool]:
        """Within it, layers keep no activations, if the recipe says so and a gradient follows.

        Transformers' layers do so in training mode only. What is in them stays in evaluation mode:
        with dropout the policy that learns would not be the one that sampled.
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

    def _log_probs(self, model: "PreTrainedModel", rollout: Rollout, group_size: int) -> Tensor:
        return rollout_log_probs(
            model,
            rollout,
            temperature=self.recipe.rollouts.temperature,
            chunked=model.config.vocab_size >= LARGE_VOCABULARY,
            group_size=group_size,
        )

    @torch.no_grad()
    def values(self, rollout: Rollout, *, group_size: int) -> Tensor | None:
        """V of the state that chose each token: (B, T), or None without a critic."""
        if isinstance(self.critic, Critic):
            return self.critic(rollout, group_size=group_size)
        return self.log_probs_and_values(rollout, group_size=group_size)[1] if self.critic else None

    @torch.no_grad()
    def ref_log_probs(self, rollout: Rollout, *, group_size: int) -> Tensor:
        """log π_ref(token): (B, T)."""
        return self._log_probs(self.reference, rollout, group_size)

    def prompts(self, problems: Sequence[Any]) -> list[str]:
        """What the model is given for each problem."""
        return rendered(self.recipe.prompt, self.tokenizer, problems)

    def precision(self) -> AbstractContextManager:
        """Within it, matrix products are taken in the recipe's precision."""
        return precision(self.recipe.model, self.device)


def build(recipe: Recipe, processes: Processes, *, progress: bool = False) -> Learner:
    """Everything a run needs before its first step: the model, warmed up, and what stands by it.

    Raises:
        FileNotFoundError: if the model is to come from a folder that is not there.
    """
    tokenizer, policy = load_model(recipe, processes.device)
    progress = progress and processes.rank == 0
    settings, source = recipe.warm_start, generator(recipe.seed, "warm start")
    for steps, careless_share, rate in (
        (settings.steps, 0.0, settings.learning_rate),
        (settings.careless_steps, settings.careless_share, settings.learning_rate / 5),
    ):
        if steps:
            warm_start(
                policy,
                tokenizer,
                partial(_demonstrations, recipe, tokenizer, source, careless_share),
                steps=steps,
                batch_size=settings.batch_size,
                learning_rate=rate,
                progress=progress,
            )
    processes.agree(parameter.data for parameter in policy.parameters())
    reward_model = None
    if recipe.reward.source == "reward_model":
        reward_model = train_reward_model(recipe, tokenizer, policy, progress=progress)
        processes.agree(parameter.data for parameter in reward_model.parameters())
    return assemble(recipe, tokenizer, policy, frozen(policy), reward_model)


def _demonstrations(
    recipe: Recipe,
    tokenizer: "PreTrainedTokenizerBase",
    source: torch.Generator,
    careless_share: float,
    count: int,
) -> list[tuple[str, str]]:
    """(prompt, response) pairs of the task's teacher."""
    teacher: Any = partial(recipe.task.build().demonstrate, count, generator=source)
    drawn, responses = teacher(careless_share=careless_share) if careless_share else teacher()
    return list(zip(rendered(recipe.prompt, tokenizer, drawn), responses, strict=True))


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


def train_reward_model(
    recipe: Recipe,
    tokenizer: "PreTrainedTokenizerBase",
    policy: "PreTrainedModel",
    *,
    progress: bool = False,
) -> RewardModel:
    """A reward model that learns from comparisons of the policy's own responses.

    Two responses are sampled to each prompt, and the task says which it prefers; where it prefers
    neither, the pair is dropped.
    """
    settings = recipe.reward_model
    preferred, others = compare(recipe, tokenizer, policy, settings.comparisons)
    reward_model = RewardModel(copy.deepcopy(policy)).to(policy.device)
    fit(
        reward_model,
        preferred,
        others,
        steps=settings.steps,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        generator=generator(recipe.seed, "reward model"),
        progress=progress,
    )
    return frozen(reward_model)


def compare(
    recipe: Recipe,
    tokenizer: "PreTrainedTokenizerBase",
    policy: "PreTrainedModel",
    count: int,
    *,
    split: str = "train",
) -> tuple[Rollout, Rollout]:
    """`count` comparisons of the policy's own responses: the preferred ones, and the others.

    Raises:
        ValueError: if the policy's responses to whole batches of prompts are all liked alike.
    """
    task, found = recipe.task.build(), 0
    source = generator(recipe.seed, "comparisons", count)
    draws = generator(recipe.seed, "compared", count, device=policy.device)
    preferred, others = [], []
    while found < count:
        problems = task.draw(max(count, 256), split=split, generator=source)
        pairs = sampling.sample(
            policy,
            tokenizer,
            rendered(recipe.prompt, tokenizer, problems),
            max_new_tokens=recipe.rollouts.max_new_tokens,
            temperature=recipe.rollouts.temperature,
            group_size=2,
            generator=draws,
        )
        texts = pairs.texts(tokenizer)
        liking = [task.preference(side, problems) for side in (texts[::2], texts[1::2])]
        first = torch.arange(0, len(texts), 2)
        decided = liking[0] != liking[1]
        better = (first + (liking[1] > liking[0]))[decided]
        worse = (first + (liking[1] < liking[0]))[decided]
        if len(better) == 0:
            raise ValueError(
                f"none of {len(problems)} pairs of responses was decided: the policy has to give "
                "different answers, some better than others, before it can be compared"
            )
        preferred.append(select(pairs, better.to(pairs.mask.device)))
        others.append(select(pairs, worse.to(pairs.mask.device)))
        found += len(better)
    rows = torch.arange(count)
    return select(concatenate(preferred), rows), select(concatenate(others), rows)


def rendered(
    settings: PromptSection, tokenizer: "PreTrainedTokenizerBase", problems: Sequence[Any]
) -> list[str]:
    """What a model is given for each problem."""
    return [
        prompts.render(
            tokenizer, problem.prompt, style=settings.style, instruction=settings.instruction
        )
        for problem in problems
    ]


def precision(settings: ModelSection, device: torch.device) -> AbstractContextManager:
    """Within it, matrix products are taken in the precision of these settings."""
    low = settings.precision == "bfloat16"
    return torch.autocast(device.type, torch.bfloat16, enabled=low)


def load_model(
    recipe: Recipe | Pretraining, device: torch.device | str
) -> tuple["PreTrainedTokenizerBase", "PreTrainedModel"]:
    """The tokenizer and the model of a recipe, before any training.

    Raises:
        FileNotFoundError: if the model is to come from a folder that is not there.
    """
    settings = recipe.model
    if settings.source == "tiny":
        tokenizer = load_tokenizer(recipe)
        model = tiny.model(
            tokenizer,
            layers=settings.layers,
            width=settings.width,
            heads=settings.heads,
            max_positions=1024 if settings.vocabulary else 128,
            seed=recipe.seed,
        ).to(device)  # type: ignore[arg-type]
    else:
        tokenizer, model = load_folder(settings.source, device)
    if settings.gradient_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    return tokenizer, model


def load_tokenizer(
    recipe: Recipe | Pretraining, *, local: bool = False
) -> "PreTrainedTokenizerBase":
    """The tokenizer of a recipe, for which no weight is needed.

    Args:
        recipe: whose.
        local: ask no hub: only what is on this machine will do.

    Raises:
        FileNotFoundError: if it is to come from a folder that is not there.
        OSError: if it is not to be had.
    """
    source, vocabulary = recipe.model.source, recipe.model.vocabulary
    if source != "tiny":
        return _tokenizer_of(source, local=local)
    if vocabulary is None:
        return tiny.tokenizer()
    drawn = recipe.examples(TEXTS, generator(recipe.seed, "tokenizer"))
    texts = (problem.prompt + problem.solution for problem in drawn)
    return bpe.train(texts, vocabulary=vocabulary)


def load_folder(
    source: str | Path, device: torch.device | str
) -> tuple["PreTrainedTokenizerBase", "PreTrainedModel"]:
    """A tokenizer and a model from a folder, or from the hub, in float32.

    Raises:
        FileNotFoundError: if the source is a path and there is no model.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # ours say what they are about
    tokenizer = _tokenizer_of(source)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, use_safetensors=True)
    return tokenizer, model.to(device).eval()  # type: ignore[arg-type]


def check_source(source: str | Path) -> None:
    """See that a source that can only be a path leads to a model.

    Raises:
        FileNotFoundError: if it does not.
    """
    names_a_path = str(source).startswith((".", "/", "~")) or str(source).count("/") > 1
    if (names_a_path or Path(source).exists()) and not (Path(source) / "config.json").is_file():
        raise FileNotFoundError(
            f"no model in {source}: expected a folder with a config.json. If another run is to "
            "make it, train that one first"
        )


def _tokenizer_of(source: str | Path, *, local: bool = False) -> "PreTrainedTokenizerBase":
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    check_source(source)
    # Beside a Qwen2, AutoTokenizer would cut texts as Qwen2 does, whatever tokenizer.json says.
    config = get_tokenizer_config(source, local_files_only=local)
    own = config.get("tokenizer_class") == "TokenizersBackend"
    kind = PreTrainedTokenizerFast if own else AutoTokenizer
    return kind.from_pretrained(source, local_files_only=local)


def frozen(model: Model) -> Model:
    """A copy that is never trained."""
    return copy.deepcopy(model).requires_grad_(False).eval()
