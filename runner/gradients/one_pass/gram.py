"""Convolution with few positions and many weights: norms from two Gram matrices, without forming gradients.

With the windows a_t (K C numbers each) and the output gradients g_t,

    ||sum_t g_t a_t^T||^2 = sum_{t,u} <a_t, a_u> <g_t, g_u>.

The windows' Gram matrix is not computed from windows: <a_t, a_u> = sum_k <p_{st+dk}, p_{su+dk}>. These are K shifted
blocks of the Gram matrix of the raw padded input p, which takes K times fewer multiplications.

Cost: P^2 C + T^2 O multiplications and K T^2 additions per example. P is the number of positions of the padded input.
The sum is an ordinary weight gradient, T K C O, of the output gradients times their factors.

The sum over (t, u) has terms of both signs. If they cancel to less than a thousandth of their possible size, the
rounding error could hide a large gradient, which breaks the sensitivity. Such a slice has to be instantiated. The same
holds for a slice with numbers so small that their products vanish.
"""

from __future__ import annotations

import torch
from torch import Tensor

from runner.gradients.one_pass.instantiate import padded
from runner.gradients.terms import Terms
from runner.networks.geometry import Geometry

_CANCELLED = 1e-3
_LEAST = 1e-12  # of an example's largest number: squares of smaller ones leave the range of float32


def gram(a: Tensor, g: Tensor, shape: Geometry, has_bias: bool) -> Terms | None:
    """Return terms of a convolution, or None if terms cancel.

    Args:
        a: [batch, h, w, in].
        g: [batch, h', w', out].
    """
    rows = g.flatten(1, 2)
    squares, largest = _norms(a, rows, shape)
    if (squares < _CANCELLED * largest).any() or _vanish(a) or _vanish(g):
        return None
    return Terms(
        squares=squares,
        weight_sum=lambda factors: weight_gradient(a, g * factors.view(-1, 1, 1, 1), shape),
        biases=rows.sum(1) if has_bias else None,
    )


def weight_gradient(a: Tensor, g: Tensor, shape: Geometry) -> Tensor:
    """Return the weight's ordinary gradient [out, in, kh, kw], summed over a batch in channels-last order."""
    images, gradients = a.permute(0, 3, 1, 2), g.permute(0, 3, 1, 2)
    weight = images.new_empty(shape.channels_out, shape.channels_in, *shape.kernel)
    weight = weight.contiguous(memory_format=torch.channels_last)
    convolution = (list(shape.stride), list(shape.padding), list(shape.dilation), False, [0, 0], 1)
    backward = torch.ops.aten.convolution_backward
    of_weight: Tensor = backward(gradients, images, weight, None, *convolution, [False, True, False])[1]
    return of_weight


def _vanish(numbers: Tensor) -> bool:
    """Return True if an example's numbers [batch, ...] are so small that their squares vanish, and not all zero."""
    least, most = torch.aminmax(numbers.flatten(1), dim=1)
    largest = torch.maximum(-least, most)
    return bool(((largest > 0) & (largest < _LEAST)).any())


def _products(rows: Tensor) -> Tensor:
    """Return <row_t, row_u> of rows [batch, T, numbers]: [batch, T, T]."""
    return torch.bmm(rows, rows.transpose(1, 2))


def _norms(a: Tensor, rows: Tensor, shape: Geometry) -> tuple[Tensor, Tensor]:
    """Return squared norms [batch], and their values if no terms cancelled [batch]; rows: g as [batch, T, out]."""
    of_windows, of_outputs = _window_products(a, shape), _products(rows)
    squares = torch.linalg.vecdot(of_windows.flatten(1), of_outputs.flatten(1))
    return squares, (_diagonal(of_windows) * _diagonal(of_outputs)).clamp(min=0).sqrt().sum(1).square()


def _diagonal(matrices: Tensor) -> Tensor:
    return matrices.diagonal(dim1=1, dim2=2)


def _window_products(a: Tensor, shape: Geometry) -> Tensor:
    """Return <a_t, a_u>: [batch, T, T]."""
    p = padded(a, shape).flatten(1, 2)
    (height, width), (out_height, out_width) = shape.padded, shape.output
    (sy, sx), (dy, dx) = shape.stride, shape.dilation
    raw = _products(p).view(-1, height, width, height, width)
    total = None
    for ky in range(shape.kernel[0]):
        for kx in range(shape.kernel[1]):
            y = slice(ky * dy, ky * dy + sy * (out_height - 1) + 1, sy)
            x = slice(kx * dx, kx * dx + sx * (out_width - 1) + 1, sx)
            block = raw[:, y, x, y, x]
            total = block.clone(memory_format=torch.contiguous_format) if total is None else total.add_(block)
    assert total is not None
    return total.reshape(len(a), shape.positions, shape.positions)
