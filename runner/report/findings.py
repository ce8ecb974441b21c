"""What was found, in plain words: sentences that papers keep ready for a claim's verdicts, filled from its row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.report.files import Table
from runner.report.items import Finding, Paper
from runner.report.pages import counts_of, item_rows, numbers_of
from runner.report.verdicts import BETTER, NOT_REPRODUCED, NOT_RUN, ORDER_FAILS, ORDER_HOLDS, REPRODUCED, UNDECIDED

_NONE = "Nothing has been decided yet."
_COMPUTED = " (computed)"
_WORDS = (  # how verdicts are put together in a sentence
    ("reproduced", (REPRODUCED, BETTER, ORDER_HOLDS)),
    ("not", (NOT_REPRODUCED, ORDER_FAILS)),
    ("undecided", (UNDECIDED,)),
    ("not run", (NOT_RUN,)),
)


def findings_table(papers: Sequence[Paper], folder: Path) -> Table:
    """A row a paper or study: what was found, what became of its numbers, where to look. Links are from README.md."""
    rows = []
    for paper in papers:
        judged = [row for item in paper.items for row in item_rows(folder, paper, item)]
        said = [text for finding in paper.findings if (text := sentence(finding, judged))]
        rows.append(
            [
                paper.name.replace("_", "-"),
                "; ".join(said) + "." if said else _NONE,
                "nobody claims them" if paper.study else _tally(counts_of(judged)),
                _links(paper, folder),
            ]
        )
    return Table(("paper", "what was found", "its numbers", "see"), rows)


def sentence(finding: Finding, judged: Sequence[Mapping[str, str]]) -> str:
    """What a finding says under its claim's verdict, else under what its claimed epsilon is; empty where nothing.

    So too of a claim that is not among the rows: one that is new says something once its paper has been aggregated.
    """
    for row in judged:
        if all(row[name] == value for name, value in finding.claim.items()):
            for word in (row["verdict"], row["claimed_epsilon"]):
                if word in finding.says:
                    claimed, _, measured, _, _, difference, _, _, sound, _ = numbers_of(row)
                    if word == UNDECIDED and "[" not in difference:
                        return ""  # of too few runs to say anything, not even that nothing is seen
                    value, bracket, runs = measured.partition(" (")
                    unit = "%" if row["unit"] == "%" and row["quantity"] == "test_accuracy" else ""
                    counted = bracket + runs if runs != "computed)" else ""
                    return finding.says[word].format(
                        claimed=claimed + unit,
                        measured=f"{value}{unit}{counted}",
                        difference=difference,
                        runs=counted.lstrip(),
                        sound=sound,
                    )
            return ""
    return ""


def _tally(counts: Counter[str]) -> str:
    parts = []
    for words, verdicts in _WORDS:
        found = {v: n for v, n in counts.items() if v.removesuffix(_COMPUTED) in verdicts}
        computed = sum(n for v, n in found.items() if v.endswith(_COMPUTED))
        parts.append(f"{sum(found.values())} {words}" + (f" ({computed} computed)" if computed else ""))
    return ", ".join(parts)


def _links(paper: Paper, folder: Path) -> str:
    place = f"results/{paper.name}"
    drawn = [item.name for item in paper.items if (folder / paper.name / item.name / "figure.png").exists()]
    figures = [f"[{name}]({place}/{name}/figure.png)" for name in drawn[:1]]
    every = "every number" if paper.study else "every claim"
    return ", ".join([*figures, f"[{every}]({place}/README.md)"])
