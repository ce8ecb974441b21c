"""A network for when no gradients are wanted: the same function, in less time.

Monotone activations come after max-pooling (see `pool_first`). On a CPU max-pooling is done by comparing shifted views
of the whole tensor (PyTorch's own finds the place of every maximum too, which takes it several times as long), and tanh
by the logistic function, in a fifth of the time: its error is then the rounding of numbers near one, not of the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce

import torch
from torch import Tensor, nn

from runner.activations import TemperedSigmoid
from runner.engines.one_pass.pooling import pool_first, with_parts
from runner.engines.one_pass.slices import channels_last

_BATCH = {"cpu": 250, "cuda": 2500}  # images: on a CPU as many as fit its cache, channels last


class ShiftedMaxPool(nn.MaxPool2d):
    """`nn.MaxPool2d` without padding, dilation or rounding up, for a CPU; NaN where a NaN is in the window, like it."""

    def __init__(self, plain: nn.MaxPool2d) -> None:
        super().__init__(plain.kernel_size, plain.stride)

    @staticmethod
    def can_be(module: nn.Module) -> bool:
        """Whether this computes what `module` does."""
        return (
            type(module) is nn.MaxPool2d
            and _pair(module.padding) == (0, 0)
            and _pair(module.dilation) == (1, 1)
            and not (module.ceil_mode or module.return_indices)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Images [batch, channels, height, width] to the maxima of their windows."""
        kernel, stride = _pair(self.kernel_size), _pair(self.stride)
        fits = x.dim() == 4 and x.shape[-2] >= kernel[0] and x.shape[-1] >= kernel[1]
        if not (x.is_cpu and fits) or torch.is_grad_enabled():
            return super().forward(x)
        rows = _maxima(x, kernel[1], stride[1])
        return _maxima(rows.mT, kernel[0], stride[0]).mT


def _maxima(x: Tensor, kernel: int, stride: int) -> Tensor:
    """Of windows along the last dimension."""
    past = x.shape[-1] - kernel + 1
    return reduce(torch.maximum, [x[..., shift : shift + past : stride] for shift in range(kernel)])


def _pair(size: int | tuple[int, ...]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def for_inference(module: nn.Module) -> nn.Module:
    """`module` as it is computed fastest without gradients; layers, parameters and buffers are shared."""
    return _replaced(pool_first(module))


def _replaced(module: nn.Module) -> nn.Module:
    if type(module) is nn.Tanh:
        return TemperedSigmoid(2, 2, 1)
    if ShiftedMaxPool.can_be(module):
        assert isinstance(module, nn.MaxPool2d)
        return ShiftedMaxPool(module)
    return with_parts(module, {name: part and _replaced(part) for name, part in module._modules.items()})


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """The module in evaluation mode, and nothing recorded for gradients."""
    module.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        module.train()


def batches(images: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """A split in pieces of the size that suits its device, images channels last."""
    size = _BATCH[images.device.type]
    for some_images, some_targets in zip(images.split(size), targets.split(size), strict=True):
        yield channels_last(some_images), some_targets
