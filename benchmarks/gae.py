"""GAE, over tokens and over environments: blocked scans against the loops of other libraries.

    python benchmarks/gae.py

Over tokens all compute the same thing: masked positions, interior ones too, are skipped.

- *torch*: the textbook recursion, one column of (B, T) at a time, as verl's
  `compute_gae_advantage_return` and TRL's PPO trainer write it.
- *torch, time-major*: the same on (T, B), whose rows lie together in memory.
- *NumPy*: the same in NumPy on (T, B), which has less to do around each operation than torch.
- *torchrl*: its vectorised `vec_generalized_advantage_estimate`, where it is installed. It knows no
  holes, so it is asked for padding only.

Over environments, (T, N) with an episode's end in every fiftieth entry:

- *NumPy*: the loop over time, with all else before it.
- *NumPy, in place*: the same with the fewest operations a step that we found.
- *torch*: the loop as this package had it.
- *torchrl*: as above.

Then `n_step_returns` with n = T alone: its time should double with T.

Each is timed in turn with ours, on one thread, after a warm-up; what counts is the ratio of a pair,
not a time.
"""

import importlib.util
from collections.abc import Callable

import numpy as np
import torch
from _pairs import in_turn, seconds
from torch import Tensor

from nbcourse.functional.returns import env_gae, n_step_returns, token_gae

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


Tables = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def env_numpy(*tables: Tensor) -> Tensor:
    rewards, values, next_values, terminated, truncated = (x.numpy() for x in tables)
    delta = rewards + GAMMA * next_values * ~terminated - values
    going = ~(terminated | truncated)
    advantages, running = np.empty_like(delta), np.zeros_like(delta[0])
    for t in reversed(range(len(delta))):
        running = delta[t] + GAMMA * LAM * going[t] * running
        advantages[t] = running
    return torch.from_numpy(advantages)


def env_numpy_in_place(*tables: Tensor) -> Tensor:
    rewards, values, next_values, terminated, truncated = (x.numpy() for x in tables)
    advantages = rewards + GAMMA * np.where(terminated, 0, next_values) - values
    decays = np.where(terminated | truncated, 0, GAMMA * LAM).astype(advantages.dtype)
    for t in reversed(range(len(advantages) - 1)):
        advantages[t] += decays[t] * advantages[t + 1]
    return torch.from_numpy(advantages)


def env_torch(*tables: Tensor) -> Tensor:
    rewards, values, next_values, terminated, truncated = tables
    delta = rewards + GAMMA * torch.where(terminated, 0.0, next_values) - values
    ended = terminated | truncated
    advantages, running = torch.empty_like(delta), torch.zeros_like(delta[0])
    for t in reversed(range(len(delta))):
        running = delta[t] + GAMMA * LAM * torch.where(ended[t], 0.0, running)
        advantages[t] = running
    return advantages


def env_torchrl(*tables: Tensor) -> Tensor:
    from torchrl.objectives.value.functional import vec_generalized_advantage_estimate

    rewards, values, next_values, terminated, truncated = (x.T[..., None] for x in tables)
    given = (values, next_values, rewards, terminated | truncated, terminated)
    return vec_generalized_advantage_estimate(GAMMA, LAM, *given)[0].squeeze(-1).T


def env_scan(*tables: Tensor) -> Tensor:
    return env_gae(*tables, gamma=GAMMA, lam=LAM)[0]


def tables(steps: int, environments: int) -> Tables:
    generator = torch.Generator().manual_seed(0)
    rewards, values, next_values = torch.randn(3, steps, environments, generator=generator)
    terminated, truncated = torch.rand(2, steps, environments, generator=generator) < 0.01
    return rewards, values, next_values, terminated, truncated


def over_tokens() -> None:
    for rows, columns in ((256, 1024), (64, 8192)):
        for holes in (False, True):
            data = rewards, values, mask = batch(rows, columns, holes=holes)
            exact = torch_loop(rewards.double(), values.double(), mask)
            kind = "holes" if holes else "padding"
            for name, peer in contenders(holes=holes).items():
                compare((rows, columns), kind, name, peer, scan, data, exact, mask)


def over_environments() -> None:
    peers = {"NumPy": env_numpy, "NumPy, in place": env_numpy_in_place, "torch": env_torch}
    if importlib.util.find_spec("torchrl"):
        peers["torchrl"] = env_torchrl
    for shape in ((128, 8), (2048, 8), (128, 256), (1024, 256)):
        data = tables(*shape)
        exact = env_torch(*(x.double() if x.is_floating_point() else x for x in data))
        for name, peer in peers.items():
            compare(shape, "episodes", name, peer, env_scan, data, exact, torch.ones_like(data[3]))


def compare(shape, kind, name, peer, ours, data, exact, mask) -> None:
    pairs = in_turn(peer, ours, *data, pairs=PAIRS)
    peer_ms, our_ms = pairs.milliseconds()
    errors = [((f(*data) - exact) * mask).abs().max().item() for f in (peer, ours)]
    print(
        f"{shape!s:>12} {kind:>8} {name:>18} {peer_ms:8.2f} {our_ms:8.2f} {pairs.ratio:>20}"
        f"  {errors[0]:.1e} / {errors[1]:.1e}",
        flush=True,
    )


def n_step() -> None:
    for steps in (256, 512, 1024, 2048, 4096):
        rewards, values = torch.randn(8, steps), torch.randn(8, steps + 1)
        calls = [
            seconds(lambda r, v: n_step_returns(r, v, n=r.shape[1], gamma=0.99), rewards, values)
            for _ in range(PAIRS)
        ]
        print(f"n_step_returns, (8, {steps}), n = T: {1e3 * sorted(calls)[PAIRS // 2]:.2f} ms")


def main() -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, 1 thread, {PAIRS} pairs, medians [least, most]")
    heads = f"{'shape':>12} {'mask':>8} {'peer':>18} {'peer ms':>8} {'ours ms':>8}"
    print(f"{heads} {'ratio':>20}  errors")
    over_tokens()
    over_environments()
    n_step()


if __name__ == "__main__":
    main()
