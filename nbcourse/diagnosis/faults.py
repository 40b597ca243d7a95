"""Faults that real trainers have had, each behind a switch: `with FAULTS[name].planted(): …`.

A fault replaces functions of our own loop for as long as the context lasts. Most leave the reward's
curve looking as it should.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from nbcourse.diagnosis.planting import PLANTS, Plant

GRPO = ("grpo",)
EVERY = ("grpo", "rloo", "ppo")
NO_CRITIC = ("grpo", "rloo", "reinforce++")


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        sentence: what is planted.
        cause: what a diagnosis should name, of the catalogue; in `FAULTS` its own name if "".
        source: where it was met: a thread, a paper, or "common".
        recipe: what a recipe needs so that the fault has something to spoil.
        algorithms: rows of the table in which it can be planted.
        recorded: whether it is among the runs of `book/runs/silent-failures`.
        plant: the context within which it is there; none where the recipe is the fault.
    """

    sentence: str
    cause: str = ""
    source: str = "common"
    recipe: Mapping[str, Any] = field(default_factory=dict)
    algorithms: tuple[str, ...] = EVERY
    recorded: bool = True
    plant: Plant = nullcontext

    def changes(self, number: int) -> dict[str, Any]:
        """Tables of a recipe for it, with one after the other of its algorithms."""
        name = self.algorithms[number % len(self.algorithms)]
        return {**self.recipe, "algorithm": {"name": name, **self.recipe.get("algorithm", {})}}

    def planted(self) -> AbstractContextManager[Any]:
        """Within it, the loop has the fault."""
        return self.plant()


# ---------------------------------------------------------------- what recipes need

SEVERAL = {"optimiser": {"epochs": 4, "minibatches": 2}}
MANY = {"rollouts": {"prompts": 24, "group_size": 8}}  # tokens enough for a test
PIECES = {"optimiser": {"prompts_at_once": 1}}
PULLED = {"kl": {"beta": 0.1}}
WORDS = {  # a vocabulary in which a text can be written in several ways
    "task": {"name": "word-problems", "max_steps": 1},
    "model": {"vocabulary": 400},
    "warm_start": {"steps": 0},
    "rollouts": {"max_new_tokens": 12},
}

# ---------------------------------------------------------------- where several were met

MISMATCH = "trl #6789, trl #4159, verl #6280"
DENOMINATORS = "ms-swift #10117, trl #6024, Liger #1082"
KL = "trl #6503, trl #6586, rlhf-book #489"
NOTHING_PAID = "trl #5697, trl #3452"
VERIFIERS = "verl #5635, NeMo-RL #3635, trl #5281"

