"""Log-probs of chosen tokens: the package against TRL's `selective_log_softmax`.

    python benchmarks/log_probs.py

Four responses of 512 tokens and the vocabulary of Qwen2.5 (151,936), float32, forward and backward,
2 threads. Each measurement runs in a process of its own, the two libraries in turn; extra memory is
the peak of the process less what it held before the call, logits and all.
"""

import json
import resource
import subprocess
import sys
from functools import partial
from statistics import median

from _pairs import Pairs, seconds

PAIRS = 5
SHAPE = (4, 512, 151_936)
CONTENDERS = ("TRL selective_log_softmax", "nbcourse token_log_probs")


def measure(name: str) -> dict[str, float]:
    """Seconds and MiB of one forward and backward pass, in this process."""
    import torch

    torch.set_num_threads(2)
    if name.startswith("TRL"):
        from trl.trainer.utils import selective_log_softmax as function
    else:
        from nbcourse.lm.log_probs import token_log_probs

        function = partial(token_log_probs, consume=True)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(SHAPE[-1], SHAPE[:-1], generator=generator)
    small = torch.zeros(1, 8, SHAPE[-1], requires_grad=True)
    torch.autograd.grad(function(small, tokens[:1, :8]).sum(), small)  # warm-up
    logits = torch.empty(SHAPE).normal_(generator=generator).requires_grad_()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    elapsed = seconds(lambda: torch.autograd.grad(function(logits, tokens).sum(), logits))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": elapsed, "MiB": (after - before) / 1024}


def in_a_process(name: str) -> dict[str, float]:
    command = [sys.executable, __file__, name]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    runs = [{name: in_a_process(name) for name in CONTENDERS} for _ in range(PAIRS)]
    for name in CONTENDERS:
        times = sorted(run[name]["seconds"] for run in runs)
        memory = median(run[name]["MiB"] for run in runs)
        spread = f"[{times[0]:.2f}, {times[-1]:.2f}]"
        print(f"{name:28} {median(times):6.2f} s {spread}  {memory:6.0f} MiB extra")
    pairs = Pairs(*([run[name]["seconds"] for run in runs] for name in CONTENDERS))
    print(f"faster by {pairs.ratio}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
    else:
        main()
