"""What every way of taking a run's steps shares: their state between two epochs, pieces of a batch, the first batch.

The state is all that the next epoch depends on, as tensors and plain numbers.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import torch
from torch import Generator, Tensor

from runner.mechanism.dp_sgd import Mechanism

T = TypeVar("T")
State = dict[str, Any]  # tensors, numbers, texts, and lists and dicts of these; reading it runs no code
OnState = Callable[[Callable[[], State]], None]  # called after every epoch but the last with a function for the state
Sums = Callable[[Tensor], Mapping[str, Tensor]]  # by parameter name, over the examples that a mask [batch] keeps
_ROUNDING = 1e-3, 2e-6  # relative to the bound; and for each example whose sum is rounded


class NotCapturableError(Exception):
    """No fixed sequence of calls can train this run; the message is the reason."""


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


class Pieces:
    """The number of examples at a time, `size`, which is halved if the GPU's memory is too small for them."""

    def __init__(self, size: int) -> None:
        self.size = size

    def fitting(self, take: Callable[[int], T], examples: int) -> T:
        """Return `take(size)` for the largest tried size that fits, of at most `examples`.

        Raises:
            torch.OutOfMemoryError: one example does not fit.
        """
        while True:
            size = min(self.size, examples)
            try:
                return take(size)
            except torch.OutOfMemoryError as error:
                if size <= 1:
                    error.add_note("one example does not fit: compute fewer runs at a time, by JOBS")
                    raise
            self.size = math.ceil(size / 2)
            torch.cuda.empty_cache()
            print(
                f"memory: {size} examples at a time do not fit, so {self.size} are computed at a time "
                f"(runtime.physical_batch={self.size}).",
                file=sys.stderr,
            )


def check_first_batch(mechanism: Mechanism, sums: Sums, norms: Tensor) -> None:
    """Take the example with the largest norm out of a batch, and compare the sums group by group.

    The sensitivities are proven, and the contributions of a user's code are bounded. This check compares the first real
    batch of a private run with the bounds once, in every way of taking a step. It costs three more sums, and is skipped
    if two sums of the same batch differ, as in a network that draws random numbers.

    Args:
        sums: the clipped sums over the examples of the batch that a mask keeps.
        norms: [batch], norms of gradients or, without these, losses; the largest selects the example.

    Raises:
        RuntimeError: the sums differ by more than the mechanism charges for.
    """
    if not mechanism.private or len(norms) < 2:
        return
    everyone = torch.ones(len(norms), dtype=torch.bool, device=norms.device)
    without_largest = everyone.clone()
    without_largest[norms.nan_to_num(-1.0, -1.0).argmax()] = False
    devices = [norms.device] if norms.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        total, without = sums(everyone), sums(without_largest)
        again = sums(everyone)
    if any(not torch.equal(total[name].nan_to_num(), again[name].nan_to_num()) for name in total):
        return
    for group in mechanism.noise_groups:
        squares = [(total[name] - without[name]).double().square().sum() for name in group.parameters]
        moved, most = float(torch.stack(squares).sum().sqrt()), mechanism.most_moved(group)
        if not moved <= most * (1 + _ROUNDING[0] + _ROUNDING[1] * len(norms)):
            raise RuntimeError(
                f"one example of the first batch moves the sum of {group.parameters[0]} by {moved:.4g}, but the noise "
                f"is for {most:.4g}: no ε would hold"
            )
