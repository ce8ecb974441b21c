"""First weights: the distribution of each layer."""

import math

import pytest
import torch
from torch import nn

from runner.build.prepare import prepare
from runner.networks.initial import Glorot
from runner.records.identity import identify

RELU = "experiment=tempered_sigmoid/mnist_relu"
# n_in and n_out of the layers of Tempered Sigmoid, table 1, on 1 x 28 x 28: channels times places of the kernel
FANS = {"0": (1 * 64, 16 * 64), "3": (16 * 16, 32 * 16), "7": (32 * 16, 32), "9": (32, 10)}


def initial(composed, *overrides: str) -> nn.Module:
    return prepare(composed(RELU, *overrides)).new_objective().network


def test_glorot_weights_have_the_variance_of_stax(composed):
    network = initial(composed)
    draws = []
    for _ in range(300):
        Glorot().initialize(network)
        draws.append({name: value.double().clone() for name, value in network.state_dict().items()})
    values = {name: torch.stack([draw[name] for draw in draws]) for name in draws[0]}
    for layer, (n_in, n_out) in FANS.items():
        weights, biases = values[f"{layer}.weight"], values[f"{layer}.bias"]
        variance = 2 / (n_in + n_out)
        assert weights.square().mean().item() == pytest.approx(variance, rel=0.015)
        assert weights.abs().max().item() <= 2 * math.sqrt(variance) / 0.8796 + 1e-6  # the cut
        assert biases.std().item() == pytest.approx(1e-6 if layer in "03" else 1e-2, rel=0.06)


def test_first_weights_follow_from_seed_and_initialisation(composed):
    plain, glorot, again = (
        initial(composed, *o).state_dict()["0.weight"] for o in ((), ("init=glorot",), ("init=glorot",))
    )
    assert plain.abs().max() <= 1 / math.sqrt(64)  # PyTorch's: uniform to 1 / sqrt(n_in)
    assert not torch.equal(plain, glorot)
    assert torch.equal(glorot, again)
    assert identify(composed(RELU))[0] != identify(composed(RELU, "init=glorot"))[0]
