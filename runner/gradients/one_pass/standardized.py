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


def through_standardization(terms: Terms, layer: StandardizedConv2d, shape: Geometry) -> Terms:
    """Return terms of a layer's weight, bias and gain, from the terms of its standardised weight, overwritten."""
    assert terms.formed is not None
    direction, inverse = standardized(layer.weight)
    u = direction.permute(2, 3, 1, 0).reshape(-1, shape.channels_out)  # in the order of the formed gradients
    scale = layer.gain * inverse.flatten()
    formed, product = terms.formed.view(-1, *u.shape), torch.empty_like(u)
    gains = formed.new_empty(len(formed), shape.channels_out)
    for g, of_gain in zip(formed, gains, strict=True):
        torch.sum(torch.mul(g, u, out=product), 0, out=of_gain)
        torch.addcmul(-scale * g.mean(0), g, scale, out=g).addcmul_(u, scale * of_gain, value=-1)
    return formed_terms(terms.formed, squared_norms(terms.formed), terms.biases, shape, gains)
