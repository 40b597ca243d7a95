"""Agents for Gymnasium's vector environments: vanilla policy gradient to PPO, one row each."""

from nbcourse.agents.loop import Trained, evaluate, train
from nbcourse.agents.table import AGENTS, Agent

__all__ = ["AGENTS", "Agent", "Trained", "evaluate", "train"]
