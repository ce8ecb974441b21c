"""An epoch's batches of R runs, drawn at once and padded to one length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from scipy.stats import binom
from torch import Generator, Tensor

from runner.config import Sampling
from runner.data.augmentation import Augmentation
from runner.mechanism.dp_sgd import Mechanism

_ROUND = 16  # batches are padded to a multiple of it
_TOO_SHORT = 1e-3  # probability that a length expected to be enough is not


@dataclass(frozen=True)
class EpochBatches:
    """An epoch's batches of R runs.

    Attributes:
        indices: [steps, R, P], the examples of each batch in the order in which a single run draws them, then zeros.
        mask: [steps, R, P], true if an index belongs to the batch.
        seen: examples in all batches, by run.
        drawn: [steps, R, P, views, numbers], the random numbers of the examples' views, or none without views.
    """

    indices: Tensor
    mask: Tensor
    seen: list[int]
    drawn: Tensor | None = None

    @property
    def length(self) -> int:
        """Return P."""
        return self.indices.shape[2]


def whole(examples: int, runs: int, device: torch.device, length: int | None = None) -> EpochBatches:
    """Return one batch of all examples for every run, padded to `length`, for measuring the time of a step."""
    places = torch.arange(max(examples, length or 0), device=device).expand(1, runs, -1)
    mask = places < examples
    return EpochBatches(places * mask, mask, [examples] * runs)


def enough(mechanism: Mechanism, steps: int) -> int:
    """Return a length for all batches of this number of steps, as a new length means a new graph.

    A Poisson batch is longer than the returned length with a probability of at most 0.001 / `steps`.
    """
    if mechanism.sampling is not Sampling.poisson:
        return _rounded(mechanism.batch_size)
    return _rounded(int(binom.isf(_TOO_SHORT / steps, mechanism.examples, mechanism.sampling_rate)))


def draw_epoch(mechanism: Mechanism, generators: Sequence[Generator], least: int = 0) -> EpochBatches:
    """Return the batches that `mechanism.batches` draws for each run from its generator, padded to P >= `least`.

    No batch is ever cut. A longer one increases P. The host waits for the device twice a run, not once a step.
    """
    drawn = [_draw(mechanism, generator) for generator in generators]
    sizes = torch.stack([size for size, _, _ in drawn], dim=1)  # [steps, R]
    largest, seen = int(sizes.max()), sizes.sum(0).tolist()
    length = max(least, _rounded(largest))
    mask = torch.arange(length, device=sizes.device) < sizes[..., None]
    indices = torch.zeros(*sizes.shape, length, dtype=torch.long, device=sizes.device)
    for run, (size, step, index) in enumerate(drawn):
        starts = size.cumsum(0) - size
        indices[step, run, torch.arange(len(index), device=sizes.device) - starts[step]] = index
    return EpochBatches(indices, mask, seen)


def with_views(batches: EpochBatches, augmentation: Augmentation, generators: Sequence[Generator]) -> EpochBatches:
    """Return the batches with the numbers of their views, as a single run draws them, from each run's generator."""
    sizes = batches.mask.sum(2).tolist()
    like = augmentation.draw(0, generators[0])
    drawn = like.new_zeros(*batches.indices.shape, *like.shape[1:])
    for by_run, of_step in zip(sizes, drawn, strict=True):
        for size, numbers, generator in zip(by_run, of_step, generators, strict=True):
            numbers[:size] = augmentation.draw(size, generator)
    return replace(batches, drawn=drawn.to(batches.indices.device))


def _draw(mechanism: Mechanism, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return one run's epoch: the sizes of its batches [steps], and the step and the index of every drawn example."""
    if mechanism.sampling is Sampling.poisson:
        joined = torch.stack(list(mechanism.memberships(generator)))
        step, index = joined.nonzero(as_tuple=True)
        return joined.sum(1), step, index
    order = torch.stack(list(mechanism.batches(generator)))
    steps, size = order.shape
    step = torch.arange(steps, device=order.device).repeat_interleave(size)
    return torch.full((steps,), size, device=order.device), step, order.flatten()


def _rounded(length: int) -> int:
    return max(1, -(-length // _ROUND) * _ROUND)
