"""The claims that a run of a sweep contributes to, with their verdicts at the last aggregation, for its tracking."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from runner.claims.rows import ClaimRow
from runner.config import TrackingMode
from runner.records.files import results_folder
from runner.records.jobs import Job
from runner.report.cells import method_text
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
            number = claim.claimed or "in words"
            claimed = f"{number}%" if claim.unit == "%" and claim.claimed else number
            found[f"{paper}/{claim.item}: {claim.dataset}, {method_text(claim)}: {claimed}{at}"] = row.verdict
    return found


def tell(pending: Iterable[Job], planned: Iterable[Job]) -> None:
    """Put the claims of each pending run into its config, from all planned jobs of the run."""
    serves: dict[str, dict[str, str]] = {}
    for job in planned:
        if job.field("tracking.mode") != TrackingMode.disabled.value:
            serves.setdefault(job.run_id, {}).update(served(results_folder(job.values), job.sweep, job.experiment))
    for job in pending:
        job.config.tracking.serves = serves.get(job.run_id, {})


@cache
def _claims(results: Path, paper: str) -> list[ClaimRow]:
    try:
        return rows_of(results, load(paper))
    except ValueError:
        return []
