"""Log-probs of chosen tokens: the package against TRL, from logits and from hidden states.

    python benchmarks/log_probs.py

Four responses of 512 tokens and the vocabulary of Qwen2.5 (151,936), float32, forward and backward,
2 threads; hidden states of width 896, from which the logits are never whole. Each measurement runs
in a process of its own, the two libraries in turn; extra memory is the peak of the process less
what it held before the call, logits and all.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from statistics import median

from _pairs import Pairs, seconds

PAIRS = 5
SHAPE = (4, 512, 151_936)
WIDTH = 896
FROM_LOGITS = ("TRL selective_log_softmax", "nbcourse token_log_probs")
FROM_HIDDEN = ("TRL ChunkedLogProbFunction", "nbcourse hidden_log_probs")


def function(name: str) -> Callable:
    """The contender, imported when it is its turn."""
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
    from nbcourse.lm import log_probs

    if name == "nbcourse token_log_probs":
        return partial(log_probs.token_log_probs, consume=True)
    return log_probs.hidden_log_probs


def measure(name: str) -> dict[str, float]:
    """Seconds and MiB of one forward and backward pass, in this process."""
    import torch

    torch.set_num_threads(2)
    contender = function(name)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(SHAPE[-1], SHAPE[:-1], generator=generator)
    if name in FROM_LOGITS:
        inputs = [torch.empty(SHAPE).normal_(generator=generator)]
    else:
        inputs = [
            torch.empty(*SHAPE[:-1], WIDTH).normal_(generator=generator),
            torch.empty(SHAPE[-1], WIDTH).normal_(0, WIDTH**-0.5, generator=generator),
        ]
    small = [inputs[0][:1, :8].clone().requires_grad_(), *inputs[1:]]
    torch.autograd.grad(contender(*small, tokens[:1, :8]).sum(), small[0])  # warm-up
    for tensor in inputs:
        tensor.requires_grad_()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    elapsed = seconds(lambda: torch.autograd.grad(contender(*inputs, tokens).sum(), inputs))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": elapsed, "MiB": (after - before) / 1024}


def in_a_process(name: str) -> dict[str, float]:
    command = [sys.executable, __file__, name]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def compare(contenders: tuple[str, str]) -> None:
    runs = [{name: in_a_process(name) for name in contenders} for _ in range(PAIRS)]
    for name in contenders:
        times = sorted(run[name]["seconds"] for run in runs)
        memory = median(run[name]["MiB"] for run in runs)
        spread = f"[{times[0]:.2f}, {times[-1]:.2f}]"
        print(f"{name:28} {median(times):6.2f} s {spread}  {memory:6.0f} MiB extra")
    pairs = Pairs(*([run[name]["seconds"] for run in runs] for name in contenders))
    print(f"faster by {pairs.ratio}")


def main() -> None:
    compare(FROM_LOGITS)
    compare(FROM_HIDDEN)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
    else:
        main()
