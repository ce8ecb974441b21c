"""The networks of the benchmark, each with a batch of made-up data."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from runner.gradients import Objective
from runner.networks.architectures import scatternet_cnn, small_cnn, vgg_cnn
from runner.networks.lipschitz.architectures import lipschitz_mlp, lipschitz_vgg
from runner.networks.lipschitz.layers import Center, GlobalL2Pool, GroupSort2, L2Pool2d, Scale
from runner.networks.wide_resnet import wide_resnet
from runner.speed.kernels import channels_last

# Width and convolutions of a block of the Lipschitz paper's VGGs, with 130,378, 510,602 and 2,020,618 parameters
LIPSCHITZ = {"VGG5": (32, 1), "VGG5 large": (64, 1), "VGG5 huge": (128, 1)}
PLAIN = " plain"  # after the name of one of them: the ordinary network with the same weights
TITLES = {
    "M": "MNIST, two convolutions",
    "R": "MNIST, ReLU without biases",
    "C": "CIFAR-10, six convolutions",
    "S": "CIFAR-10 on ScatterNet's features",
    "L": "two linear layers",
    "W": "residual network with group normalisation",
}
BATCHES = {"M": (256, 2048), "R": (512,), "C": (512,), "S": (1024,), "L": (512, 4096), "W": (32,)}
_SHAPES = {"M": (1, 28, 28), "R": (1, 28, 28), "S": (243, 8, 8), "L": (1, 28, 28)}


@dataclass(frozen=True)
class Problem:
    """A network, its loss, and one batch.

    M has 26,010 parameters on 1 x 28 x 28 (table 1 of Tempered Sigmoid, tanh). C has 550,570 on 3 x 32 x 32
    (Handcrafted-DP's CIFAR-10 network, tanh). R has 18,752 on 1 x 28 x 28 (figure 3 of Backpropagation Clipping, ReLU,
    no biases). S has 187,210 on 243 x 8 x 8 (Handcrafted-DP's network on ScatterNet's features of CIFAR-10, tanh). L
    has 203,264 on 1 x 28 x 28 (784, 256 and 10 units, ReLU, no biases). W is WRN-10-4 on 3 x 32 x 32, with 16 groups
    and ReLU. "L bounded" is L with GroupSort, and it and the networks of `LIPSCHITZ` have bounded images and weights.
    "VGG5 plain" is the ordinary network with the layers of VGG5: ReLU, max-pooling, nothing centred, nothing bounded.
    """

    network: nn.Sequential
    inputs: Tensor
    targets: Tensor

    @property
    def objective(self) -> Objective:
        return Objective(self.network, nn.CrossEntropyLoss(reduction="none"))


def problem(name: str, batch: int, device: str = "cpu") -> Problem:
    """Make a network of this name with random weights and data, channels last, the same on every device."""
    torch.manual_seed(0)
    bounded = name in LIPSCHITZ or name == "L bounded"
    shape = _SHAPES.get(name.removesuffix(" bounded"), (3, 32, 32))
    network = _network(name, shape)
    inputs = channels_last(torch.randn(batch, *shape).renorm(2, 0, 1.0 if bounded else math.inf))
    targets = torch.randint(10, (batch,)).to(device)
    return Problem(network.to(device).to(memory_format=torch.channels_last), inputs.to(device), targets)


def _network(name: str, shape: tuple[int, ...]) -> nn.Sequential:
    if name.removesuffix(PLAIN) in LIPSCHITZ:
        network = lipschitz_vgg(shape, 10, GroupSort2, *LIPSCHITZ[name.removesuffix(PLAIN)], bias=True)
        return _plain(network) if name.endswith(PLAIN) else network
    if name == "M":
        return small_cnn(shape, 10, nn.Tanh, [16, 32], 32, padding=3)
    if name == "R":
        return small_cnn(shape, 10, nn.ReLU, [16, 32], 32, padding=0, bias=False)
    if name == "S":
        return scatternet_cnn(shape, 10, nn.Tanh, [[64], [64]], pooled_last=False)
    if name in ("L", "L bounded"):
        return lipschitz_mlp(shape, 10, GroupSort2 if name == "L bounded" else nn.ReLU, [256])
    if name == "W":
        return wide_resnet(shape, 10, nn.ReLU, depth=10, width=4, groups=16)
    return vgg_cnn(shape, 10, nn.Tanh, [32, 64, 128], 128)


def _plain(network: nn.Sequential) -> nn.Sequential:
    replacements: dict[type[nn.Module], list[nn.Module]] = {
        GroupSort2: [nn.ReLU()],
        L2Pool2d: [nn.MaxPool2d(2)],
        GlobalL2Pool: [nn.AdaptiveAvgPool2d(1), nn.Flatten()],
        Center: [],
        Scale: [],
    }
    return nn.Sequential(*(part for layer in network for part in replacements.get(type(layer), [layer])))
