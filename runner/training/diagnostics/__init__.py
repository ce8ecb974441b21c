"""Diagnostics: numbers that a figure needs besides accuracy, measured only if a config asks for them.

They are computed from private data without noise: they belong in a reproduction, not in a release. Each is a file of
this package with one subclass of `Diagnostic`, and has the name of its file.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from omegaconf import DictConfig
from torch import Tensor, nn

from runner.data.datasets import Split
from runner.gradients import Engine, GradientSum, Objective, fresh_copy
from runner.training.diagnostics.interface import Batch, Diagnostic, Subject
from runner.training.evaluate import Evaluation

DIAGNOSTICS = tuple(module.name for module in iter_modules(__path__) if module.name != "interface")


@cache
def diagnostic(name: str) -> type[Diagnostic]:
    """Import a diagnostic by its name."""
    module = import_module(f"{__name__}.{name}")
    return next(kind for kind in Diagnostic.__subclasses__() if kind.__module__ == module.__name__)


class Diagnostics:
    """The diagnostics of one run; without any, every method does nothing.

    Training images pass through a copy of the objective, because a diagnostic may put hooks on its layers.
    """

    def __init__(
        self, config: DictConfig, epochs: int, activation_type: type[nn.Module], objective: Objective, training: Split
    ) -> None:
        kinds = {name: diagnostic(name) for name in config.diagnostics}
        self._copied = any(kind.passes_training_images for kind in kinds.values())
        self._live = objective
        self._subject = Subject(
            config, epochs, activation_type, fresh_copy(objective) if self._copied else objective, training
        )
        self._measures = {name: kind(self._subject) for name, kind in kinds.items()}

    @property
    def values(self) -> dict[str, Any]:
        """The measurements so far, by the name of the diagnostic."""
        return {name: measure.values for name, measure in self._measures.items()}

    def start(self) -> None:
        """Measure before the first step."""
        self._follow()
        for measure in self._measures.values():
            measure.weights(0)

    def step(
        self, step: int, epoch: int, engine: Engine, inputs: Tensor, targets: Tensor, clipped: GradientSum
    ) -> None:
        """Measure on a step's batch, with the weights that its gradient sum was taken at.

        Args:
            step: the number of the step in the run, from 0.
            epoch: the epoch, from 1.
            inputs: the batch [n, ...]; nothing is measured if it is empty.
            targets: its classes [n].
            clipped: its sum of clipped gradients.
        """
        if len(targets) > 0:
            self._follow()
            for measure in self._measures.values():
                measure.step(step, epoch, Batch(engine, inputs, targets, clipped))

    def epoch(self, epoch: int, evaluation: Evaluation) -> None:
        """Measure after an epoch, counted from 1."""
        self._follow()
        for measure in self._measures.values():
            measure.epoch(epoch, evaluation)
            measure.weights(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the measurements so far and what the next ones start from."""
        return {name: measure.state_dict() for name, measure in self._measures.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        for name, measure in self._measures.items():
            measure.load_state_dict(state[name])

    def _follow(self) -> None:
        """Give the copy the values of the objective."""
        if self._copied:
            if self._live.epoch is not None and self._live.epoch != self._subject.objective.epoch:
                self._subject.objective.start_epoch(self._live.epoch)
            self._subject.objective.take_values_of(self._live)
