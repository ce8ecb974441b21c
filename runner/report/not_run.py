"""What the claims that have not run would cost: the runs that they lack, each once, and their hours, by the records of
like runs or else by a few steps that were timed (`runner.runs.timings`).

Aggregation of a paper leaves the runs in its not_run.csv; the pages put the papers' together, as runs and records are
shared between them. By records that stand in the items' runs.csv alone: runs of one's own change no page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.claims.claim import Claim
from runner.claims.evidence import Evidence
from runner.claims.measure import planned_for
from runner.claims.rows import ClaimRow
from runner.claims.runs import PlannedRun
from runner.claims.verdicts import NOT_RUN
from runner.records.files import read_record
from runner.records.identity import recorded_config
from runner.report.files import Table, read_csv, write_csv
from runner.report.papers import Paper
from runner.runs import timings
from runner.runs.recorded_times import estimated, likenesses, seconds_by_likeness
from runner.runs.timings import Timing

FILE = "not_run.csv"
_LIKE = ("setting_id", "like", "same_network", "same_network_any_end")
_COLUMNS = ("run_id", *_LIKE, "kind", "timed_epochs", "sweep", "experiment", "seed", "epochs", "claims")


@dataclass(frozen=True)
class Cost:
    """Runs that lack; hours of one core for those with a like record; how many have none, and of those how many were
    timed for a few steps, and the hours that these take by that.
    """

    runs: int
    hours: float
    unlike: int
    timed: int = 0
    timed_hours: float = 0.0

    @property
    def unknown(self) -> int:
        """Runs that neither a record nor a timing tells of."""
        return self.unlike - self.timed


def hours_text(hours: float) -> str:
    """Hours in whole numbers, below ten with a decimal."""
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.1f}"


def lacking(claim: Claim, evidence: Evidence) -> list[PlannedRun]:
    """The runs without a record that a claim is measured by, those that search for its settings included.

    A search is of the experiment itself, or of one that it adds a diagnostic to, under a longer name.
    """
    planned = [run for name in claim.experiments for run in planned_for(claim, evidence, name, chosen=False)]
    for sweep in claim.searches:
        of = [run for run in evidence.sweeps[sweep] if any(n.startswith(run.job.experiment) for n in claim.experiments)]
        planned += of
    return [run for run in planned if run.record is None]


def write_not_run(folder: Path, judged: Sequence[ClaimRow], evidence: Evidence) -> Path:
    """not_run.csv of a paper: a row a run that claims lack, with what it is like and how many claims lack it."""
    claims: dict[str, int] = {}
    runs: dict[str, PlannedRun] = {}
    for claim in (one.claim for one in judged if one.verdict == NOT_RUN):
        lack = {run.job.run_id: run for run in lacking(claim, evidence)}
        runs = lack | runs
        claims |= {run_id: claims.get(run_id, 0) + 1 for run_id in lack}
    rows = [
        {
            "run_id": run_id,
            **dict(zip(_LIKE, likenesses(run.job.setting_id, recorded_config(run.job.config)), strict=True)),
            "kind": run.job.kind,
            "timed_epochs": run.job.epochs or 1,  # a timing is of the whole run where a budget ends it
            "sweep": run.job.sweep,
            "experiment": run.job.experiment,
            "seed": run.seed,
            "epochs": run.job.config.epochs,
            "claims": claims[run_id],
        }
        for run_id, run in sorted(runs.items())
    ]
    return write_csv(folder / FILE, _COLUMNS, rows)


def costs(folder: Path, papers: Sequence[Paper]) -> dict[str, Cost]:
    """What is not run of each paper as last aggregated, by its name, and under "" of all, each run once."""
    seconds = seconds_by_likeness(read_record(path) for path in _records(folder, papers))
    timed = timings.read([folder])
    by_paper = {paper.name: _rows(folder / paper.name / FILE) for paper in papers}
    together = {run_id: row for rows in by_paper.values() for run_id, row in rows.items()}
    return {name: _cost(rows.values(), seconds, timed) for name, rows in {**by_paper, "": together}.items()}


def _records(folder: Path, papers: Sequence[Paper]) -> list[Path]:
    """The records that the items show."""
    tables = [folder / paper.name / item.name / "runs.csv" for paper in papers for item in paper.items]
    ids = {row["run_id"] for path in tables if path.exists() for row in read_csv(path)}
    paths = [folder / "runs" / f"{run_id}.json" for run_id in sorted(ids)]
    return [path for path in paths if path.exists()]


def _rows(path: Path) -> dict[str, Mapping[str, str]]:
    return {row["run_id"]: row for row in read_csv(path)} if path.exists() else {}


def _cost(rows: Iterable[Mapping[str, str]], seconds: Mapping[str, float], timed: Mapping[str, Timing]) -> Cost:
    known = unlike = by_timing = 0
    of_known = of_timed = 0.0
    for row in rows:
        found = estimated([row[name] for name in _LIKE], int(row["epochs"]), seconds)
        if found is not None:
            known, of_known = known + 1, of_known + found
            continue
        unlike += 1
        if (timing := timed.get(row["kind"])) is not None:
            by_timing, of_timed = by_timing + 1, of_timed + timing.seconds * int(row["timed_epochs"])
    return Cost(known + unlike, of_known / 3600, unlike, by_timing, of_timed / 3600)


def costs_table(claims: Mapping[str, int], costs: Mapping[str, Cost]) -> Table:
    """A row a paper, and one of all: `claims` that have not run by paper, and what their runs would cost."""
    rows = [[name, str(claims[name]), *_cells(costs[name])] for name in claims]
    rows.append(["**all**", str(sum(claims.values())), *_cells(costs[""])])
    note = (
        "Runs that several claims lack count once, also over the papers, so the last row is no sum. *By records*: "
        "hours of one core of the machines that the records are of, which ran others beside them: the median of "
        "recorded runs of the same setting, else of like ones (cost of an example, batch size), else of the same "
        "network on the same data, all its epochs where no record says when a budget ends it. Some of those machines "
        "were so busy that a single record may be ten times too long. *By timed steps*: no record resembles the run, "
        "so a few of its steps were timed, by the processor's time; how many epochs a screened run takes is guessed "
        "then. `make plan-PAPER` estimates all that is left on a machine of yours."
    )
    header = (
        "paper",
        "claims not run",
        "runs that they lack",
        "hours by records",
        "hours by timed steps",
        "runs of unknown time",
    )
    return Table(header, rows, (note,))


def _cells(cost: Cost) -> list[str]:
    recorded = cost.runs - cost.unlike
    return [
        str(cost.runs),
        _hours_of(cost.hours, recorded),
        _hours_of(cost.timed_hours, cost.timed),
        str(cost.unknown or "–"),
    ]


def _hours_of(hours: float, runs: int) -> str:
    return f"{hours_text(hours)} (of {runs} runs)" if runs else "–"


def sentence(claims: int, cost: Cost) -> str:
    """The same of one paper, in a sentence."""
    if not claims:
        return "Every claim has been measured or computed, if not by all its runs: 1 of 5, say, stands behind a number."
    parts = []
    if recorded := cost.runs - cost.unlike:
        parts.append(f"about {hours_text(cost.hours)} hours of one core for {recorded} of them, by records")
    if cost.timed:
        hours = hours_text(cost.timed_hours)
        parts.append(f"about {hours} for {cost.timed} that no record resembles, by a few steps that were timed")
    if cost.unknown:
        parts.append(f"how long {cost.unknown} take is unknown")
    said = "; ".join([f"{claims} claims, which lack {cost.runs} runs, each counted once", *parts])
    return (
        f"**What has not run**: {said} ([how that is reckoned](../README.md#what-the-claims-not-run-would-cost), "
        f"[the runs]({FILE}))."
    )
