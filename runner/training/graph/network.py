"""Layers that keep their inputs and outputs, and every example's gradient from them, by the library's kernels.

One forward and one backward pass give all gradients (`runner.gradients.terms`). A convolution's windows are formed for
this alone, one layer at a time, or on a GPU read by a kernel (`runner.speed.implicit`).
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from runner.config import Precision
from runner.gradients import GradientSum, Objective, terms
from runner.gradients.interface import NO_OTHERS
from runner.gradients.precision import lowered
from runner.networks.geometry import Geometry, geometry, unsupported
from runner.networks.lipschitz.course import COUNT, counting_course
from runner.networks.standardized import StandardizedConv2d, standardized
from runner.speed.faster import pool_first, replace_parts
from runner.speed.implicit import agrees, formed_gradients, worthwhile
from runner.training.run import NotCapturableError


class Layer(nn.Module):
    """A supported module with parameters (`runner.networks.geometry`), and its last pass.

    Attributes:
        module: the module.
        views: K images of an example, one after another. Inputs are then [P K, ...], and all positions are one sum.
        precision: of the products that form gradients.
        by_kernel: convolutions may use `runner.speed.implicit`.
        inputs, output: [P, ...], from the last pass; None before it.
    """

    precision: Precision | None = None

    def __init__(self, module: nn.Module, views: int, *, by_kernel: bool = False) -> None:
        super().__init__()
        self.module, self.views, self.by_kernel = module, views, by_kernel
        like = next(module.parameters())
        # A sum with it requires gradients. PyTorch 2.11 cannot compile `requires_grad_`.
        self._zero = torch.zeros((), dtype=like.dtype, device=like.device, requires_grad=True)
        self.forget()

    def forget(self) -> None:
        self.inputs: Tensor | None = None
        self.output: Tensor | None = None
        self._standardized: tuple[Tensor, Tensor] | None = None  # weight and gain of the pass

    def forward(self, inputs: Tensor) -> Tensor:
        if self.output is not None:
            raise NotCapturableError("a layer is called twice in one pass")
        output: Tensor = self.module(inputs)
        if not output.requires_grad:
            output = output + self._zero if torch.compiler.is_compiling() else output.requires_grad_()
        self.inputs, self.output = inputs.detach(), output
        if isinstance(self.module, StandardizedConv2d):
            self._standardized = self.module.weight.detach(), self.module.gain.detach()
        return output

    def terms_from(self, g: Tensor) -> terms.Terms:
        """Return per-example gradients from output gradients [P, ...], formed or, if T = 1, as two factors.

        A sum adds the numbers whose norm was taken, in the type of the weights (`runner.gradients.precision`). So only
        terms cancel that cancel in the gradient itself.
        """
        assert self.inputs is not None
        module, a, exact = self.module, self.inputs, self._zero.dtype
        if isinstance(module, nn.GroupNorm):
            a, g = a.to(exact), g.to(exact)
            return terms.affine(F.group_norm(a, module.num_groups, eps=module.eps), g, self.views)
        has_bias, low, shape = module.bias is not None, self.precision is not None, geometry(module, a, g, self.views)
        if self.by_kernel and isinstance(module, nn.Conv2d) and shape.positions > 1 and worthwhile(shape, lowered=low):
            biases = g.to(exact).sum((2, 3)).unflatten(0, (-1, self.views)).sum(1) if has_bias else None
            return self._formed_terms(*formed_gradients(a, g, shape, lowered=low), biases)
        if isinstance(module, nn.Linear):
            outputs, rows = g.reshape(len(g), -1, g.shape[-1]).transpose(1, 2), a.reshape(len(a), -1, a.shape[-1])
        else:
            outputs, rows = g.flatten(2), _windows(a, shape)
        if self.views > 1:
            outputs = outputs.unflatten(0, (-1, self.views)).transpose(1, 2).flatten(2)
            rows = rows.reshape(-1, self.views * rows.shape[1], rows.shape[2])
        if rows.shape[1] == 1 and self._standardized is None:
            return terms.linear(rows.flatten(1).to(exact), outputs.flatten(1).to(exact), has_bias)
        with lowered(self.precision, g.device.type):
            formed = torch.bmm(outputs, rows).to(exact)
        return self._formed_terms(formed, None, outputs.to(exact).sum(2) if has_bias else None)

    def _formed_terms(self, formed: Tensor, squares: Tensor | None, biases: Tensor | None) -> terms.Terms:
        """Return terms of gradients [P, out, K] of the kernels, and their squared norms [P], if they are known."""
        gains = None
        if self._standardized is not None:
            formed, gains = _through_standardization(formed, *self._standardized)
            squares = None
        return terms.Terms(
            terms.squared_norms(formed) if squares is None else squares,
            lambda factors, silent: terms.weighted_sum(formed.flatten(1), factors, silent),
            biases,
            gains,
        )


def _windows(images: Tensor, shape: Geometry) -> Tensor:
    """Return every window of images [P, channels, h, w], in the order of a weight's numbers: [P, T, K]."""
    (py, px), (sy, sx), (dy, dx) = shape.padding, shape.stride, shape.dilation
    spans = [(taps - 1) * dilation + 1 for taps, dilation in zip(shape.kernel, shape.dilation, strict=True)]
    padded = F.pad(images, (px, px, py, py)) if px or py else images
    windows = padded.unfold(2, spans[0], sy).unfold(3, spans[1], sx)[..., ::dy, ::dx].permute(0, 1, 4, 5, 2, 3)
    return windows.flatten(4).flatten(1, 3).transpose(1, 2)


