"""The privacy cost of the runs behind a number."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean

from runner.claims.guarantee import decides, guaranteed
from runner.claims.measured import Measured
from runner.claims.runs import Runs, RunsAt
from runner.terminal import bound_text


def charged(found: Measured, at: RunsAt) -> Measured:
    """Charge a number with the largest epsilons of its runs, each up to its epoch.

    Runs without privacy count only if there are no others. If a run decides how much it releases, `epsilon_sound`
    covers the most that it could have released, and `epsilon_attempts` its actual releases.
    """
    of = RunsAt([pair for pair in at if math.isfinite(pair[0].history("epsilon")[pair[1]])] or at)
    if not of:
        return found
    sound = [guaranteed(run) if decides(run) else run.history("epsilon_sound")[epoch] for run, epoch in of]
    tries = [run.history("epsilon_sound")[epoch] for run, epoch in of if decides(run)]
    return replace(
        found,
        epsilon=of.largest("epsilon"),
        epsilon_sound=max(sound),
        epsilon_attempts=max(tries, default=None),
        delta=of.runs.delta,
    )


def most_guaranteed(runs: Runs) -> float:
    """Return the largest sound epsilon that is guaranteed for the recorded runs."""
    return max(guaranteed(run) for run in runs.recorded)


def tries_text(runs: Runs) -> str:
    """State, in words, the number of attempts of the recorded, screened runs, and their cost."""
    tries, accepted, forced = (sum(runs.finals(name)) for name in ("tries", "accepted", "forced"))
    costs = runs.finals("epsilon_sound")
    return (
        f"{tries / accepted:.2f} attempts a kept update, {100 * forced / accepted:.1f}% of the kept by force only. "
        f"All attempts made would cost {bound_text(fmean(costs))} (mean, at most {bound_text(max(costs))}) had "
        f"their number been fixed beforehand. The most allowed cost {bound_text(most_guaranteed(runs))}"
    )
