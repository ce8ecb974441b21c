"""Frozen parts of a network, such as pre-trained layers: parameters with `requires_grad=False`.

A frozen number gets no gradient, so nothing is released about it, and it enters no clipping norm. It is a constant of
the network, which epsilon takes as public: if it was trained on private data, its cost is not in epsilon. So frozen
parameters become buffers. A batch normalisation whose parameters are frozen becomes the fixed affine map of its running
statistics, which sees one example at a time. Dropout below a frozen module is off, as in evaluation.
"""

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def freeze(network: nn.Module) -> int:
    """Turn the frozen parameters of a network into buffers, in place. Return how many numbers are frozen.

    Raises:
        ValueError: all parameters are frozen, or a frozen batch normalisation has no running statistics.

    >>> network = nn.Sequential(nn.Linear(4, 3).requires_grad_(False), nn.Linear(3, 2))
    >>> freeze(network), [name for name, _ in network.named_parameters()]
    (15, ['1.weight', '1.bias'])
    """
    frozen = [parameter for parameter in network.parameters() if not parameter.requires_grad]
    if not frozen:
        return 0
    if len(frozen) == len(list(network.parameters())):
        raise ValueError("all parameters are frozen, so nothing is trained")
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, _BatchNorm) and not any(p.requires_grad for p in child.parameters()):
                setattr(module, name, FixedNorm(child))
            elif isinstance(child, nn.modules.dropout._DropoutNd):
                parameters = list(module.parameters())
                if parameters and not any(parameter.requires_grad for parameter in parameters):
                    setattr(module, name, nn.Identity())
    for module in network.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if not parameter.requires_grad:
                delattr(module, name)
                module.register_buffer(name, parameter.detach())
    return sum(parameter.numel() for parameter in frozen)


class FixedNorm(nn.Module):
    """Batch normalisation by fixed statistics: x * scale + shift, by channel, so that examples do not mix.

    Args:
        layer: a batch normalisation with running statistics, of inputs [batch, channels, ...].

    Raises:
        ValueError: it has none.
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, layer: _BatchNorm) -> None:
        super().__init__()
        if layer.running_mean is None or layer.running_var is None:
            raise ValueError("a frozen batch normalisation needs running statistics")
        scale = (layer.running_var + layer.eps).rsqrt() * (layer.weight.detach() if layer.affine else 1.0)
        shift = (layer.bias.detach() if layer.affine else 0.0) - layer.running_mean * scale
        self.register_buffer("scale", scale)
        self.register_buffer("shift", shift)

    def forward(self, inputs: Tensor) -> Tensor:
        shape = (1, -1, *[1] * (inputs.dim() - 2))
        return inputs * self.scale.view(shape) + self.shift.view(shape)
