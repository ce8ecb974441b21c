"""The item of theorem 1, "the privacy loss depends on the number of accepted updates only", which is refuted.

`runner.papers.noise_screening.privacy` computes the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, partial

import scipy  # its modules are imported at their first use

from runner.claims.claim import DATASETS as IN_FILES
from runner.claims.claim import Claim, dataset_name
from runner.claims.measure import Formula, computed
from runner.claims.measurement import Measured
from runner.claims.runs import Evidence
from runner.claims.verdicts import ClaimRow
from runner.papers.noise_screening import measures
from runner.papers.noise_screening.measures import DATASETS, claimed_at, delta, kept_steps, screened_run, screening
from runner.papers.noise_screening.privacy import Screened
from runner.report import plots
from runner.report.files import Table, delta_text, number

_LEADING = "_momentum_kept"
_READINGS = ("", "_momentum", _LEADING)  # in the names of experiments
_lower_text, _upper_text = (partial(number, places=3, bound=bound) for bound in ("lower", "upper"))
THRESHOLDS = (-math.inf, -1.0, -0.5, 0.0, 0.5, 1.0, 1.3, 1.6, 2.0, 2.4)  # in units of sigma


def claimed_epsilon(dataset: str) -> float:
    """Return the paper's charge for the kept updates at its setting: classic RDP."""
    from runner.accounting import RdpClassic  # here, because plans need neither

    charged = screened_run(dataset).mechanism.charges(kept_steps(dataset)).claimed
    return RdpClassic().epsilon(charged, delta())


def cost_of_tries(dataset: str, per_kept: float) -> float:
    """Return the sound epsilon of all attempts at the paper's setting, with `per_kept` attempts per kept update."""
    from runner.accounting import sound_epsilon

    tries = screened_run(dataset).mechanism.charges(round(per_kept * kept_steps(dataset)))
    return sound_epsilon(tries.actual, delta())


@cache
def lower_bound(dataset: str, threshold: float) -> float:
    """Return a lower bound on the true epsilon of the kept updates, screened by y > threshold sigma.

    The first update is left out, as it is always kept (tau = 0). This can only lower epsilon.
    """
    return _screened(dataset, threshold).epsilon_at_least(kept_steps(dataset) - 1, delta())


@cache
def upper_bound(dataset: str, threshold: float) -> float:
    """Return an upper bound on the true epsilon of the kept updates: all but the first screened, and the first."""
    return _screened(dataset, threshold).epsilon_by_rdp(kept_steps(dataset) - 1, delta(), unscreened=1)


def worst(dataset: str) -> float:
    """Return the threshold, in units of sigma, with the largest lower bound."""
    return max(THRESHOLDS, key=lambda threshold: lower_bound(dataset, threshold))


def share_kept(probability: float, rejections: int) -> float:
    """Return the share of attempts that are kept, if each is with this probability, and one after k rejections anyway.

    Attempt j + 1 for an update is made if the j <= k before it were rejected. So an update takes
    sum_{j=0..k} (1 - p)^j attempts in the mean.
    """
    return 1 / sum((1 - probability) ** j for j in range(rejections + 1))


def threshold_for(share: float, rejections: int) -> float:
    """Return the threshold, in units of sigma, at which this share of the attempts is kept. It is above 1 / (k + 1)."""
    probability = scipy.optimize.brentq(lambda p: share_kept(p, rejections) - share, 1e-9, 1)
    return float(-scipy.special.ndtri(probability))


def _screened(dataset: str, threshold: float) -> Screened:
    mechanism = screened_run(dataset).mechanism
    mu0 = screening(dataset).rejection_threshold
    return Screened(mechanism.sampling_rate, mechanism.noise_multiplier, threshold, mu0)


