"""Two pages beside the leaderboard: the gains of all pairs of methods, and the settings that did best."""

from __future__ import annotations

from collections.abc import Sequence

from runner.claims.claim import dataset_name
from runner.report.cells import signed
from runner.report.files import Table, markdown
from runner.report.leaderboard.comparison import SHOWN, Comparison, Gain, gain_over
from runner.report.leaderboard.entries import Entry
from runner.report.leaderboard.methods import FRONT, NAMES
from runner.report.leaderboard.page import flags_text, further_ideas, mean_text

_INTRODUCTION = """# Gains of each method over each other

Points of test accuracy by which the method of a row is above that of the column, at the same sound ε. **Bold**: Welch's
95% interval tells the two apart. The intervals are not corrected for the number of pairs. A pair with a single run has
no interval. `python -m runner compare` prints the interval of a pair, and the [leaderboard](README.md) has the
accuracies and says what ◐, ⚠ and ☒ mark.

Each method has its own best setting here, with its own clipping norm. What one idea adds *on top of another*, such as
ScatterNet on top of tanh, is
[in the study of compositions](../studies/composition/README.md#what-does-each-part-add-to-another). Its arms
share a clipping norm of 0.1, learning rates in powers of two and the loss parameters of the paper, so gains there
differ from those here.
"""
_SETTINGS = """# Settings that did best

To train with a method at a sound ε, begin with the setting that did best here: it stands on the
[leaderboard](README.md), which says what ◐, ⚠ and ☒ mark. Learning rates depend on the clipping norm and on the batch
size, so take all of a row together. *114, up to ε*: of the 114 epochs of a run, the last one within ε counts. Below
each table are the commands of its first seeds.
"""
_SHOWN = ("learning rate", "clipping norm", "batch size", "epochs")  # the last one says where ε cuts it


def matrix_page(compared: Sequence[Comparison]) -> str:
    """Write a table of methods by methods for each data set and each bound on the sound epsilon."""
    parts = [_INTRODUCTION]
    for board in compared:
        for epsilon in SHOWN:
            best = {m: settings[epsilon] for m, settings in board.settings.items() if epsilon in settings}
            if len(best) > 1:
                parts.append(f"## {dataset_name(board.dataset)} at ε ≤ {epsilon:g}\n\n{markdown(_table(best))}")
    return "\n".join(parts)


def settings_page(compared: Sequence[Comparison]) -> str:
    """Write a table of settings for each method: its best one on each data set at each bound, with the commands."""
    parts = [_SETTINGS]
    for method in NAMES:
        best = [
            (f"{dataset_name(board.dataset)} at ε ≤ {epsilon:g}", settings[epsilon])
            for board in compared
            if (settings := board.settings.get(method, {}))
            for epsilon in SHOWN
            if epsilon in settings
        ]
        if not best:
            continue
        rows = []
        for place, entry in best:
            texts = [entry.settings[name] for name in _SHOWN]
            texts[-1] += "" if entry.made_for_it else ", up to ε"
            ideas = ", ".join(further_ideas(method, entry)) or "–"
            rows.append([place, *texts, ideas, f"{mean_text(entry)}{flags_text(entry)}"])
        header = ("data set", *_SHOWN, "also has", "test accuracy (%)")
        commands = "".join(f"# {place}\n{entry.command}\n" for place, entry in best)
        parts.append(
            f"## {method}\n\n{markdown(Table(header, rows))}\n<details><summary>Commands</summary>\n\n"
            f"```bash\n{commands}```\n\n</details>\n"
        )
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
