"""Linear and convolution layers of R runs at once, as batched matrix products over input rows.

The batches of the runs are one long batch of R x P examples, with the P examples of each run together. A layer turns
its input into T rows of K numbers per example: the windows of a convolution, or the unchanged input of a linear layer.
Its output is then one batched product [R, P T, K] x [R, K, O]. Its per-example gradients are products of the same rows
with the gradients of the output. It stores both, so that one forward and one backward pass are enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class NotStackableError(Exception):
    """No single sequence of calls can train these runs; the message is the reason."""


class Layer(nn.Module):
    """The layers of one name in every run: rows [R P, T, K] to outputs, each run with its weights.

    Attributes:
        weight: [R, O, K]; bias: [R, O] or None. Views of the runs' stacked weights that require no gradients.
        rows: [R P, T, K], from the last pass; None before it.
        output: [R P, T, O], from the last pass; None before it.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.flatten(2), requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        self.rows: Tensor | None = None
        self.output: Tensor | None = None

    def forget(self) -> None:
        self.rows, self.output = None, None

    def apply_to(self, rows: Tensor) -> Tensor:
        """Return outputs [R P, T, O] of rows [R P, T, K], and store both."""
        if self.output is not None:
            raise NotStackableError("a layer is called twice in one pass")
        runs, (examples, positions, numbers) = len(self.weight), rows.shape
        if examples % runs:
            raise NotStackableError("a layer is not called on one row an example")
        by_run = rows.reshape(runs, -1, numbers)
        transposed = self.weight.transpose(1, 2)
        if self.bias is None:
            product = torch.bmm(by_run, transposed)
        else:
            product = torch.baddbmm(self.bias.unsqueeze(1), by_run, transposed)
        output = product.view(examples, positions, -1)
        if not output.requires_grad:
            output.requires_grad_()
        self.rows, self.output = rows.detach(), output
        return output


class LinearLayer(Layer):
    """`nn.Linear`: inputs [R P, ..., in] to [R P, ..., out]."""

    def forward(self, inputs: Tensor) -> Tensor:
        rows = inputs.reshape(len(inputs), -1, inputs.shape[-1])
        return self.apply_to(rows).view(*inputs.shape[:-1], -1)


class ConvolutionLayer(Layer):
    """`nn.Conv2d` without groups or dilation, padded with zeros: images [R P, in, h, w] to [R P, out, h', w']."""

    def __init__(self, like: nn.Conv2d, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self._kernel, self._stride = like.kernel_size, like.stride
        self._padding = _padding(like)

    def forward(self, images: Tensor) -> Tensor:
        if any(self._padding):
            images = F.pad(images, self._padding)
        (kh, kw), (sy, sx) = self._kernel, self._stride
        windows = images.unfold(2, kh, sy).unfold(3, kw, sx).permute(0, 2, 3, 1, 4, 5)
        height, width = windows.shape[1:3]
        output = self.apply_to(windows.reshape(len(images), height * width, -1))
        return output.view(len(images), height, width, -1).permute(0, 3, 1, 2)


def unsupported(module: nn.Module) -> str | None:
    """Return the reason why a module with parameters cannot be stacked, or None if it can."""
    if type(module) is nn.Linear:
        return None
    if type(module) is not nn.Conv2d:
        return f"{type(module).__name__} is not a supported layer"
    if module.groups != 1 or module.dilation != (1, 1) or module.padding_mode != "zeros":
        return "a convolution has groups, dilation or a padding other than zeros"
    return None


def layer(like: nn.Module, weight: Tensor, bias: Tensor | None) -> Layer:
    """Return the layer of R runs that are like one, with stacked weights [R, *shape] and biases [R, out]."""
    if isinstance(like, nn.Conv2d):
        return ConvolutionLayer(like, weight, bias)
    return LinearLayer(weight, bias)


def _padding(like: nn.Conv2d) -> Sequence[int]:
    """Return the zeros left, right, above and below, in the order of `F.pad`."""
    if isinstance(like.padding, str):
        kh, kw = like.kernel_size if like.padding == "same" else (1, 1)
        return ((kw - 1) // 2, kw // 2, (kh - 1) // 2, kh // 2)  # the odd one goes right and below
    vertical, horizontal = like.padding
    return (horizontal, horizontal, vertical, vertical)


def numbers_per_example(layers: Sequence[Layer]) -> int:
    """Return the numbers that layers store per example, from their last pass: rows, outputs, and formed gradients."""
    total = 0
    for each in layers:
        if each.rows is not None and each.output is not None:
            formed = math.prod(each.weight.shape[1:]) if each.rows.shape[1] > 1 else 0
            total += math.prod(each.rows.shape[1:]) + math.prod(each.output.shape[1:]) + formed
    return total
