"""The two engines that sample, beside `model.generate` of transformers with either cache.

    python benchmarks/engines.py [--rounds 3]

CPU, 1 thread, float32, all four in turn, with the log-probs of what they write. What is counted is
processor time, so that other work on the machine hurts little. Three cases:

- Responses that all have 96 tokens, from a model of about a million parameters: no row ends, so
  that shapes alone make the difference.
- Responses that end, after some 25 tokens on average, a few only after 96: what rows cost that have
  ended. Contenders draw other tokens of the same distribution, so times are for each token written.
- 8 responses of 40 tokens from random weights in the shape of SmolLM2-135M.

Each time is taken apart: in the model, in attention within it, and outside of it, where tokens are
drawn; beside it, how many rows went through the model for each token that is in a response.
"""

import argparse
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from time import process_time

import torch
from _pairs import Pairs
from sampling import of_smollm2

from nbcourse.lm import engines, rollouts, sampling, tiny
from nbcourse.tasks import arithmetic


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    tokenizer = tiny.tokenizer()
    generator = torch.Generator().manual_seed(0)
    drawn = arithmetic.problems(64, split="train", generator=generator)
    prompts = [problem.prompt for problem in drawn]
    small = tiny.model(tokenizer)
    compare("96 tokens each", Work(small, tokenizer, prompts, 4, 96, ends=False), rounds)
    compare("that end", Work(small, tokenizer, prompts, 4, 96, ends=True), rounds)
    large = of_smollm2(tokenizer)
    compare("SmolLM2's shape", Work(large, tokenizer, prompts[:8], 1, 40, ends=False), rounds)


@dataclass
class Work:
    """Prompts, and how long the responses to them may be; what `generate` needs to be asked.

    Attributes:
        ends: whether the end-of-sequence token ends a response.
    """

    model: torch.nn.Module
    tokenizer: object
    prompts: list[str]
    group: int
    tokens: int
    ends: bool
    inputs: dict = field(init=False)

    def __post_init__(self) -> None:
        ids, mask = rollouts.encode(self.tokenizer, self.prompts)
        self.inputs = {"input_ids": ids, "attention_mask": mask.long()}

    def ours(self, engine: str) -> int:
        """Tokens written by an engine of the package."""
        write = sampling.ENGINES[engine]
        unending = torch.tensor([-1])

        def asked(model, job: engines.Job) -> engines.Responses:
            return write(model, job if self.ends else replace(job, ends=unending))

        rollout = sampling.sample(
            self.model,
            self.tokenizer,
            self.prompts,
            max_new_tokens=self.tokens,
            group_size=self.group,
            generator=torch.Generator().manual_seed(0),
            engine=asked,
        )
        return int(rollout.mask.sum())

    @torch.no_grad()
    def theirs(self, cache: str) -> int:
        """Tokens written by `generate`; its static cache is used without compilation."""
        end = self.tokenizer.eos_token_id
        output = self.model.generate(
            **self.inputs,
            do_sample=True,
            top_k=0,
            num_return_sequences=self.group,
            max_new_tokens=self.tokens,
            eos_token_id=end if self.ends else None,
            pad_token_id=end,
            cache_implementation=cache,
            disable_compile=True,
            return_dict_in_generate=True,
            output_scores=True,
        )
        self.model.compute_transition_scores(output.sequences, output.scores, normalize_logits=True)
        said = output.sequences[:, self.inputs["input_ids"].shape[1] :]
        if not self.ends:
            return said.numel()
        before = (said == end).cumsum(dim=1) - (said == end).long()
        return int((before == 0).sum())


@dataclass
class Parts:
    """Where the seconds of one call went.

    Attributes:
        written: tokens in the responses.
        rows: of one token that the model computed.
    """

    written: int = 0
    whole: float = 0.0
    model: float = 0.0
    attention: float = 0.0
    rows: int = 0


@contextmanager
def watched(model: torch.nn.Module):
    """Within it, the time in the model and in its attention is counted."""
    found, started = Parts(), []

    def before(module, args, inputs):
        ids = inputs["input_ids"]
        found.rows += len(ids) if ids.shape[1] == 1 else 0
        started.append(process_time())

    def after(module, args, inputs, output):
        found.model += process_time() - started.pop()

    hooks = [
        model.register_forward_pre_hook(before, with_kwargs=True),
        model.register_forward_hook(after, with_kwargs=True),
    ]
    plain = torch.nn.functional.scaled_dot_product_attention

    def attention(*args, **options):
        start = process_time()
        result = plain(*args, **options)
        found.attention += process_time() - start
        return result

    torch.nn.functional.scaled_dot_product_attention = attention
    try:
        yield found
    finally:
        torch.nn.functional.scaled_dot_product_attention = plain
        for hook in hooks:
            hook.remove()


def compare(name: str, work: Work, rounds: int) -> None:
    """Print what each contender takes for a token, and in what parts."""
    contenders: dict[str, Callable[[], int]] = {
        "eager": partial(work.ours, "eager"),
        "static": partial(work.ours, "static"),
        "generate, dynamic": partial(work.theirs, "dynamic"),
        "generate, static": partial(work.theirs, "static"),
    }
    runs: dict[str, list[Parts]] = {contender: [] for contender in contenders}
    for _ in range(1 + rounds):
        for contender, write in contenders.items():
            with watched(work.model) as parts:
                start = process_time()
                parts.written = write()
                parts.whole = process_time() - start
            runs[contender].append(parts)
    each = {  # the first call warms up
        contender: [parts.whole / parts.written for parts in calls[1:]]
        for contender, calls in runs.items()
    }
    responses = len(work.prompts) * work.group
    print(f"{name}: {responses} responses, µs for each token written, medians of {rounds} rounds")
    print(
        f"{'':>18} {'µs':>7} {'static is … × as fast':>22} {'in the model':>13} "
        f"{'attention':>10} {'outside':>8} {'rows a token':>13} {'tokens':>7}"
    )
    for contender, (_, *calls) in runs.items():
        model, attention = (
            median(getattr(parts, part) / parts.whole for parts in calls)
            for part in ("model", "attention")
        )
        rows = median(parts.rows / parts.written for parts in calls)
        ratio = Pairs(each[contender], each["static"]).ratio
        print(
            f"{contender:>18} {1e6 * median(each[contender]):7.1f} {ratio:>22} {model:13.0%} "
            f"{attention:10.0%} {1 - model:8.0%} {rows:13.2f} {calls[-1].written:7d}"
        )


if __name__ == "__main__":
    main()
