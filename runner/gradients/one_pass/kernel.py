"""`instantiate` in C++, if there is a compiler: the same gradients and norms, without unfolding the input.

Batched matrix products reach about two thirds of the speed of an ordinary weight gradient on matrices this small.
weight_gradients.cpp reaches its full speed, and computes the norm in the same loop. Without a compiler (see
`runner.speed.kernels`), `instantiate` does the work.

Cost: the T K C O multiplications of the ordinary weight gradient, one write and one read of K C O numbers per example.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from runner.gradients.one_pass.instantiate import formed_terms, windows
from runner.gradients.one_pass.scratch import Scratch
from runner.gradients.terms import Terms
from runner.networks.geometry import Geometry
from runner.speed.kernels import fits, integers, library, pointers, waves


def agrees(compiled: ctypes.CDLL) -> bool:
    """Check that a library forms the gradients that PyTorch does: surplus lanes or none, padding, dilation, views."""
    for shape in (
        Geometry(3, 70, (7, 6), (4, 3), (3, 2), (2, 2), (1, 0)),
        Geometry(5, 32, (8, 9), (4, 5), (3, 3), (1, 1), (0, 0), (2, 2)),
        Geometry(3, 20, (7, 6), (4, 3), (3, 2), (2, 2), (1, 0), views=2),
    ):
        images = 3 * shape.views
        a, g = waves(images, *shape.input, shape.channels_in), waves(images, *shape.output, shape.channels_out)
        found, expected = torch.empty(3, shape.weights), torch.empty(3, shape.weights)
        squares, biases = a.new_empty(3), torch.empty(3, shape.channels_out)
        _form(compiled, a, g, shape, found, squares, biases, threads=2)
        rows = g.view(3, shape.positions, shape.channels_out)
        torch.bmm(windows(a, shape).transpose(1, 2), rows, out=expected.view(3, -1, shape.channels_out))
        if not torch.allclose(found, expected, rtol=1e-4, atol=1e-3 * expected.abs().max().item()):
            return False
        if not torch.allclose(squares, expected.square().sum(1), rtol=1e-4):
            return False
        if not torch.allclose(biases, rows.sum(1), rtol=1e-4, atol=1e-4):
            return False
    return True


def usable(tensor: Tensor) -> bool:
    """Return True if this machine has the kernel and it takes tensors of this type on this device."""
    return fits(tensor) and library("weight_gradients", agrees) is not None


def kernel(a: Tensor, g: Tensor, shape: Geometry, has_bias: bool, scratch: Scratch) -> Terms:
    """Return terms of an ungrouped convolution, channels last: a [batch * views, h, w, in] and g likewise."""
    compiled = library("weight_gradients", agrees)
    assert compiled is not None
    a, g = a.contiguous(), g.contiguous()
    examples = len(a) // shape.views
    formed, squares = scratch.empty(a, examples, shape.weights), a.new_empty(examples)
    biases = a.new_empty(examples, shape.channels_out) if has_bias else None
    _form(compiled, a, g, shape, formed, squares, biases, torch.get_num_threads())
    return formed_terms(formed, squares, biases, shape)


def _form(
    compiled: ctypes.CDLL,
    a: Tensor,
    g: Tensor,
    shape: Geometry,
    formed: Tensor,
    squares: Tensor,
    biases: Tensor | None,
    threads: int,
) -> None:
    """Write gradients [batch, kh * kw * in * out], their squared norms [batch], and bias gradients [batch, out]."""
    numbers = [*shape.input, shape.channels_in, *shape.output, shape.channels_out]
    numbers += [*shape.kernel, *shape.stride, *shape.padding, *shape.dilation, shape.views]
    layout = (ctypes.c_int64 * len(numbers))(*numbers)
    batch, shares = integers(len(squares), threads)
    of_biases = ctypes.c_void_p() if biases is None else pointers(biases)[0]
    compiled.per_example_weight_gradients(*pointers(a, g, formed, squares), of_biases, batch, layout, shares)
