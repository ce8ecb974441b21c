"""The steps of a run, taken call by call, for any clipping, mechanism, update rule and diagnostic."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from runner.clipping import gradient_sum
from runner.config import ConfigError, StepMode
from runner.data.augmentation import viewed
from runner.data.datasets import Split
from runner.gradients import GradientSum, OnePassEngine, fresh_copy
from runner.mechanism.correlated import PastNoise
from runner.mechanism.seeds import generator
from runner.training.averaging import Average
from runner.training.diagnostics import Diagnostics
from runner.training.run import Run
from runner.training.steps import Pieces, Stateful, check_first_batch
from runner.training.updates import Updates


class CallByCall:
    """The steps of a run. `runner.training.graph.GraphStep` has the same attributes and methods.

    Views pass through a copy of the objective, whose loss is the mean over them.

    Attributes:
        mode: the name of the way in records.
        objective: the objective, with its weights.
        updates: the update rule, or None if every update is kept.
        parts: what the next epoch depends on, apart from `generators`.
        generators: the run's generators, by stream.
    """

    mode = StepMode.eager

    def __init__(self, run: Run, data: tuple[Split, ...]) -> None:
        self._training, _, *aside = data
        self._run = run
        self.objective = objective = run.new_objective()
        self._augmentation = run.augmentation
        self._differentiated = objective
        if self._augmentation is not None:
            self._differentiated = fresh_copy(objective)
            self._differentiated.views = self._augmentation.views
        self._engine = run.engine(self._differentiated)
        self.updates = updates = run.rule.updates(run, objective, aside)
        if not isinstance(updates, Updates):
            raise ConfigError(f"screening: updates() has to return `Updates`, not {type(updates).__qualname__}.")
        self.generators = {name: generator(run.config.seed, name, run.device) for name in ("sampling", "noise")}
        if self._augmentation is not None:
            self.generators["augmentation"] = generator(run.config.seed, "augmentation", torch.device("cpu"))
        self.parts: dict[str, Stateful] = {"objective": objective, "updates": updates}
        if isinstance(self._engine, OnePassEngine):
            self.parts["engine"] = self._engine
        self._average = None if run.averaging is None else Average(run.averaging, objective)
        if self._average is not None:
            self.parts["average"] = self._average
        self._past: list[PastNoise] = []
        if len(run.mechanism.coefficients) > 1:
            self._past.append(PastNoise(run.mechanism.coefficients))
            self.parts["past noise"] = self._past[0]
        self._unchecked, self._pieces = True, Pieces(run.physical_batch)
        self._losses, self._seen = 0.0, 0

    @property
    def physical_batch(self) -> int:
        """Return the number of examples that pass the network at a time."""
        return self._pieces.size

    @property
    def average(self) -> dict[str, Tensor] | None:
        """Return the averaged weights by parameter name, or None if the config asks for none."""
        return None if self._average is None else self._average.weights

    def seen(self) -> tuple[float, int]:
        """Return the sum of the losses of this epoch's examples, before each update, and their number."""
        return self._losses, self._seen

    def epoch(self, epoch: int, before: int, diagnostics: Diagnostics) -> Iterator[bool]:
        """Take the steps of an epoch, counted from 1, after `before` earlier ones. Yield after each if it is kept.

        None is taken after the one that exhausts a budget of kept steps.
        """
        for objective in {self.objective, self._differentiated}:
            objective.start_epoch(epoch - 1)
        self.updates.start_epoch()
        self._losses, self._seen = 0.0, 0
        batches = self._run.mechanism.batches(self.generators["sampling"])
        for step in itertools.count(before):
            if (noisy := self._release(step, epoch, batches, diagnostics)) is None:
                return
            yield self._update(noisy)
            if self.updates.finished:
                return

    def _views(self, images: Tensor) -> Tensor:
        """Return a batch's images [batch, ...], or views of them, [batch, views, ...]."""
        if self._augmentation is None:
            return images
        numbers = self._augmentation.draw(len(images), self.generators["augmentation"])
        return viewed(self._augmentation, images, numbers.to(images.device))

    def _release(
        self, step: int, epoch: int, batches: Iterator[Tensor], diagnostics: Diagnostics
    ) -> dict[str, Tensor] | None:
        """Return the noisy mean over the next batch, or None after the last batch."""
        if (indices := next(batches, None)) is None:
            return None
        mechanism, objective = self._run.mechanism, self.objective
        if self._differentiated is not objective:
            self._differentiated.take_values_of(objective)
        inputs, targets = self._views(self._training.images[indices]), self._training.targets[indices]
        computed = self._sum(inputs, targets)
        if self._unchecked and len(targets) > 1:
            self._unchecked = False
            check_first_batch(
                mechanism,
                lambda members: self._sum(inputs[members], targets[members]).gradients,
                computed.losses if computed.norms is None else computed.norms,
            )
        diagnostics.step(step, epoch, self._engine, inputs, targets, computed)
        self._losses += computed.losses.double().sum().item()
        self._seen += len(targets)
        return mechanism.at(step).release(computed.gradients, self.generators["noise"], *self._past)

    def _update(self, noisy: dict[str, Tensor]) -> bool:
        """Update the weights by a noisy mean. Return True if the update is kept."""
        gradients = self.objective.received(noisy)
        for name, parameter in self.objective.named_parameters():
            parameter.grad = gradients[name]
        kept = self.updates.step()
        if kept and self._average is not None:
            self._average.update()
        return kept

    def _sum(self, inputs: Tensor, targets: Tensor) -> GradientSum:
        """Return the bounded sum over one logical batch: inputs [batch, ...], targets [batch]."""
        run, engine = self._run, self._engine
        clipping, groups = run.mechanism.applied(run.clipping, len(targets)), run.mechanism.noise_groups
        return self._pieces.fitting(
            lambda size: gradient_sum(clipping, engine, inputs, targets, size, groups), len(targets)
        )
