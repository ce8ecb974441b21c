"""Figure 1: accuracy against epsilon of linear and small networks on features, and on pixels."""

from runner.claims.evidence import Evidence
from runner.report import plots
from runner.report.papers import claims_of

_NAME = "better_features"
_SWEEP = f"{_NAME}/table_1"

_MODELS = {  # experiment, by data set: label and look
    f"{_NAME}/{{}}_linear": ("linear model, ScatterNet features", "linear, ScatterNet"),
    "losing_less/pfe_{}_ce": ("CNN, ScatterNet features", "ScatterNet"),
    "losing_less/{}_ce": ("CNN, pixels", "tanh"),
}


def figure_1(evidence: Evidence) -> "plots.Figure | None":
    """Draw the three models, mean and range of the seeds, a panel per data set, with the claims of both items."""
    panels = []
    for dataset in ("mnist", "fashion_mnist", "cifar10"):
        curves = []
        for pattern, (label, look) in _MODELS.items():
            experiment = pattern.format(dataset)
            points = plots.points_of(claims_of(_NAME, alone=experiment, quantity="test_accuracy"))
            style = {"linestyle": "--"} if pattern.endswith("linear") else {}
            curves.append(plots.Curve(_SWEEP, experiment, label, points, look=look, style=style))
        panels.append(plots.Panel(plots.DATASETS[dataset], curves))
    return plots.accuracy_against_epsilon(evidence, panels, epsilon=(0.0, 3.0))
