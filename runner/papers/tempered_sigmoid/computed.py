"""Items that need no run: the activations of figure 1, the networks of tables 1 and 2."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, TypeAlias

import torch
from omegaconf import OmegaConf
from torch import Tensor

from runner.claims.runs import Evidence
from runner.config import REPOSITORY
from runner.networks.activations import TemperedSigmoid
from runner.papers.tempered_sigmoid.figures import FIG_3, PAPER, TRIPLE
from runner.report import plots
from runner.report.networks import network_table
from runner.report.papers import claims_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Triple: TypeAlias = tuple[float, float, float]

_X = torch.linspace(-5, 5, 201, dtype=torch.float64)
_OTHERS = ((1.0, 2.0, 0.5), (4.0, 2.0, 2.0), (2.0, 0.5, 1.0), (2.0, 5.0, 1.0), (2.0, 2.0, 0.0))


def tanh() -> Triple:
    """Return the triple that is tanh, the default of the config group."""
    config = OmegaConf.load(REPOSITORY / "conf" / "activation" / "tempered_sigmoid.yaml")
    scale, inverse_temperature, offset = (float(OmegaConf.select(config, field.partition(".")[2])) for field in TRIPLE)
    return scale, inverse_temperature, offset


@cache
def triples() -> tuple[Triple, ...]:
    """Return the triples drawn: tanh, chosen ones, as the paper lists none, and the paper's best mean on CIFAR-10."""
    means = {claim.quantity: claim.aim for claim in claims_of(PAPER, item="fig-2", dataset="CIFAR10")}
    scale, inverse_temperature, offset = (means[quantity] or 0.0 for _, quantity in TRIPLE.values())
    return (tanh(), *_OTHERS, (scale, inverse_temperature, offset))


def tempered_sigmoid(triple: Triple, x: Tensor) -> Tensor:
    """Return phi_{s,T,o}(x), elementwise."""
    values: Tensor = TemperedSigmoid(*triple)(x)
    return values


def figure_1(_: Evidence) -> Figure:
    """Draw phi for some (s, T, o), with emphasis on (2, 2, 1), which is tanh."""
    figure = plots.figure(6, 4)
    axes = figure.subplots()
    for i, triple in enumerate(triples()):
        label = "({:g}, {:g}, {:g})".format(*triple) + (" = tanh" if triple == tanh() else "")
        width, look = (3.0, plots.LOOKS["tanh"]) if triple == tanh() else (1.2, (f"C{i}", plots.MARKERS[i + 1]))
        line = plots.spaced(_X, i, look[1])
        axes.plot(_X, tempered_sigmoid(triple, _X), linewidth=width, color=look[0], **line, label=label)
    axes.set(xlabel="x", ylabel="φ(x) = s · sigmoid(T x) − o")
    axes.legend(title="(s, T, o)", loc="upper left")
    return figure


table_1 = partial(
    network_table,
    FIG_3,
    f"{PAPER}/mnist_tanh",
    "The paper gives neither paddings nor the stride of the poolings. Here the first convolution has SAME padding: "
    "3 on every side, as an 8x8 kernel with stride 2 on 28 pixels needs 6 in total. The poolings have stride 1. The "
    "second convolution has no padding.",
)
table_2 = partial(
    network_table,
    FIG_3,
    f"{PAPER}/cifar10_tanh",
    "The paper gives no padding. It has to be SAME: without padding the feature map would vanish before the last "
    "layer. The last convolution has no activation.",
)
