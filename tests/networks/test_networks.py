"""Architectures and activations: shapes, parameter counts, exact values."""

import pytest
import torch
from torch import nn

from runner.build.prepare import prepare
from runner.networks.activations import GroupNormReLU, TemperedSigmoid, is_monotone
from runner.networks.architectures import all_convolutional, small_cnn

SCATTERNET = "experiment=losing_less/pfe_{}_ce architecture=scatternet_{}"


@pytest.mark.parametrize(
    ("overrides", "parameters"),
    [
        ("architecture=tempered_sigmoid_mnist", 26_010),
        ("architecture=tempered_sigmoid_cifar10 dataset=cifar10", 605_226),
        ("architecture=handcrafted_cifar10 dataset=cifar10", 550_570),
        ("architecture=backprop_clipping_mnist", 18_752),
        ("architecture=wrn_16_4 dataset=cifar10", 2_753_818),
        (SCATTERNET.format("mnist", "mnist"), 81 * 16 * 9 + 16 + 16 * 32 * 9 + 32 + 512 * 32 + 32 + 330),
        (SCATTERNET.format("mnist", "mnist_table"), 20_778),
        (SCATTERNET.format("cifar10", "cifar10"), 243 * 64 * 9 + 64 + 64 * 64 * 9 + 64 + 64 * 16 * 10 + 10),
        (SCATTERNET.format("cifar10", "cifar10_table"), 253_386),
    ],
)
def test_parameter_counts(composed, overrides: str, parameters: int) -> None:
    assert prepare(composed(*overrides.split())).parameters == parameters


@pytest.mark.parametrize(("padding", "sizes"), [(3, [14, 13, 5, 4]), (2, [13, 12, 5, 4])])
def test_small_cnn_feature_maps(padding: int, sizes: list[int]) -> None:
    network, x, widths = small_cnn([1, 28, 28], 10, nn.Tanh, [16, 32], 32, padding), torch.zeros(1, 1, 28, 28), []
    for layer in network:
        x = layer(x)
        if isinstance(layer, (nn.Conv2d, nn.MaxPool2d)):
            widths.append(x.shape[-1])
    assert widths == sizes
    assert x.shape == (1, 10)


def test_all_convolutional_ends_in_the_mean_over_space() -> None:
    network = all_convolutional([3, 32, 32], 10, nn.ReLU, [32, 64, 128, 256])
    maps = network[:-2](torch.randn(2, 3, 32, 32))
    assert maps.shape == (2, 10, 4, 4)
    assert isinstance(network[-3], nn.Conv2d), "no activation after the last convolution"
    torch.testing.assert_close(network[-2:](maps), maps.mean(dim=(2, 3)))
    assert not any(isinstance(layer, nn.Linear) for layer in network)


def test_tempered_sigmoid_values_and_bounds() -> None:
    phi, x = TemperedSigmoid(3.0, 1.5, 0.5), torch.tensor([0.0, 2.0, -1e4, 1e4], dtype=torch.float64)
    torch.testing.assert_close(
        phi(x), torch.tensor([1.0, 3 / (1 + 2.718281828459045**-3) - 0.5, -0.5, 2.5], dtype=torch.float64)
    )


def test_a_class_says_itself_that_it_is_monotone() -> None:
    """A subclass may compute anything else: what it inherits says nothing of it."""

    class Bump(TemperedSigmoid):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(-x.square())

    class Leaky(nn.LeakyReLU):
        monotone = True

    assert all(is_monotone(part) for part in (nn.ReLU(), nn.Tanh(), nn.Sigmoid(), TemperedSigmoid(2, 2, 1), Leaky()))
    assert not any(is_monotone(part) for part in (Bump(2, 2, 1), nn.LeakyReLU(), nn.GELU(), None))


def test_group_norm_relu_normalises_each_example_alone():
    x = torch.randn(3, 8, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    groups = x.reshape(3, 4, 2 * 25)
    expected = (groups - groups.mean(2, keepdim=True)) / (groups.var(2, correction=0, keepdim=True) + 1e-5).sqrt()
    layer = GroupNormReLU(4)
    torch.testing.assert_close(layer(x), expected.reshape(x.shape).clamp(min=0))
    torch.testing.assert_close(layer(x[1:2]), layer(x)[1:2])
    assert not is_monotone(layer)
