"""Figure 4: time of an epoch and peak memory, as `python -m benchmarks.clipless` measured them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

from runner.claims.claim import Claim
from runner.claims.evidence import Evidence
from runner.claims.measure import Formula
from runner.claims.measured import Measured
from runner.claims.rows import ClaimRow
from runner.config import REPOSITORY
from runner.report.files import Table, read_csv
from runner.report.plots import figure as empty_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURED = REPOSITORY / "results" / "benchmark" / "clipless.csv"  # never written by a run
METHODS = {
    "non_private_faster": "not private",
    "clipless": "clipless DP-SGD",
    "one_pass": "DP-SGD, this project's engine",
    "opacus_hooks": "DP-SGD, Opacus",
}
_CLIPPED = ("one_pass", "opacus_hooks")
_COMMAND = "`python -m benchmarks.clipless` measures it."
_HOW = "Steps were timed in turns, on a CPU in the process's time; an epoch is as many as make 50,000 examples."


def measured(path: Path | None = None) -> list[dict[str, str]]:
    """The rows of the benchmark's table; none where it has not been measured."""
    path = path or MEASURED
    return read_csv(path) if path.exists() else []


def table(_: Evidence, __: Sequence[ClaimRow]) -> Table:
    """A row a network, batch size and method."""
    rows = [
        {
            "network": f"{row['network']}, {int(row['parameters']):,} parameters",
            "batch": row["batch"],
            "method": METHODS[row["method"]],
            "s an epoch": f"{row['s_per_epoch']} [{row['s_q1']}, {row['s_q3']}]",
            "peak MiB": row["peak_mib"],
        }
        for row in measured()
    ]
    if not rows:
        return Table(("network", "batch", "method", "s an epoch", "peak MiB"), (), (f"Not run: {_COMMAND}",))
    first = measured()[0]
    note = f"Medians [quartiles] of {first['device']}, one thread, {first['date']}. {_COMMAND} {_HOW}"
    return Table.of(rows, (note, "Made-up images of CIFAR-10's shape; JAX has no implementation of these layers here."))


def figure(_: Evidence) -> Figure | None:
    """Two panels a network: seconds of an epoch, and peak memory, by the batch size; none where nothing was timed."""
    rows = measured()
    if not rows:
        return None
    networks = list(dict.fromkeys(row["network"] for row in rows))
    drawn = empty_figure(max(6.4, 3.6 * len(networks)), 6)
    for column, network in enumerate(networks):
        for line, (name, label) in enumerate((("s_per_epoch", "s an epoch"), ("peak_mib", "peak MiB of a step"))):
            axes = drawn.add_subplot(2, len(networks), line * len(networks) + column + 1)
            axes.set(title=network, xlabel="batch size", ylabel=label)
            for method, words in METHODS.items():
                of = [row for row in rows if row["network"] == network and row["method"] == method]
                axes.plot([int(row["batch"]) for row in of], [float(row[name]) for row in of], "o-", label=words)
            axes.set(xscale="log", yscale="log")
    drawn.legend(*drawn.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return drawn


def _timed(ratio: Callable[[Claim], Measured]) -> Formula:
    """A measure of the one table of times: of one machine, so that it has no interval and decides nothing."""

    @wraps(ratio)
    def of_table(claim: Claim, _: Evidence) -> Measured:
        return replace(ratio(claim), n=int(bool(measured())), planned=1)

    return Formula(of_table)


@_timed
def faster_than_clipping(_: Claim) -> Measured:
    """Seconds of a clipless epoch over those of the faster way to clip, at the largest batch: the largest ratio of all
    networks."""
    found = ratios(measured(), _CLIPPED)
    if not found:
        return Measured(explanation="not measured yet")
    batch, ratio = max(found.items(), key=lambda pair: pair[0])
    return Measured(ratio, explanation=f"at a batch size of {batch}, the worst network")


@_timed
def overhead_spread(_: Claim) -> Measured:
    """Clipless seconds over ordinary ones: the largest over the smallest among batch sizes, of the worst network."""
    rows = measured()
    if not rows:
        return Measured(explanation="not measured yet")
    spreads = []
    for network in {row["network"] for row in rows}:
        found = ratios([row for row in rows if row["network"] == network], ("non_private_faster",))
        spreads.append(max(found.values()) / min(found.values()))
    return Measured(max(spreads), explanation=f"batch sizes of {min(found)} to {max(found)}, the worst network")


def ratios(rows: Sequence[dict[str, str]], others: Sequence[str]) -> dict[int, float]:
    """By batch size, the largest over networks of clipless seconds over those of the fastest of other methods."""
    times = {(row["network"], int(row["batch"]), row["method"]): float(row["s_per_epoch"]) for row in rows}
    found: dict[int, float] = {}
    for (network, batch, method), seconds in times.items():
        if method == "clipless":
            ratio = seconds / min(times[network, batch, other] for other in others)
            found[batch] = max(found.get(batch, 0.0), ratio)
    return found
