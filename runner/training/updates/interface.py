"""Update rules: `UpdateRule` is the static description, `Updates` the state while training.

A rule wraps another one by wrapping its `Updates`. A rule that rejects a step undoes every change of the plain update,
a projection too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import torch
from omegaconf import DictConfig

from runner.data.datasets import Split
from runner.gradients import Objective
from runner.mechanism.dp_sgd import Mechanism
from runner.training.evaluate import Evaluation
from runner.training.updates.optimizers import take_step, unsupported, update_of
from runner.training.updates.schedule import Schedule


class Parts(Protocol):
    """The parts of a prepared run that an update rule uses."""

    @property
    def config(self) -> DictConfig: ...

    @property
    def paid_for(self) -> int | None: ...

    def optimizer(self, objective: Objective) -> torch.optim.Optimizer:
        """Build the optimizer of the objective's parameters."""
        ...

    def schedule(self, optimizer: torch.optim.Optimizer) -> Schedule:
        """Build the schedule of the optimizer's learning rate."""
        ...


class UpdateRule:
    """A rule's properties, known before training. By default every update is the optimizer's and is kept.

    Attributes:
        takes_back: True if a step may be rejected. A budget is then spent on kept steps, and the guarantee is the cost
            of the largest number of steps.
        share_name: the record's name for the share of the training time for decisions, or None without decisions.
        column_names: the columns that it adds to a history.
    """

    takes_back: ClassVar[bool] = False
    share_name: ClassVar[str | None] = None
    column_names: ClassVar[tuple[str, ...]] = ()

    def check(self, mechanism: Mechanism) -> None:
        """Check that the mechanism charges for this rule's steps.

        Raises:
            ValueError: it does not.
        """

    def most_steps(self, planned: int, paid_for: int | None) -> int:
        """Return the most of the planned steps that a run can take, which may also end at `paid_for` kept ones."""
        return planned

    def split(self, test: Split) -> tuple[Split, ...]:
        """Return the images of the test split to report on, then the images that this rule uses, if any."""
        return (test,)

    def due(self, run: Parts, history: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Compute the rule's columns that follow from other columns of a history.

        For a count that is only bounded, this is the nearest value within the bounds.
        """
        return {}

    def updates(self, run: Parts, objective: Objective, aside: Sequence[Split]) -> Updates:
        """Return the updates of one run; `aside` are the images that `split` returned for this rule."""
        optimizer = run.optimizer(objective)
        return Updates(optimizer, objective.project, run.schedule(optimizer))


class Updates:
    """One run's updates while it trains: the optimizer's steps, each followed by `project`. All are kept.

    Args:
        optimizer: a step changes only its parameters and its state, so restoring these undoes the step.
        project: projects the weights onto their constraint.
        schedule: sets the learning rate; None keeps it constant.

    Attributes:
        optimizer: the optimizer.
        seconds: the time spent on decisions.
    """

    seconds = 0.0

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        project: Callable[[], None] = lambda: None,
        schedule: Schedule | None = None,
    ) -> None:
        self.optimizer = optimizer
        self._project, self._schedule = project, schedule or Schedule(None)
        # A user's schedule may have changed the optimizer, or wait for its hooks.
        own = self._schedule.is_own or unsupported(optimizer)
        self._update = None if own else update_of(optimizer)

    @property
    def finished(self) -> bool:
        """Return True if as many steps are kept as the budget pays for."""
        return False

    def start_epoch(self) -> None:
        """Prepare for an epoch's steps, by setting its learning rate."""
        self._schedule.start_epoch()

    def step(self) -> bool:
        """Make the update from the gradients. Return True if it is kept."""
        self._schedule.start_step()
        if self._update is None:
            self.optimizer.step()
        else:
            take_step(self.optimizer, self._update)
        self._project()
        return True

    def columns(self, reported: Evaluation) -> dict[str, float]:
        """Return columns for the history, from the measurements of the last weights on the reported images.

        If steps may be rejected, `accepted` is the number of kept steps so far.
        """
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return the state that the next epoch depends on: see `runner.training.steps`."""
        return {"optimizer": self.optimizer.state_dict(), "schedule": self._schedule.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state instead of the start."""
        self._schedule.load_state_dict(state["schedule"])
        self.optimizer.load_state_dict(state["optimizer"])
