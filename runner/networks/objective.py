"""A network and its loss as one module, which gradient engines differentiate."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class InputBound:
    """Properties of every input: the shape of one, and the largest L2 norm, or None if nothing bounds it."""

    shape: tuple[int, ...]
    norm: float | None


class Constraint(Protocol):
    """A set of weights that a projection enforces."""

    def project(self, parameters: Mapping[str, Tensor]) -> None:
        """Project a network's parameters in place, by name."""
        ...


class Objective(nn.Module):
    """A network and a per-example loss: inputs [batch, ...] and targets [batch] to losses [batch].

    It must not couple examples: loss i may depend only on example i, on the weights and on the epoch.

    A loss maps logits [batch, classes] and targets [batch] to losses [batch]. Two attributes ask for more.
    `reads_pre_activations = True` adds a third argument: the outputs of the hidden layers with parameters, in the order
    of their calls. They are taken before any activation or pooling, without the last layer's, which are the logits. A
    method `start_epoch(epoch)` is called at every epoch, from 0.

    Attributes:
        inputs: properties of the inputs, if known.
        constraint: the set in which its weights are before every step; None: they are not projected.
        epoch: the last epoch that began, counted from 0; None before the first.
        views: K. With K > 1, inputs are K views of each example, [batch, K, ...]. Loss i is then the mean over the
            views of example i, and its gradient is the mean of theirs.
        frozen: the number of its constants that are frozen parameters: see `runner.networks.frozen`.
        isolated: True if its examples, and their views, are computed one at a time, in training and in evaluation.
    """

    views = 1
    frozen = 0
    isolated = False

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
        """Project the weights onto the constraint, if there is one."""
        if self.constraint is not None:
            project: Any = self.constraint.project
            if project({name: p.detach() for name, p in self.named_parameters()}) is not None:
                raise TypeError("project has to change the weights in place, and not to return others")

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        if self.views == 1:
            return self.predict(inputs, targets)[1]
        if self.isolated:
            return torch.stack([self.predict(view, targets)[1] for view in inputs.unbind(1)]).mean(0)
        _, losses = self.predict(inputs.flatten(0, 1), targets.repeat_interleave(self.views))
        return losses.view(-1, self.views).mean(1)

    def predict(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [batch, classes] and losses [batch] of single images, [batch, ...]."""
        if not getattr(self.loss, "reads_pre_activations", False):
            logits = self.network(inputs)
            return logits, self.loss(logits, targets)
        with layer_outputs(self.network) as outputs:
            logits = self.network(inputs)
        *hidden, _ = outputs.values()
        return logits, self.loss(logits, targets, hidden)

    @torch.no_grad()
    def take_values_of(self, other: "Objective") -> None:
        """Copy the weights and the buffers of an objective with the same modules, but not their attributes."""
        for mine, theirs in ((self.parameters(), other.parameters()), (self.buffers(), other.buffers())):
            for tensor, source in zip(mine, theirs, strict=True):
                tensor.copy_(source)

    @property
    def unit(self) -> float | Tensor:
        """Return the factor for released gradients: a public number, which the loss may state as `unit`."""
        stated: float | Tensor = getattr(self.loss, "unit", 1.0)
        return stated

    def received(self, means: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return gradients by parameter name, from a step's release: post-processing, which the loss may define."""
        receive: Any = getattr(self.loss, "received", None)
        gradients: dict[str, Tensor] = means if receive is None else receive(means)
        return gradients

    def start_epoch(self, epoch: int) -> None:
        """Pass the epoch that begins, counted from 0, to the loss."""
        self.epoch = epoch
        start: Any = getattr(self.loss, "start_epoch", None)
        if start is not None:
            start(epoch)


def fresh_copy(objective: Objective) -> Objective:
    """Copy an objective, with its constraint shared.

    Tensors that a pass left in attributes are copied without their history.

    Raises:
        ValueError: the objective cannot be copied.
    """
    try:
        attributes = (value for module in objective.modules() for value in vars(module).values())
        memo: dict[int, Any] = {
            id(value): value.detach().clone() for value in attributes if isinstance(value, Tensor) and not value.is_leaf
        }
        memo[id(objective.constraint)] = objective.constraint
        return copy.deepcopy(objective, memo)
    except Exception as error:  # any error of a user's class
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"the network or the loss cannot be copied: {reason}") from error


def layers_with_parameters(network: nn.Module) -> dict[str, nn.Module]:
    """Return the modules that own parameters, by name, in the order of their definition."""
    return {name: module for name, module in network.named_modules() if any(True for _ in module.parameters(False))}


@contextmanager
def hooked(modules: Mapping[str, nn.Module], hook: Callable[..., Tensor | None]) -> Iterator[None]:
    """Call hook(name, module, arguments, output) after each call of the modules, inside a `with` block."""
    handles = [module.register_forward_hook(partial(hook, name)) for name, module in modules.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def layer_outputs(network: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Collect the outputs of the layers with parameters, by name in the order of calls: the pre-activations."""
    outputs: dict[str, Tensor] = {}

    def keep(name: str, _: nn.Module, __: Any, output: Tensor) -> None:
        outputs[name] = output

    with hooked(layers_with_parameters(network), keep):
        yield outputs


def is_chain(objective: Objective, inputs: Tensor, targets: Tensor) -> bool:
    """Return True if the values before a layer reach the loss only through that layer.

    Autograd shows this, in one pass over inputs [batch, ...] on any device. Every layer with parameters returns a fresh
    leaf instead of its output. Each layer's input, and finally the losses, may depend only on the leaf of the layer
    before. A branch shows as another gradient, however it is written.
    """
    leaves: list[Tensor] = []
    reads: list[tuple[Tensor, int]] = []  # a tensor that is read, and the number of layers called before

    def cut(_: str, __: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
        reads.extend(
            (tensor, len(leaves)) for tensor in arguments if isinstance(tensor, Tensor) and tensor.requires_grad
        )
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    with hooked(layers_with_parameters(objective), cut), torch.enable_grad():
        reads.append((objective(inputs, targets), len(leaves)))
    for read, before in reads:
        if not (read.requires_grad and leaves):
            continue
        with torch.enable_grad():
            total = read.sum()
        slopes = torch.autograd.grad(total, leaves, allow_unused=True, retain_graph=True)
        if any(slope is not None and place != before - 1 for place, slope in enumerate(slopes)):
            return False
    return True
