"""Theorem 1, checked numerically in float64: the bias of clipped gradient descent on tempered logistic regression.

Loss of one example, ||z|| <= 1, y = +-1: l(θ) = ln(1 + exp(-T y <z, θ>)). The theorem states that clipped gradient
descent over Θ ends at an excess risk of O(max{(T - C) diam(Θ), 0}). This is none for T <= C. The constant 2 in
2 max(T - C, 0) diam(Θ) comes from its proof in the supplement ("<= 2 Δ").

Gradient norms. Two classes: the gradient is -T y z / (1 + exp(T y <z, θ>)), of norm < |T| ||z||. k classes, with
p = softmax(T θ z): the gradient is the outer product T z (p - e_y)^T, of Frobenius norm |T| ||z|| ||p - e_y||. The
paper bounds this by sqrt(k) |T| ||z||, from every |p_m - [m = y]| <= 1. In fact sqrt(2) |T| ||z|| holds for any k:

    ||p - e_y||^2 = (1 - p_y)^2 + sum_{m != y} p_m^2 <= (1 - p_y)^2 + (sum_{m != y} p_m)^2 = 2 (1 - p_y)^2 <= 2,

as a sum of squares of nonnegative numbers is at most the square of their sum, and they sum to 1 - p_y. The bound is
approached if all of the probability is on one wrong class.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import scipy  # its modules are imported at their first use

from runner.claims.claim import Claim
from runner.claims.evidence import Evidence
from runner.claims.measure import computed
from runner.claims.measurement import Measured
from runner.claims.verdicts import ClaimRow
from runner.report import plots
from runner.report.formats import Table

if TYPE_CHECKING:
    from torch import Tensor

Array: TypeAlias = np.ndarray  # of float64

TEMPERATURES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
CLIPPING_NORMS = (0.25, 0.5, 1.0, 2.0, 4.0)
RADIUS = 2.0  # of the ball Θ, whose diameter is twice that
ITERATIONS = 20_000
SOLVER_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Bias:
    """Excess risk at one temperature and clipping norm, and the theorem's bound on it."""

    data: str
    temperature: float
    clipping_norm: float
    excess_risk: float
    bound: float
    stationarity: float  # the larger length of the last projected step of the two solutions; 0 at a minimum


def _mixture() -> tuple[Array, Array]:
    """Return random points in the unit ball, with labels of a linear rule, a fifth flipped: z [100, 5], y [100]."""
    random = np.random.default_rng(0)
    z = random.normal(size=(100, 5))
    z *= np.sqrt(random.uniform(size=(100, 1))) / np.linalg.norm(z, axis=1, keepdims=True)
    y = np.sign(z @ np.array([1.0, -1.0, 0.5, 0.0, 0.0]))
    return z, np.where(random.uniform(size=100) < 0.2, -y, y)


# Three long against seven short examples: clipping the long ones gives a bias. z [10, 1], y [10].
_TWO_GROUPS = np.array([1.0] * 3 + [0.25] * 7)[:, None], np.array([1.0] * 3 + [-1.0] * 7)
DATA = {"mixture": _mixture(), "two groups": _TWO_GROUPS}


def risk(theta: Array, z: Array, y: Array, temperature: Array) -> Array:
    """Return the mean tempered logistic loss: [problems], for theta [problems, d] and temperature [problems]."""
    mean: Array = np.logaddexp(0, -temperature[:, None] * y * (theta @ z.T)).mean(axis=1)
    return mean


