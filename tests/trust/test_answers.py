"""Parts of a user that answer wrongly are refused before work starts; what they are given is theirs to change."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from omegaconf import DictConfig
from torch import Generator, Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from runner.accounting import Ledger, Releases
from runner.build.prepare import check_own, prepare
from runner.clipping import Flat
from runner.config import ConfigError
from runner.training.averaging import averaged, initial_average
from runner.training.loop import load, train
from tests.choosing import OwnNormalization

HERE = "tests.trust.test_answers"
Make = Callable[..., DictConfig]


class Answers:
    """An accountant and an averaging of a user's own, which answer with a text, or what it says in float()."""

    def __init__(self, answer: str) -> None:
        self.answer, self.calls = answer, 0

    def epsilon(self, releases: Releases, delta: float) -> object:
        return self._number()

    def share(self, updates: Tensor) -> object:
        return self._number()

    def _number(self) -> object:
        self.calls += 1
        if self.answer == "later":
            return 0.5 if self.calls == 1 else math.nan
        if self.answer == "two":
            return torch.tensor([0.1, 0.2])
        return self.answer if self.answer == "text" else float(self.answer)


@dataclass(frozen=True)
class Times(Flat):
    """Multiplies a gradient by a number, whatever its norm is."""

    by: float

    def factors(self, norms: Tensor) -> Tensor:
        return self.by * torch.ones_like(norms)


def test_a_clipping_that_is_cut_is_named_once(part_config: Make, capsys: pytest.CaptureFixture[str]) -> None:
    run = prepare(part_config("clipping", f"{HERE}.Times", norm=0.1, by=20.0))
    check_own(run)
    check_own(run)
    message = capsys.readouterr().err
    assert (
        message.count("Times.factors turns a gradient of norm 0.01 into one of 0.2. It is cut to the stated bound") == 1
    )


class Returns:
    def project(self, parameters: Mapping[str, Tensor]) -> object:
        return {name: gradient.clamp(-1, 1) for name, gradient in parameters.items()}


class NoNumber(Flat):
    def factors(self, norms: Tensor) -> Tensor:
        return norms * math.nan


class StartsBadly(nn.CrossEntropyLoss):
    def start_epoch(self) -> None: ...


class Counts(nn.Module):
    """The number of wrong guesses, which no weight has a gradient of."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return (logits.argmax(1) != targets).float()


class HalfViews:
    views, numbers = 2.5, 1


def no_schedule(optimizer: torch.optim.Optimizer) -> None: ...


def falls_below_zero(optimizer: torch.optim.Optimizer) -> LambdaLR:
    return LambdaLR(optimizer, lambda epoch: 1.0 - epoch)


class FallsByStep(LambdaLR):
    by_step = True

    def __init__(self, optimizer: torch.optim.Optimizer, **of_run: int) -> None:
        super().__init__(optimizer, lambda step: 1.0 - step / 10)


def raises(optimizer: torch.optim.Optimizer) -> None:
    raise KeyError("lr")


def overwritten(input_shape: Sequence[int], classes: int, activation: Callable[[], nn.Module]) -> nn.Module:
    return nn.Sequential(nn.SiLU(inplace=True), nn.Flatten(), nn.Linear(784, classes))


def seven(input_shape: Sequence[int], classes: int, activation: Callable[[], nn.Module]) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 7))


@pytest.mark.parametrize(
    ("group", "name", "arguments", "message"),
    [
        *(
            ("accountant", "Answers", {"answer": answer}, "accountant: Expected Answers to give")
            for answer in ("nan", "-1", "text", "later")
        ),
        *(("averaging", "Answers", {"answer": answer}, "averaging: ") for answer in ("-1", "1.5", "two", "later")),
        ("constraint", "Returns", {}, "constraint: project has to change the weights in place"),
        ("clipping", "NoNumber", {"norm": 0.1}, r"clipping: NoNumber\.factors is not finite for a gradient of norm"),
        ("loss", "StartsBadly", {}, r"loss: start_epoch\(0\) fails: "),
        ("loss", "Counts", {}, "it fails on one example: ValueError: no weight has a gradient"),
        ("augmentation", "HalfViews", {}, "augmentation: 'float' object cannot be interpreted as an integer"),
        ("schedule", "no_schedule", {"_partial_": True}, "no_schedule makes no schedule with a method step, but None"),
        ("schedule", "falls_below_zero", {"_partial_": True}, "schedule: .* learning rate would be -.* in epoch 3"),
        ("schedule", "FallsByStep", {"_partial_": True}, "schedule: .* learning rate would be -.* in epoch 1"),
        ("schedule", "raises", {"_partial_": True}, "schedule: KeyError: 'lr'"),
        ("architecture", "overwritten", {}, "architecture: a module changes the images"),
        ("architecture", "seven", {}, r"expected logits of shape \(2, 10\), got \(2, 7\)"),
    ],
)
def test_a_wrong_part_is_refused_before_data_is_read(
    group: str, name: str, arguments: dict[str, Any], message: str, part_config: Make
) -> None:
    config = part_config(group, f"{HERE}.{name}", "features=pixels", "scale.epochs=3", "epochs=3", **arguments)
    with pytest.raises(ConfigError, match=message):
        check_own(prepare(config))


class TrainsOnly(nn.Flatten):
    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            raise KeyError("dropout")
        return super().forward(x)


def trains_only(input_shape: Sequence[int], classes: int, activation: Callable[[], nn.Module]) -> nn.Module:
    return nn.Sequential(TrainsOnly(), nn.Linear(784, classes))


def test_a_network_that_fails_in_evaluation_is_refused(part_config: Make) -> None:
    config = part_config("architecture", f"{HERE}.trains_only", "noise_multiplier=0", "clipping=none", "~clipping.norm")
    with pytest.raises(ConfigError, match="architecture: evaluation fails: KeyError: 'dropout'"):
        check_own(prepare(config))


class Reciprocal:
    def share(self, updates: Tensor) -> Tensor:
        return updates.add_(9).reciprocal_()


@pytest.mark.parametrize(("averaging", "last"), [(Reciprocal(), 9 / 12), (Answers("0.5"), 1 / 2**3)])
def test_a_share_may_be_a_number_and_change_the_counter(averaging: Any, last: float) -> None:
    """After three updates, what is left of the first weights."""
    average = initial_average([torch.zeros(())])
    for _ in range(3):
        average = averaged(averaging, average, [torch.ones(())])
    assert average[0] == 3
    assert average[1] == pytest.approx(1 - last)


class Blanks(OwnNormalization):
    def fit(self, layer: nn.Module, features: Tensor, generator: Generator, ledger: Ledger) -> None:
        features.zero_()


def test_a_normalization_may_change_its_input_in_place(part_config: Make) -> None:
    run = prepare(part_config("normalization", f"{HERE}.Blanks", groups=1))
    data = load(run)
    images = data[0].images.clone()
    assert images.any()
    train(run, data, lambda row: None)
    assert torch.equal(data[0].images, images)
