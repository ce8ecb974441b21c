"""Items that need no run: the activations of figure 1, the networks of tables 1 and 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from runner.networks.activations import TemperedSigmoid
from runner.report.evidence import Evidence
from runner.report.files import Table
from runner.report.networks import layers
from runner.report.plots import figure
from runner.report.verdicts import Judged

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TANH = (2.0, 2.0, 1.0)
# The paper does not list the triples that it draws; the last one here is its best mean on CIFAR-10.
TRIPLES = (
    TANH,
    (1.0, 2.0, 0.5),
    (4.0, 2.0, 2.0),
    (2.0, 0.5, 1.0),
    (2.0, 5.0, 1.0),
    (2.0, 2.0, 0.0),
    (1.58, 3.0, 0.71),
)


def tempered_sigmoid(triple: tuple[float, float, float], x: Tensor) -> Tensor:
    """phi_{s,T,o}(x), elementwise."""
    values: Tensor = TemperedSigmoid(*triple)(x)
    return values


def _points() -> Tensor:
    return torch.linspace(-5, 5, 201, dtype=torch.float64)


def figure_1(_: Evidence) -> Figure:
    """phi for some (s, T, o); (2, 2, 1), which is tanh, stands out."""
    drawn = figure(6, 4)
    axes, x = drawn.subplots(), _points()
    for i, triple in enumerate(TRIPLES):
        label = "({:g}, {:g}, {:g})".format(*triple) + (" = tanh" if triple == TANH else "")
        width, colour = (3.0, "C0") if triple == TANH else (1.2, f"C{i}")
        axes.plot(x, tempered_sigmoid(triple, x), linewidth=width, color=colour, label=label)
    axes.set_xlabel("x")
    axes.set_ylabel("φ(x) = s · sigmoid(T x) − o")
    axes.legend(title="(s, T, o)", loc="upper left")
    return drawn


def figure_1_data() -> Table:
    """x and phi(x) for the triples of the figure."""
    x = _points()
    columns = [x, *(tempered_sigmoid(triple, x) for triple in TRIPLES)]
    header = ["x", *("phi({:g};{:g};{:g})".format(*triple) for triple in TRIPLES)]
    return Table(header, torch.stack(columns, dim=1).tolist())


def table_1(_: Evidence, __: Sequence[Judged]) -> Table:
    """The layers of the MNIST and FashionMNIST network, from its config."""
    note = (
        "The paper gives neither paddings nor the stride of the poolings. Here the first convolution has "
        "SAME padding (6 in total for an 8x8 kernel with stride 2 on 28 pixels, so 3 on every side), the "
        "poolings have stride 1 and the second convolution has no padding."
    )
    return layers("tempered_sigmoid/fig_3", "tempered_sigmoid/mnist_tanh", note)


def table_2(_: Evidence, __: Sequence[Judged]) -> Table:
    """The layers of the CIFAR-10 network, from its config."""
    note = (
        "The paper gives no padding. It has to be SAME: without padding the feature map would vanish before "
        "the last layer. The last convolution has no activation."
    )
    return layers("tempered_sigmoid/fig_3", "tempered_sigmoid/cifar10_tanh", note)
