"""The constraint of Lipschitz networks: weights of spectral norm at most 1, made so after every update.

A projection of the weights reads nothing private, so it is post-processing of what was released; and as it follows the
update, no gradient passes through it. It has to hold, since bounds rest on it, and it costs no singular values:

    s -> 1.5 s - 0.5 s^3 maps [0, 2] into [-1, 1]    (its extremes there are 1, at s = 1, and -1, at s = 2).

So W -> 1.5 W - 0.5 W W^T W, one step of Bjorck and Bowie (1971), makes of every matrix of spectral norm at most 2 one
of at most 1: it does to each singular value what the polynomial does. It also draws those between 0 and 1 towards 1, so
that the layers come to keep the norms of gradients, which is what lets them use their bounds.

A matrix is divided first by what makes 1.9 of a bound on its norm that is above 1.9. The bound is Schatten's norm of
exponent 2^(k+2), (sum_i s_i^(2^(k+2)))^(1/2^(k+2)) = ||(W W^T)^(2^k)||_F^(1/2^(k+1)), which is at least s_1 and, for r
singular values of at most 1, at most r^(1/2^(k+2)): k is taken so large that this is below 1.9. Only matrix products
are needed, of all matrices [..., rows, columns] at once, and no number is ever asked of the device.

(On a CPU, where asking costs nothing, a look at the largest sum of a row of |W W^T|, which is at least s_1^2 as well,
mostly shows beforehand that Schatten's bound will be within 1.9, as it is at most r^(1/2^(k+2)) s_1: then nothing is
divided, and the bound is not worked out.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

_LARGEST = 1e6  # squares of much larger numbers leave the range of float32
_WITHIN = 1.9  # of the 2 up to which the polynomial stays in [-1, 1]: the rest is for rounding
_LEFT = 1 - 2e-6  # of the result, for rounding
_SURELY = 1 - 1e-3  # of what is within, for rounding


@dataclass(frozen=True)
class Spectral:
    """Keeps every weight, as a matrix [out, all else], at a spectral norm of at most 1, every bias at `bias_radius`.

    Raises:
        ValueError: if `bias_radius` is not in (0, 1e6].
    """

    bias_radius: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.bias_radius <= _LARGEST:
            raise ValueError(f"Expected constraint.bias_radius > 0 and at most {_LARGEST:g}, got {self.bias_radius}.")

    @torch.no_grad()
    def project(self, parameters: Mapping[str, Tensor]) -> None:
        """Change parameters in place, by name [runs, *shape]: biases have one dimension, weights have more."""
        for values in parameters.values():
            if values.dim() == 2:
                norms = torch.linalg.vector_norm(values, dim=1, keepdim=True)
                values.mul_((self.bias_radius / norms).clamp(max=1.0))
            else:
                values.copy_(projected(values.flatten(2)).view_as(values))


def projected(weights: Tensor) -> Tensor:
    """Matrices [..., rows, columns] of spectral norm at most 1, each with the singular vectors of the one given."""
    wide = weights.shape[-2] <= weights.shape[-1]
    matrices = weights if wide else weights.mT
    largest = matrices.abs().amax((-2, -1)).clamp_min(torch.finfo(weights.dtype).tiny)
    matrices = (
        matrices / largest[..., None, None]
    )  # entries within [-1, 1], so that no square leaves the range of floats
    gram = matrices @ matrices.mT
    size = largest if _surely_within(gram, largest) else torch.minimum(largest, _WITHIN / schatten_bound(gram))
    size = size[..., None, None]
    result = _LEFT * (1.5 * size * matrices - 0.5 * size**3 * gram @ matrices)
    return result if wide else result.mT


def _surely_within(gram: Tensor, largest: Tensor) -> bool:
    """Whether it is known, without working it out, that no matrix is divided: of W / largest, gram [..., r, r]."""
    if gram.device.type != "cpu":
        return False
    rank = gram.shape[-1]
    spread = rank ** (1 / 2 ** (_squarings(rank) + 2))  # of Schatten's norm over the spectral one, at most
    rows = gram.abs().sum(-1).amax(-1)
    return bool((largest * rows.sqrt() * spread <= _SURELY * _WITHIN).all())


def schatten_bound(gram: Tensor) -> Tensor:
    """An upper bound on the spectral norms [...] of matrices W, given W W^T [..., r, r]: see the module's text."""
    tiny = torch.finfo(gram.dtype).tiny
    size = torch.linalg.matrix_norm(gram).clamp_min(tiny)
    logarithm = size.log() / 2
    power = gram / size[..., None, None]  # of norm 1, so that no power of it leaves the range of floats
    for k in range(1, 1 + _squarings(gram.shape[-1])):
        power = power @ power
        size = torch.linalg.matrix_norm(power).clamp_min(tiny)
        power = power / size[..., None, None]
        logarithm = logarithm + size.log() / 2 ** (k + 1)
    bound: Tensor = logarithm.exp()
    return bound


def _squarings(rank: int) -> int:
    """The smallest k with rank^(1/2^(k+2)) below 1.9."""
    return max(0, math.ceil(math.log2(math.log(max(rank, 2)) / math.log(_WITHIN))) - 2)
