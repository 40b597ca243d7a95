"""A witness batch: everything about a few responses that a recomputation of their step needs.

Curves are means, and the usual mistakes leave means alone. A witness keeps the numbers themselves,
as the run used them, and beside them what a second, plain way of computing gives: each response as
it is, without padding, cache or shared prompt.

recorder.Recorder → looks on while a run of ours is made, and hands out one every so many steps
draft.Draft       → one while its step is being made, whichever trainer makes it
Witness           → facts and tensors, as one file of safetensors
"""

import json
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from nbcourse.errors import UserError

FORMAT = 1


@dataclass(frozen=True)
class Witness:
    """A few responses of one step, and all that was made of them. R rows, T columns.

    What a trainer does not tell is not there; `tensors.get` then gives None.

    Attributes:
        facts: JSON: `step`, algorithm and settings, fingerprints, how the weights moved, texts, and
            as `pieces` the text of each token of each response.
        tensors: by name.

            As the run had them, (R, T): `tokens`, `mask`, `sampler_log_probs`, `ref_log_probs`,
            `token_rewards`, `advantages`, `values`, `returns`, and `scored_log_probs`, the
            learner's before its first update; (R,): `scores`, `verdicts`, `truncated`, `lengths`,
            `group` and `padded`, of its prompt.

            Of the first update that a row took part in, and as `last_…` of the last one, (R, T):
            `log_probs`, `old_log_probs`, and `coefficients`, the derivative of the loss by each
            log-prob; (R,): `minibatch` and `slice`, −1 for a row that took part in none.

            As the sampler handed them out, (R, T'): `drawn_tokens`; and (R, T"): `encoded_tokens`,
            those of the text that they decode to. −1 behind the end.

            Computed once more, (R, T): `plain_log_probs`, `plain_ref_log_probs`,
            `unshifted_log_probs` by the logits behind each token, `entropy` and
            `surprisal_variance`; (R, T, K): `likeliest`; (R,): `verified`, the strict reading.
    """

    facts: dict[str, Any]
    tensors: dict[str, Tensor]

    @property
    def step(self) -> int:
        """The step that it is of, from 1."""
        return self.facts["step"]

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"step-{self.step:06d}.safetensors"

    def __getitem__(self, name: str) -> Tensor:
        """A tensor that is there."""
        return self.tensors[name]

    def has(self, *names: str) -> bool:
        """Whether all of these tensors are there."""
        return all(name in self.tensors for name in names)

    def to_bytes(self) -> bytes:
        """As a safetensors file, the facts in its header."""
        from safetensors.torch import save

        tensors = {name: tensor.contiguous() for name, tensor in self.tensors.items()}
        return save(tensors, metadata={"witness": json.dumps(self.facts)})

    @classmethod
    def from_bytes(cls, content: bytes, *, name: str) -> "Witness":
        """What `to_bytes` made.

        Raises:
            ValueError: if it is something else, or of another version; `name` is the file's.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            tensors = load(content)
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
            facts = json.loads(header["__metadata__"]["witness"])
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{name} is not a witness batch, or a damaged one: {error}") from error
        if facts.get("format") != FORMAT:
            raise UserError(f"{name} has format {facts.get('format')!r}, expected {FORMAT}")
        return cls(facts, tensors)
