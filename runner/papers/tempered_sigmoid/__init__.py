"""Tempered Sigmoid Activations for Deep Learning with Differential Privacy (Papernot, Thakurta, Song, Chien
and Erlingsson, AAAI 2021): its items, the headline first.
"""

from runner.papers.tempered_sigmoid import computed, figures, measures, tables, theorem_1
from runner.report.items import Item, Paper
from runner.report.measures import accuracy_within_epsilon, test_accuracy

ITEMS = (
    Item(
        "fig-3",
        "Figure 3: accuracy against ε, ReLU and tanh, mean and range of the seeds",
        sweeps=("tempered_sigmoid/fig_3",),
        draw=figures.figure_3,
    ),
    Item(
        "table-3",
        "Table 3: the best setting of each technique",
        sweeps=("tempered_sigmoid/table_3", "tempered_sigmoid/table_3_search"),
        fields=("optimizer.lr",),
        table=tables.table_3,
    ),
    Item(
        "fig-4",
        "Figure 4: norm of the gradients before clipping, MNIST",
        sweeps=("tempered_sigmoid/fig_4",),
        draw=figures.figure_4,
    ),
    Item(
        "fig-5",
        "Figure 5: norm of the first convolution's activations, MNIST",
        sweeps=("tempered_sigmoid/fig_4",),
        draw=figures.figure_5,
    ),
    Item(
        "table-4",
        "Table 4: optimizers and learning rates, FashionMNIST",
        sweeps=(
            "tempered_sigmoid/table_4",
            "tempered_sigmoid/table_4_search_sgd",
            "tempered_sigmoid/table_4_search_adam",
        ),
        fields=("optimizer.lr",),
        table=tables.table_4,
    ),
    Item("text", "Numbers given in the abstract and the text only", sweeps=("tempered_sigmoid/text_sgd",)),
    Item(
        "text-std",
        "Broader impact: spread of accuracy over the classes",
        sweeps=("tempered_sigmoid/fig_3",),
        draw=figures.class_accuracy,
    ),
    Item(
        "fig-2",
        "Figure 2: accuracy over scale, inverse temperature and offset",
        sweeps=("tempered_sigmoid/fig_2",),
        fields=("activation.scale", "activation.inverse_temperature", "activation.offset"),
        draw=figures.figure_2,
    ),
    Item("fig-1", "Figure 1: tempered sigmoids", draw=computed.figure_1, data=computed.figure_1_data),
    Item("table-1", "Table 1: the network for MNIST and FashionMNIST", table=computed.table_1),
    Item("table-2", "Table 2: the network for CIFAR-10", table=computed.table_2),
    Item(
        "theorem-1",
        "Theorem 1: the bias of clipped gradient descent",
        draw=theorem_1.figure,
        table=theorem_1.table,
    ),
)

MEASURES = {
    "test_accuracy": test_accuracy,
    "accuracy_within_epsilon": accuracy_within_epsilon,
    "best_of_sweep": measures.best_of_sweep,
    "top_scale": measures.top_scale,
    "top_inverse_temperature": measures.top_inverse_temperature,
    "top_offset": measures.top_offset,
    "gradient_norm_ratio": measures.gradient_norm_ratio,
    "activation_norm_ratio": measures.activation_norm_ratio,
    "class_accuracy_std": measures.class_accuracy_std,
    "standard_setting_epsilon": measures.standard_setting_epsilon,
    "theorem_1": theorem_1.measure,
}

PAPER = Paper(
    "tempered_sigmoid",
    "Tempered Sigmoid Activations for Deep Learning with Differential Privacy",
    ITEMS,
    MEASURES,
    place=1,
)
