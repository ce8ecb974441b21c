"""The plain rule, in which every update is the optimizer's and is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from runner.data.datasets import Split
from runner.gradients import Objective
from runner.training.evaluate import Evaluation
from runner.training.updates.interface import Parts, UpdateRule
from runner.training.updates.schedule import Schedule


class Plain(UpdateRule):
    """The rule of a run whose config names none."""

    column_names = ()

    def updates(self, run: Parts, objective: Objective, aside: Sequence[Split]) -> PlainUpdates:
        optimizer = run.optimizer(objective)
        return PlainUpdates(optimizer, objective.project, run.schedule(optimizer))


class PlainUpdates:
    """The optimizer's steps, each followed by `project`, which projects the weights onto their constraint."""

    finished = False
    seconds = 0.0

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        project: Callable[[], None] = lambda: None,
        schedule: Schedule | None = None,
    ) -> None:
        self.optimizer = optimizer
        self._project, self._schedule = project, schedule or Schedule(None)

    def start_epoch(self) -> None:
        """Set the learning rate of the epoch."""
        self._schedule.start_epoch()

    def step(self) -> bool:
        self._schedule.start_step()
        self.optimizer.step()
        self._project()
        return True

    def columns(self, reported: Evaluation) -> dict[str, float]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "schedule": self._schedule.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._schedule.load_state_dict(state["schedule"])
        self.optimizer.load_state_dict(state["optimizer"])
