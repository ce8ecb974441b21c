"""What was found, in plain words: sentences that papers keep ready for a claim's verdicts, filled from its row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from runner.claims.rows import ClaimRow
from runner.claims.verdicts import (
    CONFIRMED,
    DIFFERS,
    FAILS,
    GUARANTEED,
    HOLDS,
    NOT_GUARANTEED,
    NOT_JUDGED,
    NOT_REPRODUCED,
    NOT_RUN,
    REFUTED,
    REPRODUCED,
    TOO_FEW_RUNS,
)
from runner.report.claim_rows import read_rows
from runner.report.files import Table
from runner.report.items import Finding, Paper
from runner.report.markdown import cells_of
from runner.report.pages import counted_once

_NONE = "Nothing has been decided yet."
_SHOWN = ("figure.svg", "table.md")  # of an item, the first that there is


def findings_table(papers: Sequence[Paper], folder: Path) -> Table:
    """A row a paper or study: what was found, what became of its numbers, where to look. Links are from README.md."""
    rows = []
    for paper in papers:
        judged = [row for item in paper.items for row in read_rows(folder, paper, item)]
        said = [text for finding in paper.findings if (text := sentence(finding, judged))]
        rows.append(
            [
                paper.name.replace("_", "-"),
                "; ".join(said) + "." if said else _NONE,
                "nobody claims them" if paper.study else tally(counted_once(judged)),
                _links(paper, folder),
            ]
        )
    claimed = [p for p in papers if not p.study]
    rows.insert(
        len(claimed), _together([row for p in claimed for item in p.items for row in read_rows(folder, p, item)])
    )
    return Table(("paper", "what was found", "its numbers", "see"), rows)


def _together(judged: Sequence[ClaimRow]) -> list[str]:
    """The row of all papers: how much of what they claim is measured, and where most of the rest is."""
    numbers = [row for row in counted_once(judged) if row.verdict != NOT_JUDGED]
    not_run = [row for row in numbers if row.verdict == NOT_RUN]
    cifar10 = sum(_needs_cifar10(row) for row in not_run)
    those = f"the other {cifar10} all" if cifar10 == len(not_run) else f"{cifar10} of the other {len(not_run)}"
    found = (
        f"of {len(numbers)} claims {len(numbers) - len(not_run)} are measured or computed; {those} need CIFAR-10, of "
        f"which most runs take hours without a GPU."
    )
    return ["**all of them**", found, tally(numbers), "[every item](results/README.md)"]


def _needs_cifar10(row: ClaimRow) -> bool:
    """Whether any of a claim's runs are on CIFAR-10."""
    claim = row.claim
    return "CIFAR" in claim.dataset or claim.dataset == "all" or any("cifar10" in name for name in claim.experiments)


def sentence(finding: Finding, judged: Sequence[ClaimRow]) -> str:
    """What a finding says under its claim's verdict, else under what its claimed epsilon is; empty where nothing.

    So too of a claim that is not among the rows: one that is new says something once its paper has been aggregated.
    """
    for row in judged:
        if all(getattr(row.claim, name) == value for name, value in finding.claim.items()):
            for word in (row.verdict, row.guarantee):
                if word in finding.says:
                    cells = cells_of(row)
                    unit = "%" if row.claim.unit == "%" and row.claim.quantity == "test_accuracy" else ""
                    runs = "" if row.computed else f"({cells.runs})"
                    return finding.says[word].format(
                        claimed=cells.claimed + unit,
                        measured=f"{cells.measured}{unit} {runs}".rstrip(),
                        difference=cells.difference,
                        interval=cells.difference[cells.difference.find("[") : cells.difference.find("]") + 1],
                        runs=runs,
                        sound=cells.sound,
                    )
            return ""
    return ""


def tally(numbers: Sequence[ClaimRow]) -> str:
    """`31 consistent or better, 17 of them reproduced; 5 differ, 0 are not reproduced; ...`, of a row a claim each.

    What follows from formulas is counted apart, and so is whether the claimed epsilons hold for what was run.
    """
    of = Counter(row.verdict for row in numbers)
    parts = [f"{sum(of[word] for word in CONFIRMED)} consistent or better, {of[REPRODUCED]} of them reproduced"]
    parts += [f"{of[DIFFERS]} {'differs' if of[DIFFERS] == 1 else 'differ'}", f"{of[NOT_REPRODUCED]} not reproduced"]
    parts += [f"{of[word]} {word}" for word in (TOO_FEW_RUNS, NOT_RUN)]
    if of[HOLDS] or of[FAILS]:
        parts.append(f"by formula {of[HOLDS]} hold and {of[FAILS]} fail")
    private = Counter(row.guarantee for row in numbers if row.verdict != NOT_JUDGED)
    if judged := sum(private[word] for word in (GUARANTEED, NOT_GUARANTEED, REFUTED)):
        parts.append(f"of {judged} claimed ε {private[GUARANTEED]} are guaranteed")
    return "; ".join(parts)


def _links(paper: Paper, folder: Path) -> str:
    """The item that the first finding is of, by its figure or else its table; the headline's figure; every number."""
    place, of_it = f"results/{paper.name}", folder / paper.name
    found_in = [finding.claim["item"] for finding in paper.findings[:1] if "item" in finding.claim]
    shown = [(name, file) for name in found_in for file in _SHOWN if (of_it / name / file).exists()][:1]
    shown += [(item.name, _SHOWN[0]) for item in paper.items if (of_it / item.name / _SHOWN[0]).exists()][:1]
    links = [f"[{name}]({place}/{name}/{file})" for name, file in dict.fromkeys(shown)]
    every = "every number" if paper.study else "every claim"
    return ", ".join([*links, f"[{every}]({place}/README.md)"])
