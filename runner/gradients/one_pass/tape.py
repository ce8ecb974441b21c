"""One forward and one backward pass that stop at the layers: their inputs, and the gradients of their outputs.

The parameters do not require gradients in the meantime, so autograd forms no weight gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from runner.networks.objective import hooked


class NotRecordableError(Exception):
    """The objective uses a layer in a way that its inputs and output gradients do not show."""


@dataclass
class Tape:
    """The inputs and outputs of the layers in one pass, by layer name."""

    inputs: dict[str, Tensor] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)
    versions: dict[str, tuple[int, int]] = field(default_factory=dict)

    def clear(self) -> None:
        for kept in (self.inputs, self.outputs, self.versions):
            kept.clear()


@contextmanager
def recording(layers: Mapping[str, nn.Module]) -> Iterator[Tape]:
    """Record every call of `layers` on a tape; inside, their parameters do not require gradients."""
    tape = Tape()

    def record(name: str, _: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        if name in tape.outputs:
            raise NotRecordableError(f"{name} is called twice")
        if len(args) != 1:
            raise NotRecordableError(f"{name} is not called with one argument")
        if not output.requires_grad:
            output.requires_grad_()
        tape.inputs[name], tape.outputs[name] = args[0].detach(), output
        tape.versions[name] = args[0]._version, output._version

    trainable = [p for module in layers.values() for p in module.parameters(recurse=False) if p.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        with hooked(layers, record), torch.enable_grad():
            yield tape
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)


def output_gradients(tape: Tape, losses: Tensor) -> dict[str, Tensor]:
    """Return d(sum of losses) / d(layer output), by layer, without layers that the loss does not depend on."""
    for name, output in tape.outputs.items():
        if (tape.inputs[name]._version, output._version) != tape.versions[name]:
            raise NotRecordableError(f"the input or the output of {name} is changed in place")
    if not losses.requires_grad:
        return {}
    outputs = list(tape.outputs.values())
    gradients = torch.autograd.grad(losses, outputs, torch.ones_like(losses), allow_unused=True)
    return {name: g for name, g in zip(tape.outputs, gradients, strict=True) if g is not None}
