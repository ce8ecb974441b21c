"""Bounds on one example's gradient of each parameter, from the layers alone: backpropagation of bounds.

Let x_d = f_d(theta_d, x_{d-1}), ||x_0|| <= X_0, and let the loss be L-Lipschitz in the logits x_D. Two numbers per
layer are enough (Bethune et al., 2024, algorithm 1):

    forward:   X_d = max over ||x|| <= X_{d-1} of ||f_d(theta_d, x)||
    backward:  G_D = L;  K_d = G_d * max ||d f_d / d theta_d||,  G_{d-1} = G_d * max ||d f_d / d x||

Every example's gradient of the tensor theta_d has a norm of at most K_d. The maxima hold for weights of spectral norm
at most 1 and biases of norm at most B, as `runner.networks.lipschitz.spectral` projects them:

Linear, y = W x + b, on P positions (tokens; else P = 1), with norms over all of them. dW = sum_p u_p x_p^T, so by
Cauchy and Schwarz ||dW||_F <= ||u|| ||x||. db = sum_p u_p, so ||db|| <= sqrt(P) ||u||. Also ||W x|| <= ||x||, and the
bias moves the output by at most sqrt(P) B.

Convolution of stride (s_h, s_w) with a kernel k_h x k_w and zero padding. It is the linear layer above on its windows,
and position p reads the window x[p]. At most m = ceil(k_h / s_h) ceil(k_w / s_w) positions read a pixel, since they lie
s_h and s_w apart within k_h and k_w pixels. So sum_p ||x[p]||^2 <= m ||x||^2. Let the kernel as a matrix
[out, in k_h k_w] have a spectral norm of at most 1. Then ||dW||_F <= sqrt(m) ||u|| ||x||, ||W * x|| <= sqrt(m) ||x||,
and the bias is bounded as above with P the number of positions. `Scale(1 / sqrt(m))` after it makes it 1-Lipschitz.

A module without weights that is c-Lipschitz and zero at zero multiplies G and X by c. For weight * (x + f(x)), f is
bounded from weight * G on, and the bound from its backward pass is added to weight * G.

Every bound is `ROUNDING` times larger, for float32's rounding and for the remainder of a projection.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.func import functional_call

from runner.networks.geometry import pair
from runner.networks.lipschitz.layers import Residual
from runner.networks.lipschitz.losses import lipschitz_constant
from runner.networks.lipschitz.spectral import Spectral
from runner.networks.objective import Objective

ROUNDING = 1 + 1e-5  # compiled convolutions, which round most, are used if they stay within a third of it
_SLOPES = {nn.ReLU: 1.0, nn.Tanh: 1.0, nn.Flatten: 1.0, nn.Identity: 1.0}  # each is zero at zero

Backward = Callable[[float], float]  # G after a module to G before it; it also bounds the module's gradients
Passed = tuple[tuple[int, ...], float, Backward]  # the shape and the largest norm of an output, and the backward pass


def gradient_bounds(objective: Objective, kind: "type[Walk] | None" = None) -> dict[str, float]:
    """Return the largest L2 norm of an example's gradient by parameter name, from the bounds that an objective states.

    `kind`: a walk with other bounds of layers, whose results are no bounds if those are none.

    Raises:
        ValueError: inputs or weights have no bound, or a module or the loss is not known.
    """
    inputs, constraint = objective.inputs, objective.constraint
    if inputs is None or inputs.norm is None:
        raise ValueError("gradients are bounded for inputs of bounded norm only: choose features that bound it")
    if not isinstance(constraint, Spectral) or type(constraint) is not Spectral:  # a subclass may project nothing
        raise ValueError("gradients are bounded only if the weights are: choose constraint=spectral")
    walk = (kind or Walk)(constraint.bias_radius)
    shape, _norm, backward = walk.through("", objective.network, inputs.shape, inputs.norm)
    if len(shape) != 1:
        raise ValueError(f"expected logits in one dimension, got an output of shape {list(shape)}")
    backward(lipschitz_constant(objective.loss, shape[0]))
    names = {id(parameter): f"network.{name}" for name, parameter in objective.network.named_parameters()}
    bounds = {names[key]: bound for key, bound in walk.gradients.items()}
    unbounded = sorted({name for name, _ in objective.named_parameters()} - bounds.keys())
    if unbounded:
        raise ValueError(f"the gradient of {unbounded[0]} has no bound")
    return {name: bounds[name] for name, _ in objective.named_parameters()}


class Walk:
    """One pass through a network. The backward calls fill `gradients`, by the parameters' identity."""

    def __init__(self, bias_radius: float) -> None:
        self.gradients: dict[int, float] = {}
        self._bias_radius = bias_radius
        self._seen: set[int] = set()

    def through(self, name: str, module: nn.Module, shape: Sequence[int], norm: float) -> Passed:
        """Return the shape and largest norm of an output, from the input's, and the backward pass."""
        hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
        hooked = any(hooks) or any(parameter._backward_hooks for parameter in module.parameters(recurse=False))
        if hooked or "forward" in vars(module):
            raise ValueError(f"{name or 'the network'}: it has hooks, or another forward pass")
        if type(module) is nn.Sequential:
            return self._chain(name, module, shape, norm)
        if type(module) is Residual:
            return self._residual(name, module, shape, norm)
        # A pass of one example of zeros.
        weights = {key: parameter.detach().to("cpu", torch.float32) for key, parameter in module.named_parameters()}
        try:
            output = functional_call(module, weights, (torch.zeros(1, *shape),))
        except (RuntimeError, ValueError, TypeError) as error:
            raise ValueError(f"{name}: {str(error).splitlines()[0]}") from error
        if output.shape[0] != 1:
            raise ValueError(f"{name}: it makes {output.shape[0]} rows of one example")
        after = tuple(output.shape[1:])
        if isinstance(module, (nn.Linear, nn.Conv2d)) and type(module) in (nn.Linear, nn.Conv2d):
            positions = math.prod(after[:-1]) if isinstance(module, nn.Linear) else math.prod(after[1:])
            return after, *self._layer(name, module, positions, norm)
        slope = _slope(name, module)
        return after, slope * norm, lambda behind: slope * behind

    def _chain(self, name: str, chain: nn.Sequential, shape: Sequence[int], norm: float) -> Passed:
        ways: list[Backward] = []
        for child, module in chain._modules.items():
            assert module is not None
            shape, norm, way = self.through(f"{name}.{child}".lstrip("."), module, shape, norm)
            ways.append(way)

        def backward(behind: float) -> float:
            for way in reversed(ways):
                behind = way(behind)
            return behind

        return tuple(shape), norm, backward

    def _residual(self, name: str, module: Residual, shape: Sequence[int], norm: float) -> Passed:
        after, inner, way = self.through(f"{name}.inner", module.inner, shape, norm)
        if tuple(after) != tuple(shape):
            raise ValueError(f"{name} adds an output of shape {list(after)} to an input of shape {list(shape)}")
        weight = abs(module.weight) * ROUNDING
        return tuple(shape), weight * (norm + inner), lambda behind: weight * behind + way(weight * behind)

    def _layer(self, name: str, layer: nn.Linear | nn.Conv2d, positions: int, norm: float) -> tuple[float, Backward]:
        if isinstance(layer, nn.Linear):
            reads = 1
        elif layer.groups != 1 or layer.dilation != (1, 1) or layer.padding_mode != "zeros":
            raise ValueError(f"{name}: a convolution has groups, dilation or a padding other than zeros")
        else:
            reads = reads_of(layer.kernel_size, layer.stride)
        slope = math.sqrt(reads) * ROUNDING
        bias = 0.0 if layer.bias is None else math.sqrt(positions)
        for parameter in layer.parameters():
            if id(parameter) in self._seen:
                raise ValueError(f"{name} shares its weights with another layer, or is called twice")
            self._seen.add(id(parameter))

        def backward(behind: float) -> float:
            self.gradients[id(layer.weight)] = slope * norm * behind
            if layer.bias is not None:
                self.gradients[id(layer.bias)] = bias * ROUNDING * behind
            return slope * behind

        return slope * norm + bias * ROUNDING * self._bias_radius, backward


