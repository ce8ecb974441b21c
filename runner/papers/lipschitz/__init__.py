"""DP-SGD Without Clipping: The Lipschitz Neural Network Way (Bethune et al., ICLR 2024), its items, the headline first.

The paper's text has no accuracies (its plots are images). So the checks cover mostly its bounds, the notebooks of its
library, and the accuracy of its method in this benchmark.
"""

from functools import partial

from runner.papers.lipschitz import bounds, figures
from runner.report.items import Item, Paper, Statement, Summary

_DRAWN = ("noise_multiplier", "loss.inverse_temperature", "loss.gradient_bound", "optimizer.lr")


def _sweeps(name: str, *further: str) -> tuple[str, ...]:
    """Return a sweep, and those named after it."""
    return tuple(f"lipschitz/{name}{part}" for part in ("", *further))


ITEMS = (
    Item(
        "fig-5a",
        "Figure 5a: accuracy against ε, MNIST: every epoch of every trial, and the best accuracy up to each ε",
        sweeps=(
            *_sweeps("fig_5a", "_search", "_as_paper", "_appendix_d1", "_plain"),
            *_sweeps("fig_5a_choice", "_longer", "_wider", "_temperature", "_rate", "_batch", "_smaller"),
        ),
        fields=_DRAWN,
        draw=partial(figures.front, "mnist", "5a", "softer"),
    ),
    Item(
        "fig-5b",
        "Figure 5b: accuracy against ε, FashionMNIST: every epoch of every trial, and the best accuracy up to each ε",
        sweeps=_sweeps("fig_5b", "_search", "_as_paper", "_appendix_d1", "_plain"),
        fields=_DRAWN,
        draw=partial(figures.front, "fashion_mnist", "5b", "wide"),
    ),
    Item(
        "repo",
        "The notebooks and the MNIST script of the authors' library",
        sweeps=_sweeps("repo", "_script", "_plain"),
    ),
    Item("text-cert", "No gradient exceeds its bound in training", sweeps=_sweeps("text_cert", "_library")),
    Item(
        "fig-5c",
        "Figures 5c and 10: accuracy against ε, CIFAR-10: a mixer, a VGG, a ResNet and two linear layers",
        sweeps=(
            *_sweeps("fig_5c", "_at_3", "_as_paper"),
            *_sweeps("fig_5c_choice", "_bound", "_longer", "_convolutions", "_mixer"),
        ),
        draw=figures.architectures,
    ),
    Item(
        "text-gnp",
        "Contribution 4: an activation and weights that keep the norms of gradients, MNIST",
        sweeps=("lipschitz/text_gnp",),
    ),
    Item("text-mixer", "Appendix C.2.4: the mixer without skips, and with GroupSort", sweeps=("lipschitz/mixers",)),
    Item(
        "fig-4",
        "Figure 4: time of an epoch and memory against the batch size",
        table=figures.table_4,
        draw=figures.figure_4,
    ),
    Item(
        "fig-6",
        "Figure 6: norms of images and gradients by colour space, CIFAR-10",
        sweeps=("lipschitz/fig_6",),
        draw=partial(figures.histograms, "lipschitz/fig_6", lambda run: str(run.field("features.space")).upper()),
    ),
    Item(
        "fig-7",
        "Figure 7: norms of images and gradients with clipped images and without, CIFAR-10",
        sweeps=("lipschitz/fig_7",),
        draw=partial(figures.histograms, "lipschitz/fig_7", figures.clipped_to),
    ),
    Item(
        "fig-11",
        "Figure 11: Lipschitz networks in ordinary DP-SGD, gradients clipped: MNIST (a), FashionMNIST (b)",
        sweeps=tuple(f"lipschitz/fig_11{part}" for part in ("a", "b", "a_as_paper", "b_as_paper")),
        fields=("clipping.norm", *_DRAWN[:2], "optimizer.lr"),
        draw=figures.clipped,
    ),
    Item("table-1", "Table 1: Lipschitz constants of losses", table=bounds.table_1),
    Item("table-2", "Table 2: bounds on the Jacobian in the parameters", table=bounds.table_2),
    Item("table-3", "Table 3: bounds on the Jacobian in the input", table=bounds.table_3),
    Item("theorem-1", "Theorem 1: the bound and the depth, three regimes", draw=bounds.figure, table=bounds.theorem),
    Item("corollary-2", "Corollary 2: how far a batch's mean gradient is from its expectation"),
    Item("text-local", "Section 2.2: noise for each tensor, or for all"),
    Item("fig-9", "Figure 9: what batch size and clipping do"),
    Item("prop-2", "Proposition 2: clipped binary cross-entropy is the Kantorovich-Rubinstein loss"),
)

