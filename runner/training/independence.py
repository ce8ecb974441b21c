"""Whether one example's loss hangs on the others of its batch, where no bound on its gradient bounds its influence.

Examples are made up, so nothing private is touched; batches have several sizes, among them one that the run's own
sampler draws. What is tried:

- losses: of a batch taken whole, in another order, without one example, and one by one, must agree example by example;
- derivatives, in training mode: d loss_i / d x_j = 0 for j != i, whatever is drawn at random meanwhile;
- memory: losses after a pass must not hang on which examples that pass was of;
- sums of clipped gradients, by each engine that the run may use: see `runner.training.removal`;
- where the clipping is the user's own class, what extreme examples contribute;
- where the features are, whether those of an image hang on the other images.

These are tests on some inputs at the initial weights, and no proof: a network can be written that changes its ways
later. What is assumed of one is said in `Objective`; `runtime.guard_every` tries the sums again while the run trains.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from runner.config import ConfigError
from runner.gradients import Objective
from runner.mechanism.seeds import derived_seed
from runner.training.instantiation import input_bound
from runner.training.prepare import Run
from runner.training.removal import check_among_others, check_contributions, check_removal, extreme
from runner.training.trials import own, rests_on_own_classes

_SIZES = (2, 7, 33)
_SUMMED = 5
_WORST = 2  # of extreme examples: these are taken out of batches, too
_AT_ONCE = 512  # examples: memory for one pass of a whole batch of them is there wherever the run has room to train
_DROPOUT = nn.modules.dropout._DropoutNd

Batch = tuple[Tensor, Tensor]  # inputs and targets


def check_independence(run: Run) -> None:
    """Refuse what couples the examples of a batch, before any data is read.

    Raises:
        ConfigError: with one sentence.
    """
    devices = [run.device] if run.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(derived_seed(run.config.seed, "independence"))
        objective = run.new_objective()
        drawn = sampled_size(run)
        try:
            _losses(objective, *made_up(run, 2))
        except Exception:  # cannot be trained either, and there failures are recorded
            return
        _check_features(run)
        try:
            _check_derivatives(objective, *made_up(run, _SUMMED))
            if run.config.runtime.guard_every and not _repeats(objective, *made_up(run, 2)):
                raise ConfigError("runtime.guard_every compares sums, but the network draws random numbers.")
            quiet = _without_chance(objective, *made_up(run, 2))
            for size in sorted({*_SIZES, max(2, min(drawn, _AT_ONCE))}):
                _check_losses(objective, *made_up(run, size))
            if run.mechanism.private and rests_on_own_classes(run, objective):
                examples = extreme(run, objective)
                worst = check_contributions(run, objective, examples)[:_WORST]
                if quiet:
                    check_among_others(run, objective, examples, worst)
            if quiet:
                check_removal(run, objective, [made_up(run, size) for size in {_SUMMED, max(2, drawn)}])
            _check_memory(run.new_objective(), made_up(run, _SUMMED), made_up(run, _SUMMED), made_up(run, 2))
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, IndexError, TypeError, NotImplementedError) as error:
            reason = str(error).partition("\n")[0]
            raise ConfigError(f"architecture or loss: fails on some batches of made-up examples: {reason}") from error


def sampled_size(run: Run) -> int:
    """How many examples the run's sampler draws for a batch."""
    stream = torch.Generator(device=run.device).manual_seed(derived_seed(run.config.seed, "independence"))
    return len(next(iter(run.mechanism.batches(stream))))


def made_up(run: Run, count: int) -> tuple[Tensor, Tensor]:
    """Inputs [count, *shape] of sizes from 1/16 to 16 times the usual, in no order, and targets [count].

    Where features are of bounded norm, so are these.
    """
    shape = run.features.shape(run.dataset.shape)
    scales = 2 ** (8 * torch.rand(count, *[1] * len(shape)) - 4)
    inputs = input_bound(run.features, run.dataset).within(torch.rand(count, *shape) * scales).to(run.device)
    return inputs, torch.randint(run.dataset.classes, (count,)).to(run.device)


