"""Every update is the optimizer's own, and counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from runner.data.datasets import Split
from runner.gradients import Objective
from runner.training.evaluate import Evaluation
from runner.training.updates.interface import UpdateRule

if TYPE_CHECKING:
    from runner.training.prepare import Run


class Plain(UpdateRule):
    """The rule of a run whose config names none."""

    def updates(self, run: Run, objective: Objective, aside: Sequence[Split]) -> PlainUpdates:
        return PlainUpdates(run.optimizer(objective))


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
