"""What this paper's claims need beside the shared readers: the best tenth of a sweep, a setting's cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean

import numpy as np

from runner.accounting import RdpClassic, sound_epsilon
from runner.claims.charges import prepared
from runner.claims.claim import Claim
from runner.claims.costs import charged
from runner.claims.measure import computed, of_runs
from runner.claims.measured import Measured, of_sample
from runner.claims.runs import Runs
from runner.claims.statistics import Interval

_DRAWS = 2000
LEAST_TRIPLES = 10  # a tenth of fewer is not one run


def top_triples(runs: Runs) -> Runs:
    """The tenth of the runs (rounded up) with the highest last-epoch accuracy; ties by the order of draws."""
    return Runs(sorted(runs, key=lambda run: -run.final("test_accuracy"))[: math.ceil(len(runs) / 10)])


def enough_triples(recorded: int, planned: int) -> bool:
    """Whether a sweep is complete enough to speak of its best tenth: half of it, and ten runs."""
    return recorded >= max(LEAST_TRIPLES, planned / 2)


@of_runs
def mean_of_best_tenth(claim: Claim, runs: Runs) -> Measured:
    """The mean of the config field named in brackets over the best tenth of the triples."""
    recorded, field = runs.recorded, claim.reader[1]
    if not enough_triples(len(recorded), len(runs)):
        needed = math.ceil(max(LEAST_TRIPLES, len(runs) / 2))
        return Measured(explanation=f"too few of the triples have run to speak of the best tenth: {needed} are needed")
    top = top_triples(recorded)
    explanation = f"over the best {len(top)} of {len(recorded)} triples, and so is the spread"
    found = of_sample("mean", top.sample(lambda run: float(run.field(field))), explanation=explanation)
    means = [_mean_of_top(drawn, field) for drawn in _redrawn(recorded)]
    off = np.sort(np.subtract(means[::2], means[1::2]))  # the paper's sweep is a draw, as this one is
    middle = float(np.mean(found.values))

    def between(level: float) -> Interval:
        low, high = np.quantile(off, ((1 - level) / 2, (1 + level) / 2))
        return Interval(middle + float(low), middle + float(high))

    found = replace(found, interval_at=between)
    return charged(replace(found, n=len(top), planned=math.ceil(len(runs) / 10)), recorded.last)


def _redrawn(runs: Runs) -> Iterator[Runs]:
    """The triples drawn again, with replacement (a bootstrap): the same draws whenever it is called."""
    for places in np.random.default_rng(0).integers(len(runs), size=(_DRAWS, len(runs))):
        yield Runs(runs[place] for place in places)


def _mean_of_top(runs: Runs, field: str) -> float:
    return fmean(float(run.field(field)) for run in top_triples(runs))


@computed
def standard_setting_epsilon(claim: Claim) -> Measured:
    """Epsilon of all epochs of the MNIST runs' setting (they end before, at the claimed epsilon), with their batches of
    256 and with 250.

    The value is that of classic RDP, the accounting of the paper's time, with their own batches.
    """
    run = prepared("tempered_sigmoid/fig_3", "tempered_sigmoid/mnist_tanh")
    own, other, epochs, delta = run.config.batch_size, 250, run.config.epochs, run.config.delta
    ledgers = {batch: replace(run.mechanism, batch_size=batch).charges_of_epochs(epochs) for batch in (own, other)}
    epsilon = {batch: RdpClassic().epsilon(ledger.claimed, delta) for batch, ledger in ledgers.items()}
    sound = {batch: sound_epsilon(ledger.actual, delta) for batch, ledger in ledgers.items()}
    return Measured(
        value=epsilon[own],
        epsilon=epsilon[own],
        epsilon_sound=sound[own],
        delta=delta,
        explanation=f"{claim.claimed} is not what {epochs} epochs cost: classic RDP gives {epsilon[own]:.3f} "
        f"with batches of {own} and {epsilon[other]:.3f} with {other}, the sound value is {sound[own]:.3f} and "
        f"{sound[other]:.3f}",
    )
