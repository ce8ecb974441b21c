"""The leaderboard as a page: one table of all methods and data sets, plain DP-SGD as a baseline, published numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runner.claims.claim import dataset_name
from runner.claims.runs import grouped
from runner.claims.statistics import difference, summarise
from runner.report.cells import difference_text
from runner.report.files import Table, enumerated, markdown, number
from runner.report.leaderboard.comparison import FEW, SHOWN, Comparison, Line, settings_of
from runner.report.leaderboard.entries import DELTA, Entry
from runner.report.leaderboard.methods import ADDED, IDEAS, NAMES
from runner.report.leaderboard.published import KINDS, Published, best_published

_BASELINE = (1.0, 2.0, 3.0, 8.0)
_TEXT = Path(__file__).with_suffix(".md")


def page(found: Sequence[Entry], compared: Sequence[Comparison], known: Sequence[Published], trials: int) -> str:
    """Write the page. `trials` is the number of recorded runs of searches."""
    several = [
        settings_of(found, line.method, board.dataset, epsilon)
        for board in compared
        for line in board.rows
        for epsilon in line.at
    ]
    higher = [max(e.mean for e in of if e is of[0] or not e.by_test_images) - of[0].mean for of in several]
    return _TEXT.read_text(encoding="utf-8").format(
        answers=" ".join(_answer(board) for board in compared),
        delta=f"{DELTA:g}".replace("e-0", "e-"),
        few=FEW,
        table=markdown(_table(compared, known)),
        rows=len(found),
        epsilons=enumerated([f"{epsilon:g}" for epsilon in dict.fromkeys(entry.epsilon for entry in found)]),
        baseline=markdown(_baseline(found, compared)),
        repeat=_repeated(compared),
        published=markdown(_published(known)),
        disputed=_disputed(known),
        most=max(map(len, several)),
        higher=sum(points > 0 for points in higher),
        cells=len(several),
        by=number(max(higher), places=1),
        trials=trials,
        others=sum(entry.neighbours != ADDED for entry in found),
        outside=_outside(found, compared),
    )


def _answer(board: Comparison) -> str:
    """Say which method is best on a data set at the largest bound, and by how much over plain DP-SGD."""
    epsilon = SHOWN[-1]
    line = board.best(epsilon)
    if line is None:
        return ""
    entry, gain = line.at[epsilon], board.gain(line, epsilon)
    gained = difference_text(gain.points, "", gain.interval, places=1) if gain else ""
    over = f", {gained} over plain DP-SGD" if gain else ""
    alike = "" if gain is None or gain.alike else ", which is not tuned alike"
    best = f"*{_name(line, [epsilon])}* has {number(entry.mean, places=1)}%{_flags(entry)}"
    return f"On {dataset_name(board.dataset)} at ε ≤ {epsilon:g}, {best}{over}{alike}."


def _table(compared: Sequence[Comparison], known: Sequence[Published]) -> Table:
    """Make a row for each method, the largest gain over plain DP-SGD first, then rows of published numbers."""
    header = ["method", *(f"{dataset_name(b.dataset)} ε ≤ {e:g}" for b in compared for e in SHOWN)]
    lines = {board.dataset: {line.method: line for line in board.rows} for board in compared}
    rows = []
    for name in sorted(NAMES, key=lambda name: _rank(name, compared)):
        cells = [
            _cell(board, lines[board.dataset].get(name), epsilon, _tied(board, epsilon))
            for board in compared
            for epsilon in SHOWN
        ]
        if any(cell != "–" for cell in cells):
            rows.append([f"**{name}**" if name == NAMES[0] else name, *cells])
    for kind in KINDS:
        best = [best_published(known, board.dataset, epsilon, kind) for board in compared for epsilon in SHOWN]
        if any(best):
            rows.append([f"*Published, {kind}*", *("–" if one is None else f"*{one.accuracy:g}*" for one in best)])
    return Table(header, rows)


def _rank(name: str, compared: Sequence[Comparison]) -> tuple[bool, float]:
    """Order methods by their mean gain over plain DP-SGD at the largest bound; plain DP-SGD is last."""
    gains = [
        gain.points
        for board in compared
        for line in board.rows
        if line.method == name and (gain := board.gain(line, SHOWN[-1]))
    ]
    return name == NAMES[0], -sum(gains) / len(gains) if gains else 0.0


def _tied(board: Comparison, epsilon: float) -> list[Line]:
    """List the method with the highest mean, and those that Welch's interval does not tell from it."""
    best = board.best(epsilon)
    if best is None:
        return []
    top = best.at[epsilon]
    tied = [best]
    for line in board.rows:
        entry = line.at.get(epsilon)
        if entry is None or line is best or min(len(entry.accuracies), len(top.accuracies)) < FEW:
            continue
        interval = difference(top.accuracies, entry.accuracies)
        if interval is not None and interval.low <= 0 and not (entry.by_test_images or entry.on_a_part):
            tied.append(line)
    return tied


