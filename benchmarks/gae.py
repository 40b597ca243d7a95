"""Token GAE: the package's blocked scan against the time loop that most libraries use.

    python benchmarks/gae.py

Both compute the same thing: masked positions, interior ones too, are skipped. The reference loop is
the textbook recursion on the compressed sequence, one column at a time, as verl's
`compute_gae_advantage_return` and TRL's PPO trainer write it. The two are timed in turn, on one
thread, after a warm-up; what counts is the ratio of a pair, not a time.
"""

import torch
from _pairs import in_turn
from torch import Tensor

from nbcourse.functional.returns import token_gae

PAIRS = 15
GAMMA, LAM = 1.0, 0.95


def time_loop(rewards: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation, from the last column to the first."""
    keep = mask.to(values.dtype)
    next_value = running = torch.zeros_like(values[:, 0])
    reversed_advantages = []
    for t in reversed(range(rewards.shape[1])):
        delta = rewards[:, t] + GAMMA * next_value - values[:, t]
        candidate = delta + GAMMA * LAM * running
        next_value = values[:, t] * keep[:, t] + (1 - keep[:, t]) * next_value
        running = candidate * keep[:, t] + (1 - keep[:, t]) * running
        reversed_advantages.append(running)
    advantages = torch.stack(reversed_advantages[::-1], dim=1)
    return advantages, advantages + values


def scan(rewards: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    return token_gae(rewards, values, mask, gamma=GAMMA, lam=LAM)


def batch(rows: int, columns: int, *, holes: bool) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    rewards, values = torch.randn(2, rows, columns, generator=generator)
    lengths = torch.randint(columns // 2, columns + 1, (rows, 1), generator=generator)
    mask = torch.arange(columns) < lengths
    if holes:
        mask &= torch.rand(rows, columns, generator=generator) > 0.1
    return rewards, values, mask


def main() -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, 1 thread, {PAIRS} pairs, medians [least, most]")
    print(f"{'shape':>12} {'mask':>8} {'loop ms':>9} {'scan ms':>9} {'ratio':>22}  error loop/scan")
    for rows, columns in ((256, 1024), (64, 8192)):
        for holes in (False, True):
            data = batch(rows, columns, holes=holes)
            pairs = in_turn(time_loop, scan, *data, pairs=PAIRS)
            loop_ms, scan_ms = pairs.milliseconds()
            rewards, values, mask = data
            exact = time_loop(rewards.double(), values.double(), mask)[0]
            errors = [
                ((function(*data)[0] - exact) * mask).abs().max().item()
                for function in (time_loop, scan)
            ]
            print(
                f"{(rows, columns)!s:>12} {'holes' if holes else 'padding':>8} "
                f"{loop_ms:9.1f} {scan_ms:9.2f} {pairs.ratio:>22}"
                f"  {errors[0]:.1e} / {errors[1]:.1e}"
            )


if __name__ == "__main__":
    main()
