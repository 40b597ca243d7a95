"""Sampling on the CPU: the package against `model.generate` of transformers.

    python benchmarks/sampling.py

A model of about a million parameters, 64 arithmetic prompts × 8 samples, at most 8 new tokens,
float32, 1 thread, in turn. The model is warm-started for a moment, so that responses end at
different lengths. Both record the log-probs of what they sample.
"""

from statistics import median
from time import perf_counter

import torch

from nbcourse.lm import rollouts, sampling, tiny
from nbcourse.lm.warm_start import warm_start
from nbcourse.tasks import arithmetic

PAIRS, PROMPTS, GROUP, NEW_TOKENS = 9, 64, 8, 8


def main() -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    tokenizer = tiny.tokenizer()
    model = tiny.model(tokenizer)

    def examples(count: int) -> list[tuple[str, str]]:
        drawn = arithmetic.problems(count, split="train", generator=generator)
        return [(problem.prompt, problem.answer) for problem in drawn]

    warm_start(model, tokenizer, examples, steps=60, batch_size=64, progress=False)
    prompts = [prompt for prompt, _ in examples(PROMPTS)]
    prompt_ids, prompt_mask = rollouts.encode(tokenizer, prompts)

    def ours() -> float:
        start = perf_counter()
        sampling.sample(
            model,
            tokenizer,
            prompts,
            max_new_tokens=NEW_TOKENS,
            group_size=GROUP,
            generator=generator,
        )
        return perf_counter() - start

    def theirs() -> float:
        start = perf_counter()
        with torch.no_grad():
            output = model.generate(
                prompt_ids,
                attention_mask=prompt_mask.long(),
                do_sample=True,
                top_k=0,
                num_return_sequences=GROUP,
                max_new_tokens=NEW_TOKENS,
                return_dict_in_generate=True,
                output_scores=True,
            )
            model.compute_transition_scores(output.sequences, output.scores, normalize_logits=True)
        return perf_counter() - start

    ours(), theirs()
    pairs = [(theirs(), ours()) for _ in range(PAIRS)]
    ratios = sorted(slow / fast for slow, fast in pairs)
    print(
        f"generate {median(slow for slow, _ in pairs) * 1e3:.0f} ms, "
        f"sample {median(fast for _, fast in pairs) * 1e3:.0f} ms; "
        f"ratio {median(ratios):.2f} [{ratios[0]:.2f}, {ratios[-1]:.2f}]"
    )


if __name__ == "__main__":
    main()
