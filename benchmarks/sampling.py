"""Sampling on the CPU: the package against `model.generate` of transformers.

    python benchmarks/sampling.py

Two models, 1 thread, in turn; both samplers record the log-probs of what they sample.

- About a million parameters in float32, 64 arithmetic prompts × 8 samples, at most 8 new tokens.
  It is warm-started for a moment, so that responses end at different lengths.
- The shape of SmolLM2-135M with random weights, products in bfloat16, 4 prompts × 8 samples of 48
  new tokens each: a large vocabulary, and heads that share keys and values.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from _pairs import in_turn

from nbcourse.budget.shapes import PUBLISHED, random_model
from nbcourse.lm import rollouts, sampling, tiny
from nbcourse.lm.warm_start import warm_start
from nbcourse.tasks import arithmetic

GROUP = 8


def main() -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    tokenizer = tiny.tokenizer()

    def examples(count: int) -> list[tuple[str, str]]:
        drawn = arithmetic.problems(count, split="train", generator=generator)
        return [(problem.prompt, problem.answer) for problem in drawn]

    small = tiny.model(tokenizer)
    warm_start(small, tokenizer, examples, steps=60, batch_size=64, progress=False)
    prompts = [prompt for prompt, _ in examples(64)]
    compare("a million parameters", small, tokenizer, prompts, 8, pairs=9)

    bfloat16 = torch.autocast("cpu", torch.bfloat16)
    compare("SmolLM2's shape", of_smollm2(tokenizer), tokenizer, prompts[:4], 48, bfloat16, pairs=3)


def of_smollm2(tokenizer):
    """Random weights in the shape of SmolLM2-135M."""
    return random_model(PUBLISHED["smollm2"], end=tokenizer.eos_token_id)


def compare(
    name: str,
    model,
    tokenizer,
    prompts: list[str],
    tokens: int,
    precision: AbstractContextManager | None = None,
    *,
    pairs: int,
) -> None:
    """Print how long both take for these prompts."""
    precision = precision or nullcontext()
    prompt_ids, prompt_mask = rollouts.encode(tokenizer, prompts)
    generator = torch.Generator().manual_seed(0)
    ours = partial(
        sampling.sample,
        model,
        tokenizer,
        prompts,
        max_new_tokens=tokens,
        group_size=GROUP,
        generator=generator,
    )

    def theirs() -> None:
        with torch.no_grad():
            output = model.generate(
                prompt_ids,
                attention_mask=prompt_mask.long(),
                do_sample=True,
                top_k=0,
                num_return_sequences=GROUP,
                max_new_tokens=tokens,
                return_dict_in_generate=True,
                output_scores=True,
            )
            model.compute_transition_scores(output.sequences, output.scores, normalize_logits=True)

    with precision:
        timed = in_turn(theirs, ours, pairs=pairs)
    generate_ms, sample_ms = timed.milliseconds()
    print(f"{name}: generate {generate_ms:.0f} ms, sample {sample_ms:.0f} ms; ratio {timed.ratio}")


if __name__ == "__main__":
    main()
