"""Convolution with gradients formed, for every example the O x K C matrix below.

    W[o, (k, c)] = sum_t g[t, o] a[s t + d k, c]        (t output positions, k kernel positions, a padded)

It is computed as matrix products over the T positions, in channels-last order. Windows of one kernel row are contiguous
there. So only the columns are unfolded (kw copies of the input, not kh kw of them). The rows of the input are sorted by
their phase modulo the stride. The rows of the kernel are then offsets into that copy.

Cost: the T K C O multiplications of the ordinary weight gradient, which this replaces. In addition, one write and two
reads of K C O numbers per example. The sum adds the same numbers whose norm was taken.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from runner.gradients.terms import Terms, squared_norms, weighted_sum
from runner.networks.geometry import Geometry

_SHORT_ROW = 64  # below it, a product per kernel row is too small to be fast, so one takes the whole window


def instantiate(a: Tensor, g: Tensor, shape: Geometry, has_bias: bool) -> Terms:
    """Return terms of a convolution, channels last: a [batch, h, w, in] and g [batch, h', w', out].

    With K views of each example, these are [batch * K, ...], and the sum over positions is one over views, too.
    """
    rows = g.reshape(-1, shape.positions, shape.channels_out)
    formed = a.new_empty(len(rows), shape.weights)
    if shape.views > 1 or shape.kernel[1] * shape.channels_in < _SHORT_ROW:
        torch.bmm(windows(a, shape).transpose(1, 2), rows, out=formed.view(len(rows), -1, shape.channels_out))
    else:
        _by_kernel_rows(a, rows, shape, formed)
    return formed_terms(formed, squared_norms(formed), rows.sum(1) if has_bias else None, shape)


def formed_terms(
    formed: Tensor, squares: Tensor, biases: Tensor | None, shape: Geometry, gains: Tensor | None = None
) -> Terms:
    """Return terms of gradients [batch, kh * kw * in * out] in that order, and their squared norms [batch]."""
    (kh, kw), c, o = shape.kernel, shape.channels_in, shape.channels_out
    return Terms(
        squares=squares,
        weight_sum=lambda factors, silent: weighted_sum(formed, factors, silent).view(kh, kw, c, o).permute(3, 2, 0, 1),
        biases=biases,
        gains=gains,
        formed=formed,
    )


def padded(a: Tensor, shape: Geometry) -> Tensor:
    """Return a [batch, h, w, in] with its zero padding, contiguous."""
    (ph, pw) = shape.padding
    a = a.contiguous()
    return F.pad(a, (0, 0, pw, pw, ph, ph)) if ph or pw else a


def windows(a: Tensor, shape: Geometry) -> Tensor:
    """Return every window of each example's images: [batch, T, kh * kw * in]."""
    a = padded(a, shape)
    batch, row, column, channel = a.stride()
    (sy, sx), (dy, dx) = shape.stride, shape.dilation
    size = (len(a), *shape.output, *shape.kernel, shape.channels_in)
    view = a.as_strided(size, (batch, sy * row, sx * column, dy * row, dx * column, channel))
    return view.reshape(len(a) // shape.views, shape.positions, -1)


def _by_kernel_rows(a: Tensor, rows: Tensor, shape: Geometry, formed: Tensor) -> None:
    """Write gradients [batch, kh * kw * in * out] by one batched product per kernel row."""
    a = padded(a, shape)
    (sy, sx), (dy, dx), (kh, kw) = shape.stride, shape.dilation, shape.kernel
    height = -(-a.shape[1] // sy) * sy
    if height != a.shape[1]:
        a = F.pad(a, (0, 0, 0, 0, 0, height - a.shape[1]))
    batch, row, column, channel = a.stride()
    out_width, per_phase = shape.output[1], height // sy
    size = (len(a), sy, per_phase, out_width, kw, shape.channels_in)
    unfolded = a.as_strided(size, (batch, row, sy * row, sx * column, dx * column, channel))
    columns = unfolded.reshape(len(a), sy * per_phase * out_width, kw * shape.channels_in)
    by_row = formed.view(len(a), kh, kw * shape.channels_in, shape.channels_out)
    for k in range(kh):
        start = ((k * dy) % sy * per_phase + (k * dy) // sy) * out_width
        window = columns[:, start : start + shape.positions]
        torch.bmm(window.transpose(1, 2), rows, out=by_row[:, k])
