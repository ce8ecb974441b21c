"""Choice of the examples of a batch, as indices into a data set that stays on the device."""

from collections.abc import Iterator

import torch
from torch import Generator, Tensor


def poisson_memberships(examples: int, rate: float, steps: int, generator: Generator) -> Iterator[Tensor]:
    """Yield `steps` batches as truth values [examples]; every example joins each independently with this rate.

    Batches differ in size and can be empty. Uniforms are float64. On float32's grid of 2^-24 the rate would have a
    relative rounding error of up to 1e-5.
    """
    for _ in range(steps):
        yield torch.rand(examples, dtype=torch.float64, device=generator.device, generator=generator) < rate


def shuffled_batches(examples: int, batch_size: int, steps: int, generator: Generator) -> Iterator[Tensor]:
    """Yield the first `steps` disjoint batches of `batch_size` examples of a fresh random order."""
    order = torch.randperm(examples, device=generator.device, generator=generator)
    for step in range(steps):
        yield order[step * batch_size : (step + 1) * batch_size]


def batches_in_order(examples: int, batch_size: int, device: torch.device) -> Iterator[Tensor]:
    """Yield all examples in the order of their file, in batches of `batch_size`; the last batch has the rest."""
    yield from torch.arange(examples, device=device).split(batch_size)
