"""The tables as CSV, and the page and the figure that follow from them: lower bounds against sound epsilons."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from checks.audit.cases import CONFIDENCE, ENOUGH, Row
from checks.audit.records import SEED
from checks.audit.records import TABLE as RECORDS
from checks.audit.targets import DELTA, PLAIN
from checks.audit.trained import TABLE as RUNS
from checks.audit.trained import TrainedRow
from runner.report.formats import Table, bound_text, markdown, plus_minus, read_csv, write_csv, write_text
from runner.report.plots import MARKERS, WIDTH, figure, log_axis, one_legend, save, style

if TYPE_CHECKING:
    from runner.report.plots import Axes, Figure

Faulty = tuple[str, Row, Row]  # the fault's name, the row without it and the row with it
_TABLE, _FAULTS = "audit.csv", "faults.csv"
_COLUMNS = (*Row.__dataclass_fields__, "lower", "verdict")
_USUAL = "releases"  # is what an attack sees, if its row states nothing else
_ATTACKED = ("attacked", "batches, steps")
_PLANTED = (
    *("fault", "planted in", "sound ε", "ε at least"),
    *("with the fault: ε charged", "with the fault: ε at least", "found"),
)
_WHOLE = 0.995  # of the charged shift, from where a row says nothing of it
_NEARLY = 0.9  # of what exact scores show
_SPANS = {"sound": (0.2, 12.0), "claimed": (0.05, 60.0)}  # of the figure: smaller bounds are drawn at the lower end
_NAMES = {  # for people, of the words in a row's rules
    "annealing": "screening",
    "automatic": "AUTO-S",
    "backprop": "backpropagation clipping",
    "banded": "banded noise",
    "corrected": "corrected code",
    "dp_sgd": "",
    "independent": "(independent parts)",
    "flat": "flat clipping",
    "lipschitz": "Lipschitz bounds",
    "none": "no clipping",
    "original_bug": "published code",
    "per_layer": "per-layer clipping",
    "poisson,": "Poisson,",
    "printed": "as printed",
    "private_statistics": "feature statistics",
    "private_statistics_cifar10": "feature statistics (CIFAR-10)",
    "private_statistics_mnist": "feature statistics (MNIST)",
    "psac": "DP-PSAC",
    "releases": "noisy sums",
    "loss": "canary's loss",
    "replace_one": "(replace one)",
    "zero_out": "(zero out)",
}
_ALONE = ("annealing", "private_statistics")  # the first words of what is attacked without a clipping
_UNSEEN = {  # by the numbers that an attacker sees
    "weights": "the batches, and the weights between, are not seen",
    "loss": "the batches, and the weights, are not seen",
    "kept weights": "rejected candidates are charged and not seen",
}


def write(folder: Path, rows: Sequence[Row], faults: Sequence[Faulty], *, quick: bool) -> list[Path]:
    """Write audit.csv and faults.csv, then the page and the figure from them, and return the paths."""
    planted = [
        {"fault": name, "planted": planted} | _cells(row)
        for name, right, wrong in faults
        for planted, row in ((False, right), (True, wrong))
    ]
    return [
        write_csv(folder / _TABLE, _COLUMNS, [_cells(row) for row in rows]),
        write_csv(folder / _FAULTS, ["fault", "planted", *_COLUMNS], planted),
        *write_page(folder, quick=quick),
    ]


def write_page(folder: Path, *, quick: bool) -> list[Path]:
    """Write README.md and the figure from the two CSV files in a folder, and return the paths."""
    rows = [_read(cells) for cells in read_csv(folder / _TABLE)]
    planted = read_csv(folder / _FAULTS)
    faults = [
        (right["fault"], _read(right), _read(wrong)) for right, wrong in zip(planted[::2], planted[1::2], strict=True)
    ]
    with style():
        drawing = _draw(rows)
        parts = [*runs_section(folder), *_records(folder)]
        text = page(rows, faults, quick=quick) + "".join(f"\n{part}\n" for part in parts)
        return [write_text(folder / "README.md", text), *save(drawing, folder)]


def _read(cells: dict[str, str]) -> Row:
    cells_by_name = {name: cells[name] or None for name in Row.__dataclass_fields__ if name in cells}
    return TypeAdapter(Row).validate_python(cells_by_name | {"sampling": cells["sampling"]})


def page(rows: Sequence[Row], faults: Sequence[Faulty], *, quick: bool) -> str:
    """Make the page: a summary, then the two tables."""
    attacked = [row for row in rows if row.accused is not None]
    accused = sum(bool(row.accused) for row in attacked)
    refuted = list(dict.fromkeys(_claim(row) for row in rows if row.verdict == "refuted"))
    caught = sum(bool(wrong.accused) for _, _, wrong in faults)
    innocent = sum(not right.accused for _, right, _ in faults)
    shares = [
        row.lower / row.sound
        for row in attacked
        if row.steps == 1 and row.what == "flat" and row.sampling.endswith("all examples")
    ]
    words = {"refuted": "yes", "not guaranteed": "no"}
    unsound = [
        [*_case(row), bound_text(row.claimed), bound_text(row.sound), _bound_text(row), words[row.verdict]]
        for row in _claims(rows)
    ]
    planted = [
        [
            *(name, f"{_attacked(right)}; {_batches(right)}; {_words(right.sees)} seen"),
            *(bound_text(right.sound), _bound_text(right), bound_text(wrong.sound), _lower(wrong.lower)),
            "yes" if wrong.accused else "**no**",
        ]
        for name, right, wrong in faults
    ]
    summary = [
        "# What attacks on the code show",
        "Each attack trains with and without one worst-case example, or replaces it where neighbours differ so. It "
        "distinguishes the two by the weights or by the noisy sums. That gives `ε at least`, a lower bound on the true "
        f"ε. All bounds of a table hold together with {CONFIDENCE:.0%} confidence. Written by `make audit`"
        + (" with `--quick`: too few trials for tight bounds." if quick else "."),
        f"- **{accused} of {len(attacked)} attacks accuse what is implemented** of losing more than its ledger says.\n"
        f"- One step of DP-SGD with flat clipping, on a batch of all examples: the lower bound is {min(shares):.2f} to "
        f"{max(shares):.2f} of the sound ε.\n"
        f"- Ways of counting ε that an attack refutes, in these small settings: {'; '.join(refuted) or 'none'}.\n"
        f"- {caught} of {len(faults)} planted faults are found. {innocent} of {len(faults)} attacks on the code "
        "without the fault accuse nothing.",
        "![Lower bounds against sound ε](figure.svg)",
        "## As implemented",
        "The columns are the sound ε that the noise is chosen for, the cells `ε at least`.",
        markdown(_level_table(rows)).strip(),
        f"[All columns]({_TABLE})",
        f"*Sound* is the ε of the ledger for exactly the attacked steps, by privacy loss distributions. δ is {DELTA:g} "
        "unless a row states another.",
        "*ε at least* is the larger of two bounds. One holds for any mechanism, and needs an event as rare as δ to be "
        "tight. The other tests the whole curve δ(ε) that is charged, for Gaussian noise of any scale "
        "(`checks/audit/bounds.py` derives both). An implementation is *accused* if the attack violates that curve, or "
        "shows more than the sound ε. An attack can violate the curve δ(ε) although its bound at this δ is below the "
        "sound ε.",
        "An attack sees the noisy sums of every step, if its row states nothing else. *Weights seen*: it sees only the "
        "weights before the first and after the last step. *All weights seen*: it sees them, or their average, after "
        "every step. *Kept weights seen*: it sees those after each update that screening kept. *Constants seen*: it "
        "sees the feature statistics with their noise. *Canary's loss seen*: it sees one number, the loss of the "
        "worst-case example by the last weights.",
        "Gradients of the networks with tanh depend on the weights, so these are attacked by whole runs "
        "(`checks/audit/hidden.py`). One attack puts the same crafted gradient into every step (Cebere, Bellet and "
        "Papernot, 2024). The other one chooses the first weights (Annamalai and De Cristofaro, 2024).",
        "## Claims below the sound ε",
        "*Claimed* is the ε by the paper's accounting. It is *refuted* if a lower bound is above it.",
        markdown(Table((*_ATTACKED, "claimed ε", "sound ε", "ε at least", "refuted"), unsound)).strip(),
        "Updates kept by screening are not Gaussian. So only the first bound applies to them, at each δ by itself. "
        "The number of trials and the stream of their random numbers were chosen beforehand, and they were drawn once. "
        "[Theorem 1](../noise_screening/theorem-1/README.md) has their true cost at the paper's settings. Their sound "
        "ε is the cost of all attempts that the rule may make.",
        "## Planted faults",
        "Each fault is planted in code that is right, and attacked in the same way. It is *found* if the attack "
        "accuses the code with the fault: by `ε at least`, or by the curve of the faulty ledger's releases, which it "
        "may refute at another δ. The ε charged with the fault is that of the faulty ledger.",
        markdown(Table(_PLANTED, planted)).strip(),
        f"[All columns]({_FAULTS})",
    ]
    if short := [[*_case(row), bound_text(row.sound), *_shares(row), _why(row)] for row in rows if row.short]:
        summary += [
            f"## Attacks that show less than {ENOUGH:g} of the sound ε",
            "*Exact scores* are drawn from the charged releases themselves, as many as the attack has trials, and for "
            "an attacker who sees no more than this one does. The same estimator makes a bound of them, from one draw, "
            "so an attack shows more only by the luck of the draws.",
            markdown(Table((*_ATTACKED, "sound ε", "share", "with exact scores", "reason"), short)).strip(),
        ]
    return "\n\n".join(summary) + "\n"


def runs_section(folder: Path) -> list[str]:
    """Return the paragraphs of the page on canaries.csv, or none if there is no such file."""
    if not (folder / RUNS).exists():
        return []
    rows = TypeAdapter(list[TrainedRow]).validate_python(read_csv(folder / RUNS))
    attacks, planted = [row for row in rows if not row.fault], [row for row in rows if row.fault]
    wrong = [row for row in planted if row.faulty]
    shares = [max(row.one_run, row.curve) / row.sound for row in attacks]
    accused, caught = sum(row.accused for row in attacks), sum(row.accused for row in wrong)
    words = {(True, True): "yes", (True, False): "**no**", (False, True): "**accused**", (False, False): "–"}
    columns = ("setting", "steps", "canaries", "sound ε", "ε at least (exact scores)")
    lines, fault_lines = [], []
    for row in attacks:
        ceiling = row.one_run_ceiling if row.one_run > row.curve else row.curve_ceiling
        bounds = (max(row.one_run, row.curve), ceiling), (row.independent, row.independent_ceiling)
        lines.append(
            [
                *(row.setting, f"{row.way}, {row.steps:,}", f"{row.canaries:,}", bound_text(row.sound)),
                *(f"{_least(bound)} ({_least(exact)})" for bound, exact in bounds),
                f"{row.minutes:.1f}",
            ]
        )
    for row in planted:
        bounds_text = _least(max(row.one_run, row.curve)), _least(row.independent)
        word = words[row.faulty, row.accused]
        fault_lines.append([row.fault, f"{row.way}, {row.steps}", bound_text(row.sound), *bounds_text, word])
    return [
        "## Whole runs, attacked by canaries",
        f"**{accused} of {len(attacks)} runs are accused**, and one run alone shows {min(shares):.2f} to "
        f"{max(shares):.2f} of its sound ε. These are runs of committed settings, by the loop that trains all "
        "records. Each canary joined by a coin. Its gradient is one coordinate of the weights, clipped to the "
        "sensitivity. The attacker reads the weights before every step, or the noisy sums where these are projected.",
        markdown(Table((*columns, "if canaries are independent (exact scores)", "core-minutes"), lines)).strip(),
        "*ε at least* is the larger of two bounds that hold for canaries that depend on each other "
        "(`checks/audit/one_run.py`). In brackets is what the same estimator gives for exact scores of as many "
        "canaries. The next column takes canaries for independent trials, as they are if noise is as it is charged. "
        f"All bounds of the table hold together with {CONFIDENCE:.0%} confidence.",
        "A canary needs a coordinate of its own in every layer that has noise of its own. Therefore Lipschitz networks "
        "and backpropagation clipping have fewer canaries, and the latter's do not reach the last layer, which has a "
        "quarter of the squared shift that is charged.",
        f"{caught} of {len(wrong)} faults, planted in ten epochs of the linear model, are found:",
        markdown(
            Table(("fault", "steps", "ε charged", "ε at least", "if canaries are independent", "found"), fault_lines)
        ).strip(),
        f"[All columns]({RUNS})",
    ]


def _least(bound: float) -> str:
    return f"{math.floor(100 * bound) / 100:.2f}"


def _records(folder: Path) -> list[str]:
    """Return the paragraphs of the page on records.csv, or none if there is no such file."""
    if not (folder / RECORDS).exists():
        return []
    attacked = [(cells, _read(cells)) for cells in read_csv(folder / RECORDS)]
    accused, shares = sum(bool(row.accused) for _, row in attacked), [row.lower / row.sound for _, row in attacked]
    lines = [
        [
            *(f"[{cells['run_id']}](../runs/{cells['run_id']}.json)", _attacked(row), _batches(row)),
            *(bound_text(row.sound), _bound_text(row), *_shares(row)),
        ]
        for cells, row in attacked
    ]
    heading = ("run", *_ATTACKED, "sound ε of these steps", "ε at least", "share", "with exact scores")
    return [
        "## Ten random records",
        f"**{accused} of {len(attacked)} are accused**, and lower bounds are {min(shares):.2f} to {max(shares):.2f} "
        f"of the sound ε of the attacked steps. The records were drawn by the seed {SEED} from all private ones. Each "
        "is prepared from its recorded config. Its clipping, its mechanism, its sampling rate and its noise take the "
        "place of the ones above, in the same worst case, for its first steps. Two records that differ in none of "
        "these have the same attack.",
        markdown(Table(heading, lines)).strip(),
        f"All bounds of this table hold together with {CONFIDENCE:.0%} confidence. [All columns]({RECORDS})",
    ]


def _shares(row: Row) -> tuple[str, str]:
    """Return the shares of the sound ε that an attack and exact scores show."""
    return f"{row.lower / row.sound:.2f}", "–" if math.isnan(row.ceiling) else f"{row.ceiling / row.sound:.2f}"


def _why(row: Row) -> str:
    """Say why a row shows less than 0.8 of its sound ε, where its exact scores tell: they show hardly more."""
    if row.sees == "kept weights":
        return _UNSEEN[row.sees]
    if math.isnan(row.ceiling):
        return "not compared with exact scores"
    unseen = row.sees in _UNSEEN and not row.sampling.endswith("all examples")
    reasons = [_UNSEEN[row.sees]] if unseen else []
    if row.sampling.startswith("shuffled") and row.sampling.endswith("an epoch"):
        reasons.append("the order of the examples is not seen, but charged as if it were")
    if row.moved < _WHOLE:
        reasons.append(f"the canary moves {row.moved:.2f} of what is charged")
    if row.lower < _NEARLY * row.ceiling:
        reasons.append("the threshold that was chosen on other trials is not the best one")
    return "; ".join(reasons) or "the estimator's own: too few trials for this ε"


def _level_table(rows: Sequence[Row]) -> Table:
    """Make a table of the bounds where claims are at least the sound ε: a column for each ε, to one digit."""
    bounds: dict[tuple[str, ...], dict[float, str]] = {}
    for row in rows:
        if row.verdict == "guaranteed":
            bounds.setdefault(_case(row), {})[float(f"{row.sound:.1g}")] = _bound_text(row)
    levels = sorted({level for cells in bounds.values() for level in cells})
    lines = [[*case, *(cells.get(level, "") for level in levels)] for case, cells in bounds.items()]
    return Table((*_ATTACKED, *(f"{level:g}" for level in levels)), lines)


def _claims(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.accused is not None and row.verdict in ("refuted", "not guaranteed")]


def _case(row: Row) -> tuple[str, ...]:
    return _attacked(row), _batches(row) + ("" if row.sees == _USUAL else f"; {_words(row.sees)} seen")


def _words(text: str) -> str:
    return " ".join(_NAMES.get(word, word) for word in text.split())


def _attacked(row: Row) -> str:
    """Name the rules of a row, and its δ unless it is `DELTA`."""
    delta = "" if row.delta == DELTA else f"δ = {row.delta:g}"
    return ", ".join(filter(None, (_words(row.what), _words(row.mechanism), delta)))


def _batches(row: Row) -> str:
    steps = f"{row.steps} step{'s' if row.steps > 1 else ''}"
    return f"{_words(row.sampling)}, {steps}" if row.sampling else steps


def _bound_text(row: Row) -> str:
    return f"{_lower(row.lower)}{', **accused**' if row.accused else ''}"


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


def _draw(rows: Sequence[Row]) -> "Figure":
    """Draw three panels: one step on all examples, all other sound settings, and bounds against claims."""
    attacked = [row for row in rows if row.accused is not None]
    claims = _claims(rows)
    shown = [row for row in attacked if row.delta == DELTA and row not in claims]
    alone = [row for row in shown if row.steps == 1 and row.sampling.endswith("all examples")]
    drawing = figure(WIDTH, 4.6)
    panels = drawing.subplots(1, 3)
    looks = {name: (f"C{i}", MARKERS[i]) for i, name in enumerate(dict.fromkeys(map(_series, attacked)))}
    _panel(panels[0], alone, "sound", "one step, all examples", looks)
    _panel(panels[1], [row for row in shown if row not in alone], "sound", "samples, or several steps", looks)
    _panel(panels[2], claims, "claimed", "claims without a guarantee", looks)
    panels[0].set_ylabel("ε at least, 95% confidence for all together")
    one_legend(drawing, 3)
    return drawing


def _panel(axes: "Axes", rows: Sequence[Row], against: str, title: str, looks: dict[str, tuple[str, str]]) -> None:
    floor, top = _SPANS[against]
    for name in dict.fromkeys(map(_series, rows)):
        series_rows = [row for row in rows if _series(row) == name]
        colour, marker = looks[name]
        x, y = [getattr(row, against) for row in series_rows], [max(row.lower, floor) for row in series_rows]
        axes.plot(x, y, marker, color=colour, markersize=5, alpha=0.8, label=name)
    ends = [0.05, 50.0] if against == "claimed" else [0.4, 10.0]
    axes.plot(ends, ends, "k-", linewidth=1, label="y = x")
    if against == "sound":
        axes.plot(ends, [ENOUGH * end for end in ends], "k:", linewidth=1, label=f"y = {ENOUGH:g} x")
    axes.set_ylim(0.9 * floor, top)
    log_axis(axes, "x")
    log_axis(axes, "y", [tick for tick in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if floor <= tick <= top])
    if any(row.lower < floor for row in rows):
        axes.set_yticks(axes.get_yticks(), [f"{'≤ ' if tick == floor else ''}{tick:g}" for tick in axes.get_yticks()])
    axes.set_xlabel(f"{against} ε")
    axes.set_title(title)


def _series(row: Row) -> str:
    """Name the series of a row in the figure: its mechanism, or the update rule, and weights if these are seen."""
    what, rule = (_words(text).partition(" (")[0] for text in (row.what, row.mechanism))
    if row.what.startswith(_ALONE):
        return what
    if not rule:
        return "DP-SGD, weights seen" if row.sees == "weights" else "DP-SGD"
    return f"{what}, {rule}" if row.what.startswith("backprop") else rule
