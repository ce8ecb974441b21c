"""Frozen parameters become buffers, and a frozen network computes what it does in evaluation."""

import pytest
import torch
from torch import nn
from torchvision.models import resnet18

from runner.clipping import Flat, gradient_sum
from runner.gradients import MappedEngine, Objective, OnePassEngine
from runner.networks.frozen import freeze


def test_a_frozen_resnet_computes_what_it_does_in_evaluation() -> None:
    torch.manual_seed(0)
    network = resnet18(num_classes=7)
    images = torch.randn(3, 3, 32, 32)
    network.train()(images + 1)  # so that the running statistics are not those of a new network
    expected = network.eval()(images)
    network.requires_grad_(False)
    network.fc.requires_grad_(True)
    frozen = freeze(network)
    assert [name for name, _ in network.named_parameters()] == ["fc.weight", "fc.bias"]
    assert frozen == 11_176_512
    torch.testing.assert_close(network.train()(images), expected, rtol=1e-4, atol=1e-5)


def test_dropout_and_batch_normalisation_of_a_trained_part_stay() -> None:
    trained = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 2))
    frozen = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5)).requires_grad_(False)
    freeze(nn.Sequential(frozen, trained))
    assert isinstance(frozen[1], nn.Identity)
    assert [type(layer) for layer in trained] == [nn.Dropout, nn.BatchNorm1d, nn.Linear]
    with pytest.raises(ValueError, match="nothing is trained"):
        freeze(nn.Linear(2, 2).requires_grad_(False))


def test_frozen_layers_have_one_sum_in_both_engines() -> None:
    """The engine for known modules and the isolated one clip the same gradients, of the trained layers alone."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    network[1].requires_grad_(False)
    network[3].bias.requires_grad_(False)
    freeze(network)
    model = Objective(network, nn.CrossEntropyLoss(reduction="none"))
    inputs, targets = torch.randn(6, 1, 4, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    sums = [
        gradient_sum(Flat(0.1), kind(model), inputs, targets, 8).gradients for kind in (OnePassEngine, MappedEngine)
    ]
    assert sums[0].keys() == sums[1].keys() == {"network.3.weight", "network.5.weight", "network.5.bias"}
    for name, total in sums[0].items():
        torch.testing.assert_close(total, sums[1][name], rtol=1e-4, atol=1e-6)
