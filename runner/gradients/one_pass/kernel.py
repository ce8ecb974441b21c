"""`instantiate` in C++, where there is a compiler: the same gradients and norms, without unfolding the input.

Batched matrix products reach about two thirds of the speed of an ordinary weight gradient on matrices this small;
weight_gradients.cpp reaches it, and takes the norm on the way. Without it (see `runner.speed.kernels`), `instantiate`
does the work.

Cost: the T K C O multiplications of the ordinary weight gradient, one write and one read of K C O numbers an example.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from runner.gradients.one_pass.instantiate import formed_terms
from runner.gradients.one_pass.scratch import Scratch
from runner.gradients.terms import Terms
from runner.networks.geometry import Geometry
from runner.speed.kernels import fits, integers, library, pointers


def usable(tensor: Tensor) -> bool:
    """Whether the kernel is there on this machine and takes tensors of this type on this device."""
    return fits(tensor) and library("weight_gradients") is not None


def kernel(a: Tensor, g: Tensor, shape: Geometry, has_bias: bool, scratch: Scratch) -> Terms:
    """Terms of a convolution without groups: a [batch, h, w, in] and g [batch, h', w', out], channels last."""
    compiled = library("weight_gradients")
    assert compiled is not None
    a, g = a.contiguous(), g.contiguous()
    formed, squares = scratch.empty(a, len(a), shape.weights), a.new_empty(len(a))
    numbers = [*shape.input, shape.channels_in, *shape.output, shape.channels_out]
    numbers += [*shape.kernel, *shape.stride, *shape.padding, *shape.dilation]
    layout = (ctypes.c_int64 * len(numbers))(*numbers)
    (batch, threads) = integers(len(a), torch.get_num_threads())
    compiled.per_example_weight_gradients(*pointers(a, g, formed, squares), batch, layout, threads)
    return formed_terms(formed, g.flatten(1, 2), shape, has_bias, squares)
