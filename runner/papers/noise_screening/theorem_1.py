"""Theorem 1, "the privacy loss depends on the number of accepted updates only", refuted: its item.

The numbers and how they are computed are in `runner.papers.noise_screening.privacy`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from runner.accounting import RdpClassic, Releases, sound_epsilon
from runner.accounting.mechanisms import gaussian_epsilon
from runner.papers.noise_screening.privacy import OneStep, Screened
from runner.papers.noise_screening.settings import DATASETS, screened_run, screening
from runner.report.claims import Claim
from runner.report.evidence import Evidence
from runner.report.files import Table
from runner.report.measured import Measured
from runner.report.measures import computed
from runner.report.plots import figure as new_figure
from runner.report.verdicts import Judged

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ONE_STEP = (  # sigma, t / sigma, mu0
    (1.23, 2.0, 10),
    (1.23, 3.0, math.inf),
    (2.15, 1.5, 10),
    (2.15, 3.0, math.inf),
    (10.0, 1.5, 10),
    (10.0, 3.0, math.inf),
)


WORST = {"MNIST": 1.6, "FashionMNIST": 1.3, "CIFAR10": 1.6}  # the threshold, in units of sigma, found by scanning
THRESHOLDS = (-math.inf, -1.0, -0.5, 0.0, 0.5, 1.0, 1.3, 1.6, 2.0, 2.4)


def releases(dataset: str, steps: int) -> Releases:
    """So many steps at the paper's setting, as they are charged."""
    return screened_run(dataset).mechanism.charges(steps).claimed


def kept_steps(dataset: str) -> int:
    """How many kept updates the paper's accounting allows at its epsilon."""
    allowed = screened_run(dataset).paid_for
    assert allowed is not None
    return allowed


def delta_of(dataset: str) -> float:
    """The delta of the paper's claim on a data set."""
    return float(screened_run(dataset).config.delta)


@lru_cache
def at_least(dataset: str, threshold: float, rejections: int | None = None) -> float:
    """Lower bound on the true epsilon of so many kept updates, screened by y > threshold sigma.

    All but the first, which is kept whatever it is (tau = 0): leaving it out can only lower epsilon.
    """
    return _screened(dataset, threshold, rejections).epsilon_at_least(kept_steps(dataset) - 1, delta_of(dataset))


@lru_cache
def at_most(dataset: str, threshold: float, rejections: int | None = None) -> float:
    """Upper bound on the true epsilon of so many kept updates: all but the first screened, and the first."""
    return _screened(dataset, threshold, rejections).epsilon_by_rdp(
        kept_steps(dataset) - 1, delta_of(dataset), unscreened=1
    )


def _screened(dataset: str, threshold: float, rejections: int | None = None) -> Screened:
    mechanism, mu0 = screened_run(dataset).mechanism, screening(dataset).rejection_threshold
    return Screened(
        mechanism.sampling_rate, mechanism.noise_multiplier, threshold, mu0 if rejections is None else rejections
    )


@computed
def theorem_1(claim: Claim) -> Measured:
    """The true epsilon of the kept updates: a rigorous lower bound under the worst rule found."""
    dataset, steps = claim.dataset, kept_steps(claim.dataset)
    threshold, mu0, delta = WORST[dataset], screening(dataset).rejection_threshold, delta_of(dataset)
    bound, upper = _below(at_least(dataset, threshold)), _above(at_most(dataset, threshold))
    claimed = RdpClassic().epsilon(releases(dataset, steps), delta)
    every = sound_epsilon(releases(dataset, (mu0 + 1) * steps), delta)
    return Measured(
        value=float(bound),
        epsilon=claimed,
        epsilon_sound=every,
        epsilon_least=float(bound),
        delta=delta,
        explanation=f"{steps} kept updates, candidates kept where their one coordinate is above {threshold} sigma: the "
        f"true epsilon is at least {bound} and at most {upper}, where {_above(claimed)} is charged; "
        f"all of the up to {mu0 + 1} tries an update cost {_above(every)}, whatever the rule",
    )


@computed
def counterexample(_: Claim) -> Measured:
    """The largest ratio of true to claimed epsilon among the counterexamples of one step."""
    delta = delta_of("MNIST")
    ratios = {
        row: OneStep(row[0], row[1] * row[0], row[2]).epsilon(delta) / gaussian_epsilon(1 / row[0], delta)
        for row in ONE_STEP
    }
    worst = max(ratios, key=lambda row: ratios[row])
    sigma, t = worst[:2]
    true, claimed = OneStep(sigma, t * sigma, math.inf).epsilon(delta), gaussian_epsilon(1 / sigma, delta)
    return Measured(
        value=ratios[worst],
        explanation=f"true over claimed epsilon of one kept step; largest at sigma = {sigma:g}, {claimed:.3f} claimed, "
        f"{true:.3f} true; a valid claim would have at most 1",
    )


