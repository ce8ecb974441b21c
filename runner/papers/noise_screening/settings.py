"""Values of table 2, read from the runs with its settings: algorithm 2 as printed, in the sweep of table 1.

Also the value of the paper's equations 4 and 9 at these settings, as they are printed: a misprint, by its own proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from runner.accounting.accountants import rdp_analysis
from runner.claims.claim import DATASETS as IN_FILES
from runner.claims.claim import Claim, dataset_name
from runner.claims.formulas import computed, prepared
from runner.claims.measurement import Measured
from runner.claims.runs import Evidence, Runs
from runner.training.run import Run
from runner.training.updates.screened import Annealing

SWEEP = "noise_screening/table_1"
SWEEPS = (
    *(f"{SWEEP}_{name}" for name in ("more_mnist", "more_fashion_mnist", "kept", "kept_cifar10")),
    SWEEP,
)  # more seeds first
DATASETS = {file: name for name, file in IN_FILES.items()}  # names in experiments, and in claims
_ORDERS = range(2, 65)  # the orders of the paper's accountant


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
    (value,) = {float(screened_run(dataset).config.delta) for dataset in DATASETS.values()}
    return value


@computed
def printed_epsilon(_: Claim) -> Measured:
    """Return the smallest epsilon by equation 4, as printed, at the settings of table 2 of any data set.

    Equation 9 has T / (a - 1) A_a for the Renyi divergence of order a of T kept steps. Equation 4 converts it, adding
    ln(1 / delta) / (a - 1). Here A_a is the sum of equation 8, the a-th moment of the likelihood ratio mu / mu_0 of a
    step under mu_0.

    That is a misprint of T / (a - 1) ln A_a, for the paper proves the latter. By equation 6 (Mironov et al., 2019,
    section 3.3) a step is (a, 1 / (a - 1) ln A_a)-RDP, and by its lemma 1 the T divergences of order a add up.

    The authors cannot have computed with the printed equation. The mean of mu / mu_0 under mu_0 is 1, so A_a >= 1 by
    Jensen's inequality. At every order a <= 64 of theirs the printed value is therefore at least T / 63. With the 1,157
    steps or more that epsilon = 3 pays for, this is more than 18. With the logarithm the same orders give the
    claimed 3 on all three data sets. The printed value is never too small, as ln A < A.
    """
    printed = {name: epsilon_by_orders(name, np.exp) for name in DATASETS.values()}
    texts = [
        f"{value:.4g} on {dataset_name(name)} ({epsilon_by_orders(name, lambda log: log):.4g} with the logarithm)"
        for name, value in printed.items()
    ]
    return Measured(min(printed.values()), explanation=", ".join(texts))


def epsilon_by_orders(dataset: str, divergence: Callable[[float], float]) -> float:
    """Return the least epsilon over the orders, a step's divergence of order a being `divergence(ln A_a) / (a - 1)`."""
    run, steps = screened_run(dataset), kept_steps(dataset)
    rate, sigma = run.mechanism.sampling_rate, run.mechanism.noise_multiplier
    allowed = math.log(1 / run.config.delta)
    moments = {order: log_moment(rate, sigma, order) for order in _ORDERS}
    with np.errstate(over="ignore"):  # moments of large orders are infinite, and so not the smallest
        return min((steps * float(divergence(log)) + allowed) / (order - 1) for order, log in moments.items())


def log_moment(rate: float, sigma: float, order: int) -> float:
    """Return ln A_a of a sampled Gaussian at a whole order a, from its Renyi divergence ln A_a / (a - 1)."""
    return (order - 1) * float(rdp_analysis().compute_rdp(q=rate, noise_multiplier=sigma, steps=1, orders=float(order)))
