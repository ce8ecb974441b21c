"""The constraint of Lipschitz networks: a projection after every update to weights of spectral norm at most 1.

A projection of the weights reads no private data, so it is post-processing of the release. It follows the update, so
no gradient passes through it. Bounds depend on it, so it has to hold. It needs no singular values:

    s -> 1.5 s - 0.5 s^3 maps [0, 2] into [-1, 1]    (its extremes there are 1, at s = 1, and -1, at s = 2).

W -> 1.5 W - 0.5 W W^T W is one step of Bjorck and Bowie (1971). It applies the polynomial to each singular value. So a
matrix of spectral norm at most 2 becomes one of at most 1. Singular values between 0 and 1 are drawn towards 1. Over
time the layers therefore preserve the norms of gradients, and so make use of their bounds.

If a bound on the norm of a matrix is above 1.9, the matrix is first divided to make it 1.9. The bound is Schatten's
norm of exponent 2^(k+2), (sum_i s_i^(2^(k+2)))^(1/2^(k+2)) = ||(W W^T)^(2^k)||_F^(1/2^(k+1)). It is at least s_1. For
r singular values of at most 1 it is at most r^(1/2^(k+2)), and k is large enough to make this less than 1.9. Only
matrix products are needed, of all matrices [..., rows, columns] at once. The device never has to return a number.

Sums of n numbers of one sign can all be rounded the same way, by n 2^-24 of their size. W W^T with columns of n then
seems smaller than it is, and the polynomial reaches 1 + n 2^-25. The second product adds r 2^-24. So the result is
multiplied by 1 - (n + r) 2^-24.

Without orthogonality, W is divided by that bound instead, with k large enough for it to be at most 1.01 ||W||_2. So the
norm is close to 1 and the ratios of the singular values stay. This is the spectral normalisation that the authors'
library has without its iterations of Bjorck's algorithm. Its norm is at most 1, so all bounds hold, but other singular
values are not drawn to 1. Of the roundings of the bound, only that of the last sum of r^2 squares does not cancel. It
leaves at least (1 - 2^-24)^(r^2) of the sum, of which the root of degree 2^(k+1) >= log r / (2 log 1.01) is taken. So
the result is multiplied by exp(-0.03 r^2 2^-24).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.config.fields import expect

_LARGEST = 1e6  # squares of much larger numbers leave the range of float32
_WITHIN = 1.9  # of the 2 up to which the polynomial stays in [-1, 1]; the rest is for rounding
_NORMALISED = 1.01  # of the norm: the largest bound that a weight is divided by
_ROUNDING = 2**-24  # of a sum in float32, for each of its terms


@dataclass(frozen=True)
class Spectral:
    """Bounds the spectral norm of every weight, as a matrix [out, all else], by 1, and every bias by `bias_radius`.

    `orthogonal`: False divides weights by their norm, and leaves the ratios of their singular values. None: they are
    drawn to 1.

    Raises:
        ValueError: `bias_radius` is not in (0, 1e6].
    """

    bias_radius: float = 1.0
    orthogonal: bool | None = None

    def __post_init__(self) -> None:
        wanted = f"constraint.bias_radius > 0 and at most {_LARGEST:g}"
        expect(0 < self.bias_radius <= _LARGEST, wanted, self.bias_radius)

    @torch.no_grad()
    def project(self, parameters: Mapping[str, Tensor]) -> None:
        """Change parameters in place: biases have one dimension, weights have more."""
        for values in parameters.values():
            if values.dim() == 1:
                values.mul_((self.bias_radius / torch.linalg.vector_norm(values)).clamp(max=1.0))
            else:
                # A batch of one: recorded runs have the digits of PyTorch's batched products.
                values.copy_(projected(values.flatten(1)[None], self.orthogonal is not False).view_as(values))


def projected(weights: Tensor, orthogonal: bool = True) -> Tensor:
    """Return matrices [..., rows, columns] of spectral norm at most 1, with the singular vectors of the given ones.

    Their singular values are drawn to 1, or, if not `orthogonal`, have the same ratios and a largest one close to 1.
    """
    wide = weights.shape[-2] <= weights.shape[-1]
    matrices = weights if wide else weights.mT
    largest = matrices.abs().amax((-2, -1)).clamp_min(torch.finfo(weights.dtype).tiny)
    matrices = matrices / largest[..., None, None]  # entries within [-1, 1], so no square leaves the range of floats
    gram = matrices @ matrices.mT
    left = 1 - 2e-6 - sum(matrices.shape[-2:]) * _ROUNDING
    if orthogonal:
        size = torch.minimum(largest, _WITHIN / schatten_bound(gram))[..., None, None]
        result = left * (1.5 * size * matrices - 0.5 * size**3 * gram @ matrices)
    else:
        left *= math.exp(-0.03 * gram.shape[-1] ** 2 * _ROUNDING)
        result = left / schatten_bound(gram, _NORMALISED)[..., None, None] * matrices
    return result if wide else result.mT


def schatten_bound(gram: Tensor, within: float = _WITHIN) -> Tensor:
    """Return an upper bound on the spectral norms [...] of matrices W, given W W^T [..., r, r]; see the module.

    It is at most `within` times the norm.
    """
    tiny = torch.finfo(gram.dtype).tiny
    size = torch.linalg.matrix_norm(gram).clamp_min(tiny)
    logarithm = size.log() / 2
    power = gram / size[..., None, None]  # of norm 1, so that no power of it leaves the range of floats
    # The smallest k with rank^(1/2^(k+2)) below `within`.
    squarings = max(0, math.ceil(math.log2(math.log(max(gram.shape[-1], 2)) / math.log(within))) - 2)
    for k in range(1, 1 + squarings):
        power = power @ power
        size = torch.linalg.matrix_norm(power).clamp_min(tiny)
        power = power / size[..., None, None]
        logarithm = logarithm + size.log() / 2 ** (k + 1)
    bound: Tensor = logarithm.exp()
    return bound
