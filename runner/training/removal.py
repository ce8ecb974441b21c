"""How far the sum that a run releases moves when one example is taken out of a batch: never beyond its sensitivity.

This is the definition of sensitivity, tried on the very code that the run uses: its engine, its clipping, its cut into
physical batches. It finds what norms cannot be trusted for, such as a layer that sees several rows an example, whose
engine then clips rows and not examples.

Examples of ordinary size may stay below a bound that is not there. So extreme ones are taken by themselves, too, and
among copies of themselves and one another.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from contextlib import redirect_stderr

import torch
from torch import Tensor

from runner.clipping import gradient_sum, is_of_norms
from runner.clipping.per_example import clip_factors
from runner.config import ConfigError
from runner.gradients import Engine, GradientSum, Objective
from runner.training.instantiation import input_bound
from runner.training.prepare import Run, engine

_SLACK = 0.05  # of a bound: units at a kink may fall to either side when a batch is cut elsewhere
_ROUNDING = 1e-6  # of a bound, for each example: float32 sums
_SMALL = 1e-2  # of the smallest norm: so every example is clipped
_CONTRIBUTION = 1e-3  # of a bound: float32, and the sums of a large layer
_COPIES = 8
_SCALES = (1e-2, 1.0, 1e1, 1e2, 1e4)
_SMALL_BATCH = 16  # examples: above it the extra sums of the small bound cost more than they tell


def check_removal(run: Run, objective: Objective, batches: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Take one example out of each batch (inputs, targets), and compare with what clipping and mechanism state.

    Besides the run's own bound a small one is tried, to which every contribution is clipped: then an example moves the
    sum by exactly that.

    Raises:
        ConfigError: where the sum moves too far, or an engine has not one norm an example.
    """
    with redirect_stderr(io.StringIO()):  # what an engine says, it says again when the run begins
        gradient_engine = engine(run.config, objective)
        for inputs, targets in batches:
            try:
                check_one_removed(run, gradient_engine, inputs, targets, int(torch.randint(len(targets), ())))
                if run.clipping.needs_engine and len(targets) <= _SMALL_BATCH:
                    _check_small_bound(gradient_engine, inputs, targets)
            except ValueError as error:
                raise ConfigError(f"architecture: {error}") from error


def check_contributions(run: Run, objective: Objective, examples: tuple[Tensor, Tensor]) -> list[int]:
    """Compare what each of some examples (inputs, targets) contributes alone with the sensitivity of each group.

    Returns the examples' numbers, those with the longest gradients first, or with the largest losses,
    where norms are not computed.

    Raises:
        ConfigError: where one contributes more.
    """
    inputs, targets = examples
    sizes: dict[int, float] = {}
    with redirect_stderr(io.StringIO()):
        gradient_engine = engine(run.config, objective)
        alone = run.mechanism.applied(run.clipping, 1)
        try:
            for i in range(len(targets)):
                one = inputs[i : i + 1], targets[i : i + 1]
                found = gradient_sum(alone, gradient_engine, *one, run.physical_batch)
                sizes[i] = (found.losses if found.norms is None else found.norms).item()
                _check_one(run, found)
                if is_of_norms(alone):  # what a step that is a fixed sequence of calls asks
                    _check_one(run, alone.sum_with(gradient_engine, *one, vars(alone)))
        except ValueError as error:
            raise ConfigError(f"clipping: {error}") from error
    return sorted(sizes, key=lambda i: sizes[i], reverse=True)


def _check_one(run: Run, found: GradientSum) -> None:
    """The sum over one example against the sensitivities."""
    for group in run.mechanism.noise_groups:
        if math.isinf(group.sensitivity):
            continue
        squares = [found.gradients[name].double().square().sum() for name in group.parameters]
        length = float(torch.stack(squares).sum().sqrt())
        if not length <= group.sensitivity * (1 + _CONTRIBUTION):
            raise ValueError(
                f"one example contributes {length:.3g} to {' and '.join(_ends(group.parameters))}, but the sensitivity "
                f"stated is {group.sensitivity:.3g}: no ε would hold"
            )


def _ends(names: Sequence[str]) -> list[str]:
    """The first of many names and how many follow; or both of two."""
    return list(names) if len(names) < 3 else [names[0], f"{len(names) - 1} more"]


