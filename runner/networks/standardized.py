"""Convolution with standardised weights, and its gradient for one example.

With w = W_o - mean(W_o), the centred weights of output channel o in F numbers (input channels and kernel positions),

    W'_o = gain_o u_o,    u = w / s,    s = sqrt(||w||^2 + eps)    (||w||^2 = F var(W_o)).

Let G be an example's gradient of W', of one channel. As du = (dw - u <u, dw>) / s and dw = dW - mean(dW), and as u sums
to zero, the example's gradients are

    of gain:  <u, G>,        of W:  (gain / s) (G - mean(G) - u <u, G>).

The map from G to them is linear and the same for all examples of a step. Engines apply it to each formed G before they
take norms. So the norm bounds the numbers that are summed. A norm from ||G||, mean(G) and <u, G> alone would be a
difference that cancels, if G is almost along u.
"""

import torch
from torch import Tensor, nn

_EPSILON = 1e-4
_CHANNEL = (-3, -2, -1)


def standardized(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return u [..., out, in, kh, kw] and 1 / s [..., out, 1, 1, 1] of weights [..., out, in, kh, kw]."""
    centred = weight - weight.mean(_CHANNEL, keepdim=True)
    inverse = (centred.square().sum(_CHANNEL, keepdim=True) + _EPSILON).rsqrt()
    return centred * inverse, inverse


class StandardizedConv2d(nn.Conv2d):
    """`nn.Conv2d` with scaled weight standardisation and a gain for each output channel (Brock et al., 2021).

    The weights begin as normal numbers of variance 1 / F, the gains as ones and the biases as zeros.
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, padding: int = 0
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding)
        self.gain = nn.Parameter(torch.ones(out_channels))

    def reset_parameters(self) -> None:
        nn.init.kaiming_normal_(self.weight, nonlinearity="linear")
        assert self.bias is not None
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        direction, _ = standardized(self.weight)
        y: Tensor = self._conv_forward(x, direction * self.gain.view(-1, 1, 1, 1), self.bias)
        return y
