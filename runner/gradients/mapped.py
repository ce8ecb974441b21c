"""Per-example gradients by `torch.func`: the gradient of one example's loss, mapped over the examples of a batch.

The mapped function gets one example, so no operation in it can reach another one. `runner.trust` runs a user's code so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial, reduce
from typing import Any, Protocol

from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from runner.gradients.interface import GradientSum, OrdinaryPass, weigh_and_sum
from runner.gradients.terms import Factors
from runner.networks.objective import Objective

# Some operators, as of LSTM, are called example by example under vmap. The results are the same.
warnings.filterwarnings("ignore", message="There is a performance drop because we have not yet implemented")

Gradients = tuple[dict[str, Tensor], Tensor]  # by parameter name, and the loss
_WHOLE = {"cpu": 32 << 20, "cuda": 2 << 30}  # bytes of gradients that are held at a time


class Within(Protocol):
    """Something that changes how an objective computes gradients, such as a clipping inside its layers."""

    def layers_clip(self, model: Objective, examples: int) -> AbstractContextManager[None]:
        """Make a pass over `examples` examples compute the changed gradients, inside a `with` block."""
        ...


class _Called(nn.Module):
    """A function of an objective and an example, as a module whose tensors `functional_call` can replace."""

    def __init__(self, objective: Objective, call: Callable[..., Any]) -> None:
        super().__init__()
        self.objective, self.call = objective, call

    def forward(self, *example: Tensor) -> Any:
        return self.call(self.objective, *example)


def as_function(objective: Objective, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return `call(objective, *example)` as a function of parameters and buffers, by name, and of the example."""
    module = _Called(objective, call)

    def function(parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], *example: Tensor) -> Any:
        tensors = {f"objective.{name}": tensor for name, tensor in (*parameters.items(), *buffers.items())}
        return functional_call(module, tensors, example)

    return function


def example_loss(objective: Objective, within: Within | None = None) -> Callable[..., Tensor]:
    """Return the loss of one example as a function of the parameters, the buffers, the inputs and the target.

    The inputs are [*shape], and the target and the loss have no dimensions.

    Raises:
        ValueError: the objective does not return one loss.
    """

    def loss(objective: Objective, inputs: Tensor, target: Tensor) -> Tensor:
        with nullcontext() if within is None else within.layers_clip(objective, 1):
            losses: Tensor = objective(inputs[None], target[None])
        if losses.shape == ():
            raise ValueError(
                "the loss gives one number for the whole batch, and needs one for each example: drop .mean() or .sum()"
            )
        if losses.shape != (1,):
            raise ValueError(f"expected one loss per example, shape (1,) for one, got {tuple(losses.shape)}")
        return losses[0]

    return as_function(objective, loss)


def shared_tensors(objective: Objective) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the parameters and the buffers, by name."""
    return {name: p.detach() for name, p in objective.named_parameters()}, dict(objective.named_buffers())


def mapped(function: Callable[..., Any], randomness: str = "different") -> Callable[..., Any]:
    """Map a function of (parameters, buffers, *example) over the examples, each [batch, ...].

    Args:
        randomness: "different" for other random numbers in each example, "same" for equal ones.
    """

    def over_batch(parameters: Any, buffers: Any, *examples: Tensor) -> Any:
        dims = (None, None, *[0] * len(examples))
        with sdpa_kernel(SDPBackend.MATH):  # the fused attention has no rule for vmap
            return vmap(function, dims, randomness=randomness)(parameters, buffers, *examples)

    return over_batch


class MappedEngine(OrdinaryPass):
    """Forms every per-example gradient, then weighs and sums them. The reference for the one-pass engine.

    Cost: a forward and a backward pass, and memory for batch x parameters numbers. Batches are split to fit.
    """

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
        sum_piece: Callable[[dict[str, Tensor], Tensor], GradientSum],
        within: Within | None = None,
    ) -> GradientSum:
        """Return the sum of `sum_piece(gradients, losses)` over pieces of a batch whose gradients fit into memory."""
        parameters = sum(p.numel() for p in self.objective.parameters())
        size = max(8, _WHOLE.get(inputs.device.type, 1 << 30) // (inputs.element_size() * parameters))
        pieces = zip(inputs.split(size), targets.split(size), strict=True)
        return reduce(GradientSum.__add__, (sum_piece(*self.gradients(*piece, within)) for piece in pieces))

    def gradients(self, inputs: Tensor, targets: Tensor, within: Within | None = None) -> Gradients:
        """Return every example's gradient, by parameter name [batch, *shape], and loss [batch]."""
        gradient = mapped(grad_and_value(example_loss(self.objective, within)))
        gradients: Gradients = gradient(*shared_tensors(self.objective), inputs, targets)
        return gradients
