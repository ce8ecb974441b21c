"""Measures of this paper only: norms of gradients over their bounds, spreads of norms, charges."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from scipy.stats import binomtest

from runner.accounting import sound_epsilon
from runner.build.prepare import prepare
from runner.claims.claim import Claim
from runner.claims.formulas import Formula, computed, of_runs, prepared
from runner.claims.measure import counted, planned_for
from runner.claims.measurement import Measured, of_sample
from runner.claims.runs import Evidence, PlannedRun, Runs, grouped
from runner.claims.statistics import Interval, between
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

    It exceeds its bound. The interval is Clopper and Pearson's for a share.
    """
    passing = [above_bound(Runs([run]))[0] > 0 for run in runs.recorded]
    test = binomtest(sum(passing), len(passing))

    def share_at(level: float) -> Interval:
        share = test.proportion_ci(level, method="exact")
        return Interval(100 * share.low, 100 * share.high)

    above, tried = above_bound(runs.recorded)
    largest = max(largest_ratios(runs.recorded))
    words = f"{above} of {tried:,} pairs of an epoch and a tensor, on 2,048 training images each"
    return Measured(
        100 * sum(passing) / len(passing),
        kind=f"share of {len(passing)} runs",
        explanation=f"{words}; the largest norm is {largest:.4f} of its bound",
        interval_at=share_at,
    )


def above_bound(runs: Runs) -> tuple[int, int]:
    """Return the number of ratios above 1, or not a number, and the number of all."""
    ratios = largest_ratios(runs)
    return sum(not ratio <= 1 for ratio in ratios), len(ratios)


def largest_ratios(runs: Runs) -> list[float]:
    """Return, for every run, tensor and epoch, the largest norm of an example's gradient over its bound."""
    recorded = (run.diagnostic("bound_ratios")["largest"] for run in runs)
    return [float(ratio) for by_tensor in recorded for by_epoch in by_tensor.values() for ratio in by_epoch]


@of_runs
def over_library_bound(_: Claim, runs: Runs) -> Measured:
    """Return the largest gradient of a bias on a map over the bound of the authors' library, before training.

    The library's bound is G. Here it is sqrt(positions) G.
    """

    def ratio(run: PlannedRun) -> float:
        return math.sqrt(_POSITIONS) * float(run.diagnostic("bound_ratios")["largest"][_BIAS][0])

    return of_sample("mean", runs.sample(ratio), explanation="of 2,048 images, by the first weights of each run")


def least_spread(claim: Claim, runs: Runs) -> Measured:
    """Return the least coefficient of variation of norms over the value for unclipped RGB images.

    The norms are the images' ("inputs") or the last gradients' ("gradients"). Every run has the same images, so their
    interval is a bootstrap over them. Gradients give a ratio for each seed.
    """
    kind = claim.number.argument
    spread = {
        name: {run.seed: variation(_histogram(run, kind)) for run in of}
        for name, of in grouped(runs.recorded, _name).items()
    }
    plain = spread.pop(_PLAIN, {})
    means = {name: fmean(float(values[0]) for values in of.values()) for name, of in spread.items()}
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
    return of_sample("mean", tuple(float(ratio[0]) for ratio in ratios.values()), explanation=text)


narrowest = of_runs(least_spread)


def _name(run: PlannedRun) -> str:
    norm = float(run.field("features.largest_norm"))
    return str(run.field("features.space")).upper() + ("" if norm == 56 else f" clipped to {norm:g}")


def _histogram(run: PlannedRun, kind: str) -> dict[str, Any]:
    found = run.diagnostic("norm_histograms")[kind]
    of_epoch: dict[str, Any] = found[-1] if kind == "gradients" else found
    return of_epoch


def variation(histogram: dict[str, Any]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return std over mean of a histogram's numbers, then the same for samples drawn from it: [1 + 2000]."""
    counts = np.array(histogram["counts"], dtype=np.float64)
    total = int(counts.sum())
    drawn = np.random.default_rng(0).multinomial(total, counts / total, _RESAMPLED)
    shares = np.concatenate([counts[None], drawn]) / total
    centres = (np.arange(len(counts)) + 0.5) / len(counts)  # in units of the largest
    means = shares @ centres
    found: np.ndarray[tuple[int], np.dtype[np.float64]] = np.sqrt(shares @ centres**2 - means**2) / means
    return found


def _changed(claim: Claim, fields: Mapping[str, object] | None = None) -> Run:
    """Return the claim's experiment at a noise multiplier of 2, with changed fields ("optimizer.lr")."""
    config = copy.deepcopy(prepared(claim.sweep, claim.experiment).config)
    for name, value in {"target_epsilon": None, "noise_multiplier": 2.0, **(fields or {})}.items():
        OmegaConf.update(config, name, value)
    return prepare(config)


def _epsilon(run: Run, steps: int) -> float:
    return sound_epsilon(run.mechanism.charges(steps).actual, run.config.delta)


def _sensitivity(run: Run) -> float:
    """Return the sensitivity of the mean gradient, all tensors together."""
    return math.hypot(*gradient_bounds(run.new_objective()).gradients.values()) / float(run.config.batch_size)


_OF: dict[str, Callable[[Run], float]] = {"epsilon": partial(_epsilon, steps=1), "sensitivity": _sensitivity}


@computed
def doubled(claim: Claim) -> Measured:
    """Return the factor on a step's epsilon or sensitivity from twice a field's value: `doubled(epsilon of field)`."""
    what, _, field = claim.number.argument.partition(" of ")
    once = _changed(claim)
    value = float(OmegaConf.select(once.config, field))
    twice = _changed(claim, {field: int(2 * value) if field == "batch_size" else 2 * value})
    before, after = (_OF[what](run) for run in (once, twice))
    return Measured(after / before, explanation=f"{field} of {value:g} and {2 * value:g}: {before:.4g} and {after:.4g}")


@computed
def local_over_global(claim: Claim) -> Measured:
    """Return the ratio of local noise, in proportion to each tensor's bound, to global noise: epsilon or deviation.

    At the paper's noise multiplier, the deviation of a tensor's noise over its bound. D tensors are then one query of
    D times the squared sensitivity. They cost as much as a multiplier of nm / sqrt(D).
    """
    run = _changed(claim)
    bounds = gradient_bounds(run.new_objective()).gradients.values()
    if claim.number.argument == "noise":
        return Measured(max(bounds) / math.hypot(*bounds), explanation=f"of {len(bounds)} tensors, the largest ratio")
    local = _changed(claim, {"noise_multiplier": 2.0 / math.sqrt(len(bounds))})
    before, after = (_epsilon(each, each.most_steps) for each in (run, local))
    return Measured(
        after / before, explanation=f"{len(bounds)} tensors, a multiplier of 2: {after:.4g} and {before:.4g}"
    )
