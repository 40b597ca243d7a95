"""Witness batches of a run by TRL's GRPOTrainer, in the files that our own runs write.

Transformers hands a callback neither the trainer nor its batches, so this one is given the trainer
and listens to five of its methods: their arguments and results are read, and passed on as they are.
What TRL does not tell is left out, and `nbcourse diagnose` says so: where transformers samples,
the log-probs of the sampler; of every other reward function than ours, the verdicts. Chapter 16
shows how to make one.

A witness holds token ids, numbers and a few hundred characters of each prompt and response. Of the
trainer's arguments it has those of the loss; none of the environment and no other column.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback

from nbcourse.diagnosis import draft as drafts
from nbcourse.diagnosis import plain_pass
from nbcourse.diagnosis.draft import TEXT, Draft, verified
from nbcourse.diagnosis.witness import FORMAT, Witness
from nbcourse.errors import UserError
from nbcourse.experiments import run
from nbcourse.experiments.trl_stated import stated
from nbcourse.experiments.trl_trainer import problems_of
from nbcourse.lm import lora
from nbcourse.training.learner import Learner
from nbcourse.training.watch import fingerprint

ROWS = "rows_of_witness"  # goes with TRL's batch, so that rows are known after they were shuffled
Read = Callable[[Sequence[Mapping[str, Any]], Sequence[str]], tuple[dict[str, Tensor], list[str]]]


def keep_witnesses(
    trainer: Any, folder: str | Path, *, every: int = 20, tokens: int = 1024
) -> None:
    """Add witness batches to a `trl.GRPOTrainer`, for `nbcourse diagnose FOLDER`.

        trainer = GRPOTrainer(model, reward_funcs, args, train_dataset)
        keep_witnesses(trainer, "outputs/mine", every=20)
        trainer.train()

    What the loss should be is taken from the trainer's arguments.

    Args:
        trainer: not yet training.
        folder: the witnesses go to the folder `witness` in it.
        every: batches of responses from one to the next, the first one's included.
        tokens: of responses in each at most, whole groups of them, but one group always.

    Raises:
        ValueError: naming what a witness cannot hold: several processes, fp16, images, tools, or a
            trainer of another kind.

    Book: section 16.9.
    """
    check(trainer)
    Witnesses(
        trainer, run.keeper(Path(folder)), every=every, tokens=tokens, stated=stated(trainer.args)
    )


def keep_ours(trainer: Any, learner: Learner, folder: Path) -> None:
    """Witnesses of a recipe's run: what it states is the recipe's, and verdicts are read again."""
    recipe, problems = learner.recipe, problems_of(learner)
    task = recipe.task.build()

    def read(
        asked: Sequence[Mapping[str, Any]], texts: Sequence[str]
    ) -> tuple[dict[str, Tensor], list[str]]:
        those = [problems[row["number"]] for row in asked]
        return verified(task, texts, those), [str(problem.answer) for problem in those]

    Witnesses(
        trainer,
        run.keeper(folder),
        every=recipe.witness.every,
        tokens=recipe.witness.tokens,
        stated={
            "algorithm": recipe.algorithm.name,
            "settings": {**recipe.row.all_settings, **recipe.settings},
            "penalty": vars(recipe.penalty),
            "reward": recipe.reward.model_dump(),
        },
        read=read,
    )


class Witnesses(TrainerCallback):
    """Makes a witness of the first batch of responses that a trainer samples, and of every n-th.

    The run is the run that it would have been: no random number is drawn, no weight touched. A
    witness costs three forward passes over its own rows and a copy of the weights.

    Args:
        trainer: a `trl.GRPOTrainer`, to which this is added as a callback.
        keep: is given each witness.
        every: n, in batches of responses.
        tokens: of responses in a witness at most; whole groups are taken, and at least one.
        stated: what the loss should be: `algorithm` or `parts`, `settings`, `penalty`, and
            `not_followed`, why, if that cannot be said.
        read: for rows of the dataset and texts of their responses, tensors such as `verified`, and
            the right answers.

    Raises:
        ValueError: naming what a witness cannot hold.
    """

    def __init__(
        self,
        trainer: Any,
        keep: Callable[[Witness], None],
        *,
        every: int,
        tokens: int,
        stated: Mapping[str, Any],
        read: Read | None = None,
    ) -> None:
        check(trainer)
        self.trainer, self.keep, self.every, self.tokens = trainer, keep, every, tokens
        self.stated, self.read = stated, read
        # The one inside is what samples, where the class of peft hands generation on to it.
        self.policy = lora.inside(trainer.accelerator.unwrap_model(trainer.model))
        args: Any = trainer.args
        self.slices = args.steps_per_generation * trainer.num_iterations  # of a batch's updates
        self.updates = self.slices // args.gradient_accumulation_steps
        self.draft: Draft | None = None
        self.rewards: Tensor = torch.empty(0)
        self.verdicts: list[float] = []
        self.sampler: str | None = None
        self.drawn: list[list[int]] = []
        self.inputs: Mapping[str, Any] | None = None  # of the loss that is being made
        self.minibatch: tuple[int, Tensor] = (-1, torch.empty(0))
        if trainer.use_vllm:
            self._hear(trainer.vllm_generation, "sync_weights", self._synchronise)
        for name, heard in {
            "_generate": self._generate,
            "_calculate_rewards": self._calculate_rewards,
            "_generate_and_score_completions": self._complete,
            "_compute_loss": self._compute_loss,
            "_get_per_token_logps_and_entropies": self._log_probs,
        }.items():
            self._hear(trainer, name, heard)
        trainer.add_callback(self)

    @staticmethod
    def _hear(owner: Any, name: str, heard: Any) -> None:
        setattr(owner, name, partial(heard, getattr(owner, name)))

    # ------------------------------------------------------------ what the trainer does

    def _synchronise(self, original: Any, *arguments: Any, **options: Any) -> Any:
        self.sampler = fingerprint(self.policy.parameters())
        return original(*arguments, **options)

    def _generate(self, original: Any, *arguments: Any, **options: Any) -> Any:
        if not self._wanted():
            return original(*arguments, **options)
        if not self.trainer.use_vllm:
            self.sampler = None

        def first(*_: Any) -> None:  # as it is while it samples, and not before
            self.sampler = self.sampler or fingerprint(self.policy.parameters())

        hook = self.policy.register_forward_pre_hook(first)
        try:
            found = original(*arguments, **options)
        finally:
            hook.remove()
        self.drawn = [list(row) for row in found[1]]
        return found

    def _calculate_rewards(self, original: Any, *arguments: Any, **options: Any) -> Any:
        self.rewards = original(*arguments, **options)
        self.verdicts = list(self.trainer._pending_extra_logs.get("verdict", []))
        return self.rewards

    def _complete(self, original: Any, asked: Any) -> Any:
        wanted = self._wanted()
        batch = original(asked)
        self.draft = self._drafted(asked, batch) if wanted else None
        if self.draft is not None:
            batch[ROWS] = torch.arange(len(batch["completion_ids"]))
            self.minibatch = (-1, torch.empty(0))
        return batch

    def _compute_loss(self, original: Any, model: Any, inputs: Mapping[str, Any]) -> Any:
        self.inputs = inputs if ROWS in inputs and self.draft is not None else None
        try:
            return original(model, inputs)
        finally:
            self.inputs = None

    def _log_probs(self, original: Any, *arguments: Any, **options: Any) -> Any:
        found = original(*arguments, **options)
        if self.inputs is not None and self.draft is not None and found[0].requires_grad:
            old = self.inputs.get("old_per_token_logps")
            self.draft.slice(
                self.inputs[ROWS],
                self._minibatch(),
                found[0],
                found[0].detach() if old is None else old,
            )
        return found

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Hand the witness out after the last update on its batch."""
        if self.draft is None or self.trainer._step % self.slices:
            return
        optimiser, reference = self.trainer.optimizer, self.trainer.ref_model
        counts = any("step" in kept for kept in optimiser.state.values())
        self.draft.facts["updates_expected"] = state.global_step if counts else None
        found = self.draft.close(optimiser, reference)
        if self.trainer.args.loss_type in OVER_AVERAGE:
            average = found.facts.pop("tokens") / len(self.trainer._buffered_inputs)
            average *= self.trainer.args.gradient_accumulation_steps
            for one in found.facts["minibatches"]:
                one["weight"] = one["tokens"] / average
        self.draft = None
        self.keep(found)

    # ------------------------------------------------------------ what becomes of it

    def _wanted(self) -> bool:
        return self.trainer.model.training and drafts.is_wanted(self._step(), self.every)

    def _step(self) -> int:
        return self.trainer.state.global_step // self.updates + 1

    def _minibatch(self) -> Tensor:
        """The mask of all responses of the update that is being made, the same for all slices."""
        together = self.trainer.args.gradient_accumulation_steps
        number = self.trainer._step % self.slices // together
        if number != self.minibatch[0]:
            buffered = self.trainer._buffered_inputs
            parts = range(number * together, (number + 1) * together)
            masks = [_mask(buffered[part % len(buffered)]) for part in parts]
            self.minibatch = (number, torch.cat(masks))
        return self.minibatch[1]

    def _drafted(self, asked: Sequence[Mapping[str, Any]], batch: Mapping[str, Any]) -> Draft:
        """What there is of a batch before anything is learned from it."""
        trainer, tokenizer = self.trainer, self.trainer._tokenizer
        group, ids, mask = trainer.num_generations, batch["completion_ids"], _mask(batch)
        ends = list(trainer.eos_token_ids)
        lengths = drafts.lengths_of(ids, ends)
        rows = drafts.rows_within(lengths, group_size=group, tokens=self.tokens)
        extent = (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(dim=1)
        width = int(torch.maximum(lengths, extent)[:rows].max())
        prompts = batch["prompt_ids"].masked_fill(~batch["prompt_mask"].bool(), -1)
        weights = trainer.reward_weights.to(self.rewards.device)
        last = ids.gather(1, lengths[:, None] - 1).squeeze(1)
        tensors = drafts.kept(
            {
                "tokens": ids.int(),
                "mask": mask,
                "sampler_log_probs": batch.get("sampling_per_token_logps"),
                "ref_log_probs": batch.get("ref_per_token_logps"),
                "advantages": batch["advantages"][:, None].float() * mask,
                "scores": (self.rewards * weights).nansum(dim=1).float(),
                "verdicts": torch.tensor(self.verdicts) if self.verdicts else None,
                "truncated": ~torch.isin(last, torch.tensor(ends, device=last.device)),
                "lengths": lengths.int(),
                "group": torch.unique(prompts, dim=0, return_inverse=True)[1].int(),
                "padded": ~batch["prompt_mask"].bool().all(dim=1),
            },
            rows,
            width,
        )
        read = drafts.texts(tokenizer, tensors["tokens"], lengths, ends)
        tensors |= drafts.drawn(tokenizer, self.drawn[:rows], ends)
        asking = [row[row >= 0] for row in prompts[:rows]]
        answers: list[str] = []
        if self.read is not None:
            more, answers = self.read(asked[:rows], [text for text, _ in read])
            tensors |= more
        with torch.random.fork_rng(), torch.no_grad():  # dropout would draw
            tensors |= self._again(batch, tensors, asking, lengths[:rows].tolist(), width)
        noise = tensors.pop("noise", None)
        facts = {
            **self._facts(),
            "batch": {"rows": len(ids), "width": ids.shape[1]},
            "reference_noise": None if noise is None else noise.item(),
            "ends": ends,
            "prompts": [str(tokenizer.decode(one))[:TEXT] for one in asking[::group]],
            "answers": [answer[:TEXT] for answer in answers[::group]],
            "responses": [text[:TEXT] for text, _ in read],
            "pieces": [pieces for _, pieces in read],
        }
        if self.rewards.isnan().all(dim=1).any():
            facts["not_followed"] = "some responses have no reward, and TRL leaves them out"
        if trainer.args.loss_type in OVER_AVERAGE:
            facts["tokens"] = int(batch["num_items_in_batch"])
        return Draft(self.policy, tensors, facts)

    def _facts(self) -> dict[str, Any]:
        """What a witness says that the batch does not: settings, and whose weights these are."""
        trainer = self.trainer
        prints = {"learner": fingerprint(self.policy.parameters())}
        if self.sampler is not None:
            prints["sampler"] = self.sampler
        if trainer.ref_model is not None:
            prints["reference"] = drafts.of_reference(trainer.ref_model)
        low = {"bfloat16": trainer.args.bf16, "float16": trainer.args.fp16}
        return {
            "format": FORMAT,
            "step": self._step(),
            "may_leave_early": False,
            **self.stated,
            "group_size": trainer.num_generations,
            "max_new_tokens": trainer.max_completion_length,
            "temperature": trainer.temperature,
            "selected": False,
            "learning_rate": max(group["lr"] for group in trainer.optimizer.param_groups),
            "precision": next((name for name, chosen in low.items() if chosen), "float32"),
            "importance_cap": None,
            "processes": 1,
            "fingerprints": prints,
        }

    def _again(
        self,
        batch: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        prompts: Sequence[Tensor],
        lengths: Sequence[int],
        width: int,
    ) -> dict[str, Tensor]:
        """Log-probs by the trainer's own function and a plain pass, and the reference's noise."""
        trainer, rows = self.trainer, len(lengths)
        reference = trainer.ref_model
        mask = tensors["mask"]

        def own(model: Any) -> Tensor:
            part = [
                torch.cat([batch[f"{name}_ids"][:rows] for name in ("prompt", "completion")], 1),
                torch.cat([batch[f"{name}_mask"][:rows] for name in ("prompt", "completion")], 1),
            ]
            found = trainer._get_per_token_logps_and_entropies(
                model,
                *part,
                batch["completion_ids"].shape[1],
                batch_size=trainer.args.per_device_train_batch_size,
            )[0]
            return found.float().cpu()[:, :width].masked_fill(~mask, 0.0)

        def plain(model: Any, ids: Tensor, prompt: int) -> Tensor:
            training = [module for module in model.modules() if module.training]
            model.eval()
            try:
                with trainer.accelerator.autocast():
                    return plain_pass.distributions(model, ids, prompt, trainer.temperature)
            finally:
                for module in training:
                    module.training = True

        found = {"scored_log_probs": own(trainer.model)}
        if reference is not None and "ref_log_probs" in tensors:
            found["noise"] = (own(reference) - tensors["ref_log_probs"])[mask].abs().max()
        completions = batch["completion_ids"][:rows]
        responses = [ids[:length] for ids, length in zip(completions, lengths, strict=True)]
        return found | plain_pass.plainly(
            prompts,
            responses,
            width,
            partial(plain, self.policy),
            None if reference is None else partial(plain, reference),
        )


# Losses that TRL divides by the tokens of an average minibatch of the batch.
OVER_AVERAGE = ("dapo", "cispo")


def check(trainer: Any) -> None:
    """See that a witness can hold what a trainer does.

    Raises:
        ValueError: naming what it cannot.
    """
    import trl

    if not isinstance(trainer, trl.GRPOTrainer):
        name = type(trainer).__name__
        raise UserError(f"witness batches need TRL's GRPOTrainer, and this is {name}")
    args: Any = trainer.args
    slices = args.steps_per_generation * trainer.num_iterations
    for refused, what in (
        (trainer.accelerator.num_processes > 1, "several processes"),
        (args.fp16, "fp16, which scales the gradients: take bf16"),
        (bool(trainer.tools or trainer.environment_factories), "tools and environments"),
        (trainer._is_vlm, "images"),
        (
            slices % args.gradient_accumulation_steps > 0,
            f"a batch that is spent within an update (steps_per_generation × num_iterations is "
            f"{slices}, gradient_accumulation_steps is {args.gradient_accumulation_steps})",
        ),
    ):
        if refused:
            raise UserError(f"witness batches of TRL's trainer do not cover {what}")


def _mask(batch: Mapping[str, Any]) -> Tensor:
    return batch["completion_mask"].bool()
