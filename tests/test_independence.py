"""Losses and networks that mix examples are refused before anything is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from runner.build import Run, prepare
from runner.config import ConfigError
from runner.engines import Objective
from runner.independence import check_independence
from runner.life import live


class Centred(nn.Module):
    """A loss that takes the batch's mean logits away."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(logits - logits.mean(0), targets, reduction="none")


class AcrossTheBatch(nn.Module):
    """A layer without weights that mixes rows."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.1 * x.roll(1, 0)


def network(*between: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 16), *between, nn.Linear(16, 10))


PLAIN = nn.CrossEntropyLoss(reduction="none")


@pytest.mark.parametrize(
    ("objective", "couples"),
    [
        (lambda: Objective(network(), PLAIN), False),
        (lambda: Objective(network(nn.Dropout()), PLAIN), False),
        (lambda: Objective(network(nn.GroupNorm(4, 16)), PLAIN), False),
        (lambda: Objective(network(), Centred()), True),
        (lambda: Objective(network(AcrossTheBatch()), PLAIN), True),
    ],
    ids=["plain", "dropout", "group norm", "centred loss", "mixed rows"],
)
def test_what_couples_examples_is_refused(
    objective: Callable[[], Objective],
    couples: bool,
    composed: Callable[..., DictConfig],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = prepare(composed("experiment=losing_less/mnist_ours"))
    built = objective()
    monkeypatch.setattr(Run, "objective", built)
    state = torch.get_rng_state()
    if couples:
        with pytest.raises(ConfigError, match="others of its batch"):
            check_independence(run)
    else:
        check_independence(run)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "experiment", ["losing_less/cifar10_ours", "losing_less/pfe_mnist_ours", "backprop_clipping/mnist_joint"]
)
def test_the_papers_own_do_not(experiment: str, composed: Callable[..., DictConfig]) -> None:
    check_independence(prepare(composed(f"experiment={experiment}")))


def test_a_run_is_refused_before_data_is_read(composed: Callable[..., DictConfig], tmp_path: Path, monkeypatch) -> None:
    config = composed("experiment=losing_less/mnist_ours", f"runtime.data_root={tmp_path / 'no data'}")
    config.tracking.mode = "disabled"
    monkeypatch.setattr(Run, "objective", Objective(network(), Centred()))
    with pytest.raises(ConfigError, match="others of its batch"):
        live(config, lambda row, run: None)
    assert not list(tmp_path.rglob("*.json"))