_BIAS = "Library's ConvNet, bias of the second convolution, first weights"
_RELU = {"leaderboard": "Plain DP-SGD (ReLU, cross-entropy)", "epsilon": "3"}
_TANH = {"leaderboard": "Tempered sigmoid, tanh (2021)", "epsilon": "3"}

PAPER = Paper(
    "lipschitz", "DP-SGD Without Clipping: The Lipschitz Neural Network Way", ITEMS, place=5,
    remarks=(
        "The paper's text gives no accuracy. Bounds of its library's convolutions and biases can be exceeded "
        "([table 2]({results}lipschitz/table-2/README.md)). Its notebook's accuracy is compared with that of the same "
        "setting under bounds that hold.",
        "The paper's definition 1 replaces one example, which moves a sum by up to 2K. Its library and the runs here "
        "add or remove one, which moves it by up to K.",
        "The authors' repository has CIFAR-10 accuracies, about 39% without clipping at ε = 3. The table of "
        "the authors' notebooks compares them with accuracies here. This is not like for like: theirs is the best of "
        "a sweep on test images, with shuffled batches.",
        "Searches are judged on held-out training images, which can be easier than test images: figures 5a and 5b say "
        "by how much the same draws differ.",
    ),
    statement=Statement(
        "**DP-SGD works without clipping, where the bounds hold.** At a sound ε of {mnist:sound}, a Lipschitz network "
        "of two layers reaches {mnist}% on MNIST, where tuned DP-SGD on a convolutional network has {relu}% with ReLU "
        "and {tanh}% with tanh. On FashionMNIST it is {fashion}%, against {relu_fashion}% and {tanh_fashion}%. On "
        "CIFAR-10 it is {linear}%, and DP-SGD with ReLU has {convolutional}% without a search ({convolutional:runs} "
        "run). Test images helped to choose the settings of the Lipschitz networks. But the library's bounds do not "
        "all hold: in the network of the authors' script `experiments/MNIST/main.py`, a bias has gradients of {bias} "
        "times its bound, so the ε of that script does not follow.",
        {
            "mnist": {"item": "fig-5a", "dataset": "MNIST", "network": "two linear layers of 512, softer loss"},
            "fashion": {"item": "fig-5b", "dataset": "FashionMNIST", "network": "two linear layers of 512"},
            "relu": {**_RELU, "dataset": "MNIST"},
            "relu_fashion": {**_RELU, "dataset": "FashionMNIST"},
            "tanh": {**_TANH, "dataset": "MNIST"},
            "tanh_fashion": {**_TANH, "dataset": "FashionMNIST"},
            "linear": {"item": "fig-5c", "dataset": "CIFAR10", "network": "two linear layers of 256"},
            "convolutional": {**_RELU, "dataset": "CIFAR10"},
            "bias": {"item": "text-cert", "method": _BIAS, "verdict": "fails"},
        },
        further=(
            Statement(
                "Without biases, as in its MNIST notebook, the bound on kernels is the one that fails: it can be "
                "exceeded {kernel} times.",
                {"kernel": {"item": "table-2", "method": "RKO convolution, kernel", "verdict": "fails"}},
            ),
        ),
    ),
    summaries=(
        Summary("the library bounds every gradient", "a bias reaches {x} times its bound", "none",
                {"x": {"item": "text-cert", "method": _BIAS}}),
        Summary("DP-SGD works without clipping", "{mnist}% on MNIST, DP-SGD with tanh {tanh}%", "{mnist:sound}",
                {"mnist": {"item": "fig-5a", "dataset": "MNIST", "network": "two linear layers of 512, softer loss"},
                 "tanh": {**_TANH, "dataset": "MNIST"}}),
    ),
    idea="networks whose gradients are bounded by construction",
    citation="Béthune, Massena, Boissin, Bellet, Mamalet, Prudent, Friedrich, Serrurier and Vigouroux, ICLR 2024",
    link="https://arxiv.org/abs/2305.16202",
    studies=("lipschitz_mnist", "lipschitz_fashion_mnist", "lipschitz_cifar10", "clipping"),
    charted=("fig-5a", "fig-5b", "repo"),
)  # fmt: skip
