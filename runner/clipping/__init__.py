"""Clipping strategies: each bounds the contribution of one example to the sum, and states that bound."""

from runner.clipping.backprop import Backprop, BackpropOfMeanLoss
from runner.clipping.interface import Clipping, NoClipping, NoiseGroup, gradient_sum
from runner.clipping.lipschitz import Lipschitz
from runner.clipping.per_example import PSAC, Automatic, Flat, PerLayer

__all__ = [
    "PSAC",
    "Automatic",
    "Backprop",
    "BackpropOfMeanLoss",
    "Clipping",
    "Flat",
    "Lipschitz",
    "NoClipping",
    "NoiseGroup",
    "PerLayer",
    "gradient_sum",
]
