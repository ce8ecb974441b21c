"""The state of a run between two epochs: all that the next one depends on, as tensors and plain numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Generator

State = dict[str, Any]  # tensors, numbers, texts, and lists and dicts of these; reading it runs no code
OnState = Callable[[Callable[[], State]], None]  # called after every epoch but the last with a function for the state


class Stateful(Protocol):
    """A part of a run whose state can be saved and restored: a network or an optimizer, for example."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State, /) -> object: ...


def state_of(parts: Mapping[str, Stateful], generators: Mapping[str, Generator], device: torch.device) -> State:
    """Return the states of a run's parts, of its generators, and of PyTorch's generators, for layers that draw."""
    return {
        "parts": {name: part.state_dict() for name, part in parts.items()},
        "generators": {name: generator.get_state() for name, generator in generators.items()},
        "layers": torch.get_rng_state(),
        "layers_on_device": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def put_back(
    state: State, parts: Mapping[str, Stateful], generators: Mapping[str, Generator], device: torch.device
) -> None:
    """Restore the saved states of a run's parts and generators, on freshly built ones."""
    for name, part in parts.items():
        part.load_state_dict(state["parts"][name])
    for name, generator in generators.items():
        generator.set_state(state["generators"][name])
    torch.set_rng_state(state["layers"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["layers_on_device"], device)
