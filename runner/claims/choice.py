"""The runs at the learning rate that a search on held-out images chose."""

from __future__ import annotations

from statistics import fmean

from runner.claims.claim import Claim
from runner.claims.evidence import Evidence
from runner.claims.runs import Runs

_RATE = "optimizer.lr"


def at_chosen_rate(claim: Claim, evidence: Evidence, experiment: str) -> tuple[Runs, str]:
    """Find the planned runs of an experiment at the rate that its search chose.

    The search consists of all runs of the experiment in `Claim.searches`.

    Returns:
        The runs, none until the whole search has run, and in words how they were chosen.
    """
    planned = evidence.planned(claim.sweep, experiment)
    searched = Runs(
        run for sweep in claim.searches for run in evidence.planned(sweep, experiment.removesuffix("_norms"))
    )
    done = len(searched.recorded)
    if done < len(searched) or not searched:
        return Runs(), f"the search has not run ({done} of {len(searched)} settings){_at_one_setting(planned)}"
    best = searched.best.field(_RATE)
    chosen = planned.where(_RATE, best)
    if not chosen.recorded:
        return chosen, f"the search chose the learning rate {best:g}: not run{_at_one_setting(planned)}"
    seeds = "" if len({run.seed for run in searched}) > 1 else ", one seed each"  # so that chance had a part in it
    how = f"the best of {len(searched)} learning rates on held-out images{seeds}{_edge(best, searched)}"
    return chosen, f"at {best:g}, {how}"


def _at_one_setting(planned: Runs) -> str:
    values = planned.finals("test_accuracy")
    if not values:
        return ""
    return f". At one fixed setting the mean after the last epoch is {fmean(values):.2f} (n = {len(values)})"


def _edge(best: float, searched: Runs) -> str:
    """Warn, in words, that a search may have ended too early."""
    rates = [run.field(_RATE) for run in searched]
    which = "least" if best == min(rates) else "largest" if best == max(rates) else None
    return f", the {which} of them: one beyond may do better" if which else ""
