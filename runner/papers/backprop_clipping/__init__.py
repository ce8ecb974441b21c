"""Backpropagation Clipping for Deep Learning with Differential Privacy (Stevens et al., 2022): its items, the headline
first. Its authors say that a bug invalidates its numbers: see `runner.mechanism.layerwise`.
"""

from runner.claims.verdicts import NOT_REPRODUCED
from runner.papers.backprop_clipping import computed, figures, story
from runner.report.items import Finding, Item, Paper

_BOUNDS = ("target_epsilon", "clipping.input_bound", "clipping.upstream_bound")
_TABLE_1 = (figures.TABLE_1, f"{figures.TABLE_1}_copied")

ITEMS = (
    Item("table-1", "Table 1: every technique at the claimed ε", sweeps=_TABLE_1, fields=_BOUNDS),
    Item(
        "repo-mnist",
        "The authors' corrected MNIST script: its noise, and the noise that its ε need",
        sweeps=("backprop_clipping/repo_mnist",),
        fields=_BOUNDS,
        table=computed.repository,
    ),
    Item(
        "story",
        "Where 98.7% on MNIST at ε 0.07 comes from: the same runs by the ε that each counts and by their sound ε",
        sweeps=(*_TABLE_1, *(f"backprop_clipping/{name}" for name in ("repo_mnist", "fig_5", "story", "story_plain"))),
        fields=_BOUNDS,
        table=story.table,
        draw=story.draw,
    ),
    Item(
        "fig-5",
        "Figure 5: accuracy against ε, mean and range of the seeds",
        sweeps=(figures.FIG_5, figures.TABLE_1),
        fields=_BOUNDS,
        draw=figures.figure_5,
    ),
    Item(
        "fig-2",
        "Figures 1 and 2: the best settings of the grid",
        sweeps=("backprop_clipping/fig_1",),
        fields=("epochs", "batch_size", *_BOUNDS),
    ),
    Item("fig-3", "Figure 3: the network for MNIST and FashionMNIST", table=computed.figure_3),
    Item("fig-4", "Figure 4: the network for CIFAR-10", table=computed.figure_4),
    Item("theorem-1", "Theorem 1: what algorithm 2 costs, as printed and as it was run", table=computed.table_1),
    Item("theorem-2", "Theorem 2: the gradient of a fully connected layer", table=computed.table_2),
    Item("theorem-3", "Theorem 3: the gradient of a convolution", table=computed.table_3),
    Item("text", "Numbers given in the text only"),
)

_CODE, _JOINT = "ours, the code behind the number", "ours, Poisson batches, layers as one release"
_PRINTED = "ours, as printed"

PAPER = Paper(
    "backprop_clipping",
    "Backpropagation Clipping for Deep Learning with Differential Privacy",
    ITEMS,
    place=4,
    findings=(
        Finding(
            {"item": "table-1", "dataset": "MNIST", "method": _CODE, "quantity": "test_accuracy"},
            {"not guaranteed": "**{claimed} on MNIST at ε 0.07 took noise too small by up to the batch size**: the "
             "code gives {measured} again, at a sound ε of {sound}"},
        ),
        Finding(
            {"item": "table-1", "dataset": "MNIST", "method": _JOINT},
            {NOT_REPRODUCED: "with the noise that ε 0.07 needs where batches are sampled and a step's layers are one "
             "release, {measured}"},
        ),
        Finding(
            {"item": "table-1", "dataset": "MNIST", "method": _PRINTED},
            {NOT_REPRODUCED: "with that of the algorithm as printed, {measured}"},
        ),
        Finding(
            {"item": "table-1", "dataset": "FashionMNIST", "method": _JOINT},
            {NOT_REPRODUCED: "on FashionMNIST at 0.87, {measured} for {claimed}"},
        ),
    ),
)  # fmt: skip
