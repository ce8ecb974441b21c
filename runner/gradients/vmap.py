"""Per-example gradients by torch.func: `vmap(grad)` of the loss of one example.

Exact for every layer that treats examples independently. Cost: the forward pass, the backward pass, and memory for
batch x parameters numbers, which is why callers split a batch into physical batches.
"""

from collections.abc import Sequence

from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from runner.gradients.interface import Factors, GradientSum, weigh_and_sum
from runner.networks.objective import Objective


class VmapEngine:
    """Forms every per-example gradient, then weighs and sums. The reference for faster engines."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective

        def loss_of_one(parameters: dict[str, Tensor], example: Tensor, target: Tensor) -> Tensor:
            losses: Tensor = functional_call(objective, parameters, (example.unsqueeze(0), target.unsqueeze(0)))
            return losses.squeeze(0)

        self._gradients = vmap(grad_and_value(loss_of_one), in_dims=(None, 0, 0))

    def clipped_sum(
        self, inputs: Tensor, targets: Tensor, groups: Sequence[Sequence[str]], factors: Factors
    ) -> GradientSum:
        """See `Engine.clipped_sum`."""
        return weigh_and_sum(*self.gradients(inputs, targets), groups, factors)

    def gradients(self, inputs: Tensor, targets: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Every example's gradient, by parameter name [batch, *shape], and loss [batch]."""
        parameters = {name: p.detach() for name, p in self.objective.named_parameters()}
        return self._gradients(parameters, inputs, targets)
