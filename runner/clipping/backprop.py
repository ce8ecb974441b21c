"""Backpropagation clipping (Stevens et al., 2022): bounded weight gradients without per-example gradients.

In every layer with weights, the forward pass scales the input x of each example to ||x||_2 <= a. The backward pass
scales its upstream gradient u = d loss / d output to |||u||| <= b, before anything is computed from it. The layers
below receive the clipped gradient. Both norms are over the whole of one example. The gradient of the layer, summed over
the batch by the ordinary backward pass, is then a sum of one bounded contribution per example.

Sensitivity. Let dW and db be one example's contribution to the weight and bias of a layer.

Linear, h = W x + c:  dW = u x^T and db = u, so ||dW||_F = ||u||_2 ||x||_2 <= a b and ||db||_2 <= b.

Convolution, of any stride, dilation and groups and with any zero padding. For output channel o and output position p,
h_o(p) = <W_o, x[p]> + c_o. Here x[p] is the window of the padded input that p reads. It holds entries of x, each at
most once, and zeros. So dW_o = sum_p u_o(p) x[p] and db_o = sum_p u_o(p), and as ||x[p]||_2 <= ||x||_2

    ||dW_o||_2 <= sum_p |u_o(p)| ||x[p]||_2 <= ||u_o||_1 ||x||_2,    |db_o| <= ||u_o||_1.

Let |||u||| = (sum_o ||u_o||_1^2)^(1/2), l1 over space and l2 over channels ("l1_l2"). Then ||dW||_F <= a b and
||db||_2 <= b. This proves the paper's theorem 3 without its two restrictions (no padding, no bias).

With the plain norm ||u||_2 ("l2"), Cauchy and Schwarz give ||dW_o||^2 <= ||u_o||_2^2 sum_p ||x[p]||^2. At each of the
kh kw places in the kernel, different p read different entries of x. So sum_p ||x[p]||^2 <= kh kw ||x||^2 and
||dW||_F <= sqrt(kh kw) a b. A bias would add sqrt(P) b, which grows with the P output positions. It is refused there.

Weight and bias of a layer are one noise group: ||(dW, db)||^2 <= (a^2 + 1) b^2, as for an input entry of constant one.
A separate group for the bias would give the weights more noise whenever a > 1.

These are norms of one example's contribution: the sensitivity for add-or-remove-one neighbours. The sum over the batch
is bounded. For rows of the *mean* loss see `BackpropOfMeanLoss`. The bound covers one contribution of a layer, to one
row per example. A layer that is called twice or on other rows is refused, and so is a weight that two layers share. A
weight that is used outside its layer is a constant there and adds no gradient.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from runner.clipping import LEAST_NORM, MOST_NORM, RANGE, NoiseGroup, cut_to
from runner.config import defined_in
from runner.config.fields import expect
from runner.gradients import Engine, GradientSum, MappedEngine
from runner.gradients.terms import silenced, squared_norms
from runner.networks.objective import layers_with_parameters
from runner.speed.faster import faster
from runner.speed.kernels import channels_last

NORMS = ("l1_l2", "l2")


@dataclass(frozen=True)
class Backprop:
    """Clipping of inputs to `input_bound` a and upstream gradients to `upstream_bound` b in every layer.

    `convolution_norm`: the norm of upstream gradients of convolutions, "l1_l2" or "l2".

    Raises:
        ValueError: a bound is not in [1e-12, 1e12] or the norm is unknown.
    """

    input_bound: float
    upstream_bound: float
    convolution_norm: str = "l1_l2"
    needs_engine = False
    sums_by_engine = False

    def __post_init__(self) -> None:
        for name, bound in (("input_bound", self.input_bound), ("upstream_bound", self.upstream_bound)):
            expect(LEAST_NORM <= bound <= MOST_NORM, f"clipping.{name} {RANGE}", bound)
        expect(self.convolution_norm in NORMS, f"clipping.convolution_norm {' or '.join(NORMS)}", self.convolution_norm)

    def noise_groups(self, model: nn.Module) -> tuple[NoiseGroup, ...]:
        """Return one group per layer, with its weight and bias.

        Raises:
            ValueError: a parameter is in no linear layer or 2D convolution with zero padding, or in two of them.
        """
        groups = []
        owners: dict[int, str] = {}
        for layer_name, layer in layers_with_parameters(model).items():
            if not isinstance(layer, (nn.Linear, nn.Conv2d)) or not defined_in(type(layer), "torch"):
                # A subclass may compute anything.
                kind = type(layer).__name__
                raise ValueError(f"clipping=backprop bounds linear layers and 2D convolutions, but not {kind}.")
            if isinstance(layer, nn.Conv2d) and layer.padding_mode != "zeros":
                raise ValueError(f"clipping=backprop needs zero padding, not padding_mode={layer.padding_mode}.")
            parameters = dict(layer.named_parameters(layer_name, recurse=False))
            for name, parameter in parameters.items():
                if id(parameter) in owners:
                    raise ValueError(
                        f"clipping=backprop cannot bound {name}, which is {owners[id(parameter)]} as well."
                    )
                owners[id(parameter)] = name
            groups.append(NoiseGroup(tuple(parameters), self.sensitivity(layer)))
        return tuple(groups)

    def sensitivity(self, layer: nn.Linear | nn.Conv2d) -> float:
        """Return the largest norm of one example's contribution to a layer's weight and bias together."""
        product = self.input_bound * self.upstream_bound
        if isinstance(layer, nn.Conv2d) and self.convolution_norm == "l2":
            if layer.bias is not None:
                raise ValueError("clipping.convolution_norm=l2 does not bound the bias of a convolution: use l1_l2.")
            return math.sqrt(math.prod(layer.kernel_size)) * product
        return product if layer.bias is None else math.hypot(self.input_bound, 1) * self.upstream_bound

    def sum_contributions(
        self, engine: Engine, inputs: Tensor, targets: Tensor, groups: Sequence[NoiseGroup] = ()
    ) -> GradientSum:
        """Return the sum over one physical batch, by one forward and one backward pass, without norms.

        The mapped engine computes each example's contribution separately, and cuts it to its group's sensitivity.

        Raises:
            ValueError: a layer is called twice, or with an input that is not [batch, features] or
                [batch, channels, height, width].
        """
        if isinstance(engine, MappedEngine):
            per_group = [group.parameters for group in groups]
            return replace(engine.clipped_sum(inputs, targets, per_group, cut_to(groups), within=self), norms=None)
        inputs = channels_last(inputs)  # CPUs pool several times faster in this order
        names, parameters = zip(*engine.objective.named_parameters(), strict=True)
        objective = faster(engine.objective)  # changes nothing in the layers, so the clips see the same numbers
        with self.layers_clip(objective, len(inputs)):
            losses = objective(inputs, targets)
        gradients = torch.autograd.grad(losses.sum(), parameters)
        return GradientSum(dict(zip(names, gradients, strict=True)), losses.detach(), None)

    @contextmanager
    def layers_clip(self, model: nn.Module, examples: int) -> Iterator[None]:
        """Make every layer with weights clip inside its forward pass, before a hook can read its output.

        Weights have a gradient only while their layer computes: elsewhere their values stand in for them.
        """
        layers = layers_with_parameters(model)
        weights = {name: dict(layer.named_parameters(recurse=False)) for name, layer in layers.items()}
        values = {name: {key: p.detach() for key, p in held.items()} for name, held in weights.items()}
        called: set[str] = set()

        def clipping(name: str, layer: nn.Module) -> Callable[[Tensor], Tensor]:
            plain = layer.forward
            convolution = isinstance(layer, nn.Conv2d)
            l1_over_space = convolution and self.convolution_norm == "l1_l2"

            def forward(x: Tensor) -> Tensor:
                if name in called:
                    raise ValueError(f"clipping=backprop cannot bound {name}, which is called twice.")
                if x.dim() != (4 if convolution else 2) or len(x) != examples:
                    raise ValueError(f"clipping=backprop cannot bound {name} on inputs of shape {tuple(x.shape)}.")
                called.add(name)
                layer._parameters.update(weights[name])
                output: Tensor = plain(_ClipInput.apply(x, self.input_bound)[0])
                layer._parameters.update(values[name])  # type: ignore[arg-type]
                clipped: Tensor = _ClipUpstream.apply(output, self.upstream_bound, l1_over_space)
                return clipped

            return forward

        try:
            for name, layer in layers.items():
                layer.forward = clipping(name, layer)
                layer._parameters.update(values[name])  # type: ignore[arg-type]
            yield
        finally:
            for name, layer in layers.items():
                layer.__dict__.pop("forward", None)
                layer._parameters.update(weights[name])


@dataclass(frozen=True)
class BackpropOfMeanLoss:
    """`Backprop` with its bounds on the rows of the *mean* loss over a batch, whose gradient it sums.

    One example's contribution keeps the norms of `Backprop`. But suppose the batch is as large as the number n of
    examples drawn. Then one more example changes all the others' rows, from u/n to u/(n + 1) before they are clipped.
    The sensitivity is not a b. In a chain of layers, in exact arithmetic, it is below 2 a b:

    Fix an example, and with it its forward pass. Its clipped upstream gradient at a layer l is c_l(n) w_l, and the
    direction w_l does not depend on n. At the top it is the direction in which the loss grows. Below it is the
    direction of J^T w_{l+1}, because clipping changes only lengths. The length c_l(n) is at most b and falls as n
    grows, but by no more than the factor n / (n + 1). At the top it is min(|||u||| / n, b). Below it is
    min(k c_{l+1}(n), b) for a k >= 0, and min(c, b) shrinks by no more than c does. So each of the n rows moves by at
    most b / (n + 1), and with the new row

        ||G(S + {x}) - G(S)||_F <= n a b / (n + 1) + a b < 2 a b.

    The bound is approached by n aligned rows of length b exactly, and a new row against them. A network with branches
    adds gradients that were clipped separately. Directions may then turn with n, and nothing is proved.
    """

    rows: Backprop
    batch: int
    needs_engine = False
    sums_by_engine = False

    def noise_groups(self, model: nn.Module) -> tuple[NoiseGroup, ...]:
        """Return the largest norms of one example's contribution; the sensitivity is below twice as much."""
        return self.rows.noise_groups(model)

    def sum_contributions(
        self, engine: Engine, inputs: Tensor, targets: Tensor, groups: Sequence[NoiseGroup] = ()
    ) -> GradientSum:
        """Return the part of the mean loss's gradient from one physical batch; see `Backprop.sum_contributions`."""
        # Rows u / n clipped to b are rows u clipped to n b, over n. So overflow of a norm does not depend on n.
        of_sum = replace(self.rows, upstream_bound=self.batch * self.rows.upstream_bound)
        cut = [replace(group, sensitivity=self.batch * group.sensitivity) for group in groups]
        computed = of_sum.sum_contributions(engine, inputs, targets, cut)
        return GradientSum({name: g / self.batch for name, g in computed.gradients.items()}, computed.losses, None)


