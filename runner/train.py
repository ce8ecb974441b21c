"""The training loop: sample, sum, release, update, charge, evaluate."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from runner.accounting import Ledger, sound_epsilon
from runner.build import Run, engine
from runner.clipping import gradient_sum
from runner.config import Evaluation
from runner.datasets import Split, hold_out
from runner.diagnostics import Diagnostics
from runner.evaluate import evaluate
from runner.seeds import derived_seed, generator

HISTORY = ("epoch", "steps", "epsilon", "epsilon_sound", "train_loss", "test_loss", "test_accuracy")


@dataclass
class Trained:
    """What a run measured. `history` holds equal-length lists by name, one entry per finished epoch."""

    status: str = "finished"
    history: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in HISTORY})
    diagnostics: dict[str, Any] = field(default_factory=dict)
    examples: int = 0
    seconds_training: float = 0.0


def load(run: Run) -> tuple[Split, Split]:
    """The training and the evaluation split as features on the device. Raises DataError."""
    train, test = (
        Split(run.features(split.images.to(run.device)), split.targets.to(run.device))
        for split in run.dataset.load(run.config.runtime.data_root)
    )
    return hold_out(train) if run.config.evaluation == Evaluation.holdout else (train, test)


def train(run: Run, data: tuple[Split, Split], on_epoch: Callable[[dict[str, float]], None]) -> Trained:
    """Train one run to its last epoch, or until a weight or a loss is no longer finite (status "diverged").

    `on_epoch` sees each epoch's row of the history as soon as it is there. Layers that draw from PyTorch's global
    generator get a stream of the run's seed, and the generator is left as it was.
    """
    cuda = [run.device] if run.device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.manual_seed(derived_seed(run.config.seed, "layers"))
        return _train(run, data, on_epoch)


def _train(run: Run, data: tuple[Split, Split], on_epoch: Callable[[dict[str, float]], None]) -> Trained:
    training, evaluation_split = data
    config, mechanism = run.config, run.mechanism
    objective = run.objective
    gradient_engine = engine(config, objective)
    optimizer = run.optimizer(objective)
    sampling, noise = (generator(config.seed, stream, run.device) for stream in ("sampling", "noise"))
    ledger, trained = Ledger(), Trained()
    if run.normalization is not None:
        layer = objective.network.get_submodule("normalization")
        stream = generator(config.seed, "normalization", run.device)
        run.normalization.fit(layer, training.images, stream, ledger)
    diagnostics = Diagnostics(config, run.epochs, run.activation_type, objective, training)
    diagnostics.start()
    step = 0
    for epoch in range(1, run.epochs + 1):
        started = time.perf_counter()
        objective.start_epoch(epoch - 1)
        losses = 0.0
        seen = 0
        for step_in_epoch, indices in enumerate(mechanism.batches(sampling)):
            inputs, targets = training.images[indices], training.targets[indices]
            computed = gradient_sum(run.clipping, gradient_engine, inputs, targets, run.physical_batch)
            diagnostics.step(step, epoch, gradient_engine, inputs, targets, computed)
            gradients = mechanism.release(computed.gradients, noise)
            mechanism.charge_step(ledger, step_in_epoch)
            for name, parameter in objective.named_parameters():
                parameter.grad = gradients[name]
            optimizer.step()
            losses += computed.losses.double().sum().item()
            seen += len(targets)
            step += 1
        trained.examples += seen
        trained.seconds_training += time.perf_counter() - started
        measured = evaluate(objective, evaluation_split, run.dataset.classes)
        diagnostics.epoch(epoch, measured)
        row = {
            "epoch": epoch,
            "steps": step,
            "epsilon": run.accountant.epsilon(ledger.claimed, config.delta),
            "epsilon_sound": sound_epsilon(ledger.actual, config.delta),
            "train_loss": losses / seen if seen else math.nan,
            "test_loss": measured.loss,
            "test_accuracy": measured.accuracy,
        }
        for name, value in row.items():
            trained.history[name].append(value)
        on_epoch(row)
        if not (math.isfinite(measured.loss) and all(torch.isfinite(p).all() for p in objective.parameters())):
            trained.status = "diverged"
            break
    trained.diagnostics = diagnostics.values
    return trained
