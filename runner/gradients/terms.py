"""Per-example gradients, layer by layer: their norms, which fix the factors, and then their sum, which needs them.

Examples are those of one batch, [batch], or of R runs' batches of P at once, [R P]; then factors are [R, P].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.networks.objective import Objective

Factors = Callable[[Tensor], Tensor]  # norms [..., groups] -> factors [..., groups]
_AGREE, _NOTHING = 1e-3, 1e-12  # how far a gradient may be from autograd's, and what norms are not compared


@dataclass(frozen=True)
class Terms:
    """One layer's per-example gradients over one slice of the batch, in whatever form is cheap.

    Attributes:
        squares: [batch], squared L2 norm of each example's gradient of the weight.
        weight_sum: from factors [batch], sum_i factor_i * (gradient of the weight), the shape of the weight.
        biases: [batch, out], each example's gradient of the bias; None if the layer has none.
    """

    squares: Tensor
    weight_sum: Callable[[Tensor], Tensor]
    biases: Tensor | None

    def squared(self, kind: str) -> Tensor:
        """Squared norms [batch] of the gradients of the layer's "weight" or "bias"."""
        if kind == "weight":
            return self.squares
        assert self.biases is not None
        return squared_norms(self.biases)

    def weighted_sum(self, kind: str, factors: Tensor) -> Tensor:
        """The sum of the gradients of the layer's "weight" or "bias", each times its factor."""
        if kind == "weight":
            return self.weight_sum(factors)
        assert self.biases is not None
        return weighted_sum(self.biases, factors)


def weighted_sum(gradients: Tensor, factors: Tensor) -> Tensor:
    """Gradients [batch, numbers] summed by factors [batch]: [numbers]; [R P, ...] by [R, P]: [R, 1, numbers].

    Of R runs, what has the factor zero is left out whatever it is: asking whether it is finite would take a branch.
    """
    if factors.dim() == 1:
        return factors @ gradients
    return torch.bmm(factors.unsqueeze(1), by_run(gradients, factors))


def by_run(numbers: Tensor, factors: Tensor) -> Tensor:
    """Numbers [R P, ...] as [R, P, numbers], zero where the factor [R, P] is."""
    return silenced(numbers, factors == 0).reshape(*factors.shape, -1)


def group_norms(terms: Mapping[str, Terms], groups: Sequence[Sequence[str]], zero: Tensor) -> Tensor:
    """L2 norms [batch, groups]; `zero` [batch] is the square of a gradient that no layer has a part in."""
    squares = [sum((part.squared(kind) for _, part, kind in _parts(terms, group)), zero) for group in groups]
    return torch.stack(squares, dim=1).sqrt()


def factors_of(norms: Tensor, silent: Tensor, factors: Factors) -> Tensor:
    """Factors [..., groups], zero for the silent examples [...], whose norms are not looked at."""
    return factors(norms.masked_fill(silent[..., None], 0)).masked_fill(silent[..., None], 0)


def weighted_sums(
    terms: Mapping[str, Terms], groups: Sequence[Sequence[str]], weights: Tensor
) -> Iterator[tuple[str, Tensor]]:
    """Every parameter's name and sum, by the weights [..., groups] of its group, where its layer has a part."""
    for column, group in enumerate(groups):
        for parameter, part, kind in _parts(terms, group):
            yield parameter, part.weighted_sum(kind, weights[..., column])


def _parts(terms: Mapping[str, Terms], group: Sequence[str]) -> Iterator[tuple[str, Terms, str]]:
    """Every parameter of a group whose layer has terms, these, and "weight" or "bias"."""
    for parameter in group:
        layer, _, kind = parameter.rpartition(".")
        if layer in terms:
            yield parameter, terms[layer], kind


def squared_norms(rows: Tensor) -> Tensor:
    """Squared L2 norms of rows [batch, ...]: [batch]. (`vector_norm` is vectorised, `square().sum(1)` is not.)"""
    norms: Tensor = rows.flatten(1).norm(dim=1)
    return norms.square()


def norms_by_rows(gradient: Tensor) -> Tensor:
    """L2 norms [batch] of [batch, *shape], row by row and then over the rows.

    One long float32 sum can lose its small terms (a part in 4,000 of a norm over 300,000 entries); sums of a row each
    keep the relative error below 1e-5.
    """
    rows = torch.linalg.vector_norm(gradient.flatten(2), dim=2) if gradient.dim() > 2 else as_rows(gradient)
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norms


def as_rows(gradient: Tensor) -> Tensor:
    """[batch, *shape] as [batch, numbers], of one number where the shape has no dimensions."""
    return gradient.flatten(1) if gradient.dim() > 1 else gradient[:, None]


def silenced(numbers: Tensor, silent: Tensor) -> Tensor:
    """Numbers [batch, ...] with zeros for the silent examples, as many in any shape."""
    return numbers.masked_fill(silent.reshape(-1, *[1] * (numbers.dim() - 1)), 0)


def is_gradient(
    objective: Objective, inputs: Tensor, targets: Tensor, found: Mapping[str, Tensor], norm: Tensor
) -> bool:
    """Whether one example's gradient and its norm are what autograd says, as far as the device has numbers."""
    parameters = dict(objective.named_parameters())
    losses = objective(inputs, targets)
    slopes = torch.autograd.grad(losses.sum(), list(parameters.values()), allow_unused=True)
    given = {name: g for name, g in zip(parameters, slopes, strict=True) if g is not None}
    if not given or losses.is_meta:
        return True
    expected = torch.cat([g.flatten() for g in given.values()])
    ours = torch.cat([(found[name] if name in found else torch.zeros_like(g)).flatten() for name, g in given.items()])
    length, apart = expected.norm(), (ours - expected).norm()
    return not (torch.isfinite(length) and length > _NOTHING and max(apart, abs(norm - length)) > _AGREE * length)
