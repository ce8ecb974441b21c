"""A study of this benchmark, and no paper: does the papers' progress add up? Its items, the headline first.

Activation, loss, clipping and features each have an old level and the level that a paper proposes. All combinations are
trained at the same sound epsilon. Then the best one is combined with the methods of two more papers.
"""

from runner.papers.composition import figures, tables
from runner.papers.composition.choices import DATASETS, EPSILONS
from runner.report.items import Item, Paper, Statement

_LOSSES = ("cross_entropy", "losing_less")
_BELOW = {"mnist": tuple(f"composition/mnist_search_3_{loss}_below" for loss in _LOSSES)}  # rates below the smallest
_SEARCHES = {  # one for each loss and epsilon, as their rates differ
    dataset: (
        *(f"composition/{dataset}_search_{epsilon:g}_{loss}" for epsilon in EPSILONS for loss in _LOSSES),
        *_BELOW.get(dataset, ()),
    )
    for dataset in DATASETS
}
_SEARCH = tuple(sweep for sweeps in _SEARCHES.values() for sweep in sweeps)
_BEST = tuple(f"composition/best_{dataset}" for dataset in DATASETS)
_BEST_SEARCH = tuple(f"{sweep}{part}" for sweep in _BEST for part in ("_search_1", "_search_3", "_search_backprop"))
_LOSS = tuple(f"composition/loss_{dataset}" for dataset in DATASETS)
_LOSS_SEARCH = tuple(f"{sweep}_search_{epsilon:g}" for sweep in _LOSS for epsilon in EPSILONS)
_FIELDS = ("target_epsilon", "optimizer.lr")

ITEMS = (
    Item(
        "adds-up",
        "Do the gains of tanh, the losing-less loss, automatic clipping and ScatterNet add up?",
        sweeps=(*_SEARCH, *(f"composition/{dataset}" for dataset in DATASETS)),
        fields=_FIELDS,
        draw=figures.adds_up,
        table=tables.adds_up,
    ),
    *(
        Item(
            dataset.replace("_", "-"),
            f"{name}: the sixteen cells",
            sweeps=(*_SEARCHES[dataset], f"composition/{dataset}"),
            fields=_FIELDS,
            draw=figures.cells(dataset),
            table=tables.cells(dataset),
        )
        for dataset, name in DATASETS.items()
    ),
    *(
        Item(
            f"{dataset.replace('_', '-')}-effects",
            f"{name}: what each part is worth, and what they are worth to each other",
            sweeps=(*_SEARCHES[dataset], f"composition/{dataset}"),
            fields=_FIELDS,
            table=tables.effects_of(dataset),
        )
        for dataset, name in DATASETS.items()
    ),
    Item(
        "best",
        "The best cell with noise screening, and with backpropagation clipping",
        sweeps=_BEST,
        fields=_FIELDS,
        also=(*_BEST_SEARCH, *_SEARCH),
        table=tables.measured,
    ),
    Item(
        "loss",
        "The best cell with the loss's parameters for ScatterNet features, in the place of those for pixels",
        sweeps=(*_LOSS_SEARCH, *_LOSS),
        fields=("loss.beta", *_FIELDS),
        also=_SEARCH,
        table=tables.measured,
    ),
    Item("cifar10", "CIFAR-10: four corners, three seeds", sweeps=("composition/cifar10",), table=tables.measured),
    Item(
        "search",
        "The learning rates of the cells, on held-out images",
        sweeps=_SEARCH,
        fields=_FIELDS,
        table=tables.searched(_SEARCH),
    ),
    Item(
        "best-search",
        "The learning rates for the best cell and what was added to it, on held-out images",
        sweeps=(*_BEST_SEARCH, *_LOSS_SEARCH),
        fields=_FIELDS,
        also=_SEARCH,
        table=tables.searched((*_BEST_SEARCH, *_LOSS_SEARCH)),
    ),
)

PAPER = Paper(
    "composition", "Does the papers' progress add up?", ITEMS, place=6, study=True,
    remarks=(
        "Four parts of a private network, each at an old level and at the one that a paper proposes: the activation "
        "(ReLU, tanh), the loss (cross-entropy, that of Losing Less), clipping (flat, automatic, both to a norm of "
        "0.1) and the features (pixels, ScatterNet, which brings its group normalization and a network of its own). "
        "On MNIST and FashionMNIST all else is the same in all cells of an ε; the noise is calibrated to it, and it "
        "is sound.",
        "In all cells the loss has the parameters that its paper gives for MNIST and FashionMNIST from pixels "
        "(threshold epoch 0, β 1, γ 5): one level, but not the paper's on ScatterNet and on CIFAR-10. What those for "
        "ScatterNet change in the best cell is measured (item loss), though not on CIFAR-10.",
        "Settings are chosen on held-out training images, which no ε here charges for. The searches cover "
        "learning rates, and nothing else, with one seed, whose luck is in no interval. On CIFAR-10 nothing was "
        "searched: each corner has the epochs, batch size and learning rate that Losing Less gives for its network "
        "(30 epochs of batches of 1,024 on pixels, 60 of 8,192 on ScatterNet), which need not suit all corners alike, "
        "so that what they differ by is in part a matter of these settings.",
        "All cells run with the same seeds, which draw the first weights and the noise: in some cells the runs of one "
        "seed go up and down together. So gains and effects are taken seed by seed; an interval is Student's, of these "
        "numbers, one a seed. Where flat and automatic clipping are at two learning rates, the tables of effects say "
        "what of clipping's effect that is.",
    ),
    statement=Statement(
        "**Progress adds up only in part.** tanh, the losing-less loss, automatic clipping and ScatterNet together "
        "gain {all} points on FashionMNIST at a sound ε of 1 {all:interval}. That is {less:size} points "
        "less than the sum of their separate gains.",
        {
            "all": {"number": "gain_of_all", "dataset": "FashionMNIST", "at_epsilon": "1"},
            "less": {"number": "more_than_parts", "dataset": "FashionMNIST", "at_epsilon": "1"},
        },
    ),
    idea="four of these ideas, alone and together",
)  # fmt: skip