def clipped_descent(z: Array, y: Array, temperature: Array, clipping_norm: Array) -> tuple[Array, Array]:
    """Run projected full-batch gradient descent on per-example clipped gradients, from 0.

    The clipped gradients belong to a convex function as smooth as the loss (T^2/4 for ||z|| <= 1; Song, Thakkar and
    Thakurta 2020, lemma 3.1). So a step size of 4/T^2 converges.

    Returns:
        theta [problems, d] and the length of the last step [problems].
    """
    theta = np.zeros((len(temperature), z.shape[1]))
    largest_weight = clipping_norm[:, None] / np.linalg.norm(z, axis=1)
    for _ in range(ITERATIONS):
        # The norm of a gradient over ||z||. NumPy is used as the arrays are too small for PyTorch's threads.
        weight = temperature[:, None] * scipy.special.expit(-temperature[:, None] * y * (theta @ z.T))
        step = (np.minimum(weight, largest_weight) * y) @ z / len(y)
        new = theta + 4 / temperature[:, None] ** 2 * step
        new *= RADIUS / np.maximum(np.linalg.norm(new, axis=1, keepdims=True), RADIUS)
        moved, theta = np.linalg.norm(new - theta, axis=1), new
        if moved.max() < 1e-15:
            break
    return theta, moved


@cache
def biases() -> tuple[Bias, ...]:
    """Return the excess risk of clipped over unclipped descent, for both data sets, on the whole grid."""
    temperature, clipping_norm = (axis.ravel() for axis in np.meshgrid(TEMPERATURES, CLIPPING_NORMS, indexing="ij"))
    solved = []
    for name, (z, y) in DATA.items():
        clipped, moved = clipped_descent(z, y, temperature, clipping_norm)
        optimal, moved_optimal = clipped_descent(z, y, temperature, np.full_like(clipping_norm, np.inf))
        excess = risk(clipped, z, y, temperature) - risk(optimal, z, y, temperature)
        bound = 2 * np.maximum(temperature - clipping_norm, 0) * 2 * RADIUS
        columns = (temperature, clipping_norm, excess, bound, np.maximum(moved, moved_optimal))
        solved += [Bias(name, *values) for values in zip(*(c.tolist() for c in columns), strict=True)]
    return tuple(solved)


def largest_ratio() -> float:
    """Return the largest excess risk over its bound: at most 1 if it holds, infinite for bias if the bound is zero."""
    return max(
        (b.excess_risk / b.bound if b.bound else (0.0 if b.excess_risk <= SOLVER_TOLERANCE else math.inf))
        for b in biases()
    )


@computed
def gradient_over_bound(claim: Claim) -> Measured:
    """Return the largest gradient norm found over the bound of equation 4, or of equation 5 for the claim's classes."""
    name = claim.number.argument
    classes = int(name.split()[0]) if name[0].isdigit() else 1
    largest = max(ratio for key, ratio in gradient_ratios().items() if key.startswith(f"{name},"))
    text = f"over |T| |z| it is at most {largest:.6f}, of random and of adversarial points"
    return Measured(largest / math.sqrt(classes), explanation=text)


@cache
def gradient_ratios() -> dict[str, float]:
    """Return the largest gradient norms found, over |T| ||z||, by autograd, at random and adversarial points.

    An adversarial point has a margin of -30 / T or less, so the prediction is almost entirely wrong.
    """
    import torch  # here, because plans need no PyTorch

    def largest_norm(loss: "Callable[[Tensor], Tensor]", theta: "Tensor", lengths: "Tensor") -> float:
        """Return the largest norm of an example's gradient in its theta [points, ...] over its length [points]."""
        (gradients,) = torch.autograd.grad(loss(theta.requires_grad_()), theta)
        return float((gradients.flatten(1).norm(dim=1) / lengths).max())

    generator = torch.Generator().manual_seed(0)
    ratios: dict[str, float] = {}
    for k in (2, 10):
        largest = {"random": 0.0, "adversarial": 0.0}
        for temperature in (0.1, 1.0, 2.0, 8.0):
            z = torch.randn(100, 6, generator=generator, dtype=torch.float64)
            random = torch.randn(100, k, 6, generator=generator, dtype=torch.float64)
            wrong = torch.zeros_like(random)
            wrong[:, 1] = 40 / temperature * z / z.norm(dim=1, keepdim=True) ** 2  # class 1, but 0 is right

            def loss(
                theta: "Tensor", z: "Tensor" = z, temperature: float = temperature
            ) -> "Tensor":  # -log softmax(T θ z)_0
                logits = temperature * torch.einsum("nkd,nd->nk", theta, z)
                return (-logits.log_softmax(dim=1)[:, 0]).sum()

            for name, theta in (("random", random), ("adversarial", wrong)):
                largest[name] = max(largest[name], largest_norm(loss, theta, temperature * z.norm(dim=1)))
        ratios |= {f"{k} classes, {name}": value for name, value in largest.items()}
    z = torch.randn(200, 6, generator=generator, dtype=torch.float64)
    wrong = -40 * z / z.norm(dim=1, keepdim=True) ** 2
    random = torch.randn(200, 6, generator=generator, dtype=torch.float64)
    for name, theta in (("random", random), ("adversarial", wrong)):
        ratios[f"logistic, {name}"] = largest_norm(
            lambda theta: torch.nn.functional.softplus(-(theta * z).sum(dim=1)).sum(), theta, z.norm(dim=1)
        )
    return ratios


