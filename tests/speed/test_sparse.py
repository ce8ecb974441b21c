"""A first layer that leaves out the products with zero computes what the layer computes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from runner.data.datasets import Split
from runner.speed.faster import faster
from runner.speed.inference import evaluating
from runner.speed.kernels import library
from runner.speed.sparse import SparseFirstLayer, agrees
from runner.training.updates.screening_loss import ScreeningLoss

pytestmark = pytest.mark.skipif(library("sparse_convolution", agrees) is None, reason="no C++ compiler")


def sparse_images(count: int, height: int, width: int, share: float = 0.3) -> torch.Tensor:
    torch.manual_seed(0)
    images = torch.rand(count, 1, height, width) - 0.3
    images[torch.rand_like(images) > share] = 0
    images[0] = 0
    return images


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "channels", "pool"),
    [
        (8, 2, 2, 16, 2),  # of the papers' network
        (8, 2, 2, 16, None),
        (3, 1, 1, 5, 3),
        (5, 3, 0, 7, 1),
        (2, 3, 4, 16, None),  # some pixels reach no output, and some outputs no pixel
        ((3, 5), (2, 1), (0, 3), 6, (1, 2)),
    ],
)
def test_against_the_layers_in_float64(kernel, stride, padding, channels, pool):
    images, bias = sparse_images(9, 12, 15), pool is not None
    convolution = nn.Conv2d(1, channels, kernel, stride, padding, bias=bias)
    layers = [convolution] if pool is None else [convolution, nn.MaxPool2d(pool, 1)]
    network = nn.Sequential(*layers, nn.Flatten())
    first = SparseFirstLayer.of(faster(network), images)
    assert first is not None
    assert first.load()
    outputs = first.rest(first(first.pixels(images)))
    with torch.no_grad():
        expected = network.double()(images.double())
    torch.testing.assert_close(outputs.double(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("network", "share"),
    [
        (nn.Sequential(nn.Conv2d(1, 4, 3)), 0.9),  # images that are not mostly zero
        (nn.Sequential(nn.Flatten()), 0.3),
        (nn.Sequential(nn.Conv2d(1, 4, 3, dilation=2)), 0.3),
        (nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, padding_mode="circular")), 0.3),
        (nn.Sequential(nn.Conv2d(1, 4, 3, padding="same")), 0.3),
        (nn.Sequential(nn.Conv2d(1, 4, 3)).double(), 0.3),
        (nn.Conv2d(1, 4, 3), 0.3),
    ],
)
def test_what_it_is_not_for(network, share):
    assert SparseFirstLayer.of(network, sparse_images(20, 12, 12, share)) is None


@pytest.fixture
def images() -> Split:
    return Split(sparse_images(600, 12, 12), torch.arange(600) % 10)


@pytest.fixture
def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(1, 16, 8, 2, 2), nn.Tanh(), nn.MaxPool2d(2, 1), nn.Flatten(), nn.LazyLinear(10))


def test_the_screening_loss_is_that_of_the_network_at_its_present_weights(images, network):
    network(images.images[:1])
    loss = ScreeningLoss(network, images)
    assert loss._first is not None
    for _ in range(2):
        with torch.no_grad():
            for parameter in network.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
        with evaluating(network):
            expected = nn.functional.cross_entropy(network(images.images), images.targets, reduction="sum").item()
        assert loss.total() == pytest.approx(expected, rel=1e-6)
        loss.sort()
        assert loss.total() == pytest.approx(expected, rel=1e-6)
        within, partial = loss.at_most(0.5 * expected)
        assert not within
        assert partial < 0.95 * expected


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite_give_no_finite_loss(images, network, value):
    """Left-out products with zero would have been NaN."""
    network(images.images[:1])
    loss = ScreeningLoss(network, images)
    with torch.no_grad():
        network[0].weight[3, 0, 2, 2] = value
    assert math.isnan(loss.total())
