"""Per-example gradients, layer by layer: their norms, which determine the factors, and then their weighted sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.networks.objective import Objective

Factors = Callable[[Tensor], Tensor]  # norms [batch, groups] -> factors [batch, groups]
_ROOT_OF_LARGEST = 1e19  # the square of a norm above it may overflow in float32
_LONG_SUM = 2048  # terms: float32 keeps the norm of this many to 1e-5, whatever their sizes
_AGREE, _NOTHING = 1e-3, 1e-12  # tolerance of the comparison with autograd, and the norms too small to compare


@dataclass(frozen=True)
class Terms:
    """One layer's per-example gradients over one slice of the batch, in a form that is cheap.

    Attributes:
        squares: [batch], squared L2 norm of each example's gradient of the weight.
        weight_sum: from factors [batch], sum_i factor_i * (gradient of the weight): its numbers, in any shape. The
            second argument marks silent examples, as in `weighted_sum`.
        biases: [batch, out], each example's gradient of the bias; None if the layer has none.
        gains: the same of the gain, which standardised weights have.
        formed: [batch, numbers], each example's gradient of the weight, in any order; None if they are not formed.
    """

    squares: Tensor
    weight_sum: Callable[[Tensor, Tensor | None], Tensor]
    biases: Tensor | None
    gains: Tensor | None = None
    formed: Tensor | None = None

    def squared(self, kind: str) -> Tensor:
        """Return squared norms [batch] of the gradients of the layer's "weight", "bias" or "gain"."""
        return self.squares if kind == "weight" else squared_norms(self._vectors(kind))

    def weighted_sum(self, kind: str, factors: Tensor, silent: Tensor | None) -> Tensor:
        """Return the sum of the gradients of the layer's "weight", "bias" or "gain", each times its factor."""
        if kind == "weight":
            return self.weight_sum(factors, silent)
        return weighted_sum(self._vectors(kind), factors, silent)

    def _vectors(self, kind: str) -> Tensor:
        vectors = self.gains if kind == "gain" else self.biases
        assert vectors is not None
        return vectors


def weighted_sum(gradients: Tensor, factors: Tensor, silent: Tensor | None) -> Tensor:
    """Return the sum of gradients [batch, numbers] by factors [batch]: [numbers].

    The `silent` examples [batch] have the factor zero and are left out, whatever their numbers are. None: all numbers
    are finite.
    """
    if silent is None:
        return factors @ gradients
    # PyTorch's compiler fuses the zeros with a batched product, but not with one of a vector and a matrix.
    return torch.bmm(factors[None, None], silenced(gradients, silent)[None])[0, 0]


def group_norms(terms: Mapping[str, Terms], groups: Sequence[Sequence[str]], zero: Tensor) -> Tensor:
    """Return L2 norms [batch, groups]; `zero` [batch] is the square of a gradient that no layer contributes to."""
    squares = [sum((part.squared(kind) for _, part, kind in _parts(terms, group)), zero) for group in groups]
    return torch.stack(squares, dim=1).sqrt()


def factors_of(norms: Tensor, silent: Tensor, factors: Factors) -> Tensor:
    """Return factors [batch, groups], zero for the silent examples [batch], whose norms are ignored."""
    return factors(norms.masked_fill(silent[:, None], 0)).masked_fill(silent[:, None], 0)


def weighted_sums(
    terms: Mapping[str, Terms], groups: Sequence[Sequence[str]], weights: Tensor, silent: Tensor | None = None
) -> Iterator[tuple[str, Tensor]]:
    """Yield the name and sum of every parameter whose layer has terms, by the weights [batch, groups] of its group.

    `silent`: see `weighted_sum`.
    """
    for column, group in enumerate(groups):
        for parameter, part, kind in _parts(terms, group):
            yield parameter, part.weighted_sum(kind, weights[:, column], silent)


def _parts(terms: Mapping[str, Terms], group: Sequence[str]) -> Iterator[tuple[str, Terms, str]]:
    """Yield each parameter of a group whose layer has terms, with these terms and "weight", "bias" or "gain"."""
    for parameter in group:
        layer, _, kind = parameter.rpartition(".")
        if layer in terms:
            yield parameter, terms[layer], kind


def squared_norms(rows: Tensor) -> Tensor:
    """Return squared L2 norms [batch] of rows [batch, ...].

    `vector_norm` is vectorised, unlike `square().sum(1)`. But its long sums lose small terms: the norm of 19 million
    normal numbers came out a thousandth too small. So it takes parts of 2,048 numbers, which `sum` adds pairwise.
    """
    rows = as_rows(rows).contiguous()
    end = rows.shape[1] // _LONG_SUM * _LONG_SUM
    norm = torch.linalg.vector_norm
    if rows.shape[1] <= _LONG_SUM:
        squares: Tensor = norm(rows, dim=1).square()
        return squares
    squares = norm(rows[:, :end].unflatten(1, (-1, _LONG_SUM)), dim=2).square().sum(1)
    return squares + norm(rows[:, end:], dim=1).square() if end < rows.shape[1] else squares


def squared_norms_of_outer(first: Tensor, second: Tensor) -> Tensor:
    """Return squared L2 norms [batch] of outer products of rows [batch, O] and [batch, C]; infinity beyond float32.

    Each row's norm is taken in float64. In float32 the squares of tiny numbers vanish, and a row of huge numbers could
    then make a large product whose norm seems to be 0. Where a square overflows in float32, the other row could lose
    its digits when it is scaled down. So that example is silenced.
    """
    norms = [torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64) for rows in (first, second)]
    squares: Tensor = (norms[0] * norms[1]).square()
    squares = squares.masked_fill(torch.maximum(*norms) > _ROOT_OF_LARGEST, torch.inf)
    return squares.to(first.dtype)


def as_rows(gradient: Tensor) -> Tensor:
    """Return [batch, *shape] as [batch, numbers], with one number if the shape has no dimensions."""
    return gradient.flatten(1) if gradient.dim() > 1 else gradient[:, None]


def silenced(numbers: Tensor, silent: Tensor) -> Tensor:
    """Return numbers [batch, ...] in the same shape, with zeros for the silent examples."""
    return numbers.masked_fill(silent.reshape(-1, *[1] * (numbers.dim() - 1)), 0)


def is_gradient(
    objective: Objective, inputs: Tensor, targets: Tensor, sums: Mapping[str, Tensor], norm: Tensor
) -> bool:
    """Return True if one example's gradient and norm agree with autograd; on the meta device, always."""
    parameters = dict(objective.named_parameters())
    losses = objective(inputs, targets)
    slopes = torch.autograd.grad(losses.sum(), list(parameters.values()), allow_unused=True)
    by_parameter = {name: g for name, g in zip(parameters, slopes, strict=True) if g is not None}
    if not by_parameter or losses.is_meta:
        return True
    expected = torch.cat([g.flatten() for g in by_parameter.values()])
    zeros = {name: torch.zeros_like(g) for name, g in by_parameter.items()}
    ours = torch.cat([sums.get(name, zeros[name]).flatten() for name in by_parameter])
    length, distance = (squared_norms(numbers[None]).sqrt() for numbers in (expected, ours - expected))
    return not (torch.isfinite(length) and length > _NOTHING and max(distance, abs(norm - length)) > _AGREE * length)