@computed
def theorem_1(_: Claim) -> Measured:
    """Return the largest ratio of excess risk to bound over the grid."""
    bias = max(b.excess_risk for b in biases() if b.bound == 0)
    ratios = gradient_ratios()
    logistic, multiclass = ratios["logistic, adversarial"], ratios["10 classes, adversarial"]
    return Measured(
        value=largest_ratio(),
        explanation=f"the largest excess risk over its bound, of {len(biases())} problems; where T <= C the "
        f"largest excess risk is {_solved(bias):.1g}; gradient norms over T·norm(z): at most {logistic:.4f} "
        f"(logistic) and {multiclass:.4f} (10 classes: √2 bounds it, the paper's √k is {math.sqrt(10):.2f})",
    )


def table(_: Evidence, __: Sequence[ClaimRow]) -> Table:
    """Return excess risk and bound over the grid."""
    header = ("data", "T", "C", "excess risk", "bound 2 max(T - C, 0) diam", "last step of the solver")
    rows = [
        (b.data, b.temperature, b.clipping_norm, _solved(b.excess_risk), b.bound, _solved(b.stationarity))
        for b in biases()
    ]
    norms = "; ".join(f"{name}: {ratio:.6f}" for name, ratio in gradient_ratios().items())
    notes = (
        "The theorem states O(max{(T - C) diam, 0}); the constant 2 is from its proof in the supplement (<= 2 Δ).",
        f"Largest gradient norm over |T| ||z||: {norms}. For several classes √2 = 1.414214 bounds it; "
        f"the paper's bound is √k, for 10 classes {math.sqrt(10):.6f}.",
    )
    return Table(header, rows, notes)


def _solved(value: float) -> float:
    """Return zero for a value that is only rounding, which differs between machines."""
    return value if abs(value) > SOLVER_TOLERANCE else 0.0


def figure(_: Evidence) -> "plots.Figure":
    """Draw the excess risk as a share of its bound against T for every C, a panel per data set."""
    plot = plots.figure(plots.WIDTH, 3.6)
    for axes, data in zip(plot.subplots(1, 2), DATA, strict=True):
        for place, norm in enumerate(CLIPPING_NORMS):
            shares = {
                b.temperature: _solved(b.excess_risk) / b.bound
                for b in biases()
                if (b.data, b.clipping_norm) == (data, norm) and b.bound
            }
            look = {"marker": plots.MARKERS[place], "color": f"C{place}", "markersize": 4}
            axes.plot(list(shares), list(shares.values()), label=f"C = {norm:g}", **look)
        axes.axhline(1, label="claimed bound, 2 max(T − C, 0) diam(Θ)", **plots.DASHED)
        axes.set(title=data, xlabel="inverse temperature T, above C", ylim=(-0.03, 1.08))
    plot.axes[0].set_ylabel("excess risk as a share of the bound")
    plots.one_legend(plot, 6, title="Where T ≤ C, the bound is zero, and so is the excess risk.")
    return plot
