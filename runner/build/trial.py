"""A trial of a user's parts on made-up examples, before any data is read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from multiprocessing import parent_process
from typing import Any

import torch
from torch import nn

from runner.build.groups import refusing
from runner.config import ConfigError
from runner.gradients import Objective, unknown_module
from runner.training.run import Run
from runner.trust.engine import IsolatedEngine, NotMappableError, Prepared, isolated_prediction
from runner.trust.parts import OwnClipping, OwnFeatures, OwnViews

_printed = set[str]()  # notes of this process


def check_own(run: Run) -> None:
    """Run the user's parts on made-up examples, and print on stderr how they are applied. No data is read.

    Raises:
        ConfigError: a part cannot be applied to one example, or the network fails in evaluation.
    """
    objective = run.new_objective().eval()
    with refusing("loss: start_epoch(0) fails"):
        objective.start_epoch(0)
    recurrent = any(isinstance(module, nn.RNNBase) for module in objective.modules())
    faster = " The recurrent layers of opacus.layers (DPLSTM, DPGRU, DPRNN) are faster here." if recurrent else ""
    notes = []
    for name, mapped in _mapped_parts(run):
        note = f"{name}: applied to one example at a time, so an operation over the batch is over that one."
        if mapped.rate is not None:
            note += (
                f" They are computed one after another, some {float(f'{mapped.rate:.2g}'):g} examples a second, "
                f"because {mapped.reason}.{faster}"
            )
        notes.append(note)
    if isinstance(run.clipping, OwnClipping):
        with refusing("clipping", ValueError):
            notes += run.clipping.longer(objective)
    for note in notes:
        if note not in _printed and parent_process() is None:  # the command itself, and not a process of one run
            _printed.add(note)
            print(note, file=sys.stderr)
    _check_prediction(run, objective)


def _mapped_parts(run: Run) -> Iterator[tuple[str, Prepared]]:
    """Yield the user's parts that are applied to each example separately, with a readable name.

    Raises:
        ConfigError: one cannot be.
    """
    objective, features, augmentation, clipping = run.new_objective(), run.features, run.augmentation, run.clipping
    engine = run.engine(objective)
    objective.start_epoch(0)
    inputs = torch.zeros(1, *features.shape(run.dataset.shape), device=run.device)
    targets = torch.zeros(1, dtype=torch.long, device=run.device)
    part = "features"
    try:
        if isinstance(features, OwnFeatures):
            images = torch.zeros(1, *run.dataset.shape, device=run.device)
            yield type(features.part).__qualname__, features.mapped.ready(images)
        part = "augmentation"
        if isinstance(augmentation, OwnViews):
            (numbers,) = augmentation.draw(1, torch.Generator()).to(run.device)
            yield type(augmentation.part).__qualname__, augmentation.mapped.ready(inputs, numbers)
        part = "clipping"
        if isinstance(clipping, OwnClipping):
            yield type(clipping.part).__qualname__, clipping.mapped(objective)
        if run.isolated and isinstance(engine, IsolatedEngine):
            classes = {type(module).__qualname__: None for module in objective.modules() if unknown_module(module)}
            names = ", ".join(classes) or type(objective.network).__qualname__
            part = f"architecture or loss ({names})"
            within: Any = clipping if hasattr(clipping, "layers_clip") else None
            yield names, engine.mapped(within).ready(inputs, targets)
            part += " in evaluation"
            isolated_prediction(objective).ready(inputs, targets)
    except NotMappableError as error:
        fails = str(error).startswith(type(error.__cause__).__name__)
        reason = "it fails on one example" if fails else "it cannot be applied to one example at a time"
        raise ConfigError(f"{part}: {reason}: {error}") from error


def _check_prediction(run: Run, objective: Objective) -> None:
    """Evaluate made-up examples, and train on them what is not applied to each example by itself."""
    count, shape = 1 if run.isolated else 2, run.features.shape(run.dataset.shape)
    targets = torch.zeros(count, dtype=torch.long, device=run.device)
    trial = refusing("architecture or loss: evaluation of made-up examples")
    with trial, torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        images = torch.rand(count, *shape).to(run.device)
        before = images.clone()
        logits, losses = objective.predict(images, targets)
        if not run.isolation:
            objective.train().predict(images, targets)
    if logits.shape != (count, classes := run.dataset.classes) or losses.shape != (count,):
        raise ConfigError(
            f"architecture or loss: expected logits of shape ({count}, {classes}) and losses of shape ({count},), got "
            f"{tuple(logits.shape)} and {tuple(losses.shape)}."
        )
    if not torch.equal(images, before):
        raise ConfigError("architecture: a module changes the images, which are used again: leave out inplace=True.")
