"""The gains of each method of the leaderboard over each other one, as a page: leaderboard/matrix.md."""

from __future__ import annotations

from collections.abc import Sequence

from runner.claims.claim import dataset_name
from runner.report.cells import signed
from runner.report.files import Table, markdown
from runner.report.leaderboard.comparison import SHOWN, Comparison, Gain, gain_over
from runner.report.leaderboard.entries import Entry
from runner.report.leaderboard.methods import FRONT
from runner.report.leaderboard.page import flags_text

_INTRODUCTION = """# Gains of each method over each other

Points of test accuracy by which the method of a row is above that of the column, at the same sound ε. **Bold**: Welch's
95% interval tells the two apart. The intervals are not corrected for the number of pairs. A pair with a single run has
no interval. `python -m runner compare` prints the interval of a pair, and the [leaderboard](README.md) has the
accuracies and says what ◐, ⚠ and ☒ mark.
"""


def matrix_page(compared: Sequence[Comparison]) -> str:
    """Write a table of methods by methods for each data set and each bound on the sound epsilon."""
    parts = [_INTRODUCTION]
    for board in compared:
        for epsilon in SHOWN:
            best = {m: settings[epsilon] for m, settings in board.settings.items() if epsilon in settings}
            if len(best) > 1:
                parts.append(f"## {dataset_name(board.dataset)} at ε ≤ {epsilon:g}\n\n{markdown(_table(best))}")
    return "\n".join(parts)


def _table(best: dict[str, Entry]) -> Table:
    labels = [FRONT[method]["label"] for method in best]
    rows = [
        [f"{FRONT[method]['label']}{flags_text(entry)}", *(_cell(gain_over(entry, other)) for other in best.values())]
        for method, entry in best.items()
    ]
    return Table(["over →", *labels], rows)


def _cell(gain: Gain | None) -> str:
    if gain is None:
        return "–"
    text = signed(gain.points, "", 1)
    apart = gain.interval is not None and (gain.interval.low > 0 or gain.interval.high < 0)
    return f"**{text}**" if apart else text
