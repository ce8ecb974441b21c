"""Estimate the cost of the claims that have not run: the runs that they lack, each counted once, and their hours.

Aggregation of a paper writes these runs to its not_run.csv. The pages combine the files of all papers, because papers
share runs. Hours follow from the records of similar runs (`runner.runs.durations`). Only records in the items' runs.csv
are used, so a user's runs change no page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.claims.claim import Claim
from runner.claims.evidence import Evidence
from runner.claims.measure import planned_for
from runner.claims.rows import ClaimRow
from runner.claims.runs import PlannedRun, grouped
from runner.claims.verdicts import NOT_RUN
from runner.report.files import Table, read_csv, write_csv
from runner.report.papers import Paper
from runner.runs.durations import Durations, like, read

FILE = "not_run.csv"
_COLUMNS = ("run_id", "setting_id", "like", "sweep", "experiment", "seed", "epochs", "claims")


@dataclass(frozen=True)
class Cost:
    """The number of runs that lack, the hours of one core that those take of known time, and the number of others."""

    runs: int
    hours: float
    unknown: int


def hours_text(hours: float) -> str:
    """Write hours as a whole number, below ten with a decimal."""
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.1f}"


def lacking(claim: Claim, evidence: Evidence) -> list[PlannedRun]:
    """List the runs without a record that a claim needs, including the search for its settings.

    The search has the claim's experiment, or the experiment that the claim's extends by a diagnostic under a longer
    name.
    """
    planned = [run for name in claim.experiments for run in planned_for(claim, evidence, name, chosen=False)]
    for sweep in claim.searches:
        of = [run for run in evidence.sweeps[sweep] if any(n.startswith(run.job.experiment) for n in claim.experiments)]
        planned += of
    return [run for run in planned if run.record is None]


def write_not_run(folder: Path, judged: Sequence[ClaimRow], evidence: Evidence) -> Path:
    """Write not_run.csv of a paper: a row for each run that claims lack, with the number of these claims."""
    of_claims = (
        {run.job.run_id: run for run in lacking(one.claim, evidence)} for one in judged if one.verdict == NOT_RUN
    )
    runs = grouped((run for of in of_claims for run in of.values()), lambda run: run.job.run_id)
    rows = [
        {
            "run_id": run_id,
            "setting_id": run.job.setting_id,
            "like": like(run.job.values),
            "sweep": run.job.sweep,
            "experiment": run.job.experiment,
            "seed": run.seed,
            "epochs": run.field("epochs"),
            "claims": len(runs[run_id]),
        }
        for run_id, (run, *_) in sorted(runs.items())
    ]
    return write_csv(folder / FILE, _COLUMNS, rows)


def costs(folder: Path, papers: Sequence[Paper]) -> dict[str, Cost]:
    """Estimate the cost of each paper's missing runs at its last aggregation, by its name, and of all papers under "".

    Each run counts once, also if several papers lack it.
    """
    durations = Durations(read(_records(folder, papers)))
    by_paper = {paper.name: _rows(folder / paper.name / FILE) for paper in papers}
    together = {run_id: row for rows in by_paper.values() for run_id, row in rows.items()}
    return {name: _cost(rows.values(), durations) for name, rows in {**by_paper, "": together}.items()}


def _records(folder: Path, papers: Sequence[Paper]) -> list[Path]:
    """List the records that the items show."""
    tables = [folder / paper.name / item.name / "runs.csv" for paper in papers for item in paper.items]
    ids = {row["run_id"] for path in tables if path.exists() for row in read_csv(path)}
    paths = [folder / "runs" / f"{run_id}.json" for run_id in sorted(ids)]
    return [path for path in paths if path.exists()]


def _rows(path: Path) -> dict[str, Mapping[str, str]]:
    return {row["run_id"]: row for row in read_csv(path)} if path.exists() else {}


def _cost(rows: Iterable[Mapping[str, str]], durations: Durations) -> Cost:
    found = [durations.seconds(row["setting_id"], row["like"], int(row["epochs"])) for row in rows]
    known = [seconds for seconds in found if seconds is not None]
    return Cost(len(found), sum(known) / 3600, len(found) - len(known))


def costs_table(claims: Mapping[str, int], costs: Mapping[str, Cost]) -> Table:
    """Make a table with a row for each paper and one for all: claims that have not run, and the cost of their runs."""
    rows = [[name, str(claims[name]), *_cells(costs[name])] for name in claims]
    rows.append(["**all**", str(sum(claims.values())), *_cells(costs[""])])
    note = (
        "Runs that several claims lack count once, also over the papers, so the last row is no sum. Hours are of one "
        "core: the median of the recorded runs of the same setting. Without any, an epoch takes the median of recorded "
        "runs with the same shapes of data, network and batch size, and all epochs count, although a budget may end "
        "the run. Older records say how long a run took on a machine that did other work too. "
        "`make plan-PAPER` estimates all that is left."
    )
    header = ("paper", "claims not run", "runs that they lack", "hours", "runs of unknown time")
    return Table(header, rows, (note,))


def _cells(cost: Cost) -> list[str]:
    known = cost.runs - cost.unknown
    hours = f"{hours_text(cost.hours)} (of {known} runs)" if known else "–"
    return [str(cost.runs), hours, str(cost.unknown or "–")]


def sentence(claims: int, cost: Cost) -> str:
    """Write a paper's row of the table as a sentence."""
    if not claims:
        return "Every claim has been measured or computed, if not by all its runs: 1 of 5, say, stands behind a number."
    said = f"{claims} claims, which lack {cost.runs} runs, each counted once"
    if known := cost.runs - cost.unknown:
        said += f"; about {hours_text(cost.hours)} hours of one core for {known} of them, by records"
    if cost.unknown:
        said += f"; how long {cost.unknown} take is unknown"
    return (
        f"**What has not run**: {said} ([how that is reckoned](../README.md#what-the-claims-not-run-would-cost), "
        f"[the runs]({FILE}))."
    )
