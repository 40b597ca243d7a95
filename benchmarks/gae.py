"""Token GAE: the package's blocked scan against the loops that other libraries use.

    python benchmarks/gae.py

All compute the same thing: masked positions, interior ones too, are skipped.

- *torch*: the textbook recursion, one column of (B, T) at a time, as verl's
  `compute_gae_advantage_return` and TRL's PPO trainer write it.
- *torch, time-major*: the same on (T, B), whose rows lie together in memory.
- *NumPy*: the same in NumPy on (T, B), which has less to do around each operation than torch.
- *torchrl*: its vectorised `vec_generalized_advantage_estimate`, where it is installed. It knows no
  holes, so it is asked for padding only.

Each is timed in turn with ours, on one thread, after a warm-up; what counts is the ratio of a pair,
not a time.
"""

import importlib.util
from collections.abc import Callable

import numpy as np
import torch
from _pairs import in_turn
from torch import Tensor

from nbcourse.functional.returns import token_gae

PAIRS = 15
GAMMA, LAM = 1.0, 0.95


def recursion(rewards, values, keep, advantages) -> None:
    """Generalised advantage estimation from the last row of time-major arrays to the first.

    `advantages` is written; all four are NumPy arrays or tensors (T, B), `keep` of zeros and ones.
    """
    next_value = running = values[-1] * 0
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + GAMMA * next_value - values[t]
        candidate = delta + GAMMA * LAM * running
        left_out = 1 - keep[t]
        next_value = values[t] * keep[t] + left_out * next_value
        running = candidate * keep[t] + left_out * running
        advantages[t] = running


def torch_loop(rewards: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    advantages = torch.empty_like(rewards)
    recursion(rewards.T, values.T, mask.to(values.dtype).T, advantages.T)
    return advantages


def time_major_loop(rewards: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    given = (x.T.contiguous() for x in (rewards, values, mask.to(values.dtype)))
    advantages = torch.empty_like(rewards.T).contiguous()
    recursion(*given, advantages)
    return advantages.T.contiguous()


def numpy_loop(rewards: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    given = [np.ascontiguousarray(x.numpy().T) for x in (rewards, values, mask.to(values.dtype))]
    advantages = np.empty_like(given[0])
    recursion(*given, advantages)
    return torch.from_numpy(np.ascontiguousarray(advantages.T))


def torchrl_scan(rewards: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    from torchrl.objectives.value.functional import vec_generalized_advantage_estimate

    values = values * mask
    next_values = torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], dim=1)
    done = torch.zeros_like(mask)
    done[:, -1] = True
    given = (x[..., None] for x in (values, next_values, rewards * mask, done, done))
    return vec_generalized_advantage_estimate(GAMMA, LAM, *given)[0].squeeze(-1) * mask


def scan(rewards: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    return token_gae(rewards, values, mask, gamma=GAMMA, lam=LAM)[0]


def batch(rows: int, columns: int, *, holes: bool) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    rewards, values = torch.randn(2, rows, columns, generator=generator)
    lengths = torch.randint(columns // 2, columns + 1, (rows, 1), generator=generator)
    mask = torch.arange(columns) < lengths
    if holes:
        mask &= torch.rand(rows, columns, generator=generator) > 0.1
    return rewards, values, mask


def contenders(*, holes: bool) -> dict[str, Callable]:
    found = {"torch": torch_loop, "torch, time-major": time_major_loop, "NumPy": numpy_loop}
    if not holes and importlib.util.find_spec("torchrl"):
        found["torchrl"] = torchrl_scan
    return found


def main() -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, 1 thread, {PAIRS} pairs, medians [least, most]")
    heads = f"{'shape':>12} {'mask':>8} {'peer':>18} {'peer ms':>8} {'ours ms':>8}"
    print(f"{heads} {'ratio':>20}  errors")
    for rows, columns in ((256, 1024), (64, 8192)):
        for holes in (False, True):
            data = rewards, values, mask = batch(rows, columns, holes=holes)
            exact = torch_loop(rewards.double(), values.double(), mask)
            for name, peer in contenders(holes=holes).items():
                pairs = in_turn(peer, scan, *data, pairs=PAIRS)
                peer_ms, our_ms = pairs.milliseconds()
                errors = [((f(*data) - exact) * mask).abs().max().item() for f in (peer, scan)]
                print(
                    f"{(rows, columns)!s:>12} {'holes' if holes else 'padding':>8} {name:>18} "
                    f"{peer_ms:8.1f} {our_ms:8.2f} {pairs.ratio:>20}"
                    f"  {errors[0]:.1e} / {errors[1]:.1e}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
