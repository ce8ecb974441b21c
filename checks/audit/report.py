"""The tables as CSV and Markdown, and the figure: lower bounds against sound epsilons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from checks.audit.cases import CONFIDENCE, Row
from checks.audit.targets import DELTA, PLAIN
from runner.report.files import Table, bound_text, markdown, number, plus_minus, write_csv, write_text
from runner.report.plots import figure, save, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Faulty = tuple[str, Row, Row]
_HEADER = (
    "clipping",
    "mechanism",
    "batches",
    "steps",
    "attacker sees",
    "noise multiplier",
    "δ",
    "trials",
    "claimed ε",
    "sound ε",
    "ε at least",
    "whatever the shape",
    "of the sound ε",
    "claim",
    "accused",
)
_SHOWN = ("clipping", "mechanism", "batches", "claimed ε", "sound ε", "ε at least", "accused")
_FLOOR = 0.1  # of the figure: smaller bounds are drawn there
_ACCUSED = {True: "**yes**", False: "no", None: "–"}


def write(folder: Path, rows: Sequence[Row], faults: Sequence[Faulty], *, quick: bool) -> list[Path]:
    """Write audit.csv, faults.csv, README.md and the figure.

    Returns:
        The paths.
    """
    columns = [*Row.__dataclass_fields__, "lower", "verdict"]
    planted = [
        {"fault": name, "planted": planted} | _cells(row)
        for name, right, wrong in faults
        for planted, row in ((False, right), (True, wrong))
    ]
    written = [
        write_csv(folder / "audit.csv", columns, [_cells(row) for row in rows]),
        write_csv(folder / "faults.csv", ["fault", "planted", *columns], planted),
        write_text(folder / "README.md", page(rows, faults, quick=quick)),
    ]
    with style():
        drawn = figure(12, 5.6)
        _draw(drawn, rows)
        written += save(drawn, folder)
    return written


def page(rows: Sequence[Row], faults: Sequence[Faulty], *, quick: bool) -> str:
    """Make the page: a summary, then the two tables."""
    attacked = [row for row in rows if row.accused is not None]
    accused = sum(bool(row.accused) for row in attacked)
    refuted = list(dict.fromkeys(_claim(row) for row in rows if row.verdict == "refuted"))
    caught = sum(bool(wrong.accused) and not right.accused for _, right, wrong in faults)
    one_step = [
        row for row in attacked if row.steps == 1 and row.what == "flat" and row.sampling.endswith("all examples")
    ]
    shares = [row.lower / row.sound for row in one_step]
    summary = [
        "# What attacks on the code show",
        "Each attack trains with and without one worst-case example, or replaces it where neighbours differ so. It "
        "tells the two apart by the weights or by the noisy sums. That gives `ε at least`, a lower bound on the true "
        f"ε. All bounds of a table hold together with {CONFIDENCE:.0%} confidence. Written by `make audit`"
        + (" with `--quick`: too few trials for tight bounds." if quick else "."),
        f"- **{accused} of {len(attacked)} attacks accuse what is implemented** of losing more than its ledger says.\n"
        f"- One step of DP-SGD with flat clipping, on a batch of all examples: the lower bound is {min(shares):.2f} to "
        f"{max(shares):.2f} of the sound ε.\n"
        f"- Ways of counting ε that an attack refutes, in these small settings: {'; '.join(refuted) or 'none'}.\n"
        f"- {caught} of {len(faults)} planted faults are found. The code without the fault is never accused.",
        "![Lower bounds against sound ε](figure.svg)",
        "## As implemented",
        markdown(Table(_HEADER, [_line(row) for row in rows], shown=_SHOWN)).strip(),
        "[All columns](audit.csv)",
        "*Sound* is the ε of the ledger for exactly the attacked steps, by privacy loss distributions. The noise is "
        "chosen for it; for the original bug it is chosen for the claim. *Claimed* is the ε by the paper's accounting. "
        "A claim is *guaranteed* if it is at least the sound ε, *refuted* if a lower bound is above it, else *not "
        "guaranteed*.",
        "*ε at least* is the larger of two bounds. One holds for any mechanism, and needs an event as rare as δ to be "
        "tight. The other tests the whole curve δ(ε) that is charged, for Gaussian noise of any scale "
        "(`checks/audit/bounds.py` derives both). An implementation is *accused* if the attack violates that curve, or "
        "shows more than the sound ε.",
        "Updates kept by screening are not Gaussian. So only the first bound applies to them, at each δ by itself. "
        "[Theorem 1](../noise_screening/theorem-1/table.md) has their true cost at the paper's settings. Their sound ε "
        "is the cost of all tries that the rule may take. *Weights*: the attack sees only the weights before the first "
        "and after the last step.",
        "## Planted faults",
        "Each fault is planted in code that is right, and attacked in the same way.",
        markdown(Table(_FAULTS, [_fault(*each) for each in faults])).strip(),
    ]
    return "\n\n".join(summary) + "\n"


_FAULTS = (
    *("fault", "planted in", "sound ε", "ε at least", "accused"),
    *("with the fault: ε at least", "with the fault: accused"),
)


def _fault(name: str, right: Row, wrong: Row) -> list[str]:
    place = f"{right.what}, {right.mechanism}; {right.sampling}; steps: {right.steps}"
    found = [[_lower(row.lower), _ACCUSED[row.accused]] for row in (right, wrong)]
    return [name, place, bound_text(right.sound), *found[0], *found[1]]


def _line(row: Row) -> list[str]:
    share = row.lower / row.sound
    return [
        row.what,
        row.mechanism,
        row.sampling,
        str(row.steps),
        row.sees,
        number(row.noise_multiplier),
        f"{row.delta:g}",
        f"{row.trials:,}",
        number(row.claimed),
        bound_text(row.sound),
        _lower(row.lower),
        _lower(row.any_shape),
        "–" if math.isnan(share) else f"{share:.2f}",
        row.verdict,
        _ACCUSED[row.accused],
    ]


_COUNTED = {
    "corrected": "backpropagation clipping, as its corrected code counts",
    "original_bug": "backpropagation clipping, as its published code counts",
    "annealing": "noise screening, if kept updates alone are charged",
}


def _claim(row: Row) -> str:
    rule = row.what if row.mechanism == PLAIN else row.mechanism
    counted = _COUNTED.get(rule, rule)
    return counted if row.delta == DELTA else f"{counted} (at δ = {row.delta:g})"


def _lower(bound: float) -> str:
    return "–" if math.isnan(bound) else plus_minus(bound, None, at_least=True).removeprefix("≥ ")


def _cells(row: Row) -> dict[str, object]:
    return asdict(row) | {"lower": row.lower, "verdict": row.verdict}


def _draw(drawn: Figure, rows: Sequence[Row]) -> None:
    """Draw three panels: one step on all examples, all other sound settings, and bounds against claims."""
    attacked = [row for row in rows if row.accused is not None]
    claims = [row for row in attacked if row.verdict in ("refuted", "not guaranteed")]
    shown = [row for row in attacked if row.delta == DELTA and row not in claims]
    alone = [row for row in shown if row.steps == 1 and row.sampling.endswith("all examples")]
    panels = drawn.subplots(1, 3)
    _panel(panels[0], alone, "sound", "one step, all examples in the batch")
    _panel(panels[1], [row for row in shown if row not in alone], "sound", "sampled batches, several steps, statistics")
    _panel(panels[2], claims, "claimed", "claims that are not guaranteed")
    panels[0].set_ylabel("ε at least, 95% confidence for all together")


def _panel(axes: Axes, rows: Sequence[Row], against: str, title: str) -> None:
    names = list(dict.fromkeys(_name(row) for row in rows))
    for i, name in enumerate(names):
        of = [row for row in rows if _name(row) == name]
        axes.plot(
            [getattr(row, against) for row in of],
            [max(row.lower, _FLOOR) for row in of],
            marker="ov^sDP*Xdph<>"[i % 13],
            color=f"C{i % 10}",
            markersize=5,
            linewidth=0.5,
            alpha=0.8,
            label=name,
        )
    ends = [0.05, 50.0] if against == "claimed" else [0.4, 10.0]
    axes.plot(ends, ends, "k-", linewidth=1, label=f"{against} ε")
    if against == "sound":
        axes.plot(ends, [0.7 * end for end in ends], "k:", linewidth=1, label="0.7 of it")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.9 * _FLOOR)
    axes.set_xlabel(f"{against} ε")
    axes.set_title(title)
    axes.legend(fontsize=6, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.14), frameon=False)


def _name(row: Row) -> str:
    """Name one line of the figure."""
    rule = "" if row.mechanism in (PLAIN, "before training") else f" {row.mechanism}"
    batches = "" if row.sampling.endswith("all examples") else f", {row.sampling.split(', ')[1]}"
    steps = f", {row.steps} steps" if row.steps > 1 else ""
    sees = ", weights" if row.sees == "weights" else ""
    delta = f", δ = {row.delta:g}" if row.delta != DELTA else ""
    return f"{row.what}{rule}{batches}{steps}{sees}{delta}"
