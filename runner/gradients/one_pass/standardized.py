"""Per-example gradients of a convolution with standardised weights: see `runner.networks.standardized`.

Cost: the formed gradients of an ordinary convolution, and in addition five reads and three writes of K C O numbers per
example. Most of them stay in the cache.
"""

from __future__ import annotations

import torch

from runner.gradients.one_pass.instantiate import formed_terms
from runner.gradients.terms import Terms, squared_norms
from runner.networks.geometry import Geometry
from runner.networks.standardized import StandardizedConv2d, standardized

_IN_CACHE = 1 << 17  # numbers of the examples that are mapped at a time


def through_standardization(terms: Terms, layer: StandardizedConv2d, shape: Geometry) -> Terms:
    """Return terms of a layer's weight, bias and gain, from the terms of its standardised weight, overwritten."""
    assert terms.formed is not None
    direction, inverse = standardized(layer.weight)
    u = direction.permute(2, 3, 1, 0).reshape(-1, shape.channels_out)  # in the order of the formed gradients
    scale = layer.gain * inverse.flatten()
    gains = []
    for g in terms.formed.view(-1, *u.shape).split(max(1, _IN_CACHE // u.numel())):
        gains.append((g * u).sum(1, keepdim=True))
        torch.addcmul(-scale * g.mean(1, keepdim=True), g, scale, out=g).addcmul_(u, scale * gains[-1], value=-1)
    return formed_terms(terms.formed, squared_norms(terms.formed), terms.biases, shape, torch.cat(gains).squeeze(1))
