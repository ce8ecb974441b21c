"""Claims of Losing Less judged on fabricated records, and the lines of its figures.

In each pair of runs the paper's loss and cross-entropy differ, so that a test fails where the two are exchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from matplotlib.colors import to_rgba

from runner.claims.claim import Claim
from runner.claims.diagnostics import PRE_ACTIVATIONS, WEIGHTS
from runner.claims.evidence import Evidence, collect
from runner.claims.measure import measure
from runner.claims.measured import Measured
from runner.claims.rows import ClaimRow
from runner.claims.verdicts import judge
from runner.papers.losing_less import figures
from runner.report.papers import load
from runner.report.plots import LOOKS

NAME = "losing_less"
PAPER = load(NAME)
OURS, CE = (to_rgba(LOOKS[figures.LOSSES[loss][1]][0]) for loss in ("ours", "ce"))


@dataclass(frozen=True)
class Found:
    """The measurement for a claim, and its row."""

    measured: Measured
    row: ClaimRow

    @property
    def verdict(self) -> str:
        return self.row.verdict


def claims(item: str, **fields: str) -> list[Claim]:
    found = [c for c in PAPER.claims if c.item == item]
    return [c for c in found if all(getattr(c, name) == value for name, value in fields.items())]


def verdict(claim: Claim, root: Path) -> Found:
    found = measure(claim, collect(claim.sweeps, results_root=root), PAPER.formulas)
    return Found(found, judge(claim, found, "paper"))


def only_verdict(root: Path, item: str, **fields: str) -> Found:
    (claim,) = claims(item, **fields)
    return verdict(claim, root)


def evidence_of(root: Path, item: str) -> Evidence:
    chosen = PAPER.item(item)
    return collect((*chosen.sweeps, *chosen.also), results_root=root)


def lines(axes) -> dict[tuple, tuple[list[float], list[float]]]:
    """x and y of the lines with data, by colour; the first drawn where there are several."""
    found: dict[tuple, tuple[list[float], list[float]]] = {}
    for line in axes.lines:
        if len(line.get_xdata()) and line.get_linestyle() == "-":
            found.setdefault(to_rgba(line.get_color()), (list(line.get_xdata()), list(line.get_ydata())))
    return found


def norms(layers: int, weights: float, pre_activations: float, last: float) -> dict:
    """Norms before training and after an epoch: of all layers, and `last` times as much for the last."""
    epochs = {"epoch": [0, 1]}
    for kind, norm in ((WEIGHTS, weights), (PRE_ACTIVATIONS, pre_activations)):
        epochs[kind] = {str(layer): [1.0, norm * (last if layer == layers - 1 else 1)] for layer in range(layers)}
    return {"layer_norms": epochs}
