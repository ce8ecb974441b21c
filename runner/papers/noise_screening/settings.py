"""Values of table 2, read from the runs with its settings: algorithm 2 as printed, in the sweep of table 1."""

from __future__ import annotations

from runner.claims.claim import DATASETS as IN_FILES
from runner.claims.formulas import prepared
from runner.claims.runs import Evidence, Runs
from runner.training.run import Run
from runner.training.updates.screened import Annealing

SWEEP = "noise_screening/table_1"
SWEEPS = (*(f"{SWEEP}_{name}" for name in ("more_mnist", "more_fashion_mnist", "kept")), SWEEP)  # more seeds first
DATASETS = {file: name for name, file in IN_FILES.items()}  # names in experiments, and in claims


def screened_run(dataset: str) -> Run:
    """Return the run of algorithm 2 as printed on a data set ("MNIST"), unread and untrained."""
    return prepared(SWEEP, f"noise_screening/{IN_FILES[dataset]}_screened")


def screening(dataset: str) -> Annealing:
    """Return the parameters Q0 and mu0 of algorithm 2 on a data set ("MNIST")."""
    rule = screened_run(dataset).rule
    assert isinstance(rule, Annealing)
    return rule


def planned(evidence: Evidence, experiment: str) -> Runs:
    """Return the planned runs of an experiment of table 1, from the sweep with the most seeds."""
    return evidence.planned(SWEEPS, experiment)


def kept_steps(dataset: str) -> int:
    """Return the number of kept updates that the paper's accounting allows at its epsilon."""
    allowed = screened_run(dataset).paid_for
    assert allowed is not None
    return allowed


def claimed_at() -> float:
    """Return the epsilon that the paper claims for its accuracies, the same on every data set."""
    (epsilon,) = {float(screened_run(dataset).config.max_epsilon) for dataset in DATASETS.values()}
    return epsilon


def searched_to() -> float:
    """Return the largest epsilon of the paper's search for an accuracy, at which its DP-SGD with ReLU ends."""
    return float(prepared(SWEEP, "noise_screening/mnist_relu").config.max_epsilon)


def delta() -> float:
    """Return the delta of the paper's claims, the same on every data set."""
    (found,) = {float(screened_run(dataset).config.delta) for dataset in DATASETS.values()}
    return found
