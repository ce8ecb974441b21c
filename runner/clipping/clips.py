"""Scaling of rows to bounded norms and its gradient, as backpropagation clipping does in every layer.

A C++ library does it if there is a compiler (see `runner.speed.kernels`), and reads and writes each row once. PyTorch
does it otherwise. A row whose norm is not finite becomes zero, as a NaN in the sum would reveal it despite the noise.
(A float32 norm beyond 1e19 is not finite either.)
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from runner.speed.kernels import fits, integers, library, pointers, threads_for, waves

_LONG_SUM = 2048  # terms: float32 keeps the norm of this many to 1e-5, for all sizes


def agrees(compiled: ctypes.CDLL) -> bool:
    """Check that a library clips as PyTorch does: rows within and beyond the bound, infinite rows, and NaN rows.

    Among the rows are short ones, and some longer than the kernel adds up in float32.
    """
    bound, sizes = 2.0, torch.tensor([1e-4, 0.3, 1.0, 50.0, math.inf, math.nan])
    for size in ((3,), (70,), (4200,), (5, 40, 7)):
        x, gradient = (_by_example(sizes, waves(6, *size)) * waves(6, *size), waves(6, *size))
        y, factors = _clip_rows(compiled, x, bound, 2)
        alike = _alike((y, factors), _clip_rows(None, x, bound, 1))
        within = slice(4)
        given = y[within], factors[within], gradient[within], bound
        alike &= _alike([_clip_rows_backward(compiled, *given, 2)], [_clip_rows_backward(None, *given, 1)])
        for l1_over_space in {False, len(size) == 3}:
            given_up = x, bound, l1_over_space
            alike &= _alike([_clip_upstream(compiled, *given_up, 2)], [_clip_upstream(None, *given_up, 1)])
        if not alike:
            return False
    return True


def _alike(found: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    return all(torch.allclose(one, other, rtol=1e-5, atol=1e-6) for one, other in zip(found, expected, strict=True))


def clip_rows(x: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    """Return x_i min(1, bound / ||x_i||_2) for each example i, and the factors [batch].

    x: [batch, features] or [batch, channels, height, width].
    """
    return _clip_rows(_compiled(x), x, bound, threads_for(x))


def _clip_rows(compiled: ctypes.CDLL | None, x: Tensor, bound: float, threads: int) -> tuple[Tensor, Tensor]:
    if compiled is None:
        x, norms = _without_broken(x, example_norms(x))
        factors = bound / norms.clamp(min=bound)
        return x * _by_example(factors, x), factors
    x = _in_order(x)
    y, factors = torch.empty_like(x), x.new_empty(len(x))
    compiled.clip_rows(*pointers(x, y, factors), *integers(len(x), _length(x), threads), ctypes.c_double(bound))
    return y, factors


def clip_rows_backward(y: Tensor, factors: Tensor, gradient: Tensor, bound: float) -> Tensor:
    """Return the gradient with respect to x of the rows y that `clip_rows` returned, from the gradient for y.

    If y = x bound / ||x||, it is (g - y <y, g> / bound^2) bound / ||x||. This takes fewer passes over the data than
    autograd.
    """
    return _clip_rows_backward(_compiled(y), y, factors, gradient, bound, threads_for(y))


def _clip_rows_backward(
    compiled: ctypes.CDLL | None, y: Tensor, factors: Tensor, gradient: Tensor, bound: float, threads: int
) -> Tensor:
    if compiled is None:
        along = (y * gradient).sum(dim=tuple(range(1, y.dim()))) * (factors / -(bound**2))
        along.masked_fill_(factors == 1, 0)  # was not clipped
        return (gradient * _by_example(factors, y)).addcmul_(y, _by_example(along, y))
    gradient, out = _in_order(gradient), torch.empty_like(y)
    numbers = integers(len(y), _length(y), threads)
    compiled.clip_rows_backward(*pointers(y, factors, gradient, out), *numbers, ctypes.c_double(bound))
    return out


def clip_upstream(gradient: Tensor, bound: float, l1_over_space: bool) -> Tensor:
    """Return u_i min(1, bound / |||u_i|||) for each example i; see `example_norms`."""
    return _clip_upstream(_compiled(gradient), gradient, bound, l1_over_space, threads_for(gradient))


def _clip_upstream(
    compiled: ctypes.CDLL | None, gradient: Tensor, bound: float, l1_over_space: bool, threads: int
) -> Tensor:
    if compiled is None:
        gradient, norms = _without_broken(gradient, example_norms(gradient, l1_over_space))
        return gradient * _by_example(bound / norms.clamp(min=bound), gradient)
    if not l1_over_space:
        return _clip_rows(compiled, gradient, bound, threads)[0]
    gradient = _in_order(gradient)
    out, channels = torch.empty_like(gradient), gradient.shape[1]
    numbers = integers(len(gradient), _length(gradient) // channels, channels, threads)
    compiled.clip_maps(*pointers(gradient, out), *numbers, ctypes.c_double(bound))
    return out


def example_norms(x: Tensor, l1_over_space: bool = False) -> Tensor:
    """Return the norm of each example, [batch], of [batch, features] or [batch, channels, height, width].

    The norm is l2 over everything, or l1 over space and l2 over channels. A long float32 sum of squares would lose the
    small ones. If both stages are short, it is taken in two stages, which is faster than float64. Otherwise it is taken
    in float64.
    """
    if l1_over_space:
        # abs().sum() is the l1 norm; vector_norm(ord=1) takes ten times as long on a CPU.
        norms: Tensor = torch.linalg.vector_norm(x.abs().sum(dim=(2, 3)), dim=1)
        return norms
    rows = x.permute(0, 2, 3, 1).flatten(1) if x.dim() == 4 else x  # in memory order, channels last
    terms, parts = rows.shape[1], x.shape[1]
    if terms <= _LONG_SUM:
        norms = torch.linalg.vector_norm(rows, dim=1)
    elif x.dim() == 4 and max(parts, terms // parts) <= _LONG_SUM:
        of_parts = torch.linalg.vector_norm(rows.unflatten(1, (parts, terms // parts)), dim=2)
        norms = torch.linalg.vector_norm(of_parts, dim=1)
    else:
        norms = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).to(x.dtype)
    return norms


def _compiled(x: Tensor) -> ctypes.CDLL | None:
    """Return the library, if it exists and takes such a tensor."""
    return library("clips", agrees) if fits(x) else None


def _in_order(x: Tensor) -> Tensor:
    """Return rows without gaps, the channels innermost."""
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x.contiguous()


def _length(x: Tensor) -> int:
    return math.prod(x.shape[1:])


def _by_example(factors: Tensor, x: Tensor) -> Tensor:
    return factors.view(-1, *[1] * (x.dim() - 1))


def _without_broken(x: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
    """Return zeros for the examples whose norm is not finite, and for their norms."""
    if type(x) is Tensor and (x.is_meta or math.isfinite(norms.sum().item())):  # not while it is recorded
        return x, norms
    broken = ~torch.isfinite(norms)
    return x.masked_fill(_by_example(broken, x), 0), norms.masked_fill(broken, 0)
