"""Clipped rows against float64 autograd of the definition."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from runner.clipping.backprop import clip_rows, clip_rows_backward, clip_upstream

SHAPES = [(1,), (63,), (64,), (2049,), (3, 1, 1), (16, 9, 11), (5, 40, 41), (130, 2, 2)]


def rows(shape: tuple[int, ...], seed: int) -> Tensor:
    """Six examples of very different sizes, and one of zeros."""
    generator = torch.Generator().manual_seed(seed)
    scale = torch.tensor([1e-12, 1e-3, 0.1, 1.0, 30.0, 1e6, 0.0])
    x = torch.randn(7, *shape, generator=generator) * scale.view(-1, *[1] * len(shape))
    return x / math.sqrt(math.prod(shape))


def norms(x: Tensor, l1_over_space: bool = False) -> Tensor:
    x = x.double()
    return x.abs().sum((2, 3)).norm(dim=1) if l1_over_space else x.flatten(1).norm(dim=1)


def defined(x: Tensor, bound: float, l1_over_space: bool = False) -> Tensor:
    """x min(1, bound / norm), with a derivative where the norm is zero, too."""
    computed = norms(x, l1_over_space).view(-1, *[1] * (x.dim() - 1))
    return x.double() * torch.where(computed > bound, bound / computed.clamp(min=1e-300), 1.0)


def close(computed: Tensor, expected: Tensor, tolerance: float = 1e-6) -> None:
    """Row by row, by the norm of what differs."""
    assert computed.dtype is torch.float32
    difference, size = ((a - b).flatten(1).norm(dim=1) for a, b in ((computed.double(), expected), (expected, 0)))
    assert (difference <= tolerance * size).all(), (difference / size, size)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_clipped_rows_their_gradient_and_upstream_gradients(shape: tuple[int, ...]) -> None:
    """Layouts alternate from shape to shape; one in three has gaps between its numbers."""
    x, g = rows(shape, 0), rows(shape, 1).flip(0)
    if SHAPES.index(shape) % 3 == 0:
        x, g = (torch.stack([t, t + 1], dim=-1)[..., 0] for t in (x, g))
    elif SHAPES.index(shape) % 2 and len(shape) == 3:
        x, g = (t.contiguous(memory_format=torch.channels_last) for t in (x, g))
    before = x.clone(), g.clone()
    for bound in (1e-9, 0.5, 1e9):
        y, factors = clip_rows(x, bound)
        close(y, defined(x, bound))
        assert (norms(y) <= bound * (1 + 1e-6)).all()
        assert (factors[norms(x) <= bound * (1 - 1e-6)] == 1).all()
        exact = x.double().requires_grad_()
        (expected,) = torch.autograd.grad(defined(exact, bound), exact, g.double())
        computed = clip_rows_backward(y, factors, g, bound)
        # What is left after the part along y is taken away may be small: compared with what there was.
        scale = g.double().flatten(1).norm(dim=1) * factors.double()
        assert ((computed.double() - expected).flatten(1).norm(dim=1) <= 3e-6 * scale).all()
        for l1_over_space in (False, True) if len(shape) > 1 else (False,):
            computed = clip_upstream(x, bound, l1_over_space)
            close(computed, defined(x, bound, l1_over_space))
            assert (norms(computed, l1_over_space) <= bound * (1 + 1e-6)).all()
    assert torch.equal(x, before[0])
    assert torch.equal(g, before[1])


@pytest.mark.parametrize("size", [1e17, 1.8e19, 1e20, 3e38])
@pytest.mark.parametrize("bound", [1e-12, 2.56e-5, 1.0])
@pytest.mark.parametrize("l1_over_space", [False, True])
def test_huge_rows_stay_within_the_bound(l1_over_space: bool, bound: float, size: float) -> None:
    """Their factors are next to the smallest numbers that float32 has; above 1.8e19 the row counts as broken."""
    u = torch.zeros(2, 2, 2, 2)
    u[0, 0, 0, 0], u[1] = size, 0.1
    computed = clip_upstream(u, bound, l1_over_space)
    assert computed[0].norm() <= bound * (1 + 1e-6)
    assert (computed[0] == 0).all() or size < 1.9e19
    close(computed[1:], defined(u[1:], bound, l1_over_space))


@pytest.mark.parametrize("bad", [math.nan, -math.inf, 1e25])
@pytest.mark.parametrize("l1_over_space", [False, True])
def test_rows_without_finite_norm_are_zero_and_others_untouched(bad: float, l1_over_space: bool) -> None:
    x = torch.randn(5, 6, 7, 8)
    x[2, 3, 4, 5] = bad
    finite = [0, 1, 3, 4]
    computed = clip_upstream(x, 0.5, l1_over_space)
    assert (computed[2] == 0).all()
    close(computed[finite], defined(x[finite], 0.5, l1_over_space))
    assert torch.isfinite(computed).all()
    y, factors = clip_rows(x, 0.5)
    assert (y[2] == 0).all()
    close(y[finite], defined(x[finite], 0.5))
    assert torch.isfinite(factors).all()
