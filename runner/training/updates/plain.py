"""Every update is the optimizer's own, and counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from omegaconf import DictConfig

from runner.data.datasets import Split
from runner.gradients import Objective
from runner.mechanism.dp_sgd import Mechanism
from runner.training.evaluate import Evaluation


class Plain:
    """The rule of a run whose config names none; see `UpdateRule`."""

    takes_back, unstackable, evaluations_per_step, share_name = False, None, 0.0, None

    def check(self, mechanism: Mechanism) -> None:
        """Accept any mechanism."""

    def most_steps(self, planned: int, paid_for: int | None) -> int:
        return planned

    def usual_steps(self, planned: int, paid_for: int | None) -> float:
        return planned

    def split(self, test: Split) -> tuple[Split, ...]:
        return (test,)

    def updates(
        self,
        config: DictConfig,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        aside: Sequence[Split],
        paid_for: int | None,
    ) -> PlainUpdates:
        return PlainUpdates(optimizer)


@dataclass(frozen=True)
class PlainUpdates:
    """The optimizer's steps; see `Updates`."""

    optimizer: torch.optim.Optimizer
    finished = False
    seconds = 0.0

    def start_epoch(self) -> None:
        """Do nothing."""

    def step(self) -> bool:
        self.optimizer.step()
        return True

    def columns(self, reported: Evaluation) -> dict[str, float]:
        return {}
