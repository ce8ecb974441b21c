"""Grouped convolution, by the ordinary weight gradient of one example at a time.

Cost: the multiplications of the ordinary weight gradient, and one call per example (tens of microseconds each).
"""

import torch
from torch import Tensor

from runner.gradients.one_pass.gram import weight_gradient
from runner.gradients.terms import Terms, squared_norms
from runner.networks.geometry import Geometry


def one_by_one(a: Tensor, g: Tensor, shape: Geometry, has_bias: bool) -> Terms:
    """Return terms of any convolution, channels last: a [batch * views, h, w, in], g [batch * views, h', w', out]."""
    pieces = zip(a.split(shape.views), g.split(shape.views), strict=True)
    formed = torch.stack([weight_gradient(x, y, shape) for x, y in pieces])
    return Terms(
        squares=squared_norms(formed),
        weight_sum=lambda factors: torch.tensordot(factors, formed, 1),
        biases=g.reshape(len(formed), -1, shape.channels_out).sum(1) if has_bias else None,
    )
