"""Figure 1: the paths of DP-SGD and of its screened version on a linear regression with two weights.

The paper gives no setting. This one has 200 examples, x ~ N(0, diag(1, 1/4)), y = <x, (1, -1)> + N(0, 1/10), and half
the mean squared error. It uses full batches, gradients clipped to norm 1, and noise multiplier 100. There are 50 kept
steps of size 0.4 from (-2, 2.5), with Q0 and mu0 of table 2 for MNIST. J is the loss on 200 other examples. Both paths
have the same seed.
"""

import math
from functools import cache

import numpy as np

from runner.claims.claim import Claim
from runner.claims.evidence import Evidence
from runner.claims.measure import computed
from runner.claims.measurement import Measured
from runner.claims.numbers import Array
from runner.papers.noise_screening.measures import screening
from runner.report import plots

EXAMPLES, STEPS, RATE, NORM, NOISE = 200, 50, 0.4, 1.0, 100.0
START, TRUE = np.array([-2.0, 2.5]), np.array([1.0, -1.0])


@cache
def _data() -> list[tuple[Array, Array]]:
    """Return the examples that train, and those that screen: x [200, 2] and y [200] each."""
    generator, pairs = np.random.default_rng(0), []
    for _ in range(2):
        x = generator.standard_normal((EXAMPLES, 2)) * np.array([1.0, 0.5])
        pairs.append((x, x @ TRUE + math.sqrt(0.1) * generator.standard_normal(EXAMPLES)))
    return pairs


def loss(weights: Array) -> float:
    """Return the mean squared error over 2 on the examples that screen."""
    x, y = _data()[1]
    return float(np.mean((x @ weights - y) ** 2) / 2)


@cache
def path(*, screened: bool) -> tuple[Array, int]:
    """Return the weights [STEPS + 1, 2] by kept step, of DP-SGD or by algorithm 2, and the number of attempts."""
    (x, y), generator = _data()[0], np.random.default_rng(1)
    weights, weights_kept, tries, rejected = START, [START], 0, 0
    rule = screening("MNIST")
    while len(weights_kept) <= STEPS:
        gradients = (x @ weights - y)[:, None] * x
        gradients *= np.minimum(1, NORM / np.linalg.norm(gradients, axis=1, keepdims=True))
        noise, uniform = NOISE * NORM * generator.standard_normal(2), generator.random()
        candidate = weights - RATE * (gradients.sum(axis=0) + noise) / EXAMPLES
        tries += 1
        rise = loss(candidate) - loss(weights)
        accepted = rise <= 0 or uniform <= math.exp(-rise * rule.initial_temperature * (len(weights_kept) - 1))
        if not screened or accepted or rejected >= rule.rejection_threshold:
            weights, rejected = candidate, 0
            weights_kept.append(weights)
        else:
            rejected += 1
    return np.array(weights_kept), tries


def figure(_: Evidence) -> "plots.Figure":
    plot = plots.figure(6, 4.5)
    axes = plot.subplots()
    first, second = np.meshgrid(np.linspace(-2.5, 2, 120), np.linspace(-2, 3, 120))
    levels = [[loss(np.array([a, b])) for a, b in zip(*row, strict=True)] for row in zip(first, second, strict=True)]
    axes.contour(first, second, levels, levels=14, colors="0.75", linewidths=0.7)
    for screened, line, name, look in ((False, "-", "DP-SGD", "ReLU"), (True, "--", "screened", "screening")):
        weights, tries = path(screened=screened)
        label = f"{name}: {STEPS} kept of {tries} attempts"
        colour, marker = plots.LOOKS[look]
        axes.plot(*weights.T, line, color=colour, marker=marker, markersize=4, linewidth=1, label=label)
    axes.plot(*TRUE, "r+", markersize=14, markeredgewidth=2, label="true weights")
    axes.set(xlabel="weight w₁", ylabel="weight w₂")
    axes.legend()
    return plot


@computed
def toy(_: Claim) -> Measured:
    """Return the excess loss of DP-SGD over the screened path's, each a mean of the last ten kept steps."""
    plain, (screened, tries) = path(screened=False)[0], path(screened=True)
    least = loss(np.asarray(np.linalg.lstsq(*_data()[1], rcond=None)[0], dtype=np.float64))
    means = [float(np.mean([loss(w) - least for w in weights[-10:]])) for weights in (plain, screened)]
    return Measured(
        value=means[0] / means[1],
        explanation=f"excess loss over the last ten kept steps: {means[0]:.3g} of DP-SGD, {means[1]:.3g} screened; but "
        f"the {STEPS} kept updates took {tries} attempts, each of which used the data",
    )
