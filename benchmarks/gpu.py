"""What a GPU reaches with the 0.5B model of the recipes, beside what its roofline allows.

    python benchmarks/gpu.py [throughput.jsonl] [--rows 64 512] [--tokens 128] [--compiled]

Random weights in the shape of Qwen2.5-0.5B, products in bfloat16, random prompts of 128 tokens;
nothing ends early, so that every contender does the same work. A line of JSON for each measurement:

- the machine: bandwidth of a large copy, and FLOP/s of large matrix products;
- sampling with a group size of 8: our engines, and `model.generate` of transformers with the
  dynamic cache, whose weights are in bfloat16 (with `--compiled`, with the static cache as well,
  which it compiles). Ours record the log-probs; `generate` keeps the scores of all tokens for them,
  and is asked only where those fit;
- learning from responses of 384 tokens: forward and backward pass through the layers of
  transformers, through packed ones, and with recomputation, by rows at once; a step of AdamW;
- log-probs from logits, forward and backward, and the memory they take beside the logits;
- kernels: how many are started, and which take longest, in sampling and in learning;
- pieces: learning and log-probs with smaller and larger pieces of logits;
- attention: learning with cuDNN's kernels, and how many numbers of a gradient they make NaN.

The first round warms up. Contenders for log-probs come in turn, others one after the other. Chapter
15 shows the numbers.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from torch import Tensor
from torch.nn import functional

from nbcourse.budget import machines
from nbcourse.budget.passes import decoding_bytes, layer_flops, output_flops, scoring
from nbcourse.budget.shapes import PUBLISHED, Shape, random_model
from nbcourse.lm import engines, log_probs, sampling
from nbcourse.lm.attention import attend_without_cudnn
from nbcourse.lm.casting import cast_once
from nbcourse.lm.forwards import FORWARDS
from nbcourse.lm.rollouts import Rollout
from nbcourse.training.processes import own_device

PROMPT, GROUP, LEARNED = 128, 8, 384
PRECISION = "bfloat16"
PARTS = ["learning", "log-probs", "sampling", "kernels", "pieces", "attention"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, nargs="?", help="file that the lines go to as well")
    parser.add_argument("--rows", type=int, nargs="+", default=[64, 512], help="sampled at once")
    parser.add_argument("--tokens", type=int, default=128, help="of each of them")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--compiled", action="store_true", help="generate with the static cache")
    parser.add_argument("--width", type=int, help="of a smaller model, to try the script")
    chosen = parser.parse_args()
    device, shape = own_device(), PUBLISHED["Qwen/Qwen2.5-0.5B-Instruct"]
    if device.type == "cpu" and not chosen.width:
        print("no GPU: nothing is measured; --width 64 tries the script with a tiny model")
        return
    if chosen.width:
        shape = Shape(2, chosen.width, 4, 2, chosen.width, 10_240, tied=True)
    attend_without_cudnn()
    model = random_model(shape, end=0).to(device)
    with chosen.out.open("w", encoding="utf-8") if chosen.out else nullcontext() as out:

        def keep(what: str, **numbers: object) -> None:
            line = json.dumps({"what": what, **numbers})
            print(line, flush=True)
            if out:
                print(line, file=out, flush=True)

        machine = machines.measure(device, ["float32", PRECISION])
        keep("machine", **asdict(machine))
        rows = [8] if chosen.width else [8, 32, 64]
        parts = {
            "learning": [partial(learning, model, machine, rows)],
            "log-probs": [partial(from_logits, shape.vocabulary, device)],
            "sampling": [partial(drawing, model, machine, rows, chosen) for rows in chosen.rows],
            "kernels": [partial(kernels, model, rows[-1])],
            "pieces": [partial(pieces, model, machine, rows[-1])],
            "attention": [partial(attention, model, machine, rows[-1])],
        }
        for name in chosen.parts:
            for part in parts[name]:
                for numbers in part():
                    keep(**numbers)


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


def job_of(model, rows: int, tokens: int) -> engines.Job:
    source = torch.Generator(model.device).manual_seed(0)
    ids = torch.randint(
        model.config.vocab_size, (rows // GROUP, PROMPT), generator=source, device=model.device
    )
    return engines.Job(
        ids,
        torch.ones_like(ids, dtype=torch.bool),
        group_size=GROUP,
        max_new_tokens=tokens,
        temperature=1.0,
        generator=source,
        ends=torch.tensor([-1], device=model.device),
        padding=0,
    )


@torch.no_grad()
def write(model, job: engines.Job, engine: str) -> None:
    with torch.autocast(model.device.type, torch.bfloat16), cast_once(model):
        sampling.ENGINES[engine](model, job)


def drawing(
    model, machine: machines.Machine, rows: int, chosen: argparse.Namespace
) -> Iterator[dict]:
    job, device, shape = job_of(model, rows, chosen.tokens), model.device, Shape.of(model.config)
    half = random_model(shape, end=0, dtype=torch.bfloat16).to(device)
    scores = machines.FLOAT32 * rows * chosen.tokens * shape.vocabulary < machine.memory / 8

    @torch.no_grad()
    def generate(**cache: object) -> None:
        output = half.generate(
            job.prompt_ids,
            attention_mask=job.prompt_mask.long(),
            do_sample=True,
            top_k=0,
            num_return_sequences=GROUP,
            max_new_tokens=chosen.tokens,
            min_new_tokens=chosen.tokens,
            return_dict_in_generate=True,
            output_scores=scores,
            **cache,
        )
        if scores:
            half.compute_transition_scores(output.sequences, output.scores, normalize_logits=True)

    contenders: dict[str, Callable[[], object]] = {
        **{engine: partial(write, model, job, engine) for engine in reversed(sampling.ENGINES)},
        "generate": generate,
    }
    if chosen.compiled:
        contenders["generate, static cache"] = partial(generate, cache_implementation="static")
    columns = range(PROMPT + 1, PROMPT + chosen.tokens)
    moved = sum(decoding_bytes(shape, rows, c, PRECISION) for c in columns)
    for name, work in contenders.items():
        try:
            numbers = in_turn({name: work}, chosen.rounds)[name]
        except Exception as error:  # what fails is recorded, and the others are measured
            yield {"what": "sampling", "engine": name, "rows": rows, "error": repr(error)[:500]}
            continue
        yield {
            "what": "sampling",
            "engine": name,
            "rows": rows,
            "prompt": PROMPT,
            "tokens": chosen.tokens,
            "log_probs": scores or not name.startswith("generate"),
            **numbers,
            "tokens_per_second": rows * chosen.tokens / numbers["seconds"],
            "of_roofline": moved / machine.bandwidth / numbers["seconds"],
        }


def kernels(model, rows: int) -> Iterator[dict]:
    """How many kernels are started, and which take the GPU's time."""
    from torch.profiler import ProfilerActivity, profile

    if model.device.type != "cuda":
        return
    job, rollout = job_of(model, 8 * rows, 16), rollout_of(model, rows)
    work = {
        name: partial(write, model, job, name)
        for name in ("eager", "static-graphs", "packed-graphs")
    }
    for name in FORWARDS:
        work[f"learning, {name}"] = partial(backward, model, rollout, forward=name)
    for name, call in work.items():
        call()
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
            call()
            torch.cuda.synchronize()
        started = sum("Launch" in event.name for event in seen.events())
        yield {"what": "kernels", "work": name, "started": started, "longest": longest(seen)}


