"""Diagnostics: numbers that a figure needs besides accuracy, measured only if a config asks for them.

They are computed from private data without noise: they belong in a reproduction, not in a release. Each is a subclass
of `Diagnostic` in a file of this package, and has the name of its class: `hessian`, `gradient_norms` for GradientNorms.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, ClassVar

import torch
from torch import Tensor

from runner.data.datasets import Split
from runner.gradients import Engine, GradientSum, Objective, OnePassEngine, fresh_copy
from runner.training.evaluate import Evaluation
from runner.training.run import Run

FIXED = 2048  # the first training examples, on which diagnostics of the weights are measured
SLICE = 256  # examples that pass through the network at a time


@dataclass(frozen=True)
class Subject:
    """The run that is measured.

    objective: a copy of the trained one if training images pass through it.
    training: the training split.
    """

    run: Run
    objective: Objective
    training: Split

    @property
    def fixed(self) -> tuple[Tensor, Tensor]:
        """The first `FIXED` training examples, copied, and their classes."""
        return self.training.images[:FIXED].clone(), self.training.targets[:FIXED]

    @contextmanager
    def evaluating(self) -> Iterator[Objective]:
        self.objective.eval()
        yield self.objective
        self.objective.train()


@dataclass(frozen=True)
class Batch:
    """A step's batch: inputs [n, ...], classes [n], and its sum of clipped gradients."""

    engine: Engine
    inputs: Tensor
    targets: Tensor
    clipped: GradientSum


class Diagnostic:
    """One diagnostic of a run. Its docstring describes `values`, which the record holds.

    passes_training_images: it passes training images through the network outside of the run's engine.
    measures_steps: it measures on batches, step by step.
    """

    passes_training_images: ClassVar[bool] = False
    measures_steps: ClassVar[bool] = False

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.values: Any = {}

    @staticmethod
    def check(objective: Objective) -> object:
        """Raise ValueError if this cannot be measured of an objective."""
        return None

    def weights(self, epoch: int) -> None:
        """Measure the weights before training (epoch 0) or after an epoch, counted from 1."""

    def step(self, step: int, epoch: int, batch: Batch) -> None:
        """Measure on the batch of a step, counted from 0."""

    def epoch(self, epoch: int, evaluation: Evaluation) -> None:
        """Measure after an epoch, counted from 1."""

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values = state["values"]

    def due(self, step: int) -> bool:
        """Return True for every `diagnostics_every`-th step."""
        return bool(step % self.subject.run.config.diagnostics_every == 0)

    def append(self, **measured: Any) -> None:
        """Append a number to each column of `values`, or each of several numbers to a column of its own."""
        for name, value in measured.items():
            for key, number in value.items() if isinstance(value, dict) else ():
                self.values.setdefault(name, {}).setdefault(key, []).append(number)
            if not isinstance(value, dict):
                self.values.setdefault(name, []).append(value)


def parameter_norms(objective: Objective, inputs: Tensor, targets: Tensor, groups: Sequence[Sequence[str]]) -> Tensor:
    """Compute the L2 norms of each example's gradient of each group of parameters, [examples, groups]."""
    pieces: list[Tensor] = []

    def note(norms: Tensor) -> Tensor:
        pieces.append(norms)
        return torch.zeros_like(norms)

    engine = OnePassEngine(objective)
    for piece in zip(inputs.split(SLICE), targets.split(SLICE), strict=True):
        engine.clipped_sum(*piece, groups, note)
    norms = torch.cat(pieces)
    assert norms.shape == (len(targets), len(groups))
    return norms


@cache
def diagnostics() -> dict[str, type[Diagnostic]]:
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    by_name = {re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower(): kind for kind in Diagnostic.__subclasses__()}
    return dict(sorted(by_name.items()))


class Diagnostics:
    """The diagnostics of one run; without any, every method does nothing.

    Training images pass through a copy of the objective, because a diagnostic may put hooks on its layers.
    """

    def __init__(self, run: Run, objective: Objective, training: Split) -> None:
        kinds = {name: diagnostics()[name] for name in run.config.diagnostics}
        self._copied = any(kind.passes_training_images for kind in kinds.values())
        self._live = objective
        self._subject = Subject(run, fresh_copy(objective) if self._copied else objective, training)
        self._measures = {name: kind(self._subject) for name, kind in kinds.items()}

    @property
    def values(self) -> dict[str, Any]:
        return {name: measure.values for name, measure in self._measures.items()}

    def start(self) -> None:
        self._follow()
        for measure in self._measures.values():
            measure.weights(0)

    def step(self, step: int, epoch: int, batch: Batch) -> None:
        """Measure on a batch, with the weights that its sum was taken at. If it is empty, nothing is measured."""
        if len(batch.targets) > 0:
            self._follow()
            for measure in self._measures.values():
                measure.step(step, epoch, batch)

    def epoch(self, epoch: int, evaluation: Evaluation) -> None:
        self._follow()
        for measure in self._measures.values():
            measure.epoch(epoch, evaluation)
            measure.weights(epoch)

    def state_dict(self) -> dict[str, Any]:
        return {name: measure.state_dict() for name, measure in self._measures.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, measure in self._measures.items():
            measure.load_state_dict(state[name])

    def _follow(self) -> None:
        if self._copied:
            if self._live.epoch is not None and self._live.epoch != self._subject.objective.epoch:
                self._subject.objective.start_epoch(self._live.epoch)
            self._subject.objective.take_values_of(self._live)
