"""What becomes of a step's gradients before they count: what is known of it beforehand, and what it does meanwhile.

A rule wraps another one by wrapping its `Updates`: what the plain one does to the weights, a projection too, a rule
that takes steps back takes back with the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch

from runner.data.datasets import Split
from runner.gradients import Objective
from runner.mechanism.dp_sgd import Mechanism
from runner.training.evaluate import Evaluation

if TYPE_CHECKING:
    from runner.training.prepare import Run


class UpdateRule:
    """What a config's class states of its steps before training; unless it says otherwise, that every step is kept.

    Attributes:
        takes_back: whether a step may be taken back, so that a budget is spent on kept steps, and what is guaranteed
            is the cost of the most steps.
        unstackable: why steps cannot be one fixed sequence of calls; None: they can.
        share_name: what a record calls the share of the training time that decisions take; None: there are none.
        column_names: the columns that it adds to a history; None: the class does not say.
    """

    takes_back: ClassVar[bool] = False
    unstackable: ClassVar[str | None] = None
    share_name: ClassVar[str | None] = None
    column_names: ClassVar[tuple[str, ...] | None] = None

    def check(self, mechanism: Mechanism) -> None:
        """Raise ValueError where the mechanism does not charge what this rule does."""

    def most_steps(self, planned: int, paid_for: int | None) -> int:
        """The most of the planned steps that a run can take, which may also end at `paid_for` kept ones."""
        return planned

    def split(self, test: Split) -> tuple[Split, ...]:
        """The images of the test split to report on, then what this rule sets aside for itself, if anything."""
        return (test,)

    def due(self, run: Run, history: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Compute the columns of its own that follow from other columns of a history.

        Of a count that is only bounded this is the nearest value within the bounds.
        """
        return {}

    def updates(self, run: Run, objective: Objective, aside: Sequence[Split]) -> Updates:
        """What is done at every step of one run; `aside` is what `split` set aside."""
        raise NotImplementedError


class Updates(Protocol):
    """One run's updates while it trains.

    Attributes:
        optimizer: its parameters and its state are all that a step changes, so whoever puts them back has undone it.
        finished: whether as many steps are kept as are paid for.
        seconds: spent on decisions.
    """

    @property
    def optimizer(self) -> torch.optim.Optimizer: ...

    @property
    def finished(self) -> bool: ...

    @property
    def seconds(self) -> float: ...

    def start_epoch(self) -> None:
        """Prepare for an epoch's steps."""

    def step(self) -> bool:
        """Make the update that the gradients ask for. Returns whether it is kept."""
        ...

    def columns(self, reported: Evaluation) -> dict[str, float]:
        """Columns for the history, given what was measured on the images reported on.

        Where steps may be taken back, `accepted` is the number of those kept so far.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """What the next epoch depends on: see `runner.training.state`."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state, instead of from the start."""
        ...