def check_among_others(run: Run, objective: Objective, examples: tuple[Tensor, Tensor], which: Sequence[int]) -> None:
    """Take the examples of these numbers out of a batch of all, and one out of copies of itself.

    Raises:
        ConfigError: where the sum moves by more than the mechanism charges for.
    """
    inputs, targets = examples
    with redirect_stderr(io.StringIO()):
        gradient_engine = engine(run.config, objective)
        try:
            for i in which:
                copies = torch.full((_COPIES,), i, device=targets.device)
                check_one_removed(run, gradient_engine, inputs[copies], targets[copies], 0)
                check_one_removed(run, gradient_engine, inputs, targets, i)
        except ValueError as error:
            raise ConfigError(f"clipping: {error}") from error


def extreme(run: Run, objective: Objective) -> tuple[Tensor, Tensor]:
    """Examples with large gradients, inputs [examples, *shape] and targets [examples].

    Images of noise, of black and white, of one value and of one pixel, from faint to ten thousand times as bright as
    any that is read, as far as features are not bounded; each with its least likely class, some with the first and
    the last.
    """
    shape, device = run.features.shape(run.dataset.shape), run.device
    noise = torch.rand(1, *shape)
    one_pixel = torch.zeros(1, *shape)
    one_pixel.view(-1)[one_pixel.numel() // 2] = 1
    images = torch.cat([noise, noise.round(), 2 * noise.round() - 1, torch.ones(1, *shape), one_pixel])
    bound = input_bound(run.features, run.dataset)
    inputs = bound.within(torch.cat([scale * images for scale in _SCALES])).to(device)
    with torch.no_grad():
        worst = objective.network(inputs).argmin(1)
    few = inputs[:: len(inputs) // 4]
    ends = torch.tensor([0, run.dataset.classes - 1], device=device).repeat_interleave(len(few))
    return torch.cat([inputs, few, few]), torch.cat([worst, ends])


def check_one_removed(run: Run, gradient_engine: Engine, inputs: Tensor, targets: Tensor, out: int) -> None:
    """Compare the sums with and without example number `out`, group by group.

    Raises:
        ValueError: where they differ by more than the mechanism charges for.
    """
    count = len(targets)
    rest = torch.arange(count, device=targets.device) != out
    whole, without = (
        gradient_sum(
            run.mechanism.applied(run.clipping, len(some)),
            gradient_engine,
            inputs[kept],
            some,
            run.physical_batch,
            run.mechanism.noise_groups,
        )
        for kept, some in ((slice(None), targets), (rest, targets[rest]))
    )
    _check_examples(whole, without, rest)
    for group in run.mechanism.noise_groups:
        if math.isinf(group.sensitivity):
            continue
        moved, most = _distance(whole, without, group.parameters), run.mechanism.most_moved(group)
        if not moved <= most * (1 + _SLACK + _ROUNDING * count):
            raise ValueError(
                f"one example moves the sum by {moved:.3g}, but the noise is for {most:.3g}: no ε would hold"
            )


def _check_examples(whole: GradientSum, without: GradientSum, rest: Tensor) -> None:
    """The other examples' losses and norms are what they were."""
    for name in ("losses", "norms"):
        numbers, fewer = getattr(whole, name), getattr(without, name)
        if numbers is None:
            continue
        expected = numbers[rest]
        tolerance = _SLACK * expected.abs() + 1e-4 * numbers.abs().max()
        close = (fewer - expected).abs() <= tolerance
        if not (close | ~torch.isfinite(expected)).all():
            raise ValueError(f"one example changes the {name} of others: no ε would hold")


def _check_small_bound(gradient_engine: Engine, inputs: Tensor, targets: Tensor) -> None:
    """Clipped to a bound below every norm, each example's contribution has the very length of the bound."""
    groups = [[name for name, _ in gradient_engine.objective.named_parameters()]]
    norms = gradient_engine.clipped_sum(inputs, targets, groups, torch.ones_like).norms
    usable = norms[torch.isfinite(norms) & (norms > 0)] if norms is not None else None
    if usable is None or len(usable) == 0:
        return
    bound = _SMALL * usable.min().item()

    def clipped(kept: Tensor) -> GradientSum:
        return gradient_engine.clipped_sum(inputs[kept], targets[kept], groups, lambda n: clip_factors(n, bound))

    count = len(targets)
    whole = clipped(torch.ones_like(targets, dtype=torch.bool))
    for out in {0, count - 1}:
        rest = torch.arange(count, device=targets.device) != out
        moved = _distance(whole, clipped(rest), groups[0])
        if not moved <= bound * (1 + _SLACK + _ROUNDING * count):
            raise ValueError(f"one example moves a sum clipped to {bound:.3g} by {moved:.3g}: no ε would hold")


def _distance(one: GradientSum, other: GradientSum, parameters: Sequence[str]) -> float:
    squares = [(one.gradients[name] - other.gradients[name]).double().square().sum() for name in parameters]
    return float(torch.stack(squares).sum().sqrt())
