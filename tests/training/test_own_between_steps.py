"""An optimizer or a schedule of a user runs between two steps: it reaches no noise, no batch and no bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

import runner.training.call_by_call as steps
from runner.config import ConfigError
from runner.training.loop import load, train
from runner.training.prepare import prepare
from tests import coupling

Compose = Callable[..., DictConfig]
HERE = "tests.training.test_own_between_steps"
SEEN: dict[str, int] = {"draws": 0, "batches": 0}
STATES: list[Tensor] = []


class Silencing(TorchFunctionMode):
    """Sees every operator on plain tensors, and sets what a generator draws to zero."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **kwargs or {})
        if kwargs and kwargs.get("generator") is not None:
            SEEN["draws"] += 1
            found.zero_()
        SEEN["batches"] += isinstance(found, Tensor) and found.dim() == 4 and found.shape[1:] == (1, 28, 28)
        return found


class EntersAMode(torch.optim.SGD):
    def step(self, closure: Any = None) -> None:
        if not _get_current_function_mode_stack():
            Silencing().__enter__()
        super().step(closure)


@pytest.fixture
def no_mode() -> Iterator[None]:
    SEEN.update(draws=0, batches=0)
    yield
    while _get_current_function_mode_stack():
        torch.overrides._pop_mode()


@pytest.mark.usefixtures("no_mode")
@pytest.mark.parametrize("sampling", ["poisson", "shuffled"])
def test_a_mode_that_an_optimizer_enters_sees_neither_noise_nor_batches(sampling: str, smoke: Compose) -> None:
    own = (f"optimizer._target_={HERE}.EntersAMode", "optimizer.lr=0.01", "~optimizer.momentum")
    run = prepare(smoke("experiment=tempered_sigmoid/mnist_tanh", f"sampling={sampling}", "epochs=1", *own))
    train(run, load(run), lambda row: None)
    assert _get_current_function_mode_stack()
    assert SEEN == {"draws": 0, "batches": 0}


class Climbing(torch.optim.lr_scheduler.LRScheduler):
    """Multiplies the weights, which have been projected by then."""

    def get_lr(self) -> list[float]:
        with torch.no_grad():
            for parameter in self.optimizer.param_groups[0]["params"] if getattr(self, "last_epoch", 0) > 0 else ():
                parameter.mul_(100)
        return [group["lr"] for group in self.optimizer.param_groups]


def test_weights_that_a_schedule_changes_are_projected_again(smoke: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    config = smoke("experiment=lipschitz/mnist_mlp", "target_epsilon=null", "noise_multiplier=1", "epochs=3")
    with open_dict(config):
        config.schedule = OmegaConf.create({"_target_": f"{HERE}.Climbing", "_partial_": True})
    config.runtime.step = "graph"
    with pytest.raises(ConfigError, match="a user's schedule may change weights"):
        train(prepare(config), load(prepare(config)), lambda row: None)
    config.runtime.step = "eager"
    run, largest = prepare(config), 0.0
    summed = steps.gradient_sum

    def measured(clipping: Any, engine: Any, inputs: Tensor, targets: Tensor, *more: Any) -> Any:
        nonlocal largest
        first = summed(clipping, engine, inputs[:1], targets[:1], *more).gradients
        for group in run.mechanism.noise_groups:
            length = torch.cat([first[name].flatten() for name in group.parameters]).norm().item()
            largest = max(largest, length / group.sensitivity)
        return summed(clipping, engine, inputs, targets, *more)

    monkeypatch.setattr(steps, "gradient_sum", measured)
    train(run, load(run), lambda row: None)
    assert 0 < largest <= 1 + 1e-4


class Noisy(coupling.Plain):
    """Draws random numbers for each example."""

    def rows(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


class Counting(torch.optim.SGD):
    """Reads the state of the global generator, which could tell how many examples drew from it."""

    def step(self, closure: Any = None) -> None:
        STATES.append(torch.get_rng_state())
        super().step(closure)


def test_the_global_generator_does_not_tell_the_size_of_a_batch(smoke: Compose) -> None:
    own = (f"optimizer._target_={HERE}.Counting", "optimizer.lr=0.01", "~optimizer.momentum")
    network = ("~architecture", f"+architecture._target_={HERE}.Noisy")
    found = []
    for batch in (16, 64):
        STATES.clear()
        config = smoke("experiment=tempered_sigmoid/mnist_tanh", f"batch_size={batch}", "epochs=1", *own, *network)
        run = prepare(config)
        STATES.clear()  # of the trial step
        train(run, load(run), lambda row: None)
        found.append(list(STATES))
    assert len(found[1]) > 2
    assert all(map(torch.equal, *(states[: len(found[1])] for states in found)))
    assert not torch.equal(*found[1][:2])


class Watching(nn.Parameter):
    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return nn.Parameter.__torch_function__(function, types, args, kwargs or {})


class WatchingBuffer(Tensor):
    def __deepcopy__(self, memo: Any) -> Tensor:
        return self.clone().as_subclass(WatchingBuffer)


class Subclassed(Noisy):
    def __init__(self, input_shape: Any, classes: int, activation: Any) -> None:
        super().__init__(input_shape, classes, activation)
        self.last.weight = Watching(self.last.weight.data)


class SubclassedBuffer(Noisy):
    def __init__(self, input_shape: Any, classes: int, activation: Any) -> None:
        super().__init__(input_shape, classes, activation)
        self.register_buffer("shift", torch.zeros(784).as_subclass(WatchingBuffer))


@pytest.mark.parametrize(
    ("network", "said"),
    [("Subclassed", "last.weight is a Watching"), ("SubclassedBuffer", "shift is a WatchingBuffer")],
)
def test_tensors_with_code_of_their_own_are_refused(network: str, said: str, with_part: Compose) -> None:
    with pytest.raises(ConfigError, match=said):
        prepare(with_part("architecture", f"{HERE}.{network}"))
