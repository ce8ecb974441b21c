"""The claims that a run of a sweep contributes to, with their verdicts at the last aggregation."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from runner.claims.rows import ClaimRow
from runner.report.cells import method_text, verdict_text
from runner.report.claim_rows import rows_of
from runner.report.papers import known, load


def served(results: Path, sweep: str, experiment: str) -> dict[str, str]:
    """Return the verdict of every claim measured by an experiment of a sweep, by a description of the claim.

    Empty if the sweep belongs to no paper, or another version aggregated the claims in `results`.
    """
    paper = sweep.partition("/")[0]
    if paper not in known():
        return {}
    found = {}
    for row in _claims(results, paper):
        claim = row.claim
        if sweep in claim.sweeps and experiment in claim.experiments:
            at = f" at ε {claim.at_epsilon}" if claim.at_epsilon else ""
            number = claim.stated
            claimed = f"{number}%" if claim.unit == "%" and claim.claimed else number
            found[f"{paper}/{claim.item}: {claim.dataset}, {method_text(claim)}: {claimed}{at}"] = verdict_text(row)
    return found


@cache
def _claims(results: Path, paper: str) -> list[ClaimRow]:
    try:
        return rows_of(results, load(paper))
    except ValueError:
        return []