def _through_standardization(of_kernels: Tensor, weight: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    """Return gradients of the weight [P, out, F] and the gain [P, out], from gradients of the kernels [P, out, F]."""
    direction, inverse = standardized(weight)
    u, scale = direction.flatten(1), gain[:, None] * inverse.flatten(1)
    gains = (of_kernels * u).sum(2, keepdim=True)
    return scale * (of_kernels - of_kernels.mean(2, keepdim=True) - u * gains), gains.squeeze(2)


def numbers_per_example(layers: Iterable[Layer]) -> int:
    """Return the numbers per example that the last pass keeps: inputs, outputs, formed gradients, and one's rows."""
    stored, most = 0, 0
    for layer in layers:
        if layer.inputs is not None and layer.output is not None:
            inputs, output = layer.views * layer.inputs[0].numel(), layer.views * layer.output[0].numel()
            weight = layer.module.get_parameter("weight")
            positions = output // len(weight)
            stored += inputs + output + (weight.numel() if positions > 1 else 0)
            most = max(most, positions * weight[0].numel())
    return stored + most


class RecordedObjective:
    """An objective as a function of weights, inputs [P, ...] and targets [P], by layers that record the pass.

    With several `views` of each example, inputs are [P, views, ...].

    Attributes:
        objective: the given one.
        values: [numbers], the present weights. The objective's parameters become views of it.
        parts: by parameter name, its place in `values`, and its shape.
        layers: the recorded layers, by name.

    Raises:
        NotCapturableError: a layer is not known.
    """

    def __init__(self, objective: Objective, views: int = 1) -> None:
        self.objective, self.views = objective, views
        self.precision: Precision | None = None
        parameters = dict(objective.named_parameters())
        self.values = torch.cat([p.detach().flatten() for p in parameters.values()])
        self.parts: dict[str, tuple[slice, torch.Size]] = {}
        end = 0
        for name, parameter in parameters.items():
            place = slice(end, end + parameter.numel())
            self.parts[name], end = (place, parameter.shape), place.stop
            parameter.data = self.values[place].view(parameter.shape)
        self._names = {id(parameter): name for name, parameter in parameters.items()}
        self.layers: dict[str, Layer] = {}
        device = self.values.device
        self._by_kernel = device.type == "cuda" and self.values.dtype is torch.float32 and agrees(device)
        recorded = self._wrap_layers(pool_first(objective), "")
        self._recorded = _Recorded(recorded.get_submodule("network"), recorded.get_submodule("loss"))
        self._recorded.views = views
        # Parameters have other names inside a layer, and after `pool_first`.
        self._places = {place: self._names[id(p)] for place, p in self._recorded.named_parameters()}

    def weights(self, values: Tensor) -> dict[str, Tensor]:
        """Return views of values [numbers], by parameter name."""
        return {name: values[place].view(shape) for name, (place, shape) in self.parts.items()}

    def losses(self, weights: Mapping[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        """Return losses [P] at these weights, by parameter name."""
        self.forget()
        by_place = {place: weights[name] for place, name in self._places.items()}
        losses: Tensor = functional_call(self._recorded, by_place, (inputs, targets))
        return losses

    def compute_in(self, precision: Precision | None) -> None:
        """Compute later passes and the products that form gradients so: see `runner.gradients.precision`."""
        self.precision = self._recorded.precision = precision
        for layer in self.layers.values():
            layer.precision = precision

    def forget(self) -> None:
        for layer in self.layers.values():
            layer.forget()

    @torch.no_grad()
    def project(self, values: Tensor) -> None:
        """Project weights [numbers] in place onto the constraint, if there is one."""
        if self.objective.constraint is not None:
            self.objective.constraint.project(self.weights(values))

    def _wrap_layers(self, module: nn.Module, name: str) -> nn.Module:
        """Return a module with a `Layer` around each module inside it that has parameters of its own."""
        parameter = next(module.parameters(recurse=False), None)
        if parameter is None:
            parts = {
                key: part and self._wrap_layers(part, f"{name}.{key}".lstrip("."))
                for key, part in module._modules.items()
            }
            return replace_parts(module, parts)
        if reason := unsupported(module):
            raise NotCapturableError(f"{name}: {reason}")
        layer = Layer(module, self.views, by_kernel=self._by_kernel)
        self.layers[self._names[id(parameter)].rpartition(".")[0]] = layer
        return layer


class _Recorded(Objective):
    """An objective of recorded layers. They keep their outputs, so that no hook has to read these."""

    precision: Precision | None = None

    def predict(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        with lowered(self.precision, inputs.device.type):
            logits = self.network(inputs)
        logits = logits.to(inputs.dtype)
        if not getattr(self.loss, "reads_pre_activations", False):
            return logits, self.loss(logits, targets)
        outputs = (layer.output for layer in self.network.modules() if isinstance(layer, Layer))
        *hidden, _ = [output if output is None else output.to(inputs.dtype) for output in outputs]
        return logits, self.loss(logits, targets, hidden)


@dataclass(frozen=True)
class MaskedEngine:
    """An `Engine` for padded batches [P, ...], in which examples outside the mask contribute zero.

    Examples of the padding, or with a gradient that is not finite, are set to zero, even if there are none. So the
    calls depend on no data and can be captured and replayed.

    Attributes:
        values: [numbers], the weights.
        mask: [P], true if an example belongs to the batch.
    """

    recorded: RecordedObjective
    values: Tensor
    mask: Tensor

    @property
    def objective(self) -> Objective:
        return self.recorded.objective

    def clipped_sum(
        self, inputs: Tensor, targets: Tensor, groups: Sequence[Sequence[str]], factors: terms.Factors
    ) -> GradientSum:
        layers = self.recorded.layers
        with torch.enable_grad():
            losses = self.recorded.losses(self.recorded.weights(self.values), inputs, targets)
            outputs = {name: layer.output for name, layer in layers.items() if layer.output is not None}
            if any(len(output) != len(losses) * self.recorded.views for output in outputs.values()):
                raise NotCapturableError("a layer is not called on one row an example")
            if not losses.requires_grad:
                raise NotCapturableError("the losses do not depend on any layer")
            with lowered(self.recorded.precision, losses.device.type):
                slopes = torch.autograd.grad(losses, list(outputs.values()), torch.ones_like(losses), allow_unused=True)
        with torch.no_grad():
            formed = {
                name: layers[name].terms_from(g) for name, g in zip(outputs, slopes, strict=True) if g is not None
            }
            norms = terms.group_norms(formed, groups, torch.zeros_like(losses))
            silent = ~(torch.isfinite(norms).all(dim=1) & self.mask)
            sums = dict(terms.weighted_sums(formed, groups, terms.factors_of(norms, silent, factors), silent))
        return GradientSum(sums, losses.detach(), torch.linalg.vector_norm(norms, dim=1))

    def plain_sum(self, inputs: Tensor, targets: Tensor, further: Mapping[str, Tensor] = NO_OTHERS) -> GradientSum:
        """See `Engine.plain_sum`; `further` may only have the counter of a loss."""
        if further.keys() - {COUNT}:
            raise NotCapturableError("a step releases more than gradients")
        course, members = counting_course(self.objective.loss), self.mask.to(inputs.dtype)
        counters = torch.zeros_like(members).requires_grad_()  # one for each example, to leave the padding out
        with torch.enable_grad(), nullcontext() if course is None else course.counting(counters):
            weights = {n: w.detach().requires_grad_() for n, w in self.recorded.weights(self.values).items()}
            losses = self.recorded.losses(weights, inputs, targets)
            asked = weights | ({COUNT: counters} if further else {})
            with lowered(self.recorded.precision, losses.device.type):
                slopes = torch.autograd.grad(losses, list(asked.values()), members)
        sums = dict(zip(asked, slopes, strict=True))
        if further:
            sums[COUNT] = sums[COUNT].masked_fill(~self.mask, 0).sum()
        return GradientSum(sums, losses.detach(), None)