_TABLE = {
    "stale-sampler": Fault(
        "The sampler keeps the weights of the first step.",
        source="verl #7495, trl #5312, SkyRL #1680",
    ),
    "sampler-temperature": Fault(
        "The sampler draws at 0.7 of the temperature that the learner scores at.", source=MISMATCH
    ),
    "sampler-temperature-unreported": Fault(
        "The sampler draws at 0.7 of the temperature, and reports the log-probs of the stated one.",
        cause="sampler-temperature",
        source=MISMATCH,
        recipe=MANY,
    ),
    "sampler-top-p": Fault(
        "The sampler draws from the nucleus of 0.8.", cause="sampler-truncation", source=MISMATCH
    ),
    "sampler-top-p-unreported": Fault(
        "The sampler draws from the nucleus of 0.8, and reports the log-probs of all tokens.",
        cause="sampler-truncation",
        source=MISMATCH,
        recipe=MANY,
    ),
    "sampler-rounding": Fault(
        "The sampler computes in bfloat16, the learner in float32.", source=MISMATCH
    ),
    "re-tokenised": Fault(
        "Responses reach the learner as text, and are tokenised again.",
        source="trl #5224, rllm #816",
        recipe=WORDS,
        algorithms=GRPO,
        recorded=False,
    ),
    "shifted-log-probs": Fault(
        "The learner takes the logits after each token.", algorithms=NO_CRITIC
    ),
    "learner-temperature": Fault(
        "Responses are sampled at temperature 0.7 and scored at 1.",
        source="rlhf-book",
        recipe={"rollouts": {"temperature": 0.7}},
        algorithms=NO_CRITIC,
    ),
    "left-padding": Fault(
        "The learner's forward pass has neither the prompt's mask nor its positions.",
        source="unsloth-zoo #840, trl #6800",
        recipe={"task": {"digits": 2}, "reward": {"overlong_buffer": 4}},
    ),
    "stale-old-log-probs": Fault(
        "The reference's log-probs are used as the old ones.", recipe=SEVERAL, algorithms=GRPO
    ),
    "following-old-log-probs": Fault(
        "Each update takes its old log-probs anew.",
        source="trl #2703, trl #3120",
        recipe=SEVERAL,
        algorithms=GRPO,
    ),
    "reference-moves": Fault(
        "The reference shares the policy's weights.",
        source="trl #3194, ms-swift #8233",
        recipe=PULLED,
        algorithms=GRPO,
    ),
    "reference-dropout": Fault(
        "The reference is asked with dropout.",
        cause="reference-noise",
        recipe=PULLED,
        algorithms=GRPO,
    ),
    "same-samples": Fault("All responses to a prompt are the same."),
    "same-seed": Fault("The second half of the batch repeats the first."),
    "no-signal": Fault(
        "There was no warm start, and the problems are too hard to solve by chance.",
        source=NOTHING_PAID,
        recipe={"warm_start": {"steps": 0}, "task": {"digits": 3}},
    ),
    "all-truncated": Fault(
        "The limit of new tokens is too small for an answer.",
        source=NOTHING_PAID,
        recipe={"rollouts": {"max_new_tokens": 1}},
    ),
    "masked-eos": Fault(
        "The mask leaves out the end of sequence.", source="verl #3805, trl #4970, tiny-grpo"
    ),
    "trained-padding": Fault("The mask is True everywhere.", source="verl #3805, trl #4970"),
    "lenient-verifier": Fault(
        "A response is paid if the answer occurs anywhere in it.",
        source=VERIFIERS,
        recipe={"warm_start": {"steps": 60, "careless_steps": 0}},
    ),
    "silent-verifier": Fault(
        "The verifier fails on answers of more than one character and says 0.", source=VERIFIERS
    ),
    "paid-truncation": Fault(
        "Cut-off responses are paid like others.", recipe={"rollouts": {"max_new_tokens": 2}}
    ),
    "shifted-rewards": Fault(
        "Each response gets the verdict of the one above it.", source=VERIFIERS
    ),
    "misplaced-reward": Fault("The score is on the first token.", algorithms=("ppo",)),
    "kl-sign": Fault(
        "The KL in the reward is added.",
        source=KL,
        recipe=PULLED,
        algorithms=("rloo", "reinforce++", "ppo"),
    ),
    "kl-sign-in-loss": Fault(
        "The KL in the loss is subtracted.",
        cause="kl-sign",
        source=KL,
        recipe=PULLED,
        algorithms=GRPO,
    ),
    "inverted-kl": Fault(
        "k3 is taken of log π_ref − log π.", source="rlhf-book", recipe=PULLED, algorithms=GRPO
    ),
    "wrong-kl-estimator": Fault(
        "k1 is in the loss, where k3 is stated.",
        cause="kl-without-gradient",
        source="reasoning-from-scratch, rlhf-book",
        recipe=PULLED,
        algorithms=GRPO,
    ),
    "mixed-groups": Fault(
        "Rewards are reshaped to (group_size, prompts) and compared along the wrong axis.",
        source="NeMo-RL #3882, slime #1918, PipelineRL #54",
        algorithms=GRPO,
    ),
    "missing-baseline": Fault("The advantage is the reward.", algorithms=("rloo",)),
    "amplified-flat-groups": Fault(
        "Groups are divided by their spread plus 1e-9, those without spread too.",
        source="OpenRLHF",
        recipe={
            "algorithm": {"eps": 1e-9},
            "rollouts": {"group_size": 6},
            "reward": {"overlong_buffer": 3},
        },
        algorithms=GRPO,
    ),
    "padded-whitening": Fault("Advantages are whitened over padding too.", algorithms=("ppo",)),
    "value-target-rewards": Fault("The critic learns the rewards of tokens.", algorithms=("ppo",)),
    "inverted-ratio": Fault("The ratio is old over new.", recipe=SEVERAL, algorithms=GRPO),
    "inverted-clip": Fault(
        "For negative advantages the clip takes the maximum.",
        source="reasoning-from-scratch",
        recipe=SEVERAL,
        algorithms=GRPO,
    ),
    "flipped-loss": Fault("The loss has the opposite sign."),
    "micro-batch-means": Fault(
        "Each micro-batch is divided by its own tokens.",
        source=f"{DENOMINATORS}, nanochat",
        recipe=PIECES,
        algorithms=("reinforce++", "dapo", "ppo"),
    ),
    "padding-in-denominator": Fault(
        "The sum over tokens is divided by rows × columns.",
        source=f"{DENOMINATORS}, arXiv 2604.23747",
        algorithms=("reinforce++", "dapo", "ppo"),
    ),
    "dropped-micro-batches": Fault(
        "The last micro-batch of each update is left out.", source=DENOMINATORS, recipe=PIECES
    ),
    "idle-optimiser": Fault("The optimiser holds copies of the parameters."),
    "lost-moments": Fault("The optimiser is resumed without its moments."),
    "rounded-updates": Fault(
        "The weights are rounded to bfloat16 after each update.",
        recipe={"optimiser": {"learning_rate": 3e-5}},
    ),
}
FAULTS: dict[str, Fault] = {
    name: replace(fault, plant=PLANTS.get(name, nullcontext), cause=fault.cause or name)
    for name, fault in _TABLE.items()
}


@contextmanager
def planted(*names: str) -> Iterator[None]:
    """Within it, the loop has all of these faults.

    Raises:
        KeyError: if there is no such fault.
    """
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(FAULTS[name].planted())
        yield
