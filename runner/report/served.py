"""Which claims a run of a sweep serves, with their verdicts as last aggregated: for whoever watches the run."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from runner.claims.rows import ClaimRow
from runner.config import TrackingMode
from runner.records.files import results_folder
from runner.records.jobs import Job
from runner.report.claim_rows import read_rows
from runner.report.markdown import method_text
from runner.report.papers import known, load


def served(results: Path, sweep: str, experiment: str) -> dict[str, str]:
    """The verdict of every claim that is measured by an experiment of a sweep, by what it claims.

    Empty where the sweep is no paper's, or the claims in `results` were aggregated by another version.
    """
    paper = sweep.partition("/")[0]
    if paper not in known():
        return {}
    found = {}
    for item, row in _claims(results, paper):
        claim = row.claim
        if sweep in claim.sweeps and experiment in claim.experiments:
            at = f" at ε {claim.at_epsilon}" if claim.at_epsilon else ""
            number = claim.claimed or "qualitative"
            claimed = f"{number}%" if claim.unit == "%" and claim.claimed else number
            found[f"{paper}/{item}: {claim.dataset}, {method_text(claim)}: {claimed}{at}"] = row.verdict
    return found


def tell(pending: Iterable[Job], planned: Iterable[Job]) -> None:
    """Put into the config of each run to come what it serves, by all the jobs that are planned of it."""
    serves: dict[str, dict[str, str]] = {}
    for job in planned:
        if job.field("tracking.mode") != TrackingMode.disabled.value:
            serves.setdefault(job.run_id, {}).update(served(results_folder(job.values), job.sweep, job.experiment))
    for job in pending:
        job.config.tracking.serves = serves.get(job.run_id, {})


@cache
def _claims(results: Path, paper: str) -> tuple[tuple[str, ClaimRow], ...]:
    loaded = load(paper)
    try:
        return tuple((item.name, row) for item in loaded.items for row in read_rows(results, loaded, item))
    except ValueError:
        return ()
