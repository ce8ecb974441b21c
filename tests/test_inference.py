"""A network without gradients gives what it gives with them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from runner.activations import TemperedSigmoid
from runner.benchmark.methods import problem
from runner.engines.one_pass.slices import channels_last
from runner.inference import ShiftedMaxPool, evaluating, for_inference

POOLS = {
    "overlapping": nn.MaxPool2d(2, 1),
    "apart": nn.MaxPool2d(2, 2),
    "rest left over": nn.MaxPool2d(3, 2),
    "gaps": nn.MaxPool2d(2, 3),
    "not square": nn.MaxPool2d((3, 1), (1, 2)),
    "whole image": nn.MaxPool2d((7, 10), 1),
}


@pytest.mark.parametrize("ordered", [channels_last, torch.Tensor.contiguous])
@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
def test_shifted_maxima_are_max_pooling(pool: nn.MaxPool2d, ordered) -> None:
    assert ShiftedMaxPool.can_be(pool)
    x = ordered(torch.randn(3, 4, 7, 10).round(decimals=1))  # ties, too
    x[0, 1, 2, 3], x[1, 0, 0, 0], x[2, 3, 6, 9] = math.nan, math.inf, -math.inf
    with torch.no_grad():
        torch.testing.assert_close(ShiftedMaxPool(pool)(x), pool(x), rtol=0, atol=0, equal_nan=True)


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
    assert not ShiftedMaxPool.can_be(pool)
    assert for_inference(pool) is pool


def test_a_window_larger_than_the_image_is_refused_as_ever() -> None:
    with torch.no_grad(), pytest.raises(RuntimeError):
        ShiftedMaxPool(nn.MaxPool2d(3))(torch.zeros(1, 1, 2, 5))


def test_gradients_are_max_poolings() -> None:
    x = torch.randn(2, 3, 5, 5, requires_grad=True)
    found, expected = (
        torch.autograd.grad(pool(x).sum(), x)[0] for pool in (ShiftedMaxPool(POOLS["apart"]), POOLS["apart"])
    )
    assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tanh_is_off_by_the_rounding_of_one(dtype: torch.dtype) -> None:
    x = torch.cat(
        [torch.linspace(-30, 30, 100001), torch.logspace(-40, 3, 1001), torch.tensor([0, math.inf, math.nan])]
    )
    x = torch.cat([x, -x]).to(dtype)
    with torch.no_grad():
        found = for_inference(nn.Sequential(nn.Tanh()))(x).double()
    assert not torch.equal(found, x.tanh().double())
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(found, x.double().tanh(), rtol=0, atol=2 * eps, equal_nan=True)


@pytest.mark.parametrize("name", ["M", "C"])
def test_a_whole_network(name: str) -> None:
    of = problem(name, 20)
    network = of.network.double()
    fast = for_inference(network)
    for replacement in (ShiftedMaxPool, TemperedSigmoid):
        assert any(isinstance(module, replacement) for module in fast.modules())
        assert not any(isinstance(module, replacement) for module in network.modules())
    with evaluating(fast):
        found = fast(of.inputs.double())
    torch.testing.assert_close(found, network(of.inputs.double()).detach())


def test_dropout_is_off_while_evaluating_and_on_again_after_an_error() -> None:
    dropout, seen = nn.Dropout(), []

    def fails() -> None:
        with evaluating(nn.Sequential(dropout)):
            seen.append(dropout.training)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert seen == [False]
    assert dropout.training
