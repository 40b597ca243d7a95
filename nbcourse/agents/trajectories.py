"""Steps of a vector environment, with what followed each of them kept apart from the next episode.

A vector environment begins a new episode by itself, in one of two ways (Gymnasium's
`AutoresetMode`). SAME_STEP returns the first observation of the new episode in place of the last
one of the old, which is found under `final_obs`. NEXT_STEP returns the last one, ignores the next
action and answers it with the first observation and a reward of 0: a row that is no step at all.
"""

from dataclasses import dataclass, field, fields

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from nbcourse.agents.networks import MLPActorCritic


@dataclass(frozen=True)
class Trajectory:
    """T steps of N environments, time first.

    Attributes:
        observations: (T, N, O) the state acted in.
        next_observations: (T, N, O) the state that followed: at the end of an episode its final
            one, never the first of the next.
        actions: (T, N) integers.
        logits: (T, N, K) of the policy that acted.
        rewards: (T, N).
        terminated: (T, N) bool, the environment is over.
        truncated: (T, N) bool, a clock cut it off.
        mask: (T, N) bool, False where a row only resets, or comes after the one episode asked for.
    """

    observations: Tensor
    next_observations: Tensor
    actions: Tensor
    logits: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    mask: Tensor


@dataclass
class Simulation:
    """A vector environment and where it stands.

    Attributes:
        envs: the environment.
        observation: (N, O) what the agent sees now.
        resetting: (N,) bool, where the next step only begins a new episode.
        steps: environment steps made so far, resets not counted.
        returns: undiscounted return of every finished episode that counts.
        running: (N,) float64 array, return of the episodes under way.
    """

    envs: VectorEnv
    observation: Tensor = field(init=False)
    resetting: Tensor = field(init=False)
    running: np.ndarray = field(init=False)
    steps: int = 0
    returns: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        actions, observations = self.envs.single_action_space, self.envs.single_observation_space
        if not isinstance(actions, Discrete) or actions.start != 0:
            raise ValueError(f"envs has the action space {actions}, expected Discrete from 0 on")
        if not isinstance(observations, Box):
            raise ValueError(f"envs has the observation space {observations}, expected a Box")
        if self.mode not in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP):
            raise ValueError(f"envs has the autoreset mode {self.mode}, expected one that resets")

    @property
    def mode(self) -> AutoresetMode:
        """How a new episode begins."""
        return self.envs.metadata["autoreset_mode"]

    def restart(self, seed: int | None = None) -> None:
        """Begin a new episode everywhere; a seed is handed on, None goes on with the old one."""
        observation, _ = self.envs.reset(seed=seed)
        self.observation = _rows(observation)
        self.resetting = torch.zeros(self.envs.num_envs, dtype=torch.bool)
        self.running = np.zeros(self.envs.num_envs)

    def step(self, actions: Tensor, counted: Tensor | None = None) -> dict[str, Tensor]:
        """Act everywhere; what came of it, named as in `Trajectory`.

        Args:
            actions: (N,) integers.
            counted: (N,) bool, where an episode that ends now adds its return to `returns`; None
                means everywhere.
        """
        observation, rewards, terminated, truncated, infos = self.envs.step(actions.numpy())
        real, before = ~self.resetting, self.observation
        ended = terminated | truncated
        self.observation = following = _rows(observation)
        if self.mode is AutoresetMode.SAME_STEP:
            following = following.clone()
            for i in ended.nonzero()[0]:
                following[i] = _rows(infos["final_obs"][i][None])[0]
        else:
            self.resetting = torch.from_numpy(ended)

        self.steps += int(np.count_nonzero(real.numpy()))
        # in NumPy, as the environment gives it: a step of CartPole is shorter than a few calls of
        # torch on so small a tensor
        self.running += rewards
        if ended.any():
            kept = ended if counted is None else ended & counted.numpy()
            self.returns += self.running[kept].tolist()
            self.running[ended] = 0.0
        return {
            "observations": before,
            "next_observations": following,
            "rewards": torch.tensor(rewards, dtype=torch.float32),
            "terminated": torch.tensor(terminated),
            "truncated": torch.tensor(truncated),
            "mask": real,
        }


@torch.no_grad()
def collect(
    network: MLPActorCritic,
    simulation: Simulation,
    *,
    steps: int | None,
    generator: torch.Generator,
) -> Trajectory:
    """Let the policy act.

    Args:
        network: its actor chooses.
        simulation: the environment; goes on from where it stands.
        steps: T; None plays one whole new episode in each environment. Those that are done early
            go on in rows under a False mask, and what they play there counts for no return: to fill
            up with more episodes would favour short ones.
        generator: of the actions.
    """
    if steps is None:
        simulation.restart()
    rows: list[dict[str, Tensor]] = []
    playing = torch.ones_like(simulation.resetting)
    while len(rows) < steps if steps is not None else playing.any():
        logits = network.logits(simulation.observation)
        actions = sample(logits, generator)
        row = {"actions": actions, "logits": logits, **simulation.step(actions, playing)}
        if steps is None:
            row["mask"] = row["mask"] & playing
            playing = playing & ~(row["terminated"] | row["truncated"])
        rows.append(row)
    names = [f.name for f in fields(Trajectory)]
    return Trajectory(**{name: torch.stack([row[name] for row in rows]) for name in names})


def sample(logits: Tensor, generator: torch.Generator) -> Tensor:
    """(N, K) → (N,): an action from each row."""
    return torch.multinomial(logits.softmax(dim=-1), 1, generator=generator).squeeze(-1)


def _rows(observation) -> Tensor:
    """(N, O) float32, copied: environments may write into their own arrays again."""
    return torch.tensor(observation, dtype=torch.float32).flatten(start_dim=1)
