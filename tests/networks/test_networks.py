"""Architectures and activations: shapes, parameter counts, exact values."""

import pytest
import torch
from torch import nn

from runner.networks.activations import TemperedSigmoid, is_monotone
from runner.networks.architectures import all_convolutional, scatternet_cnn, scatternet_small_cnn, small_cnn, vgg_cnn
from runner.training.prepare import prepare


@pytest.mark.parametrize(
    ("architecture", "dataset", "parameters"),
    [
        ("tempered_sigmoid_mnist", "mnist", 26_010),
        ("handcrafted_mnist", "fashion_mnist", 26_010),
        ("tempered_sigmoid_cifar10", "cifar10", 605_226),
        ("handcrafted_cifar10", "cifar10", 550_570),
        ("backprop_clipping_mnist", "mnist", 18_752),
        ("wrn_16_4", "cifar10", 2_753_818),
    ],
)
def test_parameter_counts(composed, architecture: str, dataset: str, parameters: int) -> None:
    assert prepare(composed(f"architecture={architecture}", f"dataset={dataset}")).parameters == parameters


@pytest.mark.parametrize(
    ("architecture", "experiment", "parameters"),
    [
        ("scatternet_mnist", "pfe_mnist_ce", 81 * 16 * 9 + 16 + 16 * 32 * 9 + 32 + 512 * 32 + 32 + 330),
        ("scatternet_mnist_table", "pfe_mnist_ce", 20_778),
        ("scatternet_cifar10", "pfe_cifar10_ce", 243 * 64 * 9 + 64 + 64 * 64 * 9 + 64 + 64 * 16 * 10 + 10),
        ("scatternet_cifar10_table", "pfe_cifar10_ce", 253_386),
    ],
)
def test_parameter_counts_on_scatternet_features(composed, architecture: str, experiment: str, parameters: int) -> None:
    asked = (f"experiment=losing_less/{experiment}", f"architecture={architecture}")
    assert prepare(composed(*asked)).parameters == parameters


@pytest.mark.parametrize(("padding", "sizes"), [(3, [14, 13, 5, 4]), (2, [13, 12, 5, 4])])
def test_small_cnn_feature_maps(padding: int, sizes: list[int]) -> None:
    network, x, found = small_cnn([1, 28, 28], 10, nn.Tanh, [16, 32], 32, padding), torch.zeros(1, 1, 28, 28), []
    for layer in network:
        x = layer(x)
        if isinstance(layer, (nn.Conv2d, nn.MaxPool2d)):
            found.append(x.shape[-1])
    assert found == sizes
    assert x.shape == (1, 10)


def test_all_convolutional_ends_in_the_mean_over_space() -> None:
    network = all_convolutional([3, 32, 32], 10, nn.ReLU, [32, 64, 128, 256])
    maps = network[:-2](torch.randn(2, 3, 32, 32))
    assert maps.shape == (2, 10, 4, 4)
    assert isinstance(network[-3], nn.Conv2d), "no activation after the last convolution"
    torch.testing.assert_close(network[-2:](maps), maps.mean(dim=(2, 3)))
    assert not any(isinstance(layer, nn.Linear) for layer in network)


@pytest.mark.parametrize(
    ("build", "rest"),
    [
        (small_cnn, ([16, 32], 32, 3)),
        (all_convolutional, ([2, 3, 4, 5],)),
        (vgg_cnn, ([2, 3, 4], 8)),
        (scatternet_small_cnn, ([16, 32], 32, True)),
        (scatternet_cnn, ([[2], [3], [4], [5]], False)),
    ],
)
def test_images_too_small_are_refused(build, rest) -> None:
    with pytest.raises(ValueError, match="vanishes"):
        build([1, 4, 4], 10, nn.ReLU, *rest)


def test_tempered_sigmoid_values_and_bounds() -> None:
    phi, x = TemperedSigmoid(3.0, 1.5, 0.5), torch.tensor([0.0, 2.0, -1e4, 1e4], dtype=torch.float64)
    torch.testing.assert_close(
        phi(x), torch.tensor([1.0, 3 / (1 + 2.718281828459045**-3) - 0.5, -0.5, 2.5], dtype=torch.float64)
    )


def test_weights_depend_on_the_seed_only(composed) -> None:
    def weights(*overrides: str) -> torch.Tensor:
        return next(prepare(composed(*overrides)).new_objective().parameters())

    torch.manual_seed(1)
    first = weights("seed=3")
    assert torch.equal(weights("seed=3", "noise_multiplier=2"), first)
    assert not torch.equal(weights("seed=4"), first)


def test_a_class_says_itself_that_it_is_monotone() -> None:
    """A subclass may compute anything else: what it inherits says nothing of it."""

    class Bump(TemperedSigmoid):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(-x.square())

    class Leaky(nn.LeakyReLU):
        monotone = True

    assert all(is_monotone(each) for each in (nn.ReLU(), nn.Tanh(), nn.Sigmoid(), TemperedSigmoid(2, 2, 1), Leaky()))
    assert not any(is_monotone(each) for each in (Bump(2, 2, 1), nn.LeakyReLU(), nn.GELU(), None))
