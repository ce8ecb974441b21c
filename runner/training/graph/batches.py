"""An epoch's batches, drawn at once and padded to one length."""

from bisect import bisect_left
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
    """An epoch's batches.

    Attributes:
        indices: [steps, P], the examples of each batch in the order in which they are drawn call by call, then zeros;
            or all of these in places that are drawn at random (`runner.gradients.precision`).
        mask: [steps, P], true if an index belongs to the batch.
        sizes: examples in each batch, on the host.
        numbers: [steps, P, views, numbers], the random numbers of the examples' views, or none without views.
    """

    indices: Tensor
    mask: Tensor
    sizes: list[int]
    numbers: Tensor | None = None


def whole(examples: int, device: torch.device, length: int = 0) -> EpochBatches:
    """Return one batch of all examples, padded to `length`, for measuring the time of a step."""
    places = torch.arange(max(examples, length), device=device)[None]
    mask = places < examples
    return EpochBatches(places * mask, mask, [examples])


def enough(mechanism: Mechanism, steps: int, longer: float = _TOO_SHORT) -> int:
    """Return a length for all batches of this number of steps, as a new length means a new graph.

    A Poisson batch is longer than the returned length with a probability of at most `longer` / `steps`.
    """
    if mechanism.sampling is not Sampling.poisson:
        return _rounded(mechanism.batch_size)
    count, rate = mechanism.examples, mechanism.sampling_rate
    # `binom.isf` is N for a probability below 5e-17.
    return _rounded(bisect_left(range(count), -longer / steps, key=lambda size: -binom.sf(size, count, rate)))


def usual(mechanism: Mechanism, longest: int) -> tuple[int, ...]:
    """Return the lengths that batches are padded to, of which the last is the longest: two, or one if all are equal.

    A step takes the first one if its batch fits. Of all first lengths this one has the least padding in the mean.
    """
    if mechanism.sampling is not Sampling.poisson:
        return (longest,)
    shorter = torch.arange(_ROUND, longest + 1, _ROUND)
    fits = binom.cdf(shorter, mechanism.examples, mechanism.sampling_rate)
    first = int(shorter[(longest - fits * (longest - shorter.numpy())).argmin()])
    return (first, longest) if first < longest else (longest,)


def draw_epoch(mechanism: Mechanism, generator: Generator, least: int = 0, *, shuffled: bool = False) -> EpochBatches:
    """Return the batches that `mechanism.batches` draws from the generator, padded to P >= `least`.

    If they are `shuffled`, each batch's examples and its padding are in a uniformly random order.

    No batch is ever cut. A longer one increases P. The host waits for the device a few times an epoch, not once a step.
    """
    if mechanism.sampling is Sampling.poisson:
        joined = torch.stack(list(mechanism.memberships(generator)))
        lengths, examples = joined.sum(1), joined.nonzero()[:, 1]
    else:
        order = torch.stack(list(mechanism.batches(generator)))
        lengths, examples = torch.full((len(order),), order.shape[1], device=order.device), order.flatten()
    sizes = lengths.tolist()
    length = max(least, _rounded(max(sizes)))
    mask = torch.arange(length, device=lengths.device) < lengths[:, None]
    indices = torch.zeros(mask.shape, dtype=torch.long, device=lengths.device)
    indices[mask] = examples  # both are ordered by step
    if shuffled:
        orders = [torch.randperm(length, generator=generator, device=generator.device) for _ in mask]
        order = torch.stack(orders).to(mask.device)
        indices, mask = indices.gather(1, order), mask.gather(1, order)
    return EpochBatches(indices, mask, sizes)


def draw_views(batches: EpochBatches, augmentation: Augmentation, generator: Generator) -> EpochBatches:
    """Return the batches with the numbers of their views, as they are drawn call by call."""
    like = augmentation.draw(0, generator)
    numbers = like.new_zeros(*batches.indices.shape, *like.shape[1:])
    for members, size, batch in zip(batches.mask.cpu(), batches.sizes, numbers, strict=True):
        batch[members] = augmentation.draw(size, generator)
    return replace(batches, numbers=numbers.to(batches.indices.device))


def _rounded(length: int) -> int:
    return max(1, -(-length // _ROUND) * _ROUND)
