"""What a vector environment returns at the end of an episode, in both of its ways."""

import gymnasium
import pytest
import torch
from gymnasium.vector import AutoresetMode
from torch import nn

from nbcourse.agents.trajectories import Simulation, collect
from tests.agents.environments import Corridor, vector

MODES = [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP]


class AlwaysRight(nn.Module):
    def logits(self, observations: torch.Tensor) -> torch.Tensor:
        return torch.tensor([-100.0, 100.0]).expand(len(observations), 2)


class AlwaysStays(nn.Module):
    def logits(self, observations: torch.Tensor) -> torch.Tensor:
        return torch.tensor([100.0, -100.0]).expand(len(observations), 2)


def walk(network, *, steps, mode, length=3, limit=100, count=1):
    simulation = Simulation(vector(Corridor, count, mode, length=length, limit=limit))
    simulation.restart(seed=0)
    trajectory = collect(
        network, simulation, steps=steps, generator=torch.Generator().manual_seed(0)
    )
    return simulation, trajectory


def kept(trajectory, name: str) -> list:
    return getattr(trajectory, name)[trajectory.mask].flatten().tolist()


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("how", ["terminated", "truncated"])
def test_the_state_after_the_last_step_is_the_final_one_and_not_the_next_beginning(mode, how):
    """Cells 0, 1, 2 and then 3, by the rule or by the clock; never 0."""
    length, limit = (3, 100) if how == "terminated" else (50, 3)
    _, trajectory = walk(AlwaysRight(), steps=8, mode=mode, length=length, limit=limit)
    assert kept(trajectory, "observations")[:6] == [0, 1, 2, 0, 1, 2]
    assert kept(trajectory, "next_observations")[:6] == [1, 2, 3, 1, 2, 3]
    assert kept(trajectory, "rewards")[:6] == [1, 2, 3, 1, 2, 3]
    other = "truncated" if how == "terminated" else "terminated"
    assert kept(trajectory, how)[:6] == [False, False, True] * 2
    assert not any(kept(trajectory, other))


def test_a_row_that_only_resets_is_no_step():
    """NEXT_STEP: three steps and a reset, twice; SAME_STEP: eight steps."""
    simulation, trajectory = walk(AlwaysRight(), steps=8, mode=AutoresetMode.NEXT_STEP)
    assert trajectory.mask.flatten().tolist() == [True, True, True, False] * 2
    assert simulation.steps == 6
    assert type(simulation.steps) is int  # it goes into records
    assert simulation.returns == [6.0, 6.0]
    simulation, trajectory = walk(AlwaysRight(), steps=8, mode=AutoresetMode.SAME_STEP)
    assert trajectory.mask.all()
    assert simulation.steps == 8
    assert simulation.returns == [6.0, 6.0]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_a_trajectory_goes_on_where_the_last_one_stopped(mode):
    simulation, first = walk(AlwaysRight(), steps=4, mode=mode)
    generator = torch.Generator().manual_seed(0)
    second = collect(AlwaysRight(), simulation, steps=4, generator=generator)
    _, at_once = walk(AlwaysRight(), steps=8, mode=mode)
    for name in ("observations", "next_observations", "rewards", "mask", "terminated"):
        both = torch.cat([getattr(first, name), getattr(second, name)])
        assert both.equal(getattr(at_once, name)), name


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_whole_episodes_are_one_from_each_environment(mode):
    class Both(nn.Module):
        """Right in the first environment, staying in the second."""

        def logits(self, observations):
            return torch.tensor([[-100.0, 100.0], [100.0, -100.0]])

    simulation, trajectory = walk(Both(), steps=None, mode=mode, limit=7, count=2)
    assert trajectory.mask.sum(0).tolist() == [3, 7]
    assert trajectory.terminated[2, 0]
    assert trajectory.truncated[6, 1]
    assert trajectory.mask[:3, 0].all()
    # 1 + 2 + 3 and 7 · 1; what the first one played in the meantime, to its end, is no third
    assert simulation.returns == [6.0, 7.0]


def test_environments_that_cannot_be_learned_on_are_refused():
    with pytest.raises(ValueError, match="envs has the action space Box"):
        Simulation(gymnasium.make_vec("Pendulum-v1", num_envs=1, vectorization_mode="sync"))
    with pytest.raises(ValueError, match="expected one that resets"):
        Simulation(vector(Corridor, 1, AutoresetMode.DISABLED, length=3, limit=9))
    discrete = gymnasium.make_vec("Taxi-v4", num_envs=1, vectorization_mode="sync")
    with pytest.raises(ValueError, match="envs has the observation space"):
        Simulation(discrete)