@computed
def theorem_1(claim: Claim) -> Measured:
    """Return the true epsilon of the kept updates: a rigorous lower bound under the worst rule found."""
    dataset, threshold, tries = claim.dataset, worst(claim.dataset), screening(claim.dataset).rejection_threshold + 1
    bound, upper = _lower_text(lower_bound(dataset, threshold)), _upper_text(upper_bound(dataset, threshold))
    claimed, all_attempts = claimed_epsilon(dataset), cost_of_tries(dataset, tries)
    return Measured(
        value=float(bound),
        epsilon=claimed,
        epsilon_sound=all_attempts,
        epsilon_least=float(bound),
        at_least=True,
        delta=delta(),
        explanation=f"{kept_steps(dataset)} kept updates. A candidate is kept if its one coordinate is above "
        f"{threshold} sigma, as {100 * _screened(dataset, threshold).accepted[0]:.1f}% are. The true epsilon is at "
        f"least {bound} and at most {upper}, where {_upper_text(claimed)} is charged. All of the up to {tries} "
        f"attempts an update cost {_upper_text(all_attempts)}, whatever the rule",
    )


@Formula
def least_share_kept(claim: Claim, evidence: Evidence) -> Measured:
    """Return the smallest share of attempts, in percent, that a run at the paper's setting kept."""
    shares = [100 * share for share in _shares_kept(evidence, claim.dataset)]
    if not shares:
        return Measured()
    return Measured(min(shares), shares, n=len(shares), planned=len(shares), kind=_lowest_of(shares))


@Formula
def least_at_share_kept(claim: Claim, evidence: Evidence) -> Measured:
    """Return a lower bound on the true epsilon of a rule like the worst one that keeps the smallest share of the runs.

    It says nothing about a run, whose rule is another one. So it is no bound on the epsilon that a run claims.
    """
    shares = _shares_kept(evidence, claim.dataset)
    if not shares:
        return Measured()
    bound = float(_lower_text(_bound_of_share(claim.dataset, min(shares))))
    kind = f"bound on the ε of a rule, by the {_lowest_of(shares)}"
    return Measured(bound, n=len(shares), planned=len(shares), kind=kind, at_least=True)


def table(evidence: Evidence, _: Sequence[ClaimRow]) -> Table:
    """Return bounds on the kept updates at the paper's parameters, and the sound cost by acceptance rate."""
    rows, rates = [], []
    for dataset in DATASETS.values():
        tries = (1, 1.5, 2, 3, screening(dataset).rejection_threshold + 1)
        costs = [f"{_upper_text(cost_of_tries(dataset, r))} at {r:g}" for r in tries]
        rates.append(f"{dataset_name(dataset)}: {', '.join(costs)} attempts a kept update.")
        for t in sorted({-math.inf, 0.5, worst(dataset)}):
            rows.append(
                {
                    "data set": dataset_name(dataset),
                    "sigma": screened_run(dataset).mechanism.noise_multiplier,
                    "t / sigma": "none" if t == -math.inf else t,
                    "mu0": screening(dataset).rejection_threshold,
                    "kept updates": kept_steps(dataset),
                    "P(keep)": _screened(dataset, t).accepted[0],
                    "claimed ε": _upper_text(claimed_epsilon(dataset)),
                    "true ε, at least": _lower_text(lower_bound(dataset, t)),
                    "true ε, at most": _upper_text(upper_bound(dataset, t)),
                }
            )
    notes = (
        "The sampled Gaussian at the paper's parameters, kept where y > t. The paper's rule always keeps the first "
        "step. \"At least\" is rigorous up to floating point (outputs binned, losses rounded down, PLD). \"At most\" "
        f"is by Rényi divergences of the true densities with the paper's conversion. {delta_text(delta())}.",
        "A loss in many coordinates makes such a rule of the paper's, and exactly in the limit: J(w) = |w⊥|²/2 − a w₁ "
        "with a = dσ²/(2t), where w⊥ are the d other coordinates of w. J falls where the noise along the first is "
        "above t (|n⊥|² + 2⟨w⊥, n⊥⟩)/(dσ²). For d = 10⁸, this is t to a standard deviation of 1.4% in all of the "
        "paper's updates on MNIST.",
        "The bounds are for an adversary who sees every kept update. The paper publishes the last model alone, but the "
        "proof of its theorem composes over all kept updates, so it claims ε = 3 for this adversary, too.",
        "The claimed ε is the paper's (classic RDP). Without screening the bounds are those of "
        "DP-SGD, for which it is valid.",
        *(_share_text(evidence, dataset) for dataset in DATASETS.values()),
        "Theorem 1, repaired: fix the number of attempts before the data are read, and charge all of them. The weights "
        "follow from their noisy sums and from public draws, so this cost is sound for every rule. " + " ".join(rates),
    )  # fmt: skip
    return Table.of(rows, notes, [name for name in rows[0] if name not in ("mu0", "kept updates")])


