"""A user's parts of a run: checks before any data is read, and the assumptions that remain.

Assumptions that cannot be enforced are listed next to ε: see `rests_on`.
"""

from __future__ import annotations

import sys
from multiprocessing import parent_process

import torch
from omegaconf import OmegaConf
from torch import nn

from runner.clipping import OwnClipping
from runner.config import ConfigError
from runner.config.origin import is_own
from runner.data.datasets import OwnDataset
from runner.gradients import Mapped, Objective
from runner.training.modules import LIBRARIES
from runner.training.run import Run
from runner.training.targets import bare_name, targets

_BELIEVED = {
    "dataset": "the data set {}: each of its images is believed to be one example, and none both trained on and tested",
    "accountant": "the accountant {}: its ε is believed",
    "screening": "the update rule {}: it is believed to see no training example",
}
_said = set[str]()  # notes that this process has printed
_OF_ALL = "{}: trusted to hold no training examples and read none, and not to draw the noise again from the seed"


def rests_on(run: Run) -> list[str]:
    """Return the assumptions of the run's ε that this package cannot enforce, a text each.

    A user's class that computes noise or charges is not among them, as such a run has no sound ε.
    """
    if not run.mechanism.private:
        return []
    own = own_classes(run)
    parts = {"accountant": run.accountant, "screening": run.rule}
    found = []
    if isinstance(run.dataset, OwnDataset):
        found.append(_BELIEVED["dataset"].format(bare_name(run.config.dataset._target_)))
    found += [_BELIEVED[name].format(type(part).__qualname__) for name, part in parts.items() if is_own(part)]
    return found + ([_OF_ALL.format(", ".join(own))] if own else [])


def own_classes(run: Run) -> list[str]:
    """Return the names of a user's classes in a run, but for the data set, which holds the examples anyway."""
    every = targets(OmegaConf.to_container(run.config, resolve=True))
    named = [target for place, target in every if not place.startswith("dataset.")]
    return list(dict.fromkeys(bare_name(target) for target in named if target.partition(".")[0] not in LIBRARIES))


def check_own(run: Run) -> None:
    """Run the user's parts on made-up examples, and print on stderr how they are applied. No data is read.

    Raises:
        ConfigError: a part cannot be applied to one example, or the network fails in evaluation.
    """
    objective = run.new_objective().eval()
    try:
        objective.start_epoch(0)
    except Exception as error:  # any error of a user's code
        raise ConfigError(f"loss: start_epoch(0) fails: {error}") from error
    notes = [
        f"{name}: applied to one example at a time, so an operation over the batch is over that one."
        f"{_slowness(each, run)}"
        for name, each in run.mapped_parts.items()
    ]
    if isinstance(run.clipping, OwnClipping):
        try:
            notes += run.clipping.longer(objective)
        except ValueError as error:
            raise ConfigError(f"clipping: {error}") from error
    for note in notes:
        if note not in _said and parent_process() is None:  # the command itself, and not a process of one run
            _said.add(note)
            print(note, file=sys.stderr)
    _check_prediction(run, objective)


def _check_prediction(run: Run, objective: Objective) -> None:
    """Evaluate made-up examples, and train on them what is not applied to each example by itself."""
    count, shape = 1 if run.isolated else 2, run.features.shape(run.dataset.shape)
    targets = torch.zeros(count, dtype=torch.long, device=run.device)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            images = torch.rand(count, *shape).to(run.device)
            before = images.clone()
            logits, losses = objective.predict(images, targets)
            if not run.apart:
                objective.train().predict(images, targets)
    except Exception as error:  # any error of a user's code
        raise ConfigError(f"architecture or loss: evaluation of made-up examples: {error}") from error
    if logits.shape != (count, run.dataset.classes) or losses.shape != (count,):
        raise ConfigError(
            f"architecture or loss: expected logits of shape ({count}, {run.dataset.classes}) and losses of "
            f"shape ({count},), got {tuple(logits.shape)} and {tuple(losses.shape)}."
        )
    if not torch.equal(images, before):
        raise ConfigError("architecture: a module changes the images, which are used again: leave out inplace=True.")


def _slowness(part: Mapped, run: Run) -> str:
    """Return the rate of a part whose examples are computed one after another, the reason and a faster way, else ""."""
    if part.rate is None:
        return ""
    why = "PyTorch cannot map one of its operators over examples"
    recurrent = any(isinstance(module, nn.RNNBase) for module in run.new_objective().modules())
    faster = " The recurrent layers of opacus.layers (DPLSTM, DPGRU, DPRNN) are faster here." if recurrent else ""
    return f" They are computed one after another, some {float(f'{part.rate:.2g}'):g} examples a second: {why}.{faster}"