def reads_of(kernel: Sequence[int], stride: Sequence[int]) -> int:
    """Return the largest number of positions of a convolution that read one pixel: m of the module's text."""
    return math.prod(-(-k // s) for k, s in zip(kernel, stride, strict=True))


def _slope(name: str, module: nn.Module) -> float:
    """Return the constant of a module without weights: a known one of torch's, or as its class states."""
    kind = type(module)
    if kind in _SLOPES:
        return _SLOPES[kind] * ROUNDING
    if isinstance(module, (nn.MaxPool2d, nn.AvgPool2d)) and kind in (nn.MaxPool2d, nn.AvgPool2d) and _disjoint(module):
        # The square of a mean of n numbers is at most the sum of their squares over n.
        return ROUNDING / (math.sqrt(math.prod(pair(module.kernel_size))) if kind is nn.AvgPool2d else 1)
    if "lipschitz" in vars(kind) and not any(True for _ in module.parameters()):
        return float(module.lipschitz) * ROUNDING  # type: ignore[arg-type]
    raise ValueError(f"{name}: no bound is known for a {kind.__name__}")


def _disjoint(pool: nn.MaxPool2d | nn.AvgPool2d) -> bool:
    """Return True if no entry is in two windows, and windows hold only entries."""
    windows = pair(pool.kernel_size) == pair(pool.stride) and pair(pool.padding) == (0, 0) and not pool.ceil_mode
    if isinstance(pool, nn.AvgPool2d):
        return windows and pool.divisor_override is None
    return windows and pair(pool.dilation) == (1, 1)
