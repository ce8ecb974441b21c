"""Opacus' wrong gradients on channels-last tensors do not get through `OpacusEngine`."""

import copy

import torch
from torch import nn

from checks.benchmarks.peers import OpacusEngine
from runner.clipping import Flat
from runner.gradients import MappedEngine, Objective
from runner.speed.slices import channels_last


def test_channels_last_inputs_and_weights() -> None:
    for channels in (1, 3):
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(channels, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 3, 3, 2), nn.Flatten(), nn.Linear(27, 10)
        )
        objective = Objective(network, nn.CrossEntropyLoss(reduction="none")).double()
        objective = objective.to(memory_format=torch.channels_last)
        inputs = channels_last(torch.randn(4, channels, 7, 7, dtype=torch.float64))
        targets = torch.tensor([0, 1, 2, 3])
        expected = Flat(0.7).sum_contributions(MappedEngine(copy.deepcopy(objective)), inputs, targets)
        computed = Flat(0.7).sum_contributions(OpacusEngine(objective), inputs, targets)
        torch.testing.assert_close(computed.norms, expected.norms)
        torch.testing.assert_close(computed.gradients, expected.gradients)
