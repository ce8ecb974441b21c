"""Figure 4: time of an epoch and peak memory, as measured by `python -m checks benchmark-clipless`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from runner.claims.claim import Claim
from runner.claims.formulas import Formula
from runner.claims.measurement import Measured, measure_sample
from runner.claims.runs import Evidence, grouped
from runner.claims.verdicts import ClaimRow
from runner.config import REPOSITORY
from runner.report import plots
from runner.report.files import Table, read_csv

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURED = REPOSITORY / "results" / "benchmark" / "clipless.csv"  # never written by a run
METHODS = {  # label and look
    "non_private_faster": ("not private", "SGD, ReLU"),
    "clipless": ("clipless DP-SGD", "Lipschitz"),
    "one_pass": ("DP-SGD, this project's engine", "ReLU"),
    "opacus_hooks": ("DP-SGD, Opacus", "plain DP-SGD, Opacus"),
    "projection": ("the projection alone", "Lipschitz, projection"),
}
_LARGE = 512  # the smallest batch size that counts as large
EXAMPLES = 50_000  # per epoch
_COMMAND = "`python -m checks benchmark-clipless` measures it."
_HOW = "Steps were timed in turns, on a CPU in the process's time; an epoch is as many as make 50,000 examples."


def measured(path: Path | None = None) -> list[dict[str, str]]:
    """Return the rows of the benchmark's table, none if it has not been measured."""
    path = path or MEASURED
    return read_csv(path) if path.exists() else []


def table(_: Evidence, __: Sequence[ClaimRow]) -> Table:
    """Return a row per network, batch size and method."""
    rows = [
        {
            "network": f"{row['network']}, {int(row['parameters']):,} parameters",
            "batch": row["batch"],
            "method": METHODS[row["method"]][0],
            "s an epoch": f"{row['s_per_epoch']} [{row['s_q1']}, {row['s_q3']}]",
            "peak MiB": row["peak_mib"],
        }
        for row in measured()
    ]
    if not rows:
        return Table(("network", "batch", "method", "s an epoch", "peak MiB"), (), (f"Not run: {_COMMAND}",))
    first = measured()[0]
    note = f"Medians [quartiles] of {first['device']}, one thread, {first['date']}. {_COMMAND} {_HOW}"
    networks = (
        "Clipless DP-SGD and its projection are for the Lipschitz network, the others for the ordinary one: ReLU, "
        "max-pooling and the same convolutions, nothing centred or bounded. This project's engine has kernels of its "
        "own for convolutions, so its clipped step can take less time than PyTorch's ordinary one."
    )
    return Table.of(rows, (note, networks, "Made-up images of CIFAR-10's shape."))


def figure(_: Evidence) -> Figure | None:
    """Draw two panels per network, seconds of an epoch and peak memory by batch size; None if nothing was timed."""
    rows = measured()
    if not rows:
        return None
    networks = list(dict.fromkeys(row["network"] for row in rows))
    figure = plots.figure(plots.WIDTH, 6)
    for column, network in enumerate(networks):
        for line, (name, label) in enumerate(
            (("s_per_epoch", "time of an epoch (s)"), ("peak_mib", "peak memory of a step (MiB)"))
        ):
            axes = figure.add_subplot(2, len(networks), line * len(networks) + column + 1)
            axes.set_title(network)
            for method, (name_of, look) in METHODS.items():
                timed = [row for row in rows if row["network"] == network and row["method"] == method and row[name]]
                batches, (colour, marker) = [int(row["batch"]) for row in timed], plots.LOOKS[look]
                if timed:
                    values = [float(row[name]) for row in timed]
                    axes.plot(batches, values, color=colour, marker=marker, label=name_of)
            plots.log_axis(axes, "x", sorted({int(row["batch"]) for row in rows}))
            axes.set(xlabel="batch size", ylim=(0, None))
            if column == 0:
                axes.set_ylabel(label)
    plots.one_legend(figure)
    return figure


def _sampled(ratios: Callable[[Claim], list[tuple[str, float]]], claim: Claim, _: Evidence) -> Measured:
    """Return a measure from the one table of times. Networks are the sample: their ratios are means of batch sizes."""
    by_network = grouped(ratios(claim), lambda ratio: ratio[0])
    if not by_network:
        return Measured(explanation="not measured yet", planned=1)
    means = {network: statistics.mean(ratio for _, ratio in pairs) for network, pairs in by_network.items()}
    words = ", ".join(f"{network} {mean:.3g}" for network, mean in means.items())
    sampled = measure_sample("mean", tuple(means.values()), explanation=words)
    return replace(sampled, n=1, planned=1, kind=f"mean of {len(means)} networks")


def _clipless_ratios(column: str, claim: Claim) -> list[tuple[str, float]]:
    """Return networks, and the clipless column over the column of the claimed method, in large batches."""
    values = {(row["network"], int(row["batch"]), row["method"]): row[column] for row in measured()}
    return [
        (network, float(value) / clipped)
        for (network, batch, method), value in values.items()
        if method == "clipless" and batch >= _LARGE and value
        if (clipped := float(values[network, batch, claim.number.argument] or 0)) > 0  # a failed measurement is NaN
    ]


def _projection_ratios(_: Claim) -> list[tuple[str, float]]:
    """Return networks, and the seconds of one projection at each batch size over those at the smallest batch size."""
    ratios: list[tuple[str, float]] = []
    rows = [row for row in measured() if row["method"] == "projection"]
    for network, timed in grouped(rows, lambda row: row["network"]).items():
        steps = {int(row["batch"]): EXAMPLES // int(row["batch"]) for row in timed}
        seconds = {batch: float(row["s_per_epoch"]) / steps[batch] for batch, row in zip(steps, timed, strict=True)}
        least = min(seconds)
        ratios += [(network, s / seconds[least]) for batch, s in seconds.items() if batch > least]
    return ratios


faster_than_clipping = Formula(_sampled, partial(_clipless_ratios, "s_per_epoch"))
memory_below_clipping = Formula(_sampled, partial(_clipless_ratios, "peak_mib"))
projection_cost = Formula(_sampled, _projection_ratios)
