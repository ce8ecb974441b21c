"""Hooks and modes of a whole process see no private example, and are restored afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from runner.clipping import Flat, gradient_sum
from runner.gradients import ENGINES, Objective

NORM = 0.1
SEEN: list[object] = []


@contextmanager
def hook(register: Any) -> Iterator[None]:
    handle = register(lambda *arguments: SEEN.append(arguments))
    try:
        yield
    finally:
        handle.remove()


class Watching(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        SEEN.append(args)
        return function(*args, **kwargs or {})


def keep(tensor: Tensor) -> Tensor:
    SEEN.append(tensor)
    return tensor


WATCHERS = {
    "a hook on all modules": lambda: hook(register_module_forward_pre_hook),
    "hooks on saved tensors": lambda: saved_tensors_hooks(keep, keep),
    "a function mode": Watching,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
}


class Multiplied(Tensor):
    """Sees every operator on it."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        SEEN.append(args)
        return super().__torch_function__(function, types, args, kwargs or {})


@pytest.mark.parametrize("kind", ENGINES)
def test_a_sum_over_a_subclass_of_tensors_runs_none_of_its_code(kind: str) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    computes = ENGINES[kind](Objective(network, nn.CrossEntropyLoss(reduction="none")))
    images = torch.rand(4, 1, 28, 28).as_subclass(Multiplied)
    SEEN.clear()
    gradient_sum(Flat(NORM), computes, images, torch.arange(4), 9)
    assert not SEEN


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("watcher", WATCHERS)
def test_a_sum_is_what_it_would_be(watcher: str, kind: str) -> None:
    torch.manual_seed(0)
    images, targets = 3 * torch.rand(4, 1, 28, 28), torch.arange(4)
    network = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.Tanh(), nn.Linear(64, 10))
    computes = ENGINES[kind](Objective(network, nn.CrossEntropyLoss(reduction="none")))
    expected = gradient_sum(Flat(NORM), computes, images, targets, 9).gradients
    SEEN.clear()
    with WATCHERS[watcher]():
        found = gradient_sum(Flat(NORM), computes, images, targets, 9).gradients
        watched = list(SEEN)
        nn.Sequential(nn.Linear(2, 2))(torch.ones(1, 2))
    assert not watched
    assert SEEN or watcher == "autocast"
    for name, gradient in expected.items():
        assert torch.equal(found[name], gradient)
