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
from runner.screening import screening_of
from runner.seeds import derived_seed, generator

HISTORY = ("epoch", "steps", "epsilon", "epsilon_sound", "train_loss", "test_loss", "test_accuracy")


@dataclass
class Trained:
    """What a run measured. `history` holds equal-length lists by name, one entry per finished epoch.

    `seconds_screening` is part of `seconds_training`.
    """

    status: str = "finished"
    history: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in HISTORY})
    diagnostics: dict[str, Any] = field(default_factory=dict)
    examples: int = 0
    seconds_training: float = 0.0
    seconds_screening: float = 0.0


def load(run: Run) -> tuple[Split, ...]:
    """The training and the evaluation split, and the one that screens where there is screening, as features on the
    device. Raises DataError.

    What screens is of the test split, and with evaluation=holdout the images reported on are not.
    """
    train, test = run.dataset.load(run.config.runtime.data_root)
    screening, test = (None, test) if run.screening is None else run.screening.split(test)
    if run.config.evaluation == Evaluation.holdout:
        train, test = hold_out(train)
    splits = (train, test) if screening is None else (train, test, screening)
    return tuple(Split(run.features(s.images.to(run.device)), s.targets.to(run.device)) for s in splits)


def train(run: Run, data: tuple[Split, ...], on_epoch: Callable[[dict[str, float]], None]) -> Trained:
    """Train one run to its last epoch, or until a weight or a loss is no longer finite (status "diverged").

    `on_epoch` sees each epoch's row of the history as soon as it is there. Layers that draw from PyTorch's global
    generator get a stream of the run's seed, and the generator is left as it was.
    """
    cuda = [run.device] if run.device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.manual_seed(derived_seed(run.config.seed, "layers"))
        return _train(run, data, on_epoch)


def _train(run: Run, data: tuple[Split, ...], on_epoch: Callable[[dict[str, float]], None]) -> Trained:
    training, evaluation_split, *others = data
    config, mechanism = run.config, run.mechanism
    objective = run.objective
    gradient_engine = engine(config, objective)
    optimizer = run.optimizer(objective)
    sampling, noise = (generator(config.seed, stream, run.device) for stream in ("sampling", "noise"))
    screening = screening_of(run.screening, config, objective, optimizer, others, run.max_accepted)
    ledger, trained = Ledger(), Trained()
    diagnostics = Diagnostics(config, run.epochs, run.activation_type, objective, training)
    diagnostics.start()
    step = 0
    for epoch in range(1, run.epochs + 1):
        started = time.perf_counter()
        objective.start_epoch(epoch - 1)
        screening.start_epoch()
        losses = 0.0
        seen = 0
        for step_in_epoch, indices in enumerate(mechanism.batches(sampling)):
            inputs, targets = training.images[indices], training.targets[indices]
            computed = gradient_sum(run.clipping, gradient_engine, inputs, targets, run.physical_batch)
            diagnostics.step(step, epoch, gradient_engine, inputs, targets, computed)
            gradients = mechanism.release(computed.gradients, noise)
            for name, parameter in objective.named_parameters():
                parameter.grad = gradients[name]
            kept = screening.step()
            mechanism.charge_step(ledger, step_in_epoch, kept=kept)
            losses += computed.losses.double().sum().item()
            seen += len(targets)
            step += 1
            if screening.finished:
                break
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
        row |= screening.columns(measured)
        trained.seconds_screening = screening.seconds
        for name, value in row.items():
            trained.history.setdefault(name, []).append(value)
        on_epoch(row)
        if not (math.isfinite(measured.loss) and all(torch.isfinite(p).all() for p in objective.parameters())):
            trained.status = "diverged"
            break
        if screening.finished:
            break
    trained.diagnostics = diagnostics.values
    return trained
