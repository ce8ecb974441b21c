"""Layers that keep their inputs and outputs, and every example's gradient from them, by the library's kernels.

One forward and one backward pass give all gradients. For rows a_t and output gradients g_t (t = 1..T), one example's
gradient of the weight is sum_t g_t a_t^T. A convolution's rows are its windows, which are formed for this alone, one
layer at a time.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runner.gradients.one_pass.affine import affine
from runner.gradients.one_pass.linear import linear
from runner.gradients.terms import Terms, squared_norms, weighted_sum
from runner.networks.geometry import Geometry, geometry
from runner.networks.standardized import StandardizedConv2d, standardized


class NotCapturableError(Exception):
    """No fixed sequence of calls can train this run; the message is the reason."""


class Layer(nn.Module):
    """A supported module with parameters (`runner.networks.geometry`), and its last pass.

    Attributes:
        module: the module.
        views: K images of an example, one after another. Inputs are then [P K, ...], and all positions are one sum.
        inputs, output: [P, ...], from the last pass; None before it.
    """

    def __init__(self, module: nn.Module, views: int) -> None:
        super().__init__()
        self.module, self.views = module, views
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

    def terms(self, g: Tensor) -> Terms:
        """Return per-example gradients from output gradients [P, ...], formed or, if T = 1, as two factors.

        A sum adds the numbers whose norm was taken. So only terms cancel that cancel in the gradient itself.
        """
        assert self.inputs is not None
        module, a = self.module, self.inputs
        if isinstance(module, nn.GroupNorm):
            return affine(F.group_norm(a, module.num_groups, eps=module.eps), g, self.views)
        if isinstance(module, nn.Linear):
            outputs, rows = g.reshape(len(g), -1, g.shape[-1]).transpose(1, 2), a.reshape(len(a), -1, a.shape[-1])
        else:
            outputs, rows = g.flatten(2), _windows(a, geometry(module, a, g))
        if self.views > 1:
            outputs = outputs.unflatten(0, (-1, self.views)).transpose(1, 2).flatten(2)
            rows = rows.reshape(-1, self.views * rows.shape[1], rows.shape[2])
        has_bias = module.bias is not None
        if rows.shape[1] == 1 and self._standardized is None:
            return linear(rows.flatten(1), outputs.flatten(1), has_bias)
        formed, gains = torch.bmm(outputs, rows), None
        if self._standardized is not None:
            formed, gains = _through_standardization(formed, *self._standardized)
        biases = outputs.sum(2) if has_bias else None
        return Terms(
            squared_norms(formed),
            lambda factors, silent: weighted_sum(formed.flatten(1), factors, silent),
            biases,
            gains,
        )


def _windows(images: Tensor, shape: Geometry) -> Tensor:
    """Return every window of images [P, channels, h, w], in the order of a weight's numbers: [P, T, K]."""
    (py, px), (sy, sx), (dy, dx) = shape.padding, shape.stride, shape.dilation
    spans = [(taps - 1) * apart + 1 for taps, apart in zip(shape.kernel, shape.dilation, strict=True)]
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
