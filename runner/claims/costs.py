"""The privacy cost of the runs behind a number."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean

from runner.claims.guarantee import decides
from runner.claims.measured import Measured
from runner.claims.runs import Runs, RunsAt
from runner.terminal import bound_text


def charged(found: Measured, at: RunsAt) -> Measured:
    """Charge a number with the largest epsilons of its runs, each up to its epoch.

    Runs without privacy count only if there are no others. If a run decides how much it releases, `epsilon_sound`
    covers the most that it could have released. `epsilon_spent` is the cost of its steps, if it differs for any run.
    """
    of = RunsAt([pair for pair in at if math.isfinite(pair[0].history("epsilon")[pair[1]])] or at)
    if not of:
        return found
    sound = [run.final("epsilon_sound") if decides(run) else run.history("epsilon_sound")[epoch] for run, epoch in of]
    spent = [run.history("epsilon_spent")[epoch] for run, epoch in of if run.has_spent]
    return replace(
        found,
        epsilon=of.largest("epsilon"),
        epsilon_sound=max(sound),
        epsilon_spent=max(spent, default=None),
        delta=of.runs.delta,
    )


def tries_text(runs: Runs) -> str:
    """State, in words, the number of attempts of the recorded, screened runs, and their cost."""
    tries, accepted, forced = (sum(runs.finals(name)) for name in ("tries", "accepted", "forced"))
    costs = runs.finals("epsilon_spent")
    return (
        f"{tries / accepted:.2f} attempts a kept update, {100 * forced / accepted:.1f}% of the kept by force only. "
        f"All attempts made would cost {bound_text(fmean(costs))} (mean, at most {bound_text(max(costs))}) had "
        f"their number been fixed beforehand. The most allowed cost {bound_text(runs.largest('epsilon_sound'))}"
    )