class _ClipInput(torch.autograd.Function):
    """x_i min(1, bound / ||x_i||_2) for each example, zero if not finite. The gradient is exact."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, bound: float) -> tuple[Tensor, Tensor]:
        return clip_rows(x, bound)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: tuple[Tensor, Tensor]) -> None:
        ctx.bound = inputs[1]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor, None]:
        y, factors = ctx.saved_tensors
        return clip_rows_backward(y, factors, gradient, ctx.bound), None


class _ClipUpstream(torch.autograd.Function):
    """The identity, whose gradient is scaled to |||u||| <= bound for each example, and zero if not finite."""

    generate_vmap_rule = True

    @staticmethod
    def forward(output: Tensor, bound: float, l1_over_space: bool) -> Tensor:
        return output.view_as(output)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float, bool], output: Tensor) -> None:
        _, ctx.bound, ctx.l1_over_space = inputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return clip_upstream(gradient, ctx.bound, ctx.l1_over_space), None, None


def clip_rows(x: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    """Return x_i min(1, bound / ||x_i||_2) for each example i, and the factors [batch].

    A row whose norm is not finite becomes zero, as a NaN in the sum would reveal it despite the noise. (A float32 norm
    beyond 1e19 is not finite either.)

    x: [batch, features] or [batch, channels, height, width].
    """
    x, norms = _without_broken(x, example_norms(x))
    factors = bound / norms.clamp(min=bound)
    return x * _spread(factors, x), factors


def clip_rows_backward(y: Tensor, factors: Tensor, gradient: Tensor, bound: float) -> Tensor:
    """Return the gradient with respect to x of the rows y that `clip_rows` returned, from the gradient for y.

    If y = x bound / ||x||, it is (g - y <y, g> / bound^2) bound / ||x||. This takes fewer passes over the data than
    autograd.
    """
    along = (y * gradient).sum(dim=tuple(range(1, y.dim()))) * (factors / -(bound**2))
    along.masked_fill_(factors == 1, 0)  # was not clipped
    return (gradient * _spread(factors, y)).addcmul_(y, _spread(along, y))


def clip_upstream(gradient: Tensor, bound: float, l1_over_space: bool) -> Tensor:
    """Return u_i min(1, bound / |||u_i|||) for each example i; see `example_norms`."""
    gradient, norms = _without_broken(gradient, example_norms(gradient, l1_over_space))
    return gradient * _spread(bound / norms.clamp(min=bound), gradient)


def example_norms(x: Tensor, l1_over_space: bool = False) -> Tensor:
    """Return the norm of each example, [batch], of [batch, features] or [batch, channels, height, width].

    The norm is l2 over everything, or l1 over space and l2 over channels.
    """
    if l1_over_space:
        # abs().sum() is the l1 norm; vector_norm(ord=1) takes ten times as long on a CPU.
        norms: Tensor = torch.linalg.vector_norm(x.abs().sum(dim=(2, 3)), dim=1)
        return norms
    rows = x.permute(0, 2, 3, 1).flatten(1) if x.dim() == 4 else x  # in memory order, channels last
    return squared_norms(rows).sqrt()


def _spread(factors: Tensor, x: Tensor) -> Tensor:
    return factors.view(-1, *[1] * (x.dim() - 1))


def _without_broken(x: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
    """Return zeros for the examples whose norm is not finite, and for their norms."""
    mapped = torch._C._functorch.is_functorch_wrapped_tensor(norms)  # by vmap, which knows no `item`
    if not mapped and math.isfinite(norms.sum().item()):
        return x, norms
    broken = ~torch.isfinite(norms)
    return silenced(x, broken), norms.masked_fill(broken, 0)
