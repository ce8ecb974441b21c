"""Layers of R runs at once, by the library's kernels.

The batches of the runs are one long batch of R x P examples, with the P examples of each run together. A convolution of
R runs is one of R groups. A layer keeps its inputs and outputs, so that one forward and one backward pass give all
gradients. For rows a_t and output gradients g_t (t = 1..T), one example's gradient of the weight is sum_t g_t a_t^T. A
convolution's rows are its windows, which are formed for this alone, one layer at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runner.gradients.terms import Terms, by_run, squared_norms, squared_norms_of_outer, weighted_sum
from runner.networks.standardized import StandardizedConv2d, standardized


class NotStackableError(Exception):
    """No single sequence of calls can train these runs; the message is the reason."""


class Layer(nn.Module):
    """The layers of one name in every run, each with its weights.

    Attributes:
        weight: [R, O, ...]; bias: [R, O] or None. They require no gradients, and a pass may be given others.
        views: K images of an example, one after another: rows below are then [R P K, ...], and their positions are one
            sum.
        inputs, output: [R P, ...], from the last pass; None before it.
    """

    views = 1

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        self.inputs: Tensor | None = None
        self.output: Tensor | None = None
        # A sum with it requires gradients. PyTorch 2.11 cannot compile `requires_grad_`.
        self._zero = torch.zeros((), dtype=weight.dtype, device=weight.device, requires_grad=True)

    def forget(self) -> None:
        self.inputs, self.output = None, None

    def forward(self, inputs: Tensor) -> Tensor:
        if self.output is not None:
            raise NotStackableError("a layer is called twice in one pass")
        if len(inputs) % len(self.weight):
            raise NotStackableError("a layer is not called on one row an example")
        output = self.applied(inputs)
        if not output.requires_grad:
            output = output + self._zero if torch.compiler.is_compiling() else output.requires_grad_()
        self.inputs, self.output = inputs.detach(), output
        return output

    def applied(self, inputs: Tensor) -> Tensor:
        """Return the outputs of inputs [R P, ...]."""
        raise NotImplementedError

    def rows(self) -> Tensor:
        """Return the rows of the last inputs: [R P, T, K]."""
        raise NotImplementedError

    def rows_of(self, g: Tensor) -> Tensor:
        """Return output gradients as [R P, O, T]."""
        raise NotImplementedError

    def total(self, g: Tensor) -> Tensor:
        """Return the weight's gradients, summed over each run's examples: [R, O, ...]."""
        raise NotImplementedError

    def totals(self, g: Tensor) -> dict[str, Tensor]:
        """Return the gradients of "weight" and "bias", summed over each run's examples: [R, O, ...]."""
        weight = {"weight": self.total(g)}
        if self.bias is None:
            return weight
        return weight | {"bias": self.rows_of(g).unflatten(0, (len(self.weight), -1)).sum((1, 3))}

    def terms(self, g: Tensor) -> Terms:
        """Return per-example gradients [R P, ...], formed or, if T = 1, as the two factors of an outer product.

        A sum adds the numbers whose norm was taken. So only terms cancel that cancel in the gradient itself.
        """
        outputs, rows = self._of_examples(g)
        biases = outputs.sum(2) if self.bias is not None else None
        if rows.shape[1] > 1:
            formed = torch.bmm(outputs, rows)
            return Terms(squared_norms(formed), lambda factors, zero: weighted_sum(formed, factors, zero), biases)
        of_outputs, of_inputs = outputs.flatten(1), rows.flatten(1)

        def weight_sum(factors: Tensor, zero: Tensor) -> Tensor:
            scaled = by_run(of_outputs, zero) * factors[..., None]
            return torch.bmm(scaled.transpose(1, 2), by_run(of_inputs, zero))

        return Terms(squared_norms_of_outer(of_outputs, of_inputs), weight_sum, biases)

    def _of_examples(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """Return output gradients [R P, O, T] and rows [R P, T, K], with the positions of all views in T."""
        outputs, rows = self.rows_of(g), self.rows()
        if self.views > 1:
            outputs = outputs.unflatten(0, (-1, self.views)).transpose(1, 2).flatten(2)
            rows = rows.reshape(-1, self.views * rows.shape[1], rows.shape[2])
        return outputs, rows


class LinearLayer(Layer):
    """`nn.Linear`: inputs [R P, ..., in] to [R P, ..., out]."""

    def applied(self, inputs: Tensor) -> Tensor:
        rows, transposed = inputs.reshape(len(self.weight), -1, inputs.shape[-1]), self.weight.transpose(1, 2)
        if self.bias is None:
            output = torch.bmm(rows, transposed)
        else:
            output = torch.baddbmm(self.bias.unsqueeze(1), rows, transposed)
        return output.view(*inputs.shape[:-1], -1)

    def rows(self) -> Tensor:
        assert self.inputs is not None
        return self.inputs.reshape(len(self.inputs), -1, self.inputs.shape[-1])

    def rows_of(self, g: Tensor) -> Tensor:
        return g.reshape(len(g), -1, g.shape[-1]).transpose(1, 2)

    def total(self, g: Tensor) -> Tensor:
        assert self.inputs is not None
        outputs, inputs = (each.reshape(len(self.weight), -1, each.shape[-1]) for each in (g, self.inputs))
        return torch.bmm(outputs.transpose(1, 2), inputs)


class ConvolutionLayer(Layer):
    """`nn.Conv2d` without groups or dilation, padded with zeros: images [R P, in, h, w] to [R P, out, h', w']."""

    def __init__(self, like: nn.Conv2d, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self._kernel, self._stride, self._padding = like.kernel_size, like.stride, _padding(like)

    def applied(self, inputs: Tensor) -> Tensor:
        left, right, above, below = self._padding
        padding = (above, left)
        if left != right or above != below:
            inputs, padding = F.pad(inputs, self._padding), (0, 0)
        runs, bias = len(self.weight), None if self.bias is None else self.bias.flatten()
        kernels = self.kernels().flatten(0, 1)
        output = F.conv2d(_as_groups(inputs, runs), kernels, bias, self._stride, padding, groups=runs)
        return output if runs == 1 else output.unflatten(1, (runs, -1)).transpose(0, 1).flatten(0, 1)

    def kernels(self) -> Tensor:
        """Return the kernels of the convolution: [R, out, in, kh, kw]."""
        return self.weight

    def rows(self) -> Tensor:
        (kh, kw), (sy, sx) = self._kernel, self._stride
        windows = self._padded().unfold(2, kh, sy).unfold(3, kw, sx).permute(0, 1, 4, 5, 2, 3)
        return windows.flatten(4).flatten(1, 3).transpose(1, 2)

    def rows_of(self, g: Tensor) -> Tensor:
        return g.flatten(2)

    def total(self, g: Tensor) -> Tensor:
        runs, backward = len(self.weight), torch.ops.aten.convolution_backward
        inputs, weight = _as_groups(self._padded(), runs), self.weight.flatten(0, 1)
        how = (self._stride, (0, 0), (1, 1), False, (0, 0), runs)
        of_weight: Tensor = backward(_as_groups(g, runs), inputs, weight, None, *how, (False, True, False))[1]
        return of_weight.view_as(self.weight)

    def _padded(self) -> Tensor:
        assert self.inputs is not None
        return F.pad(self.inputs, self._padding) if any(self._padding) else self.inputs


class StandardizedLayer(ConvolutionLayer):
    """`StandardizedConv2d`, whose module derives the gradients. gain: [R, out]."""

    def __init__(self, like: nn.Conv2d, weight: Tensor, bias: Tensor | None, gain: Tensor) -> None:
        super().__init__(like, weight, bias)
        self.gain = nn.Parameter(gain, requires_grad=False)
        self._taken: tuple[Tensor, Tensor] | None = None  # u [R, out, F] and gain / s [R, out, 1] of the last pass

    def forget(self) -> None:
        super().forget()
        self._taken = None

    def kernels(self) -> Tensor:
        direction, inverse = standardized(self.weight)
        gain = self.gain[..., None]
        self._taken = direction.flatten(2), gain * inverse.flatten(2)
        return direction * gain[..., None, None]

    def totals(self, g: Tensor) -> dict[str, Tensor]:
        found = super().totals(g)
        weight, found["gain"] = self._through_standardization(found["weight"].flatten(2))
        return found | {"weight": weight.view_as(self.weight)}

    def terms(self, g: Tensor) -> Terms:
        outputs, rows = self._of_examples(g)
        formed, gains = self._through_standardization(torch.bmm(outputs, rows))
        biases = outputs.sum(2) if self.bias is not None else None
        return Terms(squared_norms(formed), lambda factors, zero: weighted_sum(formed, factors, zero), biases, gains)

    def _through_standardization(self, of_kernels: Tensor) -> tuple[Tensor, Tensor]:
        """Return gradients of the weight [R P, out, F] and the gain [R P, out], from gradients of the kernels."""
        assert self._taken is not None
        (u, scale), runs = self._taken, len(self.weight)
        u, scale = u.unsqueeze(1), scale.unsqueeze(1)
        by_run = of_kernels.unflatten(0, (runs, -1))
        gains = (by_run * u).sum(3, keepdim=True)
        of_weight = scale * (by_run - by_run.mean(3, keepdim=True) - u * gains)
        return of_weight.flatten(0, 1), gains.flatten(0, 1).squeeze(2)


class GroupNormLayer(Layer):
    """`nn.GroupNorm` with gain and bias: [R P, channels, ...] to the same shape. Rows are the normalised inputs."""

    def __init__(self, like: nn.GroupNorm, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self._groups, self._epsilon = like.num_groups, like.eps

    def applied(self, inputs: Tensor) -> Tensor:
        assert self.bias is not None
        by_run = self._normalized(inputs).unflatten(0, (len(self.weight), -1))
        weight, bias = (each.view(len(each), 1, -1, *[1] * (inputs.dim() - 2)) for each in (self.weight, self.bias))
        return torch.addcmul(bias, by_run, weight).flatten(0, 1)

    def rows(self) -> Tensor:
        assert self.inputs is not None
        return self.rows_of(self._normalized(self.inputs))

    def rows_of(self, g: Tensor) -> Tensor:
        return g.reshape(*g.shape[:2], -1)

    def total(self, g: Tensor) -> Tensor:
        of_examples = (self.rows_of(g) * self.rows()).sum(2)
        return of_examples.view(len(self.weight), -1, of_examples.shape[1]).sum(1)

    def terms(self, g: Tensor) -> Terms:
        outputs = self.rows_of(g)
        weights, biases = (
            each.sum(2).unflatten(0, (-1, self.views)).sum(1) for each in (outputs * self.rows(), outputs)
        )
        return Terms(squared_norms(weights), lambda factors, zero: weighted_sum(weights, factors, zero), biases)

    def _normalized(self, inputs: Tensor) -> Tensor:
        return F.group_norm(inputs, self._groups, eps=self._epsilon)


def _as_groups(images: Tensor, runs: int) -> Tensor:
    """Return images [R P, channels, h, w] as [P, R channels, h, w]."""
    return images if runs == 1 else images.unflatten(0, (runs, -1)).transpose(0, 1).flatten(1, 2)


def unsupported(module: nn.Module) -> str | None:
    """Return the reason why a module with parameters cannot be stacked, or None if it can."""
    if type(module) in (nn.Linear, nn.GroupNorm):
        return None
    if type(module) not in (nn.Conv2d, StandardizedConv2d):
        return f"{type(module).__name__} is not a supported layer"
    assert isinstance(module, nn.Conv2d)
    if module.groups != 1 or module.dilation != (1, 1) or module.padding_mode != "zeros":
        return "a convolution has groups, dilation or a padding other than zeros"
    return None


def layer(like: nn.Module, weight: Tensor, bias: Tensor | None = None, gain: Tensor | None = None) -> Layer:
    """Return the layer of R runs that are like one, with stacked weights [R, *shape], and biases and gains [R, out]."""
    if isinstance(like, nn.GroupNorm):
        return GroupNormLayer(like, weight, bias)
    if not isinstance(like, nn.Conv2d):
        return LinearLayer(weight, bias)
    return ConvolutionLayer(like, weight, bias) if gain is None else StandardizedLayer(like, weight, bias, gain)


def _padding(like: nn.Conv2d) -> Sequence[int]:
    """Return the zeros left, right, above and below, in the order of `F.pad`."""
    if isinstance(like.padding, str):
        kh, kw = like.kernel_size if like.padding == "same" else (1, 1)
        return ((kw - 1) // 2, kw // 2, (kh - 1) // 2, kh // 2)  # the odd one goes right and below
    vertical, horizontal = like.padding
    return (horizontal, horizontal, vertical, vertical)


def numbers_per_example(layers: Sequence[Layer]) -> int:
    """Return the numbers per example that the last pass keeps: inputs, outputs, formed gradients, and one's rows."""
    kept, most = 0, 0
    for each in layers:
        if each.inputs is not None and each.output is not None:
            inputs, output = each.views * each.inputs[0].numel(), each.views * each.output[0].numel()
            weights = each.weight[0].numel()
            positions = output // each.weight.shape[1]
            kept += inputs + output + (weights if positions > 1 else 0)
            most = max(most, positions * weights // each.weight.shape[1])
    return kept + most
