"""Sampling on the CPU: the package against `model.generate` of transformers.

    python benchmarks/sampling.py

A model of about a million parameters, 64 arithmetic prompts × 8 samples, at most 8 new tokens,
float32, 1 thread, in turn. The model is warm-started for a moment, so that responses end at
different lengths. Both record the log-probs of what they sample.
"""

import torch
from _pairs import in_turn

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

    def ours() -> None:
        sampling.sample(
            model,
            tokenizer,
            prompts,
            max_new_tokens=NEW_TOKENS,
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
                max_new_tokens=NEW_TOKENS,
                return_dict_in_generate=True,
                output_scores=True,
            )
            model.compute_transition_scores(output.sequences, output.scores, normalize_logits=True)

    pairs = in_turn(theirs, ours, pairs=PAIRS)
    generate_ms, sample_ms = pairs.milliseconds()
    print(f"generate {generate_ms:.0f} ms, sample {sample_ms:.0f} ms; ratio {pairs.ratio}")


if __name__ == "__main__":
    main()
