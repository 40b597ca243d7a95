"""Log-probs of chosen tokens: the package against its peers, from logits and from hidden states.

    python benchmarks/log_probs.py [--vocabularies 32000 49152 151936] [--pairs 5]

Four responses of 512 tokens, float32, forward and backward, on one thread; hidden states of width
896. From logits the peers are the plain gather of `log_softmax`, `cross_entropy` and TRL's
`selective_log_softmax`; from hidden states a product with the whole matrix before our function,
PyTorch's `linear_cross_entropy` and TRL's `ChunkedLogProbFunction`. Each measurement runs in a
process of its own, the contenders in turn. Time is processor time; extra memory is the peak of the
process less what it held before the call, logits and all.
"""

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from statistics import median
from time import process_time

from _pairs import Pairs

ROWS = (4, 512)
WIDTH = 896
FROM_LOGITS = ("gather", "cross_entropy", "TRL selective_log_softmax", "nbcourse token_log_probs")
FROM_HIDDEN = (
    "product, then token_log_probs",
    "linear_cross_entropy",
    "TRL ChunkedLogProbFunction",
    "nbcourse hidden_log_probs",
)


def function(name: str) -> Callable:
    """The contender, imported when it is its turn."""
    from torch.nn import functional

    from nbcourse.lm import log_probs

    if name == "TRL selective_log_softmax":
        from trl.trainer.utils import selective_log_softmax

        return selective_log_softmax
    if name == "TRL ChunkedLogProbFunction":
        from trl.kernels import ChunkedLogProbFunction

        def chunked(hidden, weight, tokens):
            # The width of the vocabulary's chunks as TRL's trainers set it.
            rows = hidden.flatten(0, 1), weight, None, tokens.flatten()
            return ChunkedLogProbFunction.apply(*rows, 1.0, 8192, None, 1.0, ())[0]

        return chunked
    from_logits = partial(log_probs.token_log_probs, consume=True)
    return {
        "gather": lambda z, a: z.log_softmax(-1).gather(-1, a[..., None]).squeeze(-1),
        "cross_entropy": lambda z, a: functional.cross_entropy(
            z.flatten(0, 1), a.flatten(), reduction="none"
        ),
        "nbcourse token_log_probs": from_logits,
        "product, then token_log_probs": lambda h, w, a: from_logits(h @ w.T, a),
        "linear_cross_entropy": lambda h, w, a: functional.linear_cross_entropy(
            h.flatten(0, 1), w, a.flatten(), reduction="none"
        ),
        "nbcourse hidden_log_probs": log_probs.hidden_log_probs,
    }[name]


def measure(name: str, vocabulary: int) -> dict[str, float]:
    """Processor seconds and MiB of one forward and backward pass, in this process."""
    import torch

    torch.set_num_threads(1)
    contender = function(name)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(vocabulary, ROWS, generator=generator)
    if name in FROM_LOGITS:
        inputs = [torch.empty(*ROWS, vocabulary).normal_(generator=generator)]
    else:
        inputs = [
            torch.empty(*ROWS, WIDTH).normal_(generator=generator),
            torch.empty(vocabulary, WIDTH).normal_(0, WIDTH**-0.5, generator=generator),
        ]
    small = [inputs[0][:1, :8].clone().requires_grad_(), *inputs[1:]]
    torch.autograd.grad(contender(*small, tokens[:1, :8]).sum(), small[0])  # warm-up
    for tensor in inputs:
        tensor.requires_grad_()
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, process_time()
    torch.autograd.grad(contender(*inputs, tokens).sum(), inputs)
    elapsed, after = process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": elapsed, "MiB": (after - before) / 1024}


def in_a_process(name: str, vocabulary: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", name, "--vocabularies", str(vocabulary)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def compare(contenders: tuple[str, ...], vocabulary: int, pairs: int) -> None:
    runs = [{name: in_a_process(name, vocabulary) for name in contenders} for _ in range(pairs)]
    seconds = {name: [run[name]["seconds"] for run in runs] for name in contenders}
    *peers, ours = contenders
    for name in contenders:
        memory = median(run[name]["MiB"] for run in runs)
        ratio = f"{Pairs(seconds[name], seconds[ours]).ratio} times ours" if name in peers else ""
        print(
            f"{vocabulary:8,} {name:30} {median(seconds[name]):7.3f} s {memory:6.0f} MiB  {ratio}"
        )
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocabularies", type=int, nargs="+", default=[32_000, 49_152, 151_936])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--measure", choices=[*FROM_LOGITS, *FROM_HIDDEN], help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        print(json.dumps(measure(chosen.measure, chosen.vocabularies[0])))
        return
    for contenders in (FROM_LOGITS, FROM_HIDDEN):
        for vocabulary in chosen.vocabularies:
            compare(contenders, vocabulary, chosen.pairs)


if __name__ == "__main__":
    main()
