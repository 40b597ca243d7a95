"""TRL's trainer around a policy, the problems and the rewards of ours.

Chapter 10 reports what it does with responses of ours.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from nbcourse.errors import UserError
from nbcourse.experiments.trl_options import options, trainer_of
from nbcourse.lm import lora
from nbcourse.lm.importing import without_collection
from nbcourse.lm.rollouts import Rollout, encode, padded
from nbcourse.lm.sampling import end_tokens
from nbcourse.training.clock import Clock
from nbcourse.training.experience import Draws, score, with_spread
from nbcourse.training.learner import Learner
from nbcourse.training.processes import Processes
from nbcourse.training.recipe_sections import VLLM

# What our reward function tells it, too: length times verdict, of which two means can be made.
LENGTH_OF_RIGHT = "length_of_right"


@without_collection()  # TRL is imported here
def make_trainer(
    learner: Learner, folder: Path, processes: Processes, callbacks: Sequence[Any] = ()
) -> Any:
    """TRL's trainer, ready to `train()`, around the learner's policy.

    Args:
        learner: a policy that has had its warm start.
        folder: of the run; it receives the reference, where TRL loads one or vLLM loads a model.
        processes: those that train.
        callbacks: of transformers' `Trainer`.

    Raises:
        ValueError: if TRL is not installed, or cannot follow the recipe.
    """
    recipe, policy = learner.recipe, learner.policy
    chosen = options(recipe, processes)
    try:
        import trl
    except ImportError as error:
        raise UserError("--engine trl needs a package: pip install trl==1.16.0") from error
    from transformers import PrinterCallback
    from transformers.utils import logging

    logging.disable_progress_bar()  # ours have labels
    adapter = lora.is_on(policy)
    if recipe.rollouts.engine == VLLM or (recipe.penalty.beta > 0 and not adapter):
        reference = (folder / "reference").absolute()
        if processes.rank == 0:
            lora.merged(learner.reference).save_pretrained(reference)
            learner.tokenizer.save_pretrained(reference)
        processes.wait()
        policy.config._name_or_path = str(reference)  # where TRL looks for its reference
        policy.name_or_path = str(reference)  # and vLLM for a model
    name, problems = trainer_of(recipe), problems_of(learner)
    trainer = _with_ours(getattr(trl, f"{name}Trainer"))(
        model=lora.as_peft(policy) if adapter else policy,
        args=getattr(trl, f"{name}Config")(output_dir=str(folder), **chosen),
        reward_funcs=_reward_function(learner, problems),
        train_dataset=_prompts(learner, problems),
        processing_class=learner.tokenizer,
        callbacks=list(callbacks),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.our_recipe, trainer.our_clock = recipe, Clock()
    if adapter and "ref" in trainer.model.peft_config:  # a copy of the adapter as it is at first
        trainer.model.delete_adapter("ref")  # without it, TRL switches the adapter off
    return trainer


def _with_ours(trainer: Any) -> Any:
    """The trainer, with our clock, and the learning rate and the weight decay of `loop.learn`.

    Transformers' warm-up begins with a step of rate 0, and it spares norms and biases the decay.
    """

    class Trainer(trainer):
        lr_scheduler: Any

        def _generate(self, *arguments: Any, **options: Any) -> Any:
            with self.our_clock("sample"):
                return super()._generate(*arguments, **options)

        def _calculate_rewards(self, *arguments: Any, **options: Any) -> Any:
            with self.our_clock("sample"):
                return super()._calculate_rewards(*arguments, **options)

        def _generate_and_score_completions(self, *arguments: Any, **options: Any) -> Any:
            with self.our_clock("consult"):  # what is left once sampling is counted
                return super()._generate_and_score_completions(*arguments, **options)

        def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
            if self.lr_scheduler is None:
                settings, steps = self.our_recipe.optimiser, self.our_recipe.steps
                self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
                    optimizer or self.optimizer,
                    lambda update: settings.share_of_rate(update // settings.updates, steps),
                )
            return self.lr_scheduler

        def get_decay_parameter_names(self, model: torch.nn.Module) -> list[str]:
            return [name for name, _ in model.named_parameters()]

    return Trainer


def problems_of(learner: Learner) -> list[Any]:
    """The training problems of the whole run, in the order in which `run.train` draws them."""
    draws = Draws(learner.recipe)
    return [problem for _ in range(learner.recipe.steps) for problem in draws.next()[1]]


def _prompts(learner: Learner, problems: Sequence[Any]) -> Any:
    """What TRL samples responses to, each with the number of its problem."""
    from datasets import Dataset

    prompts = learner.prompts(problems)
    ids = learner.tokenizer(prompts[0])["input_ids"]
    if ids != learner.tokenizer(prompts[0], add_special_tokens=False)["input_ids"]:
        raise UserError(
            "the tokenizer puts special tokens around a prompt: TRL would send them, nbcourse not"
        )
    return Dataset.from_list([{"prompt": p, "number": i} for i, p in enumerate(prompts)])


def _reward_function(learner: Learner, problems: Sequence[Any]) -> Callable[..., list[float]]:
    """What `experience.score` says, in the form in which TRL asks for it."""

    def reward(
        prompts: list[str],
        completion_ids: list[list[int]],
        number: list[int],
        log_metric: Callable[[str, float], None],
        log_extra: Callable[[str, list[Any]], None],
        **_: Any,
    ) -> list[float]:
        rollout = _as_rollout(learner, prompts, completion_ids)
        with learner.precision():
            scores, correct = score(learner, rollout, [problems[i] for i in number])
        lengths = rollout.mask.sum(dim=1).float()
        spread = with_spread(scores, learner.recipe.rollouts.group_size)
        log_metric("accuracy", correct.mean().item())
        log_metric("no_spread", (~spread).float().mean().item())
        log_metric(LENGTH_OF_RIGHT, (lengths * correct).mean().item())
        log_extra("verdict", correct.tolist())
        return scores.tolist()

    return reward


def _as_rollout(
    learner: Learner, prompts: Sequence[str], completions: Sequence[Sequence[int]]
) -> Rollout:
    """Responses that TRL sampled, in our form, without log-probs."""
    ends = end_tokens(learner.policy, learner.tokenizer)  # TRL stops at any of them, too
    prompt_ids, prompt_mask = encode(learner.tokenizer, prompts, device=learner.device)
    tokens, mask = padded(completions, padding=ends[0])
    return Rollout(
        prompt_ids=prompt_ids,
        prompt_mask=prompt_mask,
        tokens=tokens.to(learner.device),
        mask=mask.to(learner.device),
        log_probs=torch.zeros(mask.shape, device=learner.device),
        truncated=torch.tensor([ids[-1] not in ends for ids in completions], device=learner.device),
    )
