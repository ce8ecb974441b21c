"""Initial weights that are not PyTorch's default."""

import math
from typing import Protocol

import torch
from torch import nn

_CUT = 2.0  # standard deviations of the normal distribution at which it is cut
_SHRINKS = 0.87962566103423978  # the cut multiplies the standard deviation by this


class Initialization(Protocol):
    """A distribution of a network's first weights."""

    def initialize(self, network: nn.Module) -> None:
        """Draw the network's parameters in place, by PyTorch, before any data are read."""
        ...


class Glorot:
    """Glorot's normal weights for linear layers and convolutions, with the biases of JAX's stax.

    A weight has the variance 2 / (n_in + n_out), where a convolution counts each channel once for each place of its
    kernel (Glorot and Bengio, 2010, equation 12). Its distribution is normal, cut at two standard deviations, as in
    jax.nn.initializers.glorot_normal. Biases are normal, with the standard deviations of stax.Dense and
    stax.GeneralConv: the code that Tempered Sigmoid prints is a layer for stax. Other layers keep their values.
    """

    def __init__(self, linear_bias: float = 1e-2, convolution_bias: float = 1e-6) -> None:
        self._linear_bias, self._convolution_bias = linear_bias, convolution_bias

    @torch.no_grad()
    def initialize(self, network: nn.Module) -> None:
        for layer in network.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                fan_in, fan_out = layer.weight[0].numel(), layer.weight[:, 0].numel()
                std = math.sqrt(2 / (fan_in + fan_out)) / _SHRINKS
                nn.init.trunc_normal_(layer.weight, std=std, a=-_CUT * std, b=_CUT * std)
                if layer.bias is not None:
                    layer.bias.normal_(
                        std=self._linear_bias if isinstance(layer, nn.Linear) else self._convolution_bias
                    )
