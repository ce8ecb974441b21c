"""The isolated engine and prediction: a user's network and loss, each example computed from it alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.func import grad_and_value

from runner.gradients.mapped import Gradients, MappedEngine, Within, as_function, example_loss, shared_tensors
from runner.networks.objective import Objective, fresh_copy
from runner.trust.mapped import Mapped


class IsolatedEngine(MappedEngine):
    """Per-example gradients of any objective, by `runner.trust.mapped`.

    Each batch is differentiated on a fresh copy of the objective, so the objective itself never sees an example.
    """

    def __init__(self, objective: Objective) -> None:
        super().__init__(objective)
        self._mapped: dict[Any, Mapped] = {}

    def gradients(self, inputs: Tensor, targets: Tensor, within: Within | None = None) -> Gradients:
        """Return every example's gradient, by parameter name [batch, *shape], and loss [batch].

        Raises:
            NotMappableError: the gradient of one example cannot be computed from it alone.
        """
        mapped = self.mapped(inputs, targets, within)
        gradients: Gradients = mapped(shared_tensors(self.objective), inputs, targets)
        return gradients

    def mapped(self, inputs: Tensor, targets: Tensor, within: Within | None = None) -> Mapped:
        """Return the gradient of one example, ready to be mapped; only the shape of one input is used."""
        key = (inputs.shape[1:], inputs.dtype, inputs.device, within)
        if key not in self._mapped:
            objective = self.objective
            gradients = {name: torch.empty_like(p, device="meta") for name, p in objective.named_parameters()}
            self._mapped[key] = Mapped(
                lambda: grad_and_value(example_loss(fresh_copy(objective), within)),
                shared_tensors(objective),
                (torch.zeros_like(inputs[0]), torch.zeros_like(targets[0])),
                (gradients, next(objective.parameters()).new_empty((), device="meta")),
                lambda: _differentiated(example_loss(fresh_copy(objective), within)),
            )
        return self._mapped[key]


def _differentiated(loss: Callable[..., Tensor]) -> Callable[..., Gradients]:
    """Return the gradient of one example's loss, and the loss, by ordinary autograd.

    Raises:
        ValueError: the loss depends on no parameter.
    """

    def gradient(parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], *example: Tensor) -> Gradients:
        leaves = {name: tensor.requires_grad_() for name, tensor in parameters.items()}
        with torch.enable_grad():
            value = loss(leaves, buffers, *example)
        if not value.requires_grad:
            raise ValueError("no weight has a gradient, so training would be noise alone")
        gradients = torch.autograd.grad(value, list(leaves.values()), materialize_grads=True)
        return dict(zip(leaves, gradients, strict=True)), value.detach()

    return gradient


class IsolatedPrediction:
    """Guesses and losses in evaluation mode, at an objective's present weights, each from one example alone.

    So the evaluated function is the trained one: no guess depends on the other examples of a batch.

    Args:
        objective: it is copied, and the copy is in evaluation mode.
        inputs: [examples, *shape]; only the shape of one and the type are used.
        targets: [examples]; only the type is used.

    Raises:
        NotMappableError: an example's prediction cannot be computed from it alone.
    """

    def __init__(self, objective: Objective, inputs: Tensor, targets: Tensor) -> None:
        self._objective = objective
        example = torch.zeros_like(inputs[0]), torch.zeros_like(targets[0])
        loss = next(objective.parameters()).new_empty((), device="meta")
        self._mapped = Mapped(self._make, shared_tensors(objective), example, [loss.long(), loss])

    def _make(self) -> Callable[..., list[Tensor]]:
        def predict(objective: Objective, inputs: Tensor, target: Tensor) -> list[Tensor]:
            logits, losses = objective.predict(inputs[None], target[None])
            return [logits[0].argmax(), losses[0]]

        return as_function(fresh_copy(self._objective).eval(), predict)

    def __call__(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return guesses and losses, [batch] each.

        Raises:
            NotMappableError: the user's code failed.
        """
        guesses, losses = self._mapped(shared_tensors(self._objective), inputs, targets)
        return guesses, losses
