"""The figure of accuracy against epsilon: linear and small networks on ScatterNet features, and a network on pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.claims.runs import Evidence
from runner.report import plots
from runner.report.papers import claims_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = "better_features"
SWEEP = f"{PAPER}/table_1"
PAPER_AXES = plots.PaperAxes(("mnist", "fashion_mnist", "cifar10"), (0.0, 3.0))
_MODELS = {  # experiment, by data set: label and look
    f"{PAPER}/{{}}_linear": ("linear model, ScatterNet features", "ideas combined"),
    "losing_less/pfe_{}_ce": ("CNN, ScatterNet features", "ScatterNet"),
    "losing_less/{}_ce": ("CNN, pixels", "tanh"),
}


def figure_1(evidence: Evidence) -> Figure | None:
    """Draw the three models, mean and range of the seeds, a panel per data set, with the claims of both items."""
    panels = []
    for dataset, title in PAPER_AXES.titles.items():
        curves = []
        for pattern, (label, look) in _MODELS.items():
            name = pattern.format(dataset)
            points = plots.points_of(claims_of(PAPER, alone=name, quantity="test_accuracy"))
            curves.append(plots.Curve(SWEEP, name, label, points, look=look))
        panels.append(plots.Panel(title, curves))
    return plots.accuracy_against_epsilon(evidence, panels, epsilon=PAPER_AXES.epsilon)
