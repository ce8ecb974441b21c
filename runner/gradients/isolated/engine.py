"""The isolated engine: per-example gradients of any objective, each computed from one example alone.

The gradient of one example's loss, with the weights passed in, is mapped over the examples
(`runner.gradients.isolated.mapped`). The differentiated objective is a copy of the original, made before there is any
data. So a forward pass that writes into a module affects no other pass.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial, reduce
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.func import functional_call

from runner.gradients.interface import GradientSum, OrdinaryPass, weigh_and_sum
from runner.gradients.isolated.mapped import Mapped
from runner.gradients.isolated.recording import NotMappableError
from runner.gradients.terms import Factors
from runner.networks.objective import Objective
from runner.speed.slices import examples_with_gradients


class Within(Protocol):
    """Something that changes how an objective computes gradients, such as a clipping inside its layers."""

    def layers_clip(self, model: Objective, examples: int) -> AbstractContextManager[None]:
        """Make a pass over `examples` examples compute the changed gradients, inside a `with` block."""
        ...


def _gradient(
    objective: Objective, within: Within | None, shared: dict[str, Tensor], inputs: Tensor, target: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    """Return one example's gradients by parameter name, and its loss, a tensor without dimensions.

    `shared` has the parameters and the buffers, inputs are [*shape] and the target has no dimensions.
    """
    names = [name for name, _ in objective.named_parameters()]
    leaves = {name: shared[name].detach().requires_grad_() for name in names}
    clips = nullcontext() if within is None else within.layers_clip(objective, 1)
    with torch.enable_grad(), clips:
        losses = functional_call(objective, {**shared, **leaves}, (inputs[None], target[None]))
    if losses.shape == ():
        raise ValueError(
            "the loss gives one number for the whole batch, and needs one for each example: drop .mean() or .sum()"
        )
    if losses.shape != (1,):
        raise ValueError(f"expected one loss per example, shape (1,) for one, got {tuple(losses.shape)}")
    for leaf in leaves.values():
        leaf.requires_grad_()  # a clipping inside the layers turns it off
    if not losses.requires_grad:
        raise ValueError("no weight has a gradient, so training would be noise alone")
    gradients = torch.autograd.grad(losses.sum(), list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, gradients, strict=True)), losses.detach()[0]


class IsolatedEngine(OrdinaryPass):
    """Forms every per-example gradient, then weighs and sums them. The reference for the one-pass engine.

    Cost: a forward and a backward pass, and memory for batch x parameters numbers. Batches are split to fit.

    Raises:
        NotMappableError: the objective cannot be copied.
    """

    def __init__(self, objective: Objective) -> None:
        super().__init__(objective)
        self._built = private_copy(objective)
        self._mapped: dict[Any, Mapped] = {}

    def clipped_sum(
        self,
        inputs: Tensor,
        targets: Tensor,
        groups: Sequence[Sequence[str]],
        factors: Factors,
        within: Within | None = None,
    ) -> GradientSum:
        """See `Engine.clipped_sum`; `within` changes the gradients that are clipped."""
        return self.summed(inputs, targets, partial(weigh_and_sum, groups=groups, factors=factors), within)

    def summed(
        self,
        inputs: Tensor,
        targets: Tensor,
        of_piece: Callable[[dict[str, Tensor], Tensor], GradientSum],
        within: Within | None = None,
    ) -> GradientSum:
        """Return the sum of `of_piece(gradients, losses)` over pieces of a batch whose gradients fit into memory."""
        parameters = sum(p.numel() for p in self.objective.parameters())
        held = examples_with_gradients(parameters, inputs.device.type, inputs.element_size())
        pieces = zip(inputs.split(held), targets.split(held), strict=True)
        return reduce(GradientSum.__add__, (of_piece(*self.gradients(*piece, within)) for piece in pieces))

    def gradients(
        self, inputs: Tensor, targets: Tensor, within: Within | None = None
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Return every example's gradient, by parameter name [batch, *shape], and loss [batch].

        Raises:
            NotMappableError: the gradient of one example cannot be computed.
        """
        return self.mapped(inputs[:1], targets[:1], within)(shared_tensors(self.objective), inputs, targets)  # type: ignore[no-any-return]

    def mapped(self, inputs: Tensor, targets: Tensor, within: Within | None = None) -> Mapped:
        """Return the gradient of one example, ready to be mapped; only the shape of inputs [1, *shape] is used.

        A loss that depends on the epoch is recorded again in each epoch.
        """
        epoch = self.objective.epoch if hasattr(self.objective.loss, "start_epoch") else None
        key = (inputs.shape[1:], inputs.dtype, inputs.device, epoch, within)
        if key not in self._mapped:
            self._mapped = {other: each for other, each in self._mapped.items() if other[3] == epoch}
            objective = private_copy(self._built)
            if epoch is not None:
                for each in range(epoch + 1):  # it may change its own state
                    objective.start_epoch(each)
            losses = next(self.objective.parameters()).new_empty((), device="meta")
            gradients = {name: torch.empty_like(p, device="meta") for name, p in self.objective.named_parameters()}
            example = torch.zeros_like(inputs[0]), torch.zeros_like(targets[0])
            shared = shared_tensors(self.objective)
            self._mapped[key] = Mapped(partial(_gradient, objective, within), shared, example, (gradients, losses))
        return self._mapped[key]


def shared_tensors(objective: Objective) -> dict[str, Tensor]:
    """Return the parameters and the buffers, which no isolated pass changes."""
    return {name: p.detach() for name, p in objective.named_parameters()} | dict(objective.named_buffers())


def private_copy(objective: Objective) -> Objective:
    """Copy an objective, so that code with a reference to the original cannot reach data that passes the copy.

    Tensors that a pass left in attributes are copied without their history.

    Raises:
        NotMappableError: the objective cannot be copied.
    """
    try:
        attributes = (value for module in objective.modules() for value in vars(module).values())
        left: dict[int, Any] = {
            id(value): value.detach().clone() for value in attributes if isinstance(value, Tensor) and not value.is_leaf
        }
        left[id(objective.constraint)] = objective.constraint  # shared, as a user's class could record its copies
        return copy.deepcopy(objective, left)
    except Exception as error:  # any error of a user's class
        reason = str(error).strip().partition("\n")[0]
        raise NotMappableError(f"the network or the loss cannot be copied: {reason}") from error
