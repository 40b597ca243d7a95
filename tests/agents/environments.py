"""Environments so small that every value is known."""

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv


class Corridor(gymnasium.Env):
    """Cells 0 … length − 1. Action 1 goes right, 0 stays; every step pays 1 + the cell it leaves.

    Past the last cell the episode is terminated; a clock truncates it after `limit` steps. So the
    way of the policy that always goes right is known, and so is all that it is paid.
    """

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(-100.0, 100.0, (1,), np.float32)

    def __init__(self, length: int, limit: int) -> None:
        self.length, self.limit = length, limit

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = self.time = 0
        return np.array([0.0], np.float32), {}

    def step(self, action):
        reward = 1.0 + self.cell
        self.cell += int(action)
        self.time += 1
        terminated = self.cell == self.length
        truncated = not terminated and self.time == self.limit
        return np.array([self.cell], np.float32), reward, terminated, truncated, {}


class Choice(gymnasium.Env):
    """Which of two sides is lit? Five questions; a right answer pays 1."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.look(), {}

    def look(self):
        self.side = int(self.np_random.integers(2))
        return np.array([2.0 * self.side - 1.0], np.float32)

    def step(self, action):
        reward = float(action == self.side)
        self.time += 1
        return self.look(), reward, self.time == 5, False, {}


def vector(
    make, count: int, mode: AutoresetMode | str = AutoresetMode.SAME_STEP, **arguments
) -> SyncVectorEnv:
    return SyncVectorEnv([lambda: make(**arguments)] * count, autoreset_mode=mode)
