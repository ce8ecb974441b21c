"""Linear layer with one position: the gradient of example i is the outer product g_i a_i^T.

    ||g a^T||^2 = ||g||^2 ||a||^2,    bias: ||g||^2,    sum_i c_i g_i a_i^T = (c * G)^T A

Cost: C + O multiplications per example for the norm, and the O C of the ordinary weight gradient for the sum. Nothing
cancels, so the norm is as exact as its two factors.
"""

from torch import Tensor

from runner.gradients.terms import Terms, silenced, squared_norms_of_outer


def linear(a: Tensor, g: Tensor, has_bias: bool) -> Terms:
    """Return terms of a layer with inputs a [batch, in] and output gradients g [batch, out]."""

    def weight_sum(factors: Tensor, silent: Tensor | None) -> Tensor:
        outputs, inputs = (g, a) if silent is None else (silenced(g, silent), silenced(a, silent))
        return (outputs * factors[:, None]).T @ inputs

    return Terms(squared_norms_of_outer(g, a), weight_sum, g if has_bias else None)
