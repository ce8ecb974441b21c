"""Interface of gradient engines, the modules that they accept, and the engine that takes one example at a time.

The engines on whole batches run the forward pass of a whole batch, so they depend on its modules: the one-pass engine
and graphs. They accept modules of exactly the types in `KNOWN`, which are known to keep the examples of a batch apart.
All others are a user's. `MappedEngine` maps a function of one example over a batch by `torch.func`, so no operation in
it can reach another example, and `runner.trust` runs a user's code so.

A module is known if its type is one of `KNOWN`, or a class that this package defines in `runner.networks` or
`runner.mechanism`. (A subclass may compute anything, and so may a class that PyTorch makes of a parametrised one.) It
has no method of its own in place of its class's, and no hook, and neither have its parameters.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from runner.config import defined_in
from runner.gradients.terms import Factors, as_rows, silenced, squared_norms
from runner.networks.objective import Objective

# Some operators, as of LSTM, are called example by example under vmap. The results are the same.
warnings.filterwarnings("ignore", message="There is a performance drop because we have not yet implemented")

Gradients = tuple[dict[str, Tensor], Tensor]  # by parameter name, and the loss
NO_OTHERS: Mapping[str, Tensor] = {}
_WHOLE = {"cpu": 32 << 20, "cuda": 2 << 30}  # bytes of gradients that are held at a time


@dataclass(frozen=True)
class GradientSum:
    """The sum over a batch of every example's (bounded) contribution.

    Attributes:
        gradients: by parameter name, the shape of the parameter.
        losses: [batch], before the update.
        norms: [batch], L2 norm of each example's whole gradient before clipping; None if it was not computed.
    """

    gradients: dict[str, Tensor]
    losses: Tensor
    norms: Tensor | None

    def __add__(self, other: "GradientSum") -> "GradientSum":
        norms = None
        if self.norms is not None and other.norms is not None:
            norms = torch.cat([self.norms, other.norms])
        gradients = {name: self.gradients[name] + other.gradients[name] for name in self.gradients}
        return GradientSum(gradients, torch.cat([self.losses, other.losses]), norms)


class Engine(Protocol):
    """Computes sums of per-example gradients of one objective, rescaled or not."""

    @property
    def objective(self) -> Objective:
        """Return the objective that is differentiated."""
        ...

    def clipped_sum(
        self, inputs: Tensor, targets: Tensor, groups: Sequence[Sequence[str]], factors: Factors
    ) -> GradientSum:
        """Return sum_i factor_ig * grad_g loss_i for each group g of parameter names, over at least one example.

        `factors` gets the L2 norms [batch, groups] of the per-example gradients, exact up to float rounding. An example
        whose gradient is not finite contributes zero, as a NaN in the sum would reveal it despite the noise.
        """
        ...

    def plain_sum(self, inputs: Tensor, targets: Tensor, further: Mapping[str, Tensor] = NO_OTHERS) -> GradientSum:
        """Return the sum of the unscaled gradients, without norms; one that is not finite makes the sum so.

        `further` are other tensors that the losses depend on, by name. Their gradients are summed, too.
        """
        ...


class OrdinaryPass:
    """Base of all engines of one objective, whose plain sum is an ordinary backward pass."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self._parameters = dict(objective.named_parameters())

    def plain_sum(self, inputs: Tensor, targets: Tensor, further: Mapping[str, Tensor] = NO_OTHERS) -> GradientSum:
        names, parameters = zip(*self._parameters.items(), *further.items(), strict=True)
        losses = self._losses(inputs, targets)
        gradients = torch.autograd.grad(losses.sum(), parameters)
        return GradientSum(dict(zip(names, gradients, strict=True)), losses.detach(), None)

    def _losses(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the losses of the objective, or of an equivalent one."""
        losses: Tensor = self.objective(inputs, targets)
        return losses


def weigh_and_sum(
    per_example: dict[str, Tensor], losses: Tensor, groups: Sequence[Sequence[str]], factors: Factors
) -> GradientSum:
    """Return the sum of `Engine.clipped_sum` from stored gradients, by name, each [batch, *shape].

    Cost: one pass over the gradients for the norms and one matrix-vector product per parameter for the sum.
    """
    squares = {name: squared_norms(gradient) for name, gradient in per_example.items()}
    norms = torch.stack([torch.stack([squares[name] for name in group]).sum(0) for group in groups], dim=1).sqrt()
    broken = ~torch.isfinite(norms).all(dim=1)
    if broken.any():
        per_example = {name: silenced(gradient, broken) for name, gradient in per_example.items()}
    weights = factors(norms.masked_fill(broken[:, None], 0))
    gradients = {
        name: (weights[:, g] @ as_rows(per_example[name])).view(per_example[name].shape[1:])
        for g, group in enumerate(groups)
        for name in group
    }
    return GradientSum(gradients, losses, torch.linalg.vector_norm(norms, dim=1))


KNOWN: frozenset[type[nn.Module]] = frozenset(
    {
        # Containers, layers with parameters, and modules that only change the shape.
        nn.Sequential, nn.Linear, nn.Conv2d, nn.Flatten, nn.Identity,
        # Elementwise.
        nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid,
        nn.LogSigmoid, nn.Softplus, nn.Softsign, nn.Tanhshrink, nn.Softshrink, nn.Hardshrink, nn.Hardtanh,
        nn.Hardsigmoid, nn.Hardswish, nn.Threshold, nn.Dropout,
        # Over the pixels or the channels of one image.
        nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.GroupNorm,
        # One loss per example.
        nn.CrossEntropyLoss,
    }
)  # fmt: skip
_PACKAGES = ("runner.networks", "runner.mechanism")
_HOOKS = tuple(name for name in vars(nn.Module()) if name.endswith("_hooks"))


def unknown(objective: Objective) -> str | None:
    """Return the reason why an objective does not consist of known modules, or None if it does."""
    reasons = ((name or "the objective", unknown_module(module)) for name, module in objective.named_modules())
    return next((f"{name}: {reason}" for name, reason in reasons if reason), None)


def unknown_module(module: nn.Module) -> str | None:
    """Return the reason why one module, without the modules inside it, is not known, or None if it is."""
    kind = type(module)
    if kind not in KNOWN and not defined_in(kind, *_PACKAGES):
        return f"{kind.__qualname__} is not a module that is known to keep examples apart"
    if isinstance(module, nn.Flatten) and module.start_dim < 1:
        return "this Flatten joins the examples"
    if "forward" in vars(module) or not defined_in(kind.forward, "torch", *_PACKAGES):
        return "it has a forward of its own"
    if any(getattr(module, name) for name in _HOOKS) or nn.modules.module._has_any_global_hook():
        return "a hook is on it"
    parameters = module.named_parameters(recurse=False)
    hooked = (name for name, p in parameters if p._backward_hooks or p._post_accumulate_grad_hooks)
    return next((f"a hook is on its {name}" for name in hooked), None)


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
        check_losses(losses, 1)
        return losses[0]

    return as_function(objective, loss)


def check_losses(losses: Tensor, examples: int) -> None:
    """Raise a ValueError if there is not one loss per example, as a sum or a mean over the batch is not."""
    if losses.shape != (examples,):
        instead = ": drop .mean() or .sum()" if losses.shape == () else ""
        raise ValueError(f"expected one loss per example, shape ({examples},), got {tuple(losses.shape)}{instead}")


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
