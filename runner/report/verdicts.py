"""Does a claim hold? Its number, and apart from that its epsilon."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from runner.report.claims import CLAIM_COLUMNS, Claim
from runner.report.evidence import PAPER_SCALE
from runner.report.measured import Measured
from runner.report.summary import Summary, summarise

REPRODUCED, BETTER, NOT_REPRODUCED, NOT_RUN = "reproduced", "better", "not reproduced", "not run"
UNDECIDED, ORDER_HOLDS, ORDER_FAILS, NOT_JUDGED = "undecided", "order holds", "order fails", "not judged"
VERDICTS = (REPRODUCED, BETTER, NOT_REPRODUCED, UNDECIDED, ORDER_HOLDS, ORDER_FAILS, NOT_RUN, NOT_JUDGED)
PARTIAL = " (partial)"  # ends a verdict that was reached before all of the planned runs were recorded
HOLDS, DOES_NOT_HOLD, NOT_PRIVATE, NONE_CLAIMED = "holds", "does not hold", "not private", "none claimed"


@dataclass(frozen=True)
class Judged:
    """A claim, what was measured for it, and what follows. `difference` is measured minus claimed."""

    claim: Claim
    measured: Measured
    difference: float | None
    verdict: str
    privacy: str

    @property
    def summary(self) -> Summary:
        return summarise(self.measured.values)


def judge(claim: Claim, measured: Measured, scale: str) -> Judged:
    """Compare a claim with what was measured for it.

    At any scale but the paper's, runs say nothing about a claim: only what is computed is judged there.
    """
    if measured.value is None:
        return Judged(claim, measured, None, NOT_RUN, NOT_RUN)
    if scale != PAPER_SCALE and not measured.computed:
        return Judged(claim, measured, None, NOT_JUDGED, NOT_JUDGED)
    difference = None if claim.target else _difference(claim, measured)
    verdict = _verdict(claim, measured)
    if verdict != NOT_RUN and measured.partial:
        verdict += PARTIAL
    return Judged(claim, measured, difference, verdict, privacy(claim, measured))


def _difference(claim: Claim, measured: Measured) -> float | None:
    """Measured minus claimed, or minus the target where what is claimed is not a number."""
    if claim.aim is None or measured.value is None or claim.direction in ("above_other", "below_other"):
        return None  # of an order there is no difference to state
    return round(measured.value - claim.aim, 9)  # 96.6 - 96.1 has to be 0.5


def _verdict(claim: Claim, measured: Measured) -> str:
    """Where only the order of two experiments is checked, the value may be far off: a verdict of its own."""
    assert measured.value is not None
    if claim.direction in ("above_other", "below_other"):
        if measured.reference is None:
            return NOT_RUN
        above = measured.value > measured.reference
        below = measured.value < measured.reference
        return ORDER_HOLDS if (above if claim.direction == "above_other" else below) else ORDER_FAILS
    difference = _difference(claim, measured)
    if difference is None or math.isnan(difference):
        return NOT_REPRODUCED
    if measured.at_least and claim.direction in ("lower", "match", "below"):
        return NOT_REPRODUCED if difference > float(claim.tolerance) else UNDECIDED
    if claim.direction in ("above", "below"):
        return REPRODUCED if (difference > 0) == (claim.direction == "above") and difference != 0 else NOT_REPRODUCED
    if abs(difference) <= float(claim.tolerance):
        return REPRODUCED
    better = {"higher": difference > 0, "lower": difference < 0, "match": False}[claim.direction]
    return BETTER if better else NOT_REPRODUCED


def privacy(claim: Claim, measured: Measured) -> str:
    """Whether the epsilon and delta that a claim names cover the sound epsilon of what was run, and its delta."""
    if claim.epsilon is None:
        return NONE_CLAIMED
    if measured.epsilon_sound is None:
        return NOT_RUN if measured.value is None else UNDECIDED  # what it is claimed for was not reached
    bound, strict = claim.epsilon
    if math.isinf(bound):
        return NOT_PRIVATE
    holds = measured.epsilon_sound < bound if strict else measured.epsilon_sound <= bound
    return HOLDS if holds and not delta_exceeded(claim, measured) else DOES_NOT_HOLD


def delta_exceeded(claim: Claim, measured: Measured) -> bool:
    """Whether what was run is at another, larger delta than the claim's, or at none that is known."""
    return claim.delta is not None and (measured.delta is None or measured.delta > claim.delta)


JUDGED_COLUMNS = (
    *CLAIM_COLUMNS,
    *(
        "measured",
        "mean",
        "std",
        "min",
        "median",
        "max",
        "n",
        "n_planned",
        "n_diverged",
        "computed",
        "best_epoch_mean",
    ),
    *(
        "at_least",
        "difference",
        "verdict",
        "epsilon",
        "epsilon_sound",
        "delta",
        "claimed_epsilon",
        "explanation",
        "scale",
    ),
)


def judged_row(judged: Judged, scale: str) -> dict[str, Any]:
    """One row of an item's claims.csv (JUDGED_COLUMNS). `claimed_epsilon` says whether that epsilon holds."""
    measured, summary = judged.measured, judged.summary
    return {
        **{name: getattr(judged.claim, name) for name in CLAIM_COLUMNS},
        "measured": measured.value,
        **{name: getattr(summary, name) for name in ("mean", "std", "min", "median", "max")},
        "n": measured.n,
        "n_planned": measured.planned,
        "n_diverged": measured.diverged,
        "computed": "yes" if measured.computed else "no",
        "best_epoch_mean": measured.best,
        "at_least": "yes" if measured.at_least else "no",
        "difference": judged.difference,
        "verdict": judged.verdict,
        "epsilon": measured.epsilon,
        "epsilon_sound": measured.epsilon_sound,
        "delta": measured.delta,
        "claimed_epsilon": judged.privacy,
        "explanation": explanation(judged),
        "scale": scale,
    }


def explanation(judged: Judged) -> str:
    """For the reader: incomplete or diverged runs, a delta above the claimed one, then how it was measured, then
    the claim's own note.
    """
    claim, measured = judged.claim, judged.measured
    parts = []
    if 0 < measured.n < measured.planned:
        parts.append(f"partial: {measured.n} of {measured.planned} runs")
    if measured.diverged:
        parts.append(f"{measured.diverged} diverged, counted as they ended")
    if judged.privacy == DOES_NOT_HOLD and delta_exceeded(claim, measured):
        run = "unknown" if measured.delta is None else f"{measured.delta:g}"
        parts.append(f"the δ of the runs, {run}, is above the claimed δ, {claim.delta:g}")
    return "; ".join(part for part in (*parts, measured.explanation, claim.note) if part)