def _cell(board: Comparison, line: Line | None, epsilon: float, tied: Sequence[Line]) -> str:
    entry = None if line is None else line.at.get(epsilon)
    if line is None or entry is None:
        return "–"
    text = _mean(entry)
    others = [idea for idea in entry.ideas if idea != IDEAS.get(line.method)]
    having = f" ({', '.join(others)})" if 0 < len(others) <= 1 else ""
    return (f"**{text}**" if any(line is one for one in tied) else text) + having + _flags(entry)


def _mean(entry: Entry) -> str:
    std = summarise(entry.accuracies)["std"]
    spread = "" if std is None else f" ± {number(std, places=1)}"
    return f"{number(entry.mean, places=1)}{spread} ({len(entry.accuracies)})"


def _flags(entry: Entry) -> str:
    flags = {
        "◐": len(entry.accuracies) < FEW,
        "⚠": not entry.held_out,
        "☒": entry.by_test_images or entry.on_a_part,
    }
    marks = "".join(mark for mark, holds in flags.items() if holds)
    return f" {marks}" if marks else ""


def _name(line: Line, epsilons: Sequence[float] = SHOWN) -> str:
    """Return the name of a line's method with the other ideas that its settings at these bounds have."""
    ideas = dict.fromkeys(idea for epsilon in epsilons if epsilon in line.at for idea in line.at[epsilon].ideas)
    named = [idea for idea in ideas if idea != IDEAS.get(line.method)]
    return line.method + (f", with {enumerated(named)}" if named else "")


def _baseline(found: Sequence[Entry], compared: Sequence[Comparison]) -> Table:
    """Tabulate plain DP-SGD at several bounds, each number with what it is."""
    rows = []
    for board in compared:
        cells = []
        for epsilon in _BASELINE:
            settings = settings_of(found, NAMES[0], board.dataset, epsilon)
            cells.append(_stated(settings[0]) if settings else "–")
        rows.append([dataset_name(board.dataset), *cells])
    return Table(["data set", *(f"ε ≤ {epsilon:g}" for epsilon in _BASELINE)], rows)


def _stated(entry: Entry) -> str:
    """Format the accuracy of a setting, with how it was chosen and whether its runs were made for the bound."""
    sound = number(entry.sound, places=2, bound="upper")
    other = "" if entry.made_for_it else f", of a run made for another ε, which had spent {sound}"
    return f"{_mean(entry)}, {'searched' if entry.held_out else 'not searched'}{other}"


def _repeated(compared: Sequence[Comparison]) -> str:
    entry = compared[0].plain.at.get(SHOWN[-1])
    if entry is None:
        return ""
    name = dataset_name(compared[0].dataset)
    return f"The first seed on {name} at ε ≤ {SHOWN[-1]:g}: `{entry.command} runtime.results_root=again`\n"


def _published(known: Sequence[Published]) -> Table:
    """List the published numbers by class and work."""
    rows = []
    for kind in KINDS:
        works = grouped(
            (one for one in known if one.kind == kind and not one.disputed), lambda one: (one.method, one.source)
        )
        for (method, source), numbers in works.items():
            texts = [
                f"{dataset_name(dataset)} {', '.join(f'{one.accuracy:g} at {one.epsilon:g}' for one in some)}"
                for dataset, some in grouped(numbers, lambda one: one.dataset).items()
            ]
            rows.append([kind, method, "; ".join(texts), numbers[0].accountant, f"[{source}]({numbers[0].read})"])
    return Table(("class", "method", "accuracy at ε", "accountant", "source"), rows)


def _disputed(known: Sequence[Published]) -> str:
    """Name the published numbers whose privacy is disputed, by method."""
    texts = []
    for method, numbers in grouped((one for one in known if one.disputed), lambda one: one.method).items():
        accuracies = [
            f"{enumerated([f'{one.accuracy:g}%' for one in some])} on {dataset_name(dataset)}"
            for dataset, some in grouped(numbers, lambda one: one.dataset).items()
        ]
        epsilons = enumerated([f"{epsilon:g}" for epsilon in dict.fromkeys(one.epsilon for one in numbers)])
        disputed = f"[Its ε is disputed]({numbers[0].disputed})."
        texts.append(f"[{method}]({numbers[0].read}) reports {enumerated(accuracies)}, at ε = {epsilons}. {disputed}")
    return " ".join(texts)


def _outside(found: Sequence[Entry], compared: Sequence[Comparison]) -> str:
    """Name the settings of no listed method that are above the best one of a table."""
    texts = []
    for board in compared:
        for epsilon in SHOWN:
            line = board.best(epsilon)
            others = settings_of(found, "", board.dataset, epsilon)
            above = max((e for e in others if not e.by_test_images), key=lambda e: e.mean, default=None)
            if line and above and above.mean > line.at[epsilon].mean:
                accuracy = f"{number(above.mean, places=1)}% ({len(above.accuracies)} runs)"
                texts.append(f"{dataset_name(board.dataset)} at ε ≤ {epsilon:g}: *{above.title}*, {accuracy}")
    said = "Settings of no method here are in the CSV only."
    return f"{said} Above the best here are, on {'; on '.join(texts)}." if texts else said
