"""Checks of objects that need no data."""

import os

import pytest
import torch
from torch import nn

from runner.config import ConfigError
from runner.training.checks import within_memory


def test_weights_beyond_the_memory_are_refused_before_any_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 1,000 pages of 1,000 bytes holds 83,333 weights, each with its gradient and noise."""
    monkeypatch.setattr(os, "sysconf", lambda name: 1000)
    drawn = torch.get_rng_state()
    with pytest.raises(ConfigError, match="more memory than"), within_memory():
        nn.Linear(84, 1000, bias=False)
    assert torch.equal(torch.get_rng_state(), drawn)
    with within_memory():
        nn.Linear(83, 1000, bias=False)
        with pytest.raises(ConfigError):
            nn.Linear(1, 334, bias=False)
    nn.Linear(84, 1000)
