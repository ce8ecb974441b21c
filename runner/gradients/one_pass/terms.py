"""What every method hands over between the norms, which fix the factors, and the sum, which needs them."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


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


def squared_norms(rows: Tensor) -> Tensor:
    """Squared L2 norms of rows [batch, ...]: [batch]. (`vector_norm` is vectorised, `square().sum(1)` is not.)"""
    norms: Tensor = rows.flatten(1).norm(dim=1)
    return norms.square()
