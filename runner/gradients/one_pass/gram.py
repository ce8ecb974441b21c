"""Convolution with few positions and many weights: norms from two Gram matrices, without forming gradients.

With the windows a_t (K C numbers each) and the output gradients g_t,

    ||sum_t g_t a_t^T||^2 = sum_{t,u} <a_t, a_u> <g_t, g_u>.

The windows' Gram matrix is not computed from windows: <a_t, a_u> = sum_k <p_{st+dk}, p_{su+dk}>. These are K shifted
blocks of the Gram matrix of the raw padded input p, which takes K times fewer multiplications.

Cost: P^2 C + T^2 O multiplications and K T^2 additions per example. P is the number of positions of the input, padded
unless gram_norms.cpp does the additions. The sum is an ordinary weight gradient, T K C O, of the output gradients times
their factors.

The sum over (t, u) has terms of both signs. If they cancel to less than a thousandth of their possible size, the
rounding error could hide a large gradient, which breaks the sensitivity. Such a slice has to be instantiated. The same
holds for a slice with numbers so small that their products vanish.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from runner.gradients.one_pass.instantiate import padded
from runner.gradients.one_pass.scratch import Scratch
from runner.gradients.terms import Terms
from runner.networks.geometry import Geometry
from runner.speed.kernels import fits, integers, library, pointers, waves

_CANCELLED = 1e-3
_LEAST = 1e-12  # of an example's largest number: squares of smaller ones leave the range of float32


def gram(a: Tensor, g: Tensor, shape: Geometry, has_bias: bool, scratch: Scratch) -> Terms | None:
    """Return terms of an ungrouped convolution, or None if terms cancel.

    Args:
        a: [batch, h, w, in].
        g: [batch, h', w', out].
    """
    rows = g.flatten(1, 2)
    compiled = library("gram_norms", agrees) if fits(a) else None
    squares, largest = _norms(a, rows, shape) if compiled is None else _compiled_norms(compiled, a, rows, shape)
    if (squares < _CANCELLED * largest).any() or _vanish(a) or _vanish(g):
        return None
    return Terms(
        squares=squares,
        weight_sum=lambda factors: weight_gradient(a, g * factors.view(-1, 1, 1, 1), shape),
        biases=rows.sum(1) if has_bias else None,
    )


def agrees(compiled: ctypes.CDLL) -> bool:
    """Check that a library finds the norms that PyTorch does: narrow and wide rows, strides, padding, dilation."""
    for shape in (
        Geometry(3, 5, (7, 6), (4, 3), (3, 2), (2, 2), (1, 0)),
        Geometry(5, 4, (7, 21), (5, 19), (3, 3), (1, 1), (1, 1), (2, 2)),
    ):
        a, g = waves(3, *shape.input, shape.channels_in), waves(3, *shape.output, shape.channels_out)
        for found, expected in zip(
            _compiled_norms(compiled, a, g.flatten(1, 2), shape), _norms(a, g.flatten(1, 2), shape), strict=True
        ):
            if not torch.allclose(found, expected, rtol=1e-4):
                return False
    return True


def weight_gradient(a: Tensor, g: Tensor, shape: Geometry) -> Tensor:
    """Return the weight's ordinary gradient [out, in / groups, kh, kw], summed over a batch in channels-last order."""
    images, gradients = a.permute(0, 3, 1, 2), g.permute(0, 3, 1, 2)
    weight = images.new_empty(shape.channels_out, shape.channels_in // shape.groups, *shape.kernel)
    weight = weight.contiguous(memory_format=torch.channels_last)
    convolution = (list(shape.stride), list(shape.padding), list(shape.dilation), False, [0, 0], shape.groups)
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


def _compiled_norms(compiled: ctypes.CDLL, a: Tensor, rows: Tensor, shape: Geometry) -> tuple[Tensor, Tensor]:
    """Return the result of `_norms`, with the additions in C++."""
    pixels, of_outputs = _products(a.flatten(1, 2)).contiguous(), _products(rows).contiguous()
    squares, largest = a.new_empty(len(a)), a.new_empty(len(a))
    numbers = [*shape.input, *shape.output, *shape.kernel, *shape.stride, *shape.padding, *shape.dilation]
    layout = (ctypes.c_int64 * len(numbers))(*numbers)
    batch, threads = integers(len(a), torch.get_num_threads())
    compiled.gram_norms(*pointers(pixels, of_outputs, squares, largest), batch, layout, threads)
    return squares, largest


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
