"""The number of examples that pass through the network at a time.

Contributions are sums over examples, so a batch may be cut anywhere. In a small slice, a layer's output and the
gradients stay in the processor's cache. Then elementwise layers and weighted sums do not wait for memory, and the peak
memory does not grow with the batch. The cost is one set of calls per slice. Below 3 MiB of a layer's output it counts
(9 to 22% more time at 1.5 MiB, with AVX2 as with AVX-512). With a cache of 32 MiB, 8 MiB take 8% less time than 3 MiB,
2% less than 6 MiB, and 2 to 5% more than 16 MiB.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from runner.networks.geometry import Geometry
from runner.networks.objective import hooked

_LARGEST = {"cpu": 8 << 20, "cuda": 1 << 30}  # bytes of the largest output of a slice
_FORMED = {"cpu": 192 << 20, "cuda": 4 << 30}  # bytes of all gradients formed for a slice


def examples_per_slice(shapes: Sequence[Geometry], batch: int, inputs: Tensor) -> int:
    """Examples in a slice, all slices of a batch being as equal as can be."""
    if not shapes:
        return batch
    size, device = inputs.element_size(), inputs.device.type
    output = size * max(shape.positions * shape.channels_out for shape in shapes)
    formed = size * sum(shape.weights for shape in shapes if shape.positions > 1)
    most = max(1, min(_LARGEST.get(device, 1 << 30) // output, _FORMED.get(device, 1 << 30) // max(1, formed)))
    return math.ceil(batch / math.ceil(batch / most))


def examples_in_cache(network: nn.Module, shape: Sequence[int]) -> int:
    """Examples in a slice of an ordinary forward and backward pass: `network` is tried on one of this shape."""
    weights = next(network.parameters())
    example = torch.zeros(1, *shape, dtype=weights.dtype, device=weights.device)
    largest = [example.numel()]

    def note(name: str, module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor):
            largest.append(output.numel())

    cuda = [example.device] if example.device.type == "cuda" else []
    with hooked(dict(network.named_modules()), note), torch.random.fork_rng(devices=cuda), torch.no_grad():
        network(example)
    return max(1, _LARGEST.get(example.device.type, 1 << 30) // (example.element_size() * max(largest)))


def channels_last(images: Tensor) -> Tensor:
    """Images [batch, channels, height, width] with the channels innermost; anything else as it is.

    With one channel both orders are the same memory, and only strides that say so keep the network channels last.
    """
    if images.dim() != 4:
        return images
    images = images.contiguous(memory_format=torch.channels_last)
    _, channels, height, width = images.shape
    if channels == 1:
        images = images.as_strided(images.shape, (height * width, 1, width, 1))
    return images
