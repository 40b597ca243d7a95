"""The engine of fixed shapes: from one check to the next, the host does not wait for the device.

`engines.eager` asks the device after each token which rows have ended, and computes with shapes
that change with every answer. Here rows and columns come in buckets. A step is the same sequence of
kernels on the same memory until the next check, and so may be recorded once and started as one. The
price is paid in rows that have ended and are computed until the next check, and in columns that
are masked.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from nbcourse.lm.casting import as_now
from nbcourse.lm.engines import Job, Responses, not_finite, read_prompts
from nbcourse.lm.rollouts import with_room

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers.cache_utils import Cache

Step = Callable[[], None]
Decoder = Callable[[Tensor, Tensor, Tensor, "Cache"], Tensor]
"""The last token of each row, (B, 1), its position, (B, 1), which columns count, (B, 1, 1, C), and
keys and values of the tokens before, which get its own → logits of the next token, (B, V)."""


def whole(model: "PreTrainedModel") -> Decoder:
    """The model as it is."""

    def decode(token: Tensor, position: Tensor, attended: Tensor, cache: "Cache") -> Tensor:
        output = model(
            input_ids=token,
            attention_mask=attended,
            position_ids=position,
            past_key_values=cache,
            use_cache=True,
        )
        return output.logits[:, -1]

    return decode


def as_it_is(step: Step, job: Job) -> Step:
    """The step, its kernels started one by one."""
    return step


@dataclass(frozen=True)
class Static:
    """Writes responses in steps of fixed shapes.

    Attributes:
        check_every: tokens from one check to the next: have all rows ended, was a number not
            finite, do the running rows fit a smaller batch, is there room for the tokens to come?
        rows: the batch, once rows have ended, is a multiple of this; before, it is as it comes.
        columns: keys and values have room for a multiple of this.
        prepare: makes of a step what is called for each token until shapes change; `in_a_graph`
            records it.
        decoder: makes of the model what computes a token's logits; `Packed` takes few kernels.
    """

    check_every: int = 32
    rows: int = 8
    columns: int = 64
    prepare: Callable[[Step, Job], Step] = as_it_is
    decoder: Callable[["PreTrainedModel"], Decoder] = whole

    def __call__(self, model: "PreTrainedModel", job: Job) -> Responses:
        """Write the responses.

        Raises:
            FloatingPointError: if the model gives logits that are not finite.
            ValueError: if the model keeps only a window of keys, or has an attention whose mask is
                not a table of bools, or the decoder does not take it.
        """
        limit, decode = job.max_new_tokens, self.decoder(model)
        logits, cache = read_prompts(model, job)
        now = _Now(model, decode, job, cache, columns=self.room(job.prompt_ids.shape[1], 0, limit))
        # what is cast within a recorded step is not kept for another
        with as_now(model.device.type, cache_enabled=False):
            now.write(logits.repeat_interleave(job.group_size, dim=0))
            step = self.prepare(now.step, job)
            for t in range(1, limit):
                if t % self.check_every == 0:
                    running = now.look()
                    if running == 0:
                        return now.written
                    batch = min(len(now.running), with_room(running, self.rows))
                    columns = self.room(job.prompt_ids.shape[1], t, limit)
                    if (batch, columns) != (len(now.running), now.attended.shape[3]):
                        now.resize(batch, columns)
                        step = self.prepare(now.step, job)
                step()
        now.look()
        return now.written

    def room(self, prompt_tokens: int, t: int, limit: int) -> int:
        """Columns that there are from a check at response token t to the next, or to the limit."""
        until = min(t + self.check_every, limit)
        return with_room(prompt_tokens + until - 1, self.columns)


class _Now:
    """Where the writing stands, all of it on the device, in tensors that a step changes in place.

    Attributes:
        written: the responses.
        t: (1,) which response token comes next.
        column: (1,) where keys and values of the last token go.
        broken: (1,) the first token whose logits were not finite; T if there is none.
        index: (B,) which response each row of the batch is.
        running: (B,) whether it goes on.
        token: (B, 1) its last token.
        position: (B, 1) of that in its own sequence.
        attended: (B, 1, 1, C) which columns count.
    """

    def __init__(
        self,
        model: "PreTrainedModel",
        decode: Decoder,
        job: Job,
        cache: "Cache",
        *,
        columns: int,
    ) -> None:
        from nbcourse.lm.cache import fix

        if model.config._attn_implementation != "sdpa":
            raise ValueError(
                f"the model's attention is {model.config._attn_implementation!r}, expected 'sdpa' "
                "for a static engine"
            )
        self.decode, self.job = decode, job
        mask = job.prompt_mask.repeat_interleave(job.group_size, dim=0)
        rows, prompt = mask.shape

        def number(value: int) -> Tensor:
            return torch.full((1,), value, device=mask.device)

        self.written = job.blank()
        self.t, self.column, self.broken = number(0), number(prompt), number(job.max_new_tokens)
        self.index = torch.arange(rows, device=mask.device)
        self.running = torch.ones_like(self.index, dtype=torch.bool)
        self.token = torch.zeros_like(self.index)[:, None]
        self.position = mask.sum(dim=1, keepdim=True)
        self.attended = pad(mask, (0, columns - prompt))[:, None, None]
        self.cache, self.layers = fix(
            cache, self.column, group_size=job.group_size, columns=columns
        )

    def step(self) -> None:
        """Read the last token, and write the next."""
        self.attended.index_fill_(3, self.column, True)
        logits = self.decode(self.token, self.position, self.attended, self.cache)
        self.column += 1
        self.position += 1
        self.write(logits)

    def write(self, logits: Tensor) -> None:
        """Choose a token for each row that goes on, padding for the others."""
        job, running, place = self.job, self.running, (self.index, self.t)
        chosen, log_probs = job.choose(logits)
        chosen = torch.where(running, chosen, job.padding)
        log_probs = log_probs.masked_fill(~running, 0.0)
        first = torch.minimum(self.broken, self.t)
        self.broken.copy_(torch.where(log_probs.isnan().any(), first, self.broken))
        self.written.tokens.index_put_(place, chosen)
        self.written.log_probs.index_put_(place, log_probs)
        self.written.lengths.index_add_(0, self.index, running.long())  # EOS counts, as in `eager`
        self.token.copy_(chosen[:, None])
        running.logical_and_(~job.ended(chosen))
        self.t += 1

    def look(self) -> int:
        """How many rows go on. The host waits for the answer."""
        running, broken = torch.stack([self.running.sum(), self.broken[0]]).tolist()
        if broken < self.job.max_new_tokens:
            raise not_finite(broken)
        return running

    def resize(self, rows: int, columns: int) -> None:
        """Keep the rows that go on, and as many others as a batch of this size takes."""
        kept = (~self.running).int().argsort(stable=True)[:rows].sort().values
        for name in ("index", "running", "token", "position", "attended"):
            setattr(self, name, getattr(self, name)[kept])
        self.attended = pad(self.attended, (0, columns - self.attended.shape[3]))
        for layer in self.layers:
            layer.resize(kept, columns)


class _Graph:
    """A step whose first call runs as it is, and warms up; from the second on, a CUDA graph."""

    def __init__(self, step: Step, generator: torch.Generator | None) -> None:
        self.step, self.generator, self.calls = step, generator, 0

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == 1:
            self.step()
            return
        if self.calls == 2:
            self.graph = torch.cuda.CUDAGraph()
            if self.generator is not None:
                self.graph.register_generator_state(self.generator)
            with torch.cuda.graph(self.graph):  # notes what would run, and runs nothing
                self.step()
        self.graph.replay()


def in_a_graph(step: Step, job: Job) -> Step:
    """The step as a CUDA graph, or as it is where the model is not on a CUDA device.

    On an H100 it has written what the step writes, to the last bit; in bfloat16 once not, while
    other processes used the card. What that rests on is tested without CUDA: a step changes memory
    in place, with no help from the host, and does the same work each time.
    """
    return _Graph(step, job.generator) if job.prompt_ids.is_cuda else step
