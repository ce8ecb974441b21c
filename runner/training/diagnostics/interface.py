"""The interface of a diagnostic, and what several of them use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from runner.data.datasets import Split
from runner.gradients import Engine, GradientSum, Objective, OnePassEngine
from runner.training.evaluate import Evaluation

FIXED = 2048  # the first training examples, on which diagnostics of the weights are measured
SLICE = 256  # examples that pass through the network at a time


@dataclass(frozen=True)
class Subject:
    """The run that is measured.

    epochs: the run's number of epochs.
    activation_type: the class of the hidden activations.
    objective: a copy of the trained one if training images pass through it.
    training: the training split.
    """

    config: DictConfig
    epochs: int
    activation_type: type[nn.Module]
    objective: Objective
    training: Split

    @property
    def fixed(self) -> tuple[Tensor, Tensor]:
        """The first `FIXED` training examples, copied, and their classes."""
        return self.training.images[:FIXED].clone(), self.training.targets[:FIXED]

    @contextmanager
    def evaluating(self) -> Iterator[Objective]:
        """Yield the objective in evaluation mode."""
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

    def weights(self, epoch: int) -> None:
        """Measure the weights before training (epoch 0) or after an epoch, counted from 1."""

    def step(self, step: int, epoch: int, batch: Batch) -> None:
        """Measure on the batch of a step, counted from 0."""

    def epoch(self, epoch: int, evaluation: Evaluation) -> None:
        """Measure after an epoch, counted from 1."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        return {"values": self.values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.values = state["values"]

    def due(self, step: int) -> bool:
        """Return True for every `diagnostics_every`-th step."""
        return bool(step % self.subject.config.diagnostics_every == 0)

    def append(self, **measured: Any) -> None:
        """Append a number to each column of `values`."""
        for name, value in measured.items():
            self.values.setdefault(name, []).append(value)


def gradient_norms(batch: Batch) -> Tensor:
    """Compute the L2 norms of a batch's per-example gradients, [n]; those that clipping computed are used."""
    if batch.clipped.norms is not None:
        return batch.clipped.norms
    names = [name for name, _ in batch.engine.objective.named_parameters()]
    norms = batch.engine.clipped_sum(batch.inputs, batch.targets, [names], torch.zeros_like).norms
    assert norms is not None
    return norms


def norms_of(objective: Objective, inputs: Tensor, targets: Tensor, groups: Sequence[Sequence[str]]) -> Tensor:
    """Compute the L2 norms of each example's gradient of each group of parameters, [examples, groups]."""
    seen: list[Tensor] = []

    def look(norms: Tensor) -> Tensor:
        seen.append(norms)
        return torch.zeros_like(norms)

    engine = OnePassEngine(objective)
    for piece in zip(inputs.split(SLICE), targets.split(SLICE), strict=True):
        engine.clipped_sum(*piece, groups, look)
    norms = torch.cat(seen)
    assert norms.shape == (len(targets), len(groups))
    return norms