def longest(seen, count: int = 25) -> list[list]:
    """The kernels that take longest: name, milliseconds, how often."""
    found = [event for event in seen.key_averages() if event.device_type.name == "CUDA"]
    found.sort(key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in found) / 1e3
    return [
        ["all", total, sum(event.count for event in found)],
        *([e.key[:90], e.self_device_time_total / 1e3, e.count] for e in found[:count]),
    ]


# ---------------------------------------------------------------- learning


def rollout_of(model, rows: int) -> Rollout:
    source, device = torch.Generator(model.device).manual_seed(1), model.device
    vocabulary = model.config.vocab_size
    prompts = torch.randint(vocabulary, (rows // GROUP, PROMPT), generator=source, device=device)
    prompts = prompts.repeat_interleave(GROUP, dim=0)
    tokens = torch.randint(vocabulary, (rows, LEARNED), generator=source, device=device)
    return Rollout(
        prompt_ids=prompts,
        prompt_mask=torch.ones_like(prompts, dtype=torch.bool),
        tokens=tokens,
        mask=torch.ones_like(tokens, dtype=torch.bool),
        log_probs=torch.zeros(tokens.shape, device=device),
        truncated=torch.ones(rows, dtype=torch.bool, device=device),
    )


def backward(model, rollout: Rollout, group: int = GROUP, forward: str = "transformers") -> None:
    with torch.autocast(model.device.type, torch.bfloat16):
        states = log_probs.rollout_states(
            model, rollout, group_size=group, forward=FORWARDS[forward]
        )
        found = log_probs.state_log_probs(states, model.get_output_embeddings().weight, rollout)
    found.mean().backward()


def learning_step(
    model, machine: machines.Machine, rows: int, group: int = GROUP, forward: str = "transformers"
) -> dict:
    """Forward and backward; the prompts are shared in a group, where there is more than one row."""
    shape, rollout = Shape.of(model.config), rollout_of(model, rows)
    numbers = in_turn({"step": partial(backward, model, rollout, group, forward)}, 3)["step"]
    model.zero_grad(set_to_none=True)
    passes = scoring(rows // group, group, PROMPT, LEARNED, chunked=True)
    flops = 3 * sum(layer_flops(shape, each) + output_flops(shape, each) for each in passes)
    return {
        "what": "learning",
        "rows": rows,
        "prompt": PROMPT,
        "tokens": LEARNED,
        "checkpointing": group == 1,
        "forward": forward,
        **numbers,
        "tokens_per_second": rows * LEARNED / numbers["seconds"],
        "model_flops": flops,
        "of_matrix_peak": flops / numbers["seconds"] / machine.speed[PRECISION],
    }


def learning(model, machine: machines.Machine, rows: list[int]) -> Iterator[dict]:
    for count, forward in product(rows, FORWARDS):
        try:
            yield learning_step(model, machine, count, forward=forward)
        except Exception as error:  # what fails is recorded, and the others are measured
            yield {
                "what": "learning",
                "forward": forward,
                "rows": count,
                "error": repr(error)[:500],
            }
    model.train()
    model.activation_checkpointing_enable({"use_reentrant": False})
    for count in rows:
        yield learning_step(model, machine, count, group=1)  # as the learner does it
    model.activation_checkpointing_disable()
    model.eval()
    weights = list(model.parameters())
    optimiser = torch.optim.AdamW(weights, lr=1e-6, fused=True)
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    numbers = in_turn({"update": optimiser.step}, 3)["update"]
    moved = 7 * machines.FLOAT32 * sum(weight.numel() for weight in weights)
    of_roofline = moved / machine.bandwidth / numbers["seconds"]
    yield {"what": "update", **numbers, "of_roofline": of_roofline}
    optimiser.zero_grad(set_to_none=True)


def pieces(model, machine: machines.Machine, rows: int) -> Iterator[dict]:
    usual = log_probs.ON_A_CARD
    for times in (16, 64, 128, 256):
        log_probs.ON_A_CARD = times
        yield {"times": times, **learning_step(model, machine, rows)}
        ours, *_ = from_logits(model.config.vocab_size, model.device)
        yield {"times": times, **ours}
    log_probs.ON_A_CARD = usual


def attention(model, machine: machines.Machine, rows: int) -> Iterator[dict]:
    """Learning with cuDNN's attention, and its gradient for the keys that PyTorch's issue gives."""
    torch.backends.cuda.enable_cudnn_sdp(True)
    yield {"cudnn": True, **learning_step(model, machine, rows)}
    for length in (384, 448, 512, 704):
        found = {}
        for cudnn in (True, False):
            torch.backends.cuda.enable_cudnn_sdp(cudnn)
            found["cudnn" if cudnn else "others"] = not_finite(length, model.device)
        yield {"what": "not finite", "length": length, **found}


def not_finite(length: int, device: torch.device, size: int = 64) -> int:
    """Numbers in the queries' gradient that are not finite, where all scores are about -120."""
    source = torch.Generator(device).manual_seed(0)
    query, key, value = torch.randn(3, 1, 1, length, size, generator=source, device=device).mul_(
        torch.tensor([0.1, 0.1, 1.0], device=device).view(3, 1, 1, 1, 1)
    )
    query[..., 0], key[..., 0] = 1.0, -120 * size**0.5
    query = query.bfloat16().requires_grad_()
    mask = torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]
    output = functional.scaled_dot_product_attention(
        query, key.bfloat16(), value.bfloat16(), attn_mask=mask
    )
    (gradient,) = torch.autograd.grad(output.sum(), query)
    return int((~gradient.isfinite()).sum())


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