def _share_text(evidence: Evidence, dataset: str) -> str:
    """Return the share kept by the worst rule, by recorded runs, and the bound for a rule that keeps as much."""
    keep = 100 * share_kept(_screened(dataset, worst(dataset)).accepted[0], screening(dataset).rejection_threshold)
    text = f"{dataset_name(dataset)}: the worst of the rules tried keeps {keep:.1f}% of the attempts, with forced ones."
    if shares := _shares_kept(evidence, dataset):
        text += (
            f" The recorded runs at the settings of table 2, screened by all test images, kept {_ends(shares)}. A "
            f"rule of this kind that keeps {_ends([min(shares)])} has a true ε of at least "
            f"{_lower_text(_bound_of_share(dataset, min(shares)))}."
        )
    leading = _shares_kept(evidence, dataset, (_LEADING,))
    if leading and min(leading) > min(shares):
        text += (
            f" Runs of the leading reading kept {_ends(leading)}. A rule that keeps {_ends([min(leading)])} has at "
            f"least {_lower_text(_bound_of_share(dataset, min(leading)))}."
        )
    return text


def _lowest_of(shares: Sequence[float]) -> str:
    return "one run" if len(shares) == 1 else f"lowest of {len(shares)} runs"


def _bound_of_share(dataset: str, share: float) -> float:
    """Return a lower bound on the true epsilon of a rule of the worst one's kind that keeps this share of attempts."""
    return lower_bound(dataset, threshold_for(share, screening(dataset).rejection_threshold))


def _ends(shares: Sequence[float]) -> str:
    return "% to ".join(dict.fromkeys(f"{100 * share:.0f}" for share in (min(shares), max(shares)))) + "%"


def figure(evidence: Evidence) -> plots.Figure:
    """Draw the lower bound on the true epsilon against the share of attempts that is kept, at the paper's parameters.

    Below are the shares that screened runs at these parameters kept. There, the data, the weights and the temperature
    change the probability from attempt to attempt.
    """
    plot = plots.figure(7, 5.4)
    axes = plot.subplots()
    for i, dataset in enumerate(DATASETS.values()):
        rejections = screening(dataset).rejection_threshold
        keep = [share_kept(_screened(dataset, t).accepted[0], rejections) for t in THRESHOLDS]
        bounds = [lower_bound(dataset, t) for t in THRESHOLDS]
        label = f"{dataset_name(dataset)}, μ₀ = {rejections}: lower bound on the true ε"
        axes.plot(keep, bounds, f"{plots.MARKERS[i]}-", markersize=4, color=f"C{i}", label=label)
        shares = _shares_kept(evidence, dataset)
        if shares:
            runs = "1 screened run" if len(shares) == 1 else f"{len(shares)} screened runs"
            range_kept = " to ".join(dict.fromkeys(f"{share:.2f}" for share in (min(shares), max(shares))))
            label_kept = f"{dataset_name(dataset)}: {runs} kept {range_kept} of the attempts"
            low = [0.25 + 0.2 * i] * len(shares)
            axes.plot(shares, low, "|", markersize=11, markeredgewidth=1.5, color=f"C{i}", label=label_kept)
    axes.axhline(claimed_at(), color="k", linestyle="--", linewidth=1, label=f"claimed ε = {claimed_at():g}")
    plots.log_axis(axes, "x")
    axes.set(xlabel="share of the attempts that is kept", ylabel=f"ε of the kept updates, {delta_text(delta())}")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), fontsize=8)
    return plot


def _shares_kept(evidence: Evidence, dataset: str, readings: Sequence[str] = _READINGS) -> list[float]:
    """Return the kept share of attempts of each recorded run that screens at the paper's parameters."""
    name = IN_FILES[dataset]
    experiments = (f"noise_screening/{name}_screened{reading}" for reading in readings)
    runs = [run for name in experiments for run in measures.planned(evidence, name).recorded]
    return [run.final("accepted") / run.final("tries") for run in runs]
