"""Sums of the bounded contributions of R batches, by one pass, and without ever asking the device for a value.

For rows a_t and output gradients g_t of a layer (t = 1..T), one example's gradient of the weight is sum_t g_t a_t^T.
With one position (T = 1) its norm is |g| |a| and it is never formed; else it is formed by a batched product, and the
sum adds up the very numbers whose norm was taken: nothing cancels that the gradient itself does not.

What does not count, because the batch is padded with it or because its gradient is not finite, is set to zero whether
or not there is such an example: which calls are made depends on no data, so that they can be captured and replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.clipping import Clipping, NoClipping
from runner.gradients.interface import Factors, GradientSum
from runner.training.stacked.layers import NotStackableError
from runner.training.stacked.network import StackedObjectives


@dataclass(frozen=True)
class StackedEngine:
    """`Engine` for R runs at a time. Batches are [R P, ...], norms and factors [R, P, groups], sums [R, *shape].

    Attributes:
        mask: [R, P], true where an example belongs to its run's batch.
    """

    stacked: StackedObjectives
    mask: Tensor

    @property
    def objective(self) -> torch.nn.Module:
        """Any of the runs' objectives: for the names of its parameters."""
        return self.stacked.objectives[0]

    def clipped_sum(
        self, inputs: Tensor, targets: Tensor, groups: Sequence[Sequence[str]], factors: Factors
    ) -> GradientSum:
        """See `Engine.clipped_sum`; examples outside the mask contribute zero."""
        losses, gradients = _one_pass(self.stacked, inputs, targets)
        with torch.no_grad():
            terms = {name: self._terms(name, g) for name, g in gradients.items()}
            norms = self._norms(terms, groups, losses)
            silent = ~(torch.isfinite(norms).all(dim=2) & self.mask)
            weights = factors(norms.masked_fill(silent[..., None], 0)).masked_fill(silent[..., None], 0)
            found: dict[str, Tensor] = {}
            for column, group in enumerate(groups):
                for parameter in group:
                    layer, _, kind = parameter.rpartition(".")
                    if layer in terms:
                        found[parameter] = terms[layer].weighted_sum(kind, weights[..., column], silent)
        return GradientSum(found, losses.detach(), torch.linalg.vector_norm(norms, dim=2))

    def plain_sum(self, inputs: Tensor, targets: Tensor) -> GradientSum:
        """The sum of gradients as they are: a gradient that is not finite makes the sum so."""
        losses, gradients = _one_pass(self.stacked, inputs, targets)
        found: dict[str, Tensor] = {}
        with torch.no_grad():
            outside = ~self.mask.flatten()
            for name, g in gradients.items():
                layer, runs = self.stacked.layers[name], len(self.mask)
                assert layer.rows is not None
                g = g.masked_fill(outside.view(-1, 1, 1), 0).reshape(runs, -1, g.shape[-1])
                found[f"{name}.weight"] = torch.bmm(g.transpose(1, 2), layer.rows.reshape(runs, g.shape[1], -1))
                if layer.bias is not None:
                    found[f"{name}.bias"] = g.sum(1)
        return GradientSum(found, losses.detach(), None)

    def _terms(self, name: str, g: Tensor) -> _Terms:
        layer = self.stacked.layers[name]
        assert layer.rows is not None
        rows = layer.rows
        biases = g.sum(1) if layer.bias is not None else None
        if rows.shape[1] == 1:
            return _Terms(_squares(g) * _squares(rows), rows[:, 0], g[:, 0], None, biases)
        formed = torch.bmm(g.transpose(1, 2), rows)
        return _Terms(_squares(formed), rows, g, formed, biases)

    def _norms(self, terms: dict[str, _Terms], groups: Sequence[Sequence[str]], losses: Tensor) -> Tensor:
        """L2 norms [R, P, groups]."""
        columns = []
        for group in groups:
            square = torch.zeros_like(losses)
            for parameter in group:
                layer, _, kind = parameter.rpartition(".")
                if layer in terms:
                    square = square + terms[layer].squared(kind)
            columns.append(square)
        return torch.stack(columns, dim=1).sqrt().view(*self.mask.shape, -1)


@dataclass(frozen=True)
class _Terms:
    """One layer's per-example gradients: [R P, ...], the weight's formed or as the two factors of an outer product."""

    squares: Tensor
    rows: Tensor
    outputs: Tensor
    formed: Tensor | None
    biases: Tensor | None

    def squared(self, kind: str) -> Tensor:
        """Squared norms [R P] of the gradients of the layer's "weight" or "bias"."""
        if kind == "weight":
            return self.squares
        assert self.biases is not None
        return _squares(self.biases)

    def weighted_sum(self, kind: str, weights: Tensor, silent: Tensor) -> Tensor:
        """[R, ...]: the sum over a run's examples of weights [R, P] times gradients, leaving out the silent [R, P]."""

        def by_run(numbers: Tensor) -> Tensor:
            return _silenced(numbers, silent).reshape(*silent.shape, -1)

        if kind == "weight" and self.formed is None:
            return torch.bmm((by_run(self.outputs) * weights[..., None]).transpose(1, 2), by_run(self.rows))
        numbers = self.formed if kind == "weight" else self.biases
        assert numbers is not None
        return torch.bmm(weights.unsqueeze(1), by_run(numbers))


def contributions(clipping: Clipping, engine: StackedEngine, inputs: Tensor, targets: Tensor) -> GradientSum:
    """What `Clipping.sum_contributions` is for one run, for R; `clipping` may hold numbers [R, 1, 1]."""
    if isinstance(clipping, NoClipping):
        return engine.plain_sum(inputs, targets)
    return clipping.sum_contributions(engine, inputs, targets)  # type: ignore[arg-type]


def _one_pass(stacked: StackedObjectives, inputs: Tensor, targets: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Losses [R P], and the gradient of every layer's output [R P, T, O] that they depend on."""
    with torch.enable_grad():
        losses = stacked(inputs, targets)
        outputs = {name: layer.output for name, layer in stacked.layers.items() if layer.output is not None}
        if any(len(output) != len(losses) for output in outputs.values()):
            raise NotStackableError("a layer is not called on one row an example")
        if not losses.requires_grad:
            raise NotStackableError("the losses do not depend on any layer")
        gradients = torch.autograd.grad(losses, list(outputs.values()), torch.ones_like(losses), allow_unused=True)
    return losses, {name: g for name, g in zip(outputs, gradients, strict=True) if g is not None}


def _squares(numbers: Tensor) -> Tensor:
    """Squared L2 norms of numbers [R P, ...], row by row and then over the rows (see `engines.interface._norms`)."""
    rows = torch.linalg.vector_norm(numbers, dim=2) if numbers.dim() > 2 else numbers
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norms.square()


def _silenced(numbers: Tensor, silent: Tensor) -> Tensor:
    return numbers.masked_fill(silent.reshape(-1, *[1] * (numbers.dim() - 1)), 0)