def _without_chance(objective: Objective, inputs: Tensor, targets: Tensor) -> bool:
    """Turn off what draws at random, so that passes can be compared: dropout alone, where that is all.

    Where something else draws, everything is taken in evaluation mode; returns whether two passes agree then.
    """
    for module in objective.modules():
        if isinstance(module, _DROPOUT):
            module.eval()
    if not _repeats(objective, inputs, targets):
        objective.eval()
    return _repeats(objective, inputs, targets)


def _repeats(objective: Objective, inputs: Tensor, targets: Tensor) -> bool:
    return torch.equal(_losses(objective, inputs, targets), _losses(objective, inputs, targets))


def _losses(objective: Objective, inputs: Tensor, targets: Tensor) -> Tensor:
    with torch.no_grad():
        losses: Tensor = objective(inputs, targets)
    return losses


def _check_losses(objective: Objective, inputs: Tensor, targets: Tensor) -> None:
    count = len(targets)
    whole = _losses(objective, inputs, targets)
    if whole.shape != (count,):
        _refuse(objective)
    order = torch.randperm(count, device=whole.device)
    few = range(0, count, max(1, count // 8))
    alone = torch.cat([_losses(objective, inputs[i : i + 1], targets[i : i + 1]) for i in few])
    compared = [
        (_losses(objective, inputs[order], targets[order]), whole[order]),
        (_losses(objective, inputs[order[1:]], targets[order[1:]]), whole[order[1:]]),
        (alone, whole[list(few)]),
    ]
    if not all(agree(found, expected) for found, expected in compared):
        _refuse(objective)


def _check_derivatives(objective: Objective, inputs: Tensor, targets: Tensor) -> None:
    inputs = inputs.clone().requires_grad_()
    losses = objective(inputs, targets)
    for i in range(len(targets) if losses.requires_grad else 0):
        (slope,) = torch.autograd.grad(losses[i], inputs, retain_graph=True, allow_unused=True)
        if slope is not None and (slope[torch.arange(len(targets)) != i] != 0).any():
            _refuse(objective)


def _check_features(run: Run) -> None:
    """Features of the user's own, where they are to be private: an image's alone must be what it has among others.

    Nothing is charged for features, so that they may be no statistic of the images.
    """
    if not (run.mechanism.private and own(run.features)):
        return
    name = type(run.features).__qualname__
    images = torch.rand(_SUMMED, *run.dataset.shape, device=run.device)
    try:
        whole, alone = run.features(images), torch.cat([run.features(image) for image in images.split(1)])
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"features: {name} fails on made-up images: {reason}") from error
    if not agree(whole, alone):
        raise ConfigError(
            f"features: those that {name} makes of an image hang on the other images, or on chance: no ε would hold."
        )


def _check_memory(objective: Objective, one: Batch, other: Batch, probe: Batch) -> None:
    """What a pass leaves behind must be the same whatever it was of: it gets no noise, and stays in the network."""
    left = []
    for batch in (one, one, other):
        tried = copy.deepcopy(objective)
        found = []
        for training in (True, False):
            torch.manual_seed(0)
            tried.train()(*batch)
            torch.manual_seed(0)
            found.append(_losses(tried.train(training), *probe))
        left.append(torch.cat(found))
    again, otherwise = (torch.equal(left[0].nan_to_num(), each.nan_to_num()) for each in left[1:])
    if not (otherwise if again else agree(left[0], left[2])):
        raise ConfigError(
            "The losses hang on examples of earlier batches, which the architecture or the loss "
            f"{type(objective.loss).__name__} keeps something of, without noise: no ε would hold."
        )


def agree(found: Tensor, expected: Tensor) -> bool:
    """Whether per-example numbers are the same but for rounding."""
    return found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-3, atol=1e-4, equal_nan=True)


def _refuse(objective: Objective) -> None:
    raise ConfigError(
        "The loss of an example hangs on the others of its batch, by the loss "
        f"{type(objective.loss).__name__} or by the architecture: no ε would hold."
    )
