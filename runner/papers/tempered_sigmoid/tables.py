"""The networks of tables 1 and 2, the searches behind tables 3 and 4, and the measures of this paper only."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean

import numpy as np

from runner.claims.claim import Claim, dataset_name
from runner.claims.measure import Formula, computed, counted, planned_for, prepared, run_formula
from runner.claims.measurement import FEWEST_RUNS, Measured, charged, measure_sample
from runner.claims.runs import Evidence, Runs, last_accuracy
from runner.claims.statistics import between, less_claim, measured_mean, stdev
from runner.claims.verdicts import ClaimRow
from runner.report.files import Table, bound_text, mean_text, number

PAPER = "tempered_sigmoid"
FIG_3 = f"{PAPER}/fig_3"
TABLE_3_SEARCH = ("tempered_sigmoid/table_3_search", "tempered_sigmoid/table_3_cifar10_search")
TABLE_4_SEARCH = ("tempered_sigmoid/table_4_search_sgd", "tempered_sigmoid/table_4_search_adam")
_TABLE_3 = tuple(f"{PAPER}/table_3{part}" for part in ("_chosen", "_cifar10_chosen", ""))  # the first with a technique
_TABLE_4 = ("tempered_sigmoid/table_4",)  # at the paper's rates
_HEADER = (
    *("dataset", "technique", "paper (%)", "here (%)", "n", "ε of the paper", "sound ε", "learning rate"),
    *("rates searched", "best rate", "accuracy on held-out images (%)"),
)
_SHOWN = tuple(name for name in _HEADER[:8] if name != "ε of the paper")


def searched(sweeps: Sequence[str], tables: Sequence[str], evidence: Evidence, judged: Sequence[ClaimRow]) -> Table:
    """Return the paper's table with the accuracies here, and beside it the search of each learning rate.

    `tables`: the sweeps of the paper's table. A technique is taken from the first one that has it.
    """
    rows = []
    claims = {row.claim.alone: row.claim for row in reversed(judged) if row.claim.quantity == "test_accuracy"}
    for sweep in sweeps:
        for experiment, planned in Runs(evidence.sweeps.get(sweep, ())).by(lambda run: run.job.experiment).items():
            best = planned.recorded.best if planned.recorded else None
            rate = f"{best.field('optimizer.lr'):g}" if best else "–"
            accuracy = number(last_accuracy(best) if best else None, "%")
            final = evidence.planned(tables, experiment)
            rates = ", ".join(f"{rate:g}" for rate in final.groups_by("optimizer.lr")) or "–"
            runs, claim = final.recorded, claims.get(experiment)
            here = mean_text(runs.finals("test_accuracy"), "%") if runs else "–"
            costs = [bound_text(runs.largest(name)) if runs else "–" for name in ("epsilon", "epsilon_sound")]
            labels = dataset_name(planned[0].field("dataset.name")), planned[0].field("title")
            told = [claim.claimed if claim else "", here, final.recorded_of, *costs, rates]
            rows.append((*labels, *told, planned.recorded_of, rate, accuracy))
    return Table(_HEADER, rows, shown=_SHOWN)


table_3, table_4 = partial(searched, TABLE_3_SEARCH, _TABLE_3), partial(searched, TABLE_4_SEARCH, _TABLE_4)


_DRAWS, _LEAST_TRIPLES = 2000, 10  # a tenth of fewer is less than one run


def top_triples(runs: Runs) -> Runs:
    """Return the tenth of the runs (rounded up) with the highest last-epoch accuracy; ties by the order of draws."""
    return Runs(sorted(runs, key=lambda run: -run.final("test_accuracy"))[: math.ceil(len(runs) / 10)])


def enough_triples(planned: Runs) -> bool:
    """Return True if a sweep is complete enough for a best tenth: half of it, and ten runs."""
    return len(planned.recorded) >= max(_LEAST_TRIPLES, len(planned) / 2)


@run_formula
def mean_of_best_tenth(claim: Claim, runs: Runs) -> Measured:
    """Return the mean of the config field named in brackets over the best tenth of the triples."""
    recorded, field = runs.recorded, claim.number.argument
    if not enough_triples(runs):
        needed = math.ceil(max(_LEAST_TRIPLES, len(runs) / 2))
        return Measured(explanation=f"too few of the triples have run to speak of the best tenth: {needed} are needed")
    top = top_triples(recorded)
    explanation = f"over the best {len(top)} of {len(recorded)} triples, and so is the spread"
    measured = measure_sample("mean", top.sample(lambda run: float(run.field(field))), explanation=explanation)
    accuracies = np.array([last_accuracy(run) for run in recorded])
    values = np.array([float(run.field(field)) for run in recorded])
    resampled = np.random.default_rng(0).integers(len(recorded), size=(_DRAWS, len(recorded)))
    best = np.argsort(-accuracies[resampled], axis=1, kind="stable")[:, : len(top)]
    means = values[np.take_along_axis(resampled, best, axis=1)].mean(1)
    off = means[::2] - means[1::2]  # the paper's sweep is another draw, assumed to have as many triples

    lacks = f"{len(recorded)} of {len(runs)} triples have run" if len(recorded) < len(runs) else ""
    kind = f"mean of the best {len(top)} of {len(recorded)} triples"
    measured = replace(measured, interval_at=partial(between, fmean(measured.values) + off), lacks=lacks, kind=kind)
    return charged(replace(measured, n=len(top), planned=math.ceil(len(runs) / 10)), recorded.last)


@Formula
def triples_above_relu(claim: Claim, evidence: Evidence) -> Measured:
    """Return the share of triples (the claim's first experiment) above the mean accuracy of ReLU (its second).

    For the interval, both are drawn again: the triples from those that ran, ReLU's mean with its standard error.
    """
    triples, relu = (planned_for(claim, evidence, name) for name in claim.experiments)
    if not relu.recorded or not enough_triples(triples):
        return counted(triples, Measured())
    relu_finals = relu.finals("test_accuracy")
    level = fmean(relu_finals)
    share = triples.sample(lambda run: float(last_accuracy(run) > level))
    text = f"{sum(share):g} of {len(share)} triples above {level:.2f}%, ReLU's mean"
    measured = replace(measure_sample("mean", share, explanation=text), kind=f"share of {len(share)} triples")
    if len(relu_finals) < FEWEST_RUNS:
        return counted(triples, replace(measured, sample=None))  # no spread of ReLU, so no interval
    accuracies, rng = np.array([last_accuracy(run) for run in triples.recorded]), np.random.default_rng(0)
    resampled = accuracies[rng.integers(len(accuracies), size=(_DRAWS, len(accuracies)))]
    error = stdev(relu_finals) / math.sqrt(len(relu_finals))
    levels = level + error * rng.standard_t(len(relu_finals) - 1, size=(_DRAWS, 1))
    return counted(triples, replace(measured, interval_at=partial(between, (resampled > levels).mean(1))))


@Formula
def tanh_less_best_triple(claim: Claim, evidence: Evidence) -> Measured:
    """Return each tanh run's accuracy (the claim's second experiment) minus the best triple's (its first).

    The best triple has one run. For the interval, this run is assumed to have the spread of the tanh runs.
    """
    triples, tanh = (planned_for(claim, evidence, name) for name in claim.experiments)
    if not tanh.recorded or not enough_triples(triples):
        return counted(tanh, Measured())
    best = last_accuracy(triples.best)
    lead = tanh.sample(lambda run: last_accuracy(run) - best)
    measured = measure_sample("mean", lead, explanation=f"the best of {len(triples.recorded)} triples has {best:.2f}%")
    measured = replace(measured, kind=f"{measured.what}, less the best of {len(triples.recorded)} triples")
    if len(lead) < FEWEST_RUNS:
        return counted(tanh, replace(measured, sample=None))  # no spread, so no interval
    return counted(tanh, replace(measured, interval_at=partial(less_claim, [measured_mean(lead)], 0.0, 1)))


@computed
def standard_setting_epsilon(claim: Claim) -> Measured:
    """Return the epsilon of all epochs of the MNIST runs' setting, with their batches of 256 and with 250.

    The runs end earlier, at the claimed epsilon. The value is by classic RDP, the accounting of the paper's time, with
    batches of 256.
    """
    from runner.accounting import RdpClassic, sound_epsilon  # here, because plans need neither

    run = prepared("tempered_sigmoid/fig_3", "tempered_sigmoid/mnist_tanh")
    batch, other, epochs, delta = run.config.batch_size, 250, run.config.epochs, run.config.delta
    ledgers = [replace(run.mechanism, batch_size=size).charges_of_epochs(epochs) for size in (batch, other)]
    epsilons = [RdpClassic().epsilon(ledger.claimed, delta) for ledger in ledgers]
    sound = [sound_epsilon(ledger.actual, delta) for ledger in ledgers]
    texts = [number(epsilon, places=3, bound="upper") for epsilon in (*epsilons, *sound)]
    return Measured(
        value=epsilons[0],
        epsilon=epsilons[0],
        epsilon_sound=sound[0],
        delta=delta,
        explanation=f"{claim.claimed} is not what {epochs} epochs cost: classic RDP gives {texts[0]} "
        f"with batches of {batch} and {texts[1]} with {other}, the sound value is {texts[2]} and {texts[3]}",
    )
