"""`instantiate` in C++, if there is a compiler: the same gradients and norms, without unfolding the input.

Batched matrix products reach about two thirds of the speed of an ordinary weight gradient on matrices this small.
weight_gradients.cpp reaches its full speed, and computes the norm in the same loop. Without a compiler (see
`runner.speed.kernels`), `instantiate` does the work.

For windows of 3 x 3, one pixel apart, winograd_gradients.cpp takes a quarter of the multiplications. Its gradients are
off by at most 5e-6 of the largest. It computes the norms from the numbers that it writes, and these are summed.

Cost: the T K C O multiplications of the ordinary weight gradient, one write and one read of K C O numbers per example.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from runner.gradients.one_pass.instantiate import formed_terms, windows
from runner.gradients.terms import Terms
from runner.networks.geometry import Geometry
from runner.speed.kernels import fits, integers, library, pointers, waves


def _agrees(compiled: ctypes.CDLL, name: str, shapes: tuple[Geometry, ...]) -> bool:
    """Check that a library forms the gradients that PyTorch does, in these shapes."""
    for shape in shapes:
        images = 3 * shape.views
        a, g = waves(images, *shape.input, shape.channels_in), waves(images, *shape.output, shape.channels_out)
        found, expected = torch.empty(3, shape.weights), torch.empty(3, shape.weights)
        squares, biases = a.new_empty(3), torch.empty(3, shape.channels_out)
        _form(getattr(compiled, name), a, g, shape, found, squares, biases, threads=2)
        rows = g.view(3, shape.positions, shape.channels_out)
        torch.bmm(windows(a, shape).transpose(1, 2), rows, out=expected.view(3, -1, shape.channels_out))
        if not torch.allclose(found, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item()):
            return False
        if not torch.allclose(squares, expected.square().sum(1), rtol=1e-4):
            return False
        if not torch.allclose(biases, rows.sum(1), rtol=1e-4, atol=1e-4):
            return False
    return True


# Surplus lanes or none, padding, dilation, views; tiles cut off and whole.
agrees = partial(
    _agrees,
    name="weight_gradients",
    shapes=(
        Geometry(3, 70, (7, 6), (4, 3), (3, 2), (2, 2), (1, 0)),
        Geometry(5, 32, (8, 9), (4, 5), (3, 3), (1, 1), (0, 0), (2, 2)),
        Geometry(3, 20, (7, 6), (4, 3), (3, 2), (2, 2), (1, 0), views=2),
    ),
)
agrees_by_winograd = partial(
    _agrees,
    name="winograd_gradients",
    shapes=(
        Geometry(19, 37, (6, 9), (6, 9), (3, 3), padding=(1, 1)),
        Geometry(16, 32, (18, 17), (18, 15), (3, 3), padding=(1, 0)),
        Geometry(17, 16, (4, 5), (4, 5), (3, 3), padding=(1, 1), views=2),
    ),
)
_LIBRARIES = {"kernel": ("weight_gradients", agrees), "winograd": ("winograd_gradients", agrees_by_winograd)}
_LONGEST = 16  # numbers in the longest register: with fewer channels most of it is empty


def usable(tensor: Tensor, shape: Geometry) -> list[str]:
    """Return the methods for a layer that this machine has compiled: "kernel", and "winograd" if it suits the shape.

    tensor: of the type and on the device of the numbers.
    """
    windows_suit = shape.kernel == (3, 3) and shape.stride == shape.dilation == (1, 1)
    suits = {"kernel": True, "winograd": windows_suit and min(shape.channels_in, shape.channels_out) >= _LONGEST}
    return [
        method
        for method, library_of in _LIBRARIES.items()
        if suits[method] and fits(tensor) and library(*library_of) is not None
    ]


def kernel(a: Tensor, g: Tensor, shape: Geometry, has_bias: bool, method: str = "kernel") -> Terms:
    """Return terms of a convolution, channels last: a [batch * views, h, w, in] and g likewise."""
    name, agrees = _LIBRARIES[method]
    compiled = library(name, agrees)
    assert compiled is not None
    a, g = a.contiguous(), g.contiguous()
    examples = len(a) // shape.views
    formed, squares = a.new_empty(examples, shape.weights), a.new_empty(examples)
    biases = a.new_empty(examples, shape.channels_out) if has_bias else None
    _form(getattr(compiled, name), a, g, shape, formed, squares, biases, torch.get_num_threads())
    return formed_terms(formed, squares, biases, shape)


winograd = partial(kernel, method="winograd")


def _form(
    function: Callable[..., None],
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
    function(*pointers(a, g, formed, squares), of_biases, batch, layout, shares)
