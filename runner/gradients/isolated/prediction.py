"""The guesses and losses of a user's network and loss in evaluation mode, each from one example alone.

So the evaluated function is the trained one: no guess depends on the other examples of a batch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from runner.gradients.isolated.engine import private_copy, shared_tensors
from runner.gradients.isolated.mapped import Mapped
from runner.networks.objective import Objective


class _Predicting(nn.Module):
    """The prediction of one example, as a module whose weights can be replaced."""

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, inputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the guessed class and the loss, without dimensions. Inputs are [*shape]."""
        logits, losses = self.objective.predict(inputs[None], target[None])
        return logits[0].argmax(), losses[0]


class IsolatedPrediction:
    """Guesses and losses at an objective's present weights, isolated as in `IsolatedEngine`.

    Args:
        objective: it is copied, and the copy is in evaluation mode.
        inputs: [examples, *shape]; only the shape of one and the type are used.
        targets: [examples]; only the type is used.

    Raises:
        NotMappableError: an example's prediction cannot be computed from it alone.
    """

    def __init__(self, objective: Objective, inputs: Tensor, targets: Tensor) -> None:
        self._objective = objective
        predicting = _Predicting(private_copy(objective)).eval()

        def of_one(shared: dict[str, Tensor], inputs: Tensor, target: Tensor) -> list[Tensor]:
            named = {f"objective.{name}": tensor for name, tensor in shared.items()}
            return list(functional_call(predicting, named, (inputs, target)))

        example = torch.zeros_like(inputs[0]), torch.zeros_like(targets[0])
        loss = next(objective.parameters()).new_empty((), device="meta")
        self._mapped = Mapped(of_one, shared_tensors(objective), example, [loss.long(), loss])

    def __call__(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return guesses and losses, [batch] each.

        Raises:
            NotMappableError: the user's code failed.
        """
        guesses, losses = self._mapped(shared_tensors(self._objective), inputs, targets)
        return guesses, losses
