"""Measures of this paper only: norms of gradients over their bounds, spreads of norms, charges."""

import copy
import math
from collections.abc import Mapping
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from scipy.stats import binomtest

from runner.accounting import sound_epsilon
from runner.build.prepare import prepare
from runner.claims.claim import Claim
from runner.claims.evidence import Evidence, PlannedRun, Runs
from runner.claims.intervals import Interval, between
from runner.claims.measure import Formula, computed, counted, planned_for, prepared, run_formula
from runner.claims.measurement import Measured, measure_sample
from runner.claims.numbers import Array
from runner.networks.lipschitz import gradient_bounds
from runner.training.run import Run

_RESAMPLED = 2000  # times
_POSITIONS = 14**2  # of the map behind the second convolution of the authors' MNIST ConvNet
_BIAS = "network.5.bias"  # of that convolution
_PLAIN = "RGB"  # unchanged images


@Formula
def violations(claim: Claim, evidence: Evidence) -> Measured:
    """Return `share_beyond` for the runs of all experiments of the claim."""
    planned = Runs(run for name in claim.experiments for run in planned_for(claim, evidence, name))
    return counted(planned, share_beyond(planned) if planned.recorded else Measured())


def share_beyond(runs: Runs) -> Measured:
    """Return the share of runs (percent) in which a recorded norm, the largest of an epoch and a tensor, is too large.

    It exceeds its bound, or is not a number. The interval is Clopper and Pearson's for a share.
    """
    tables = [run.diagnostic("bound_ratios")["largest"].values() for run in runs.recorded]
    by_run = [[float(ratio) for by_epoch in table for ratio in by_epoch] for table in tables]
    above = [sum(not ratio <= 1 for ratio in ratios) for ratios in by_run]
    passing = sum(count > 0 for count in above)
    test = binomtest(passing, len(by_run))

    def share_at(level: float) -> Interval:
        share = test.proportion_ci(level, method="exact")
        return Interval(100 * share.low, 100 * share.high)

    pairs = f"{sum(above)} of {sum(map(len, by_run)):,} pairs of an epoch and a tensor"
    largest = max(ratio for ratios in by_run for ratio in ratios)
    return Measured(
        100 * passing / len(by_run),
        kind=f"share of {len(by_run)} runs",
        explanation=f"{pairs}, on 2,048 training images each; the largest norm is {largest:.4f} of its bound",
        interval_at=share_at,
    )


@run_formula
def over_library_bound(_: Claim, runs: Runs) -> Measured:
    """Return the largest gradient of a bias on a map over the bound of the authors' library, before training.

    The library's bound is G. Here it is sqrt(positions) G.
    """

    def ratio(run: PlannedRun) -> float:
        return math.sqrt(_POSITIONS) * float(run.diagnostic("bound_ratios")["largest"][_BIAS][0])

    return measure_sample("mean", runs.sample(ratio), explanation="of 2,048 images, by the first weights of each run")


def least_spread(claim: Claim, runs: Runs) -> Measured:
    """Return the least coefficient of variation of norms over the value for unclipped RGB images.

    The norms are the images' ("inputs") or the last gradients' ("gradients"). Every run has the same images, so their
    interval is a bootstrap over them. Gradients give a ratio for each seed.
    """
    kind = claim.number.argument
    spread: dict[str, dict[int, Array]] = {}  # by images, then by seed
    for run in runs.recorded:
        norm, images = float(run.field("features.largest_norm")), str(run.field("features.space")).upper()
        histograms = run.diagnostic("norm_histograms")[kind]
        histogram = histograms[-1] if kind == "gradients" else histograms
        images += "" if norm == 56 else f" clipped to {norm:g}"
        spread.setdefault(images, {})[run.seed] = variation(histogram)
    plain = spread.pop(_PLAIN, {})
    means = {name: fmean(float(values[0]) for values in by_seed.values()) for name, by_seed in spread.items()}
    least = min(means, key=lambda name: means[name], default="")
    ratios = {seed: values / plain[seed] for seed, values in spread.get(least, {}).items() if seed in plain}
    if not ratios:
        return Measured()
    words = ", ".join(f"{name} {mean:.3f}" for name, mean in means.items())
    text = f"{words}; {_PLAIN} {fmean(float(values[0]) for values in plain.values()):.3f}"
    if kind == "inputs":
        first = next(iter(ratios.values()))
        ratio, interval = float(first[0]), partial(between, first[1:])
        return Measured(ratio, interval_at=interval, kind="of one set of images", explanation=text)
    return measure_sample("mean", tuple(float(ratio[0]) for ratio in ratios.values()), explanation=text)


narrowest = run_formula(least_spread)


def variation(histogram: dict[str, Any]) -> Array:
    """Return std over mean of a histogram's numbers, then the same for samples drawn from it: [1 + 2000]."""
    counts = np.array(histogram["counts"], dtype=np.float64)
    total = int(counts.sum())
    resampled = np.random.default_rng(0).multinomial(total, counts / total, _RESAMPLED)
    shares = np.concatenate([counts[None], resampled]) / total
    centres = (np.arange(len(counts)) + 0.5) / len(counts)  # in units of the largest
    means = shares @ centres
    variations: Array = np.sqrt(shares @ centres**2 - means**2) / means
    return variations


def _changed(claim: Claim, fields: Mapping[str, object] | None = None) -> Run:
    """Return the claim's experiment at a noise multiplier of 2, with changed fields ("optimizer.lr")."""
    config = copy.deepcopy(prepared(claim.sweep, claim.experiment).config)
    for name, value in {"target_epsilon": None, "noise_multiplier": 2.0, **(fields or {})}.items():
        OmegaConf.update(config, name, value)
    return prepare(config)


def _epsilon(run: Run, steps: int) -> float:
    return sound_epsilon(run.mechanism.charges(steps).actual, run.config.delta)


@computed
def doubled(claim: Claim) -> Measured:
    """Return the factor on a step's epsilon or sensitivity from twice a field's value: `doubled(epsilon of field)`.

    The sensitivity is that of the mean gradient, all tensors together.
    """
    quantity, _, field = claim.number.argument.partition(" of ")
    once = _changed(claim)
    value = float(OmegaConf.select(once.config, field))
    twice = _changed(claim, {field: int(2 * value) if field == "batch_size" else 2 * value})
    before, after = (
        _epsilon(run, steps=1)
        if quantity == "epsilon"
        else math.hypot(*gradient_bounds(run.new_objective()).values()) / float(run.config.batch_size)
        for run in (once, twice)
    )
    return Measured(after / before, explanation=f"{field} of {value:g} and {2 * value:g}: {before:.4g} and {after:.4g}")


@computed
def local_over_global(claim: Claim) -> Measured:
    """Return the ratio of local noise, in proportion to each tensor's bound, to global noise: epsilon or deviation.

    At the paper's noise multiplier, the deviation of a tensor's noise over its bound. D tensors are then one query of
    D times the squared sensitivity. They cost as much as a multiplier of nm / sqrt(D).
    """
    run = _changed(claim)
    bounds = gradient_bounds(run.new_objective()).values()
    if claim.number.argument == "noise":
        return Measured(max(bounds) / math.hypot(*bounds), explanation=f"of {len(bounds)} tensors, the largest ratio")
    local = _changed(claim, {"noise_multiplier": 2.0 / math.sqrt(len(bounds))})
    before, after = (_epsilon(changed, changed.most_steps) for changed in (run, local))
    text = f"{len(bounds)} tensors, a multiplier of 2: {after:.4g} and {before:.4g}"
    return Measured(after / before, explanation=text)