@computed
def accepted_steps(claim: Claim) -> Measured:
    """How many kept updates classic RDP allows at epsilon 3; what is sound is the cost of the most tries they take."""
    steps, tries = kept_steps(claim.dataset), screening(claim.dataset).rejection_threshold + 1
    delta = delta_of(claim.dataset)
    epsilon = RdpClassic().epsilon(releases(claim.dataset, steps), delta)
    sound = sound_epsilon(releases(claim.dataset, tries * steps), delta)
    text = f"as the paper charges them; each takes up to {tries} tries, and those cost what is sound"
    return Measured(float(steps), epsilon=epsilon, epsilon_sound=sound, delta=delta, explanation=text)


def table(_: Evidence, __: Sequence[Judged]) -> Table:
    """One step, then the composition at the paper's parameters and the sound cost by acceptance rate."""
    header = (
        "case",
        "sigma",
        "t / sigma",
        "mu0",
        "kept updates",
        "P(keep)",
        "claimed ε",
        "true ε, at least",
        "true ε, at most",
    )
    rows: list[tuple[object, ...]] = []
    delta = delta_of("MNIST")
    for sigma, t, k in ONE_STEP:
        step = OneStep(sigma, t * sigma, k)
        exact = step.epsilon(delta)
        claimed = gaussian_epsilon(1 / sigma, delta)
        rows.append(
            ("one step", sigma, t, _count(k), 1, step.accepted, _digits(claimed), _digits(exact), _digits(exact))
        )
    for dataset in DATASETS.values():
        sigma, mu0 = screened_run(dataset).mechanism.noise_multiplier, screening(dataset).rejection_threshold
        steps, delta = kept_steps(dataset), delta_of(dataset)
        claimed = RdpClassic().epsilon(releases(dataset, steps), delta)
        cases = [(-math.inf, mu0), (0.5, mu0), (WORST[dataset], mu0)] + ([(1.6, 10)] if mu0 != 10 else [])
        for t, k in cases:
            mechanism = _screened(dataset, t, k)
            bounds = _below(at_least(dataset, t, k)), _above(at_most(dataset, t, k))
            shown = "none" if t == -math.inf else t
            rows.append((dataset, sigma, shown, k, steps, mechanism.accepted[0], _above(claimed), *bounds))
    notes = (
        "One step: N(x, σ²), x in {0, 1}, kept where |y − 1/2| > t; exact. Composition: the sampled Gaussian at the "
        "paper's parameters, kept where y > t, but for the first step, which the paper's rule always keeps; \"at "
        "least\" is rigorous up to floating point (outputs binned, losses rounded down, PLD), \"at most\" Rényi "
        "divergences of the true densities with the paper's conversion. δ = 1e-5.",
        "A loss in many coordinates makes such a rule of the paper's: J(w) = |w|²/2 falls where the noise along −w is "
        "above t = dσ²/(2|w|), nearly, as the squared norm of the noise in all d coordinates is nearly dσ².",
        "The claimed ε of the composition is the paper's (classic RDP). Without screening the bounds are those of "
        "DP-SGD, for which it is valid.",
        "What is sound is the cost of all tries: " + "; ".join(map(_by_rate, DATASETS.values())) + ".",
    )  # fmt: skip
    return Table(header, rows, notes)


def _by_rate(dataset: str) -> str:
    steps, mu0, delta = kept_steps(dataset), screening(dataset).rejection_threshold, delta_of(dataset)
    costs = [
        f"{_above(sound_epsilon(releases(dataset, round(r * steps)), delta))} at {r:g}" for r in (1, 1.5, 2, 3, mu0 + 1)
    ]
    return f"{dataset} {', '.join(costs)} tries a kept update"


def _count(k: float) -> object:
    return "∞" if k == math.inf else int(k)


def _digits(value: float) -> str:
    return f"{value:.3f}"


def _below(bound: float) -> str:
    """A lower bound with three digits: still one."""
    return _digits(math.floor(1000 * bound) / 1000)


def _above(bound: float) -> str:
    """An upper bound with three digits: still one."""
    return _digits(math.ceil(1000 * bound) / 1000)


def figure(_: Evidence) -> Figure:
    """Lower bound on the true epsilon against the probability to keep a candidate, at the paper's parameters."""
    drawn = new_figure(7, 4)
    axes = drawn.subplots()
    for i, dataset in enumerate(DATASETS.values()):
        keep = [_screened(dataset, t).accepted[0] for t in THRESHOLDS]
        bounds = [at_least(dataset, t) for t in THRESHOLDS]
        axes.plot(
            keep,
            bounds,
            "o-",
            markersize=3,
            color=f"C{i}",
            label=f"{dataset}, mu0 = {screening(dataset).rejection_threshold}: lower bound on the true ε",
        )
    claimed = screened_run("MNIST").config.max_epsilon
    axes.axhline(claimed, color="k", linestyle="--", linewidth=1, label=f"claimed ε = {claimed:g}")
    axes.set_xscale("log")
    axes.set_xlabel("probability to keep a candidate")
    axes.set_ylabel("ε of the kept updates, δ = 1e-5")
    axes.set_ylim(bottom=0)
    axes.legend()
    return drawn
