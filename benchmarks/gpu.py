"""What a GPU reaches with the 0.5B model of the recipes, beside what its roofline allows.

    python benchmarks/gpu.py throughput.jsonl [--rows 512] [--tokens 128] [--compiled]

Random weights in the shape of Qwen2.5-0.5B, products in bfloat16, random prompts of 128 tokens;
nothing ends early, so that every contender does the same work. A line of JSON for each measurement:

- the machine: bandwidth of a large copy, and FLOP/s of large matrix products;
- sampling with a group size of 8: our engines, and `model.generate` of transformers with the
  dynamic cache, whose weights are in bfloat16 (with `--compiled`, with the static cache as well,
  which it compiles); the log-probs of what is written are asked of all;
- learning from responses of 384 tokens: forward and backward pass with and without recomputation,
  by rows at once, and a step of AdamW;
- log-probs from logits, forward and backward, and the memory they take beside the logits.

Contenders come in turn; the first round warms up. Chapter 15 shows the numbers.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM, Qwen2Config

from nbcourse.budget import machines, prediction
from nbcourse.budget.shapes import Shape
from nbcourse.lm import engines, log_probs, sampling
from nbcourse.lm.casting import cast_once
from nbcourse.lm.rollouts import Rollout

PROMPT, GROUP, LEARNED = 128, 8, 384
PRECISION = "bfloat16"
HALF_BILLION = dict(
    vocab_size=151_936,
    hidden_size=896,
    intermediate_size=4864,
    num_hidden_layers=24,
    num_attention_heads=14,
    num_key_value_heads=2,
    tie_word_embeddings=True,
    bos_token_id=None,
    eos_token_id=0,
    pad_token_id=0,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="file that the lines are written to")
    parser.add_argument("--rows", type=int, default=512, help="responses sampled at once")
    parser.add_argument("--tokens", type=int, default=128, help="of each of them")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--compiled", action="store_true", help="generate with the static cache")
    parser.add_argument("--width", type=int, help="of a smaller model, to try the script")
    chosen = parser.parse_args()
    device = torch.device("cuda" if machines.has_gpu() else "cpu")
    shape = HALF_BILLION
    if chosen.width:
        shape = {**shape, "hidden_size": chosen.width, "num_hidden_layers": 2, "vocab_size": 10_240}
        shape |= {"intermediate_size": chosen.width, "num_attention_heads": 4}
    torch.manual_seed(0)
    config = Qwen2Config(**shape)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).to(device).eval()
    with chosen.out.open("w", encoding="utf-8") as out:

        def keep(what: str, **numbers: object) -> None:
            line = json.dumps({"what": what, **numbers})
            print(line, flush=True)
            print(line, file=out, flush=True)

        machine = machines.measure(device, ["float32", PRECISION])
        keep("machine", **asdict(machine))
        parts = [
            lambda: learning(model, machine, rows=[8, 32, 64] if not chosen.width else [8]),
            lambda: from_logits(config.vocab_size, device),
            lambda: drawing(model, machine, chosen),
        ]
        for part in parts:
            try:
                for numbers in part():
                    keep(**numbers)
            except torch.OutOfMemoryError as error:
                keep("out of memory", message=str(error).splitlines()[0])


def elapsed(work: Callable[[], object]) -> tuple[float, int]:
    """Seconds of one call, and the bytes that it held beside what was held before."""
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated() if gpu else 0
    start = perf_counter()
    work()
    if gpu:
        torch.cuda.synchronize()
    seconds = perf_counter() - start
    return seconds, torch.cuda.max_memory_allocated() - held if gpu else 0


def in_turn(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, dict]:
    """Median seconds of each, all of its seconds, and its peak, after a round that warms up."""
    found: dict[str, list[tuple[float, int]]] = {name: [] for name in contenders}
    for _ in range(1 + rounds):
        for name, work in contenders.items():
            found[name].append(elapsed(work))
    return {
        name: {
            "seconds": median(second for second, _ in timed[1:]),
            "each": [second for second, _ in timed],
            "peak_bytes": max(peak for _, peak in timed),
        }
        for name, timed in found.items()
    }


# ---------------------------------------------------------------- sampling


def drawing(model, machine: machines.Machine, chosen: argparse.Namespace) -> Iterator[dict]:
    device, vocabulary = model.device, model.config.vocab_size
    source = torch.Generator(device).manual_seed(0)
    ids = torch.randint(
        vocabulary, (chosen.rows // GROUP, PROMPT), generator=source, device=device
    )
    job = engines.Job(
        ids,
        torch.ones_like(ids, dtype=torch.bool),
        group_size=GROUP,
        max_new_tokens=chosen.tokens,
        temperature=1.0,
        generator=source,
        ends=torch.tensor([-1], device=device),
        padding=0,
    )
    half = AutoModelForCausalLM.from_config(model.config, dtype=torch.bfloat16).to(device).eval()
    autocast = partial(torch.autocast, device.type, torch.bfloat16)

    @torch.no_grad()
    def ours(engine: str) -> None:
        with autocast(), cast_once(model):
            sampling.ENGINES[engine](model, job)

    @torch.no_grad()
    def generate(**cache: object) -> None:
        output = half.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            top_k=0,
            num_return_sequences=GROUP,
            max_new_tokens=chosen.tokens,
            min_new_tokens=chosen.tokens,
            return_dict_in_generate=True,
            output_scores=True,
            **cache,
        )
        half.compute_transition_scores(output.sequences, output.scores, normalize_logits=True)

    contenders: dict[str, Callable[[], object]] = {
        "static-graphs": partial(ours, "static-graphs"),
        "static": partial(ours, "static"),
        "eager": partial(ours, "eager"),
        "generate": generate,
    }
    if chosen.compiled:
        contenders["generate, static cache"] = partial(generate, cache_implementation="static")
    shape, written = Shape.of(model.config), chosen.rows * chosen.tokens
    columns = range(PROMPT + 1, PROMPT + chosen.tokens)
    moved = sum(prediction.decoding_bytes(shape, chosen.rows, c, PRECISION) for c in columns)
    for name, work in contenders.items():
        try:
            numbers = in_turn({name: work}, chosen.rounds)[name]
        except Exception as error:  # what fails is recorded, and the others are measured
            yield {"what": "sampling", "engine": name, "error": repr(error)[:500]}
            continue
        yield {
            "what": "sampling",
            "engine": name,
            "rows": chosen.rows,
            "prompt": PROMPT,
            "tokens": chosen.tokens,
            **numbers,
            "tokens_per_second": written / numbers["seconds"],
            "of_roofline": moved / machine.bandwidth / numbers["seconds"],
        }
    kernels = partial(ours, "eager")
    yield {"what": "kernels", "tokens": 8, **_kernels(kernels, job)}


def _kernels(write: Callable[[], object], job: engines.Job) -> dict:
    """How many kernels the eager engine starts for a token of the 0.5B model."""
    if not torch.cuda.is_available():
        return {}
    object.__setattr__(job, "max_new_tokens", 8)
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        write()
    started = [e for e in seen.events() if e.name in ("cudaLaunchKernel", "cudaLaunchKernelExC",
                                                      "cuLaunchKernel", "cuLaunchKernelEx")]
    return {"per_token": len(started) / 8}


# ---------------------------------------------------------------- learning


def learning(model, machine: machines.Machine, rows: list[int]) -> Iterator[dict]:
    device, shape = model.device, Shape.of(model.config)
    source = torch.Generator(device).manual_seed(1)
    weights = list(model.parameters())
    optimiser = torch.optim.AdamW(weights, lr=1e-6, fused=True)
    for checkpointing in (False, True):
        for count in rows:
            prompts = torch.randint(
                model.config.vocab_size, (count // GROUP, PROMPT), generator=source, device=device
            ).repeat_interleave(GROUP, dim=0)
            tokens = torch.randint(
                model.config.vocab_size, (count, LEARNED), generator=source, device=device
            )
            rollout = Rollout(
                prompt_ids=prompts,
                prompt_mask=torch.ones_like(prompts, dtype=torch.bool),
                tokens=tokens,
                mask=torch.ones_like(tokens, dtype=torch.bool),
                log_probs=torch.zeros(tokens.shape, device=device),
                truncated=torch.ones(count, dtype=torch.bool, device=device),
            )
            group = 1 if checkpointing else GROUP  # as the learner does it

            def step(rollout: Rollout = rollout, group: int = group) -> None:
                with torch.autocast(device.type, torch.bfloat16):
                    found = log_probs.rollout_log_probs(
                        model, rollout, chunked=True, group_size=group
                    )
                found.mean().backward()

            if checkpointing:
                model.train()
                model.gradient_checkpointing_enable({"use_reentrant": False})
            numbers = in_turn({"step": step}, 3)["step"]
            optimiser.zero_grad(set_to_none=True)
            passes = prediction.scoring(
                count // GROUP if group > 1 else count, group, PROMPT, LEARNED, chunked=True
            )
            flops = 3 * sum(
                prediction.layer_flops(shape, each) + prediction.output_flops(shape, each)
                for each in passes
            )
            yield {
                "what": "learning",
                "rows": count,
                "prompt": PROMPT,
                "tokens": LEARNED,
                "checkpointing": checkpointing,
                **numbers,
                "tokens_per_second": count * LEARNED / numbers["seconds"],
                "model_flops": flops,
                "of_matrix_peak": flops / numbers["seconds"] / machine.speed[PRECISION],
            }
        model.gradient_checkpointing_disable()
        model.eval()
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    numbers = in_turn({"update": optimiser.step}, 3)["update"]
    moved = 7 * machines.FLOAT32 * sum(weight.numel() for weight in weights)
    of_roofline = moved / machine.bandwidth / numbers["seconds"]
    yield {"what": "update", **numbers, "of_roofline": of_roofline}
    optimiser.zero_grad(set_to_none=True)


# ---------------------------------------------------------------- log-probs


def from_logits(vocabulary: int, device: torch.device) -> Iterator[dict]:
    rows = (8, 512)
    source = torch.Generator(device).manual_seed(2)
    tokens = torch.randint(vocabulary, rows, generator=source, device=device)
    contenders: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "nbcourse token_log_probs": partial(log_probs.token_log_probs, consume=True),
        "cross_entropy": lambda z, a: functional.cross_entropy(
            z.flatten(0, 1), a.flatten(), reduction="none"
        ),
        "gather": lambda z, a: z.log_softmax(-1).gather(-1, a[..., None]).squeeze(-1),
    }

    def both_ways(contender: Callable[[Tensor, Tensor], Tensor], logits: Tensor) -> None:
        logits.normal_(generator=source)
        leaf = logits.detach().requires_grad_()
        torch.autograd.grad(contender(leaf, tokens).sum(), leaf)

    logits = torch.empty(*rows, vocabulary, device=device)
    filling = in_turn({"fill": lambda: logits.normal_(generator=source)}, 5)["fill"]["seconds"]
    timed = in_turn(
        {name: partial(both_ways, each, logits) for name, each in contenders.items()}, 5
    )
    for name, numbers in timed.items():
        numbers["seconds"] -= filling
        yield {"what": "log-probs", "contender": name, "positions": list(rows), **numbers}


if __name__ == "__main__":
    main()
