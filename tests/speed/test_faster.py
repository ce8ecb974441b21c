"""A network made faster gives the same numbers and the same gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from benchmarks.methods import problem
from runner.speed.faster import faster
from runner.speed.max_pool import FastMaxPool
from runner.speed.tanh import FastTanh

POOLS = {
    "overlapping": nn.MaxPool2d(2, 1),
    "apart": nn.MaxPool2d(2, 2),
    "rest left over": nn.MaxPool2d(3, 2),
    "gaps": nn.MaxPool2d(2, 3),
    "not square": nn.MaxPool2d((3, 1), (1, 2)),
    "rows overlap": nn.MaxPool2d((2, 3), (1, 3)),
    "whole image": nn.MaxPool2d((7, 10), 1),
}


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("channels", [1, 3, 16, 40])
@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
def test_max_pooling(kernels: str, pool: nn.MaxPool2d, channels: int, layout: torch.memory_format) -> None:
    """Ties, NaN and infinities among the numbers."""
    assert FastMaxPool.can_be(pool)
    torch.manual_seed(channels)
    x = torch.randn(3, channels, 7, 10).round(decimals=1)
    x[0, 0, 2, 3], x[1, -1, 0, 0], x[2, 0, 6, 9] = math.nan, math.inf, -math.inf
    x = x.to(memory_format=layout).requires_grad_()
    found, expected = FastMaxPool(pool)(x), pool(x)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    upstream = torch.randn_like(expected).round(decimals=2)
    gradients = [torch.autograd.grad(y, x, upstream)[0] for y in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-5)


def test_max_pooling_shared_among_threads(kernels: str) -> None:
    x = torch.randn(11, 16, 40, 41).requires_grad_()
    pool = nn.MaxPool2d(3, 2)
    try:
        torch.set_num_threads(3)
        found = FastMaxPool(pool)(x)
        (gradient,) = torch.autograd.grad(found.square().sum(), x)
    finally:
        torch.set_num_threads(1)
    expected = pool(x)
    assert torch.equal(found, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.square().sum(), x)[0])


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(3, padding=1),
        nn.MaxPool2d(2, dilation=2),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.MaxPool2d(2, return_indices=True),
        nn.AvgPool2d(2),
    ],
)
def test_other_pooling_stays(pool: nn.Module) -> None:
    assert not FastMaxPool.can_be(pool)
    assert faster(pool) is pool


def test_a_window_larger_than_the_image_is_refused_as_ever(kernels: str) -> None:
    with pytest.raises(RuntimeError):
        FastMaxPool(nn.MaxPool2d(3))(torch.zeros(1, 1, 2, 5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tanh_is_off_by_the_rounding_of_one(kernels: str, dtype: torch.dtype) -> None:
    x = torch.cat(
        [torch.linspace(-30, 30, 1000001), torch.logspace(-40, 38, 1001), torch.tensor([0, math.inf, math.nan])]
    )
    x = torch.cat([x, -x]).to(dtype).requires_grad_()
    found = FastTanh()(x)
    exact = x.detach().double().tanh()
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=2 * eps, equal_nan=True)
    assert found[x == 0].count_nonzero() == 0
    bits = torch.tensor([0x7FC00001, 0x7F800001, 0x7FFFFFFF, -1]).int()  # NaNs
    assert FastTanh()(bits.view(torch.float32).to(dtype)).isnan().all()
    (gradient,) = torch.autograd.grad(found, x, torch.full_like(found, 3.0))
    torch.testing.assert_close(gradient.double(), 3 * (1 - exact**2), rtol=0, atol=12 * eps, equal_nan=True)


@pytest.mark.parametrize("of", ["channels last", "transposed", "every second", "expanded", "none"])
def test_tanh_of_any_order_in_memory(kernels: str, of: str) -> None:
    x = torch.randn(6, 5, 4, 3, generator=torch.Generator().manual_seed(0))
    x = {
        "channels last": x.to(memory_format=torch.channels_last),
        "transposed": x.transpose(0, 2),
        "every second": x[::2, :, 1::2],
        "expanded": x[:1].expand(7, -1, -1, -1),
        "none": x[:0],
    }[of]
    torch.testing.assert_close(FastTanh()(x), x.tanh(), rtol=0, atol=3e-7)


@pytest.mark.parametrize("name", ["M", "C"])
def test_a_whole_network(name: str) -> None:
    """In float64: in float32, windows in which two numbers are next to equal go either way by rounding."""
    of = problem(name, 20)
    objective, inputs = of.objective.double(), of.inputs.double()
    fast = faster(objective)
    for replacement in (FastMaxPool, FastTanh):
        assert any(isinstance(module, replacement) for module in fast.modules())
        assert not any(isinstance(module, replacement) for module in objective.modules())
    results = []
    for version in (fast, objective):
        losses = version(inputs, of.targets)
        results.append([losses.detach(), *torch.autograd.grad(losses.sum(), list(objective.parameters()))])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected)
