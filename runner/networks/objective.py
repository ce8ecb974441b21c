"""A network and its loss as one module: what a gradient engine differentiates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class InputBound:
    """What is known of every input: the shape of one, and the largest L2 norm, or None where nothing bounds it."""

    shape: tuple[int, ...]
    norm: float | None

    def within(self, inputs: Tensor) -> Tensor:
        """Inputs [batch, *shape], those that are longer than the norm scaled to it."""
        return inputs if self.norm is None else inputs.renorm(2, 0, self.norm)


class Constraint(Protocol):
    """What the weights are kept in."""

    def project(self, parameters: Mapping[str, Tensor]) -> None:
        """Put parameters back into it, in place: by name, of any number of networks at once, [networks, *shape]."""
        ...


class Objective(nn.Module):
    """A network and a per-example loss: inputs [batch, ...] and targets [batch] to losses [batch].

    It must not couple examples: loss i may depend on example i, on the weights and on the epoch only.

    A loss maps logits [batch, classes] and targets [batch] to losses [batch]. Two attributes ask for more:
    `reads_pre_activations = True` adds a third argument, the outputs of the hidden layers with parameters in the order
    of their calls (before any activation or pooling; the last layer's, the logits, are left out), and a method
    `start_epoch(epoch)` is told every epoch, from 0.

    Attributes:
        inputs: what is known of them, if anything.
        constraint: what its weights are in before every step; None: nothing keeps them.
        epoch: the epoch that began last, counted from 0; None before the first.
    """

    def __init__(
        self,
        network: nn.Module,
        loss: nn.Module,
        inputs: InputBound | None = None,
        constraint: Constraint | None = None,
    ) -> None:
        super().__init__()
        self.network, self.loss = network, loss
        self.inputs, self.constraint = inputs, constraint
        self.epoch: int | None = None

    def project(self) -> None:
        """Put the weights into the constraint, if there is one."""
        if self.constraint is not None:
            self.constraint.project({name: p.detach().unsqueeze(0) for name, p in self.named_parameters()})

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return self.predict(inputs, targets)[1]

    def predict(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [batch, classes] and losses [batch]."""
        if not getattr(self.loss, "reads_pre_activations", False):
            logits = self.network(inputs)
            return logits, self.loss(logits, targets)
        with layer_outputs(self.network) as outputs:
            logits = self.network(inputs)
        *hidden, _ = outputs.values()
        return logits, self.loss(logits, targets, hidden)

    @torch.no_grad()
    def take_values_of(self, other: Objective) -> None:
        """Copy the weights and the buffers of an objective of the same modules, and nothing else that is on them."""
        with torch._C.DisableTorchFunctionSubclass():
            for mine, theirs in ((self.parameters(), other.parameters()), (self.buffers(), other.buffers())):
                for tensor, source in zip(mine, theirs, strict=True):
                    tensor.copy_(source)

    @property
    def unit(self) -> float | Tensor:
        """What released gradients are to be multiplied by: a public number, which the loss may state as `unit`."""
        stated: float | Tensor = getattr(self.loss, "unit", 1.0)
        return stated

    def received(self, means: dict[str, Tensor]) -> dict[str, Tensor]:
        """Gradients by parameter name, from what a step released: post-processing, which the loss may state."""
        receive: Any = getattr(self.loss, "received", None)
        gradients: dict[str, Tensor] = means if receive is None else receive(means)
        return gradients

    def start_epoch(self, epoch: int) -> None:
        """Tell the loss which epoch begins, counted from 0."""
        self.epoch = epoch
        start: Any = getattr(self.loss, "start_epoch", None)
        if start is not None:
            start(epoch)


def layers_with_parameters(network: nn.Module) -> dict[str, nn.Module]:
    """The modules that own parameters, by name, in the order of their definition."""
    return {name: module for name, module in network.named_modules() if any(True for _ in module.parameters(False))}


@contextmanager
def layer_outputs(network: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Collect, by name and in the order of the calls, what the layers with parameters return: the pre-activations."""
    outputs: dict[str, Tensor] = {}

    def hook(name: str) -> Any:
        def keep(_: nn.Module, __: Any, output: Tensor) -> None:
            outputs[name] = output

        return keep

    handles = [layer.register_forward_hook(hook(name)) for name, layer in layers_with_parameters(network).items()]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def is_chain(objective: Objective, inputs: Tensor, targets: Tensor) -> bool:
    """Whether what comes before a layer reaches the loss through that layer alone.

    What is asked is autograd, in one pass over inputs [batch, ...] on any device: every layer with parameters returns a
    fresh leaf in place of its output, and each layer's input, and at last the losses, may depend on the leaf of the
    layer before and on no other. No matter how a branch is written, a gradient that passes it shows.
    """
    leaves: list[Tensor] = []
    reads: list[tuple[Tensor, int]] = []  # what is read, and how many layers were called before

    def cut(_: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
        reads.extend((each, len(leaves)) for each in arguments if isinstance(each, Tensor) and each.requires_grad)
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    handles = [layer.register_forward_hook(cut) for layer in layers_with_parameters(objective).values()]
    try:
        with torch.enable_grad():
            reads.append((objective(inputs, targets), len(leaves)))
    finally:
        for handle in handles:
            handle.remove()
    for read, before in reads:
        if not (read.requires_grad and leaves):
            continue
        slopes = torch.autograd.grad(read, leaves, torch.ones_like(read), allow_unused=True, retain_graph=True)
        if any(slope is not None and place != before - 1 for place, slope in enumerate(slopes)):
            return False
    return True
