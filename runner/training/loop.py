"""The training loop: sample, sum, release, update, charge, evaluate."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from runner.accounting import Ledger, sound_epsilon
from runner.clipping import gradient_sum
from runner.config import ConfigError, EvaluationSplit, StepMode
from runner.data.datasets import Split, hold_out
from runner.gradients import Objective
from runner.mechanism.seeds import derived_seed, generator
from runner.training.diagnostics import Diagnostics
from runner.training.evaluate import evaluate
from runner.training.prepare import Run, engine, stacked_step
from runner.training.removal import check_one_removed
from runner.training.stacked import NotStackableError, StackedStep, draw_epoch
from runner.training.updates import Updates

HISTORY = ("epoch", "steps", "epsilon", "epsilon_sound", "train_loss", "test_loss", "test_accuracy")


@dataclass
class Trained:
    """What a run measured. `history` holds equal-length lists by name, one entry per finished epoch.

    `step` says how steps were taken, `lockstep` how many runs were trained in the same steps. `seconds_deciding`,
    in which it was decided what to keep, is part of `seconds_training`.
    """

    status: str = "finished"
    step: str = StepMode.eager.value
    lockstep: int = 1
    history: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in HISTORY})
    diagnostics: dict[str, Any] = field(default_factory=dict)
    examples: int = 0
    seconds_training: float = 0.0
    seconds_deciding: float = 0.0


def load(run: Run) -> tuple[Split, ...]:
    """The training and the evaluation split, and what the update rule sets aside, as features on the device.

    What is set aside is of the test split, and with evaluation=holdout the images reported on are not.

    Raises:
        DataError: where the data set cannot be read.
    """
    train, test = (
        Split(run.features(split.images.to(run.device)), split.targets.to(run.device))
        for split in run.dataset.load(run.config.runtime.data_root)
    )
    test, *aside = run.rule.split(test)
    if run.config.evaluation == EvaluationSplit.holdout:
        train, test = hold_out(train)
    return train, test, *aside


OnEpoch = Callable[[dict[str, float]], None]
OnStep = Callable[[int, int], None]  # the epoch and the steps of it that are done, both from 1
Training = Callable[[Sequence[OnEpoch]], list[Trained]]


def train(run: Run, data: tuple[Split, ...], on_epoch: OnEpoch) -> Trained:
    """Train one run to its last epoch, or until a weight or a loss is no longer finite (status "diverged").

    `on_epoch` sees each epoch's row of the history as soon as it is there. Layers that draw from PyTorch's global
    generator get a stream of the run's seed, and the generator is left as it was.
    """
    (trained,) = training([run], data)([on_epoch])
    return trained


def training(runs: Sequence[Run], data: tuple[Split, ...], on_step: OnStep = lambda epoch, step: None) -> Training:
    """How these runs are trained on one data set: to be called with an `on_epoch` for each of them.

    `on_step` is told of each step that is taken call by call: of one run on a CPU, where an epoch may be long.

    One run is trained as its config says; several are trained together, in steps of all of them.

    Raises:
        NotStackableError: where several cannot be trained together.
        ConfigError: where one cannot be trained as `runtime.step` asks.
    """
    if len(runs) == 1 and runs[0].step is StepMode.eager:
        return lambda on_epochs: [_train_eagerly(runs[0], data, on_epochs[0], on_step)]
    try:
        step = stacked_step(runs, [run.new_objective() for run in runs], data[0])
    except NotStackableError as reason:
        if len(runs) > 1:
            raise
        if runs[0].config.runtime.step is StepMode.graph:
            raise ConfigError(f"runtime.step=graph is not possible here: {reason}.") from reason
        print(f"step: {reason}, so it is taken call by call, not as a graph.", file=sys.stderr)
        return lambda on_epochs: [_train_eagerly(runs[0], data, on_epochs[0], on_step)]

    def train_together(on_epochs: Sequence[OnEpoch]) -> list[Trained]:
        with torch.cuda.device(runs[0].device) if runs[0].device.type == "cuda" else nullcontext():
            return _train_together(runs, step, data, on_epochs)

    return train_together


class Progress:
    """One run's ledger, measurements and history, step by step and epoch by epoch.

    It begins with what is released before the first step: the statistics that the features are normalised with.
    """

    def __init__(self, run: Run, objective: Objective, data: tuple[Split, ...], on_epoch: OnEpoch) -> None:
        self.trained, self.steps = Trained(), 0
        self._ledger = Ledger()
        if run.normalization is not None:
            layer = objective.network.get_submodule("normalization")
            stream = generator(run.config.seed, "normalization", run.device)
            run.normalization.fit(layer, data[0].images, stream, self._ledger)
        self.diagnostics = Diagnostics(run.config, run.epochs, run.activation_type, objective, data[0])
        self.diagnostics.start()
        self._run, self._objective, self._evaluation_split, self._on_epoch = run, objective, data[1], on_epoch

    def charge_step(self, step_in_epoch: int, kept: bool = True) -> None:
        """Count a step and charge it."""
        self._run.mechanism.charge_step(self._ledger, step_in_epoch, kept=kept)
        self.steps += 1

    def end_epoch(
        self,
        epoch: int,
        losses: float,
        seen: int,
        seconds: float,
        updates: Updates | None = None,
    ) -> bool:
        """Evaluate after an epoch that saw so many examples of these losses in all. Returns whether the run goes on."""
        run, objective, trained = self._run, self._objective, self.trained
        trained.examples += seen
        trained.seconds_training += seconds
        measured = evaluate(objective, self._evaluation_split, run.dataset.classes)
        self.diagnostics.epoch(epoch, measured)
        row = {
            "epoch": epoch,
            "steps": self.steps,
            "epsilon": run.accountant.epsilon(self._ledger.claimed, run.config.delta),
            "epsilon_sound": sound_epsilon(self._ledger.actual, run.config.delta),
            "train_loss": losses / seen if seen else math.nan,
            "test_loss": measured.loss,
            "test_accuracy": measured.accuracy,
        }
        if updates is not None:
            row |= updates.columns(measured)
            trained.seconds_deciding = updates.seconds
        for name, value in row.items():
            trained.history.setdefault(name, []).append(value)
        trained.diagnostics = self.diagnostics.values
        self._on_epoch(row)
        if not (math.isfinite(measured.loss) and all(torch.isfinite(p).all() for p in objective.parameters())):
            trained.status = "diverged"
        return trained.status == "finished" and epoch < run.epochs


def _train_eagerly(run: Run, data: tuple[Split, ...], on_epoch: OnEpoch, on_step: OnStep) -> Trained:
    cuda = [run.device] if run.device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.manual_seed(derived_seed(run.config.seed, "layers"))
        return _train(run, data, on_epoch, on_step)


def _train(run: Run, data: tuple[Split, ...], on_epoch: OnEpoch, on_step: OnStep) -> Trained:
    training, _, *aside = data
    config, mechanism, guarded = run.config, run.mechanism, run.config.runtime.guard_every
    objective = run.new_objective()
    gradient_engine = engine(config, objective)
    updates = run.rule.updates(run, objective, aside)
    sampling, noise = (generator(config.seed, stream, run.device) for stream in ("sampling", "noise"))
    progress = Progress(run, objective, data, on_epoch)
    for epoch in range(1, run.epochs + 1):
        started = time.perf_counter()
        objective.start_epoch(epoch - 1)
        updates.start_epoch()
        losses = 0.0
        seen = 0
        for step_in_epoch, indices in enumerate(mechanism.batches(sampling)):
            inputs, targets = training.images[indices], training.targets[indices]
            clipping = mechanism.applied(run.clipping, len(targets))
            computed = gradient_sum(clipping, gradient_engine, inputs, targets, run.physical_batch)
            progress.diagnostics.step(progress.steps, epoch, gradient_engine, inputs, targets, computed)
            if guarded and progress.steps % guarded == 0 and len(targets) > 0:
                check_one_removed(run, gradient_engine, inputs, targets, progress.steps % len(targets))
            gradients = mechanism.release(computed.gradients, noise)
            for name, parameter in objective.named_parameters():
                parameter.grad = gradients[name]
            progress.charge_step(step_in_epoch, updates.step())
            losses += computed.losses.double().sum().item()
            seen += len(targets)
            on_step(epoch, step_in_epoch + 1)
            if updates.finished:
                break
        goes_on = progress.end_epoch(epoch, losses, seen, time.perf_counter() - started, updates)
        if updates.finished or not goes_on:
            break
    return progress.trained


def _train_together(
    runs: Sequence[Run], step: StackedStep, data: tuple[Split, ...], on_epochs: Sequence[OnEpoch]
) -> list[Trained]:
    """Every run's batches and noise are those that it would draw alone. A run that is over keeps its place, unseen."""
    objectives, device = step.stacked.objectives, runs[0].device
    sampling, noise = ([generator(run.config.seed, stream, device) for run in runs] for stream in ("sampling", "noise"))
    progress = [
        Progress(run, objective, data, on_epoch)
        for run, objective, on_epoch in zip(runs, objectives, on_epochs, strict=True)
    ]
    for each in progress:
        each.trained.step, each.trained.lockstep = StepMode.graph.value, len(runs)
    going = set(range(len(runs)))
    epoch = 0
    while going:
        epoch += 1
        started = time.perf_counter()
        step.stacked.start_epoch(epoch - 1)
        batches = draw_epoch(runs[0].mechanism, sampling, step.length)
        step.make_room(batches.length)
        step.losses.zero_()
        for step_in_epoch in range(len(batches.indices)):
            step.take(batches, step_in_epoch, noise)
            for run in going:
                progress[run].charge_step(step_in_epoch)
        losses = step.losses.tolist()
        seconds = time.perf_counter() - started
        for run in sorted(going):
            if not progress[run].end_epoch(epoch, losses[run], batches.seen[run], seconds):
                going.remove(run)
    return [each.trained for each in progress]
