"""Findings in plain words: sentences that a paper has for a claim's verdicts, filled from the claim's row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from runner.claims import verdicts
from runner.claims.rows import ClaimRow
from runner.claims.verdicts import NOT_JUDGED, NOT_RUN
from runner.report.claim_rows import rows_of
from runner.report.files import Table
from runner.report.items import Finding, Paper
from runner.report.markdown import cells_of
from runner.report.pages import counted_once, guaranteed_of

_NONE = "Nothing has been decided yet."
_SHOWN = ("figure.svg", "table.md")  # of an item, the first that exists


def findings_table(papers: Sequence[Paper], folder: Path) -> Table:
    """Make a row for each paper and study: findings, counts of verdicts, links from README.md."""
    rows, claimed = [], []
    for paper in papers:
        judged = rows_of(folder, paper)
        said = [text for finding in paper.findings if (text := sentence(finding, judged))]
        claimed += [] if paper.study else judged
        rows.append(
            [
                paper.name.replace("_", "-"),
                "; ".join(said) + "." if said else _NONE,
                "nobody claims them" if paper.study else tally(counted_once(judged)),
                _links(paper, folder),
            ]
        )
    rows.insert(sum(not paper.study for paper in papers), _together(claimed))
    return Table(("paper", "what was found", "its numbers", "see"), rows)


def _together(judged: Sequence[ClaimRow]) -> list[str]:
    """Make the row of all papers: the share of claims that is measured, and the share of the rest on CIFAR-10."""
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
    """Return True if any of a claim's runs are on CIFAR-10."""
    claim = row.claim
    return "CIFAR" in claim.dataset or claim.dataset == "all" or any("cifar10" in name for name in claim.experiments)


def sentence(finding: Finding, judged: Sequence[ClaimRow]) -> str:
    """Fill a finding's sentence for its claim's verdict, or else for the state of its claimed epsilon.

    Empty if there is no such sentence, or if the claim is new and not yet among the rows.
    """
    wanted = finding.claim.items()
    row = next((row for row in judged if all(getattr(row.claim, name) == value for name, value in wanted)), None)
    said = [finding.says[word] for word in (row.verdict, row.guarantee) if word in finding.says] if row else []
    if row is None or not said:
        return ""
    cells = cells_of(row)
    unit = "%" if row.claim.unit == "%" and row.claim.quantity == "test_accuracy" else ""
    runs = "" if row.computed else f"({cells.runs})"
    return said[0].format(
        claimed=cells.claimed + unit,
        measured=f"{cells.measured}{unit} {runs}".rstrip(),
        difference=cells.difference,
        interval=cells.difference[cells.difference.find("[") : cells.difference.find("]") + 1],
        runs=runs,
        sound=cells.sound,
    )


def tally(numbers: Sequence[ClaimRow]) -> str:
    """Count rows by verdict: `31 consistent or better, 17 of them reproduced; 5 differ, 0 are not reproduced; ...`.

    Claims that follow from formulas are counted separately, and so are guaranteed epsilons.
    """
    of = Counter(row.verdict for row in numbers)
    better, differing = sum(of[word] for word in verdicts.CONFIRMED), of[verdicts.DIFFERS]
    parts = [f"{better} consistent or better, {of[verdicts.REPRODUCED]} of them reproduced"]
    parts.append(f"{differing} {'differs' if differing == 1 else 'differ'}")
    parts += [f"{of[word]} {word}" for word in (verdicts.NOT_REPRODUCED, verdicts.TOO_FEW_RUNS, NOT_RUN)]
    if of[verdicts.HOLDS] or of[verdicts.FAILS]:
        parts.append(f"by formula {of[verdicts.HOLDS]} hold and {of[verdicts.FAILS]} fail")
    held, judged = guaranteed_of(numbers)
    if judged:
        parts.append(f"of {judged} claimed ε {held} are guaranteed")
    return "; ".join(parts)


def _links(paper: Paper, folder: Path) -> str:
    """Link the first finding's item (its figure or else its table), the headline's figure and every number."""
    place, of_it = f"results/{paper.name}", folder / paper.name
    found_in = [finding.claim["item"] for finding in paper.findings[:1] if "item" in finding.claim]
    shown = [(name, file) for name in found_in for file in _SHOWN if (of_it / name / file).exists()][:1]
    shown += [(item.name, _SHOWN[0]) for item in paper.items if (of_it / item.name / _SHOWN[0]).exists()][:1]
    links = [f"[{name}]({place}/{name}/{file})" for name, file in dict.fromkeys(shown)]
    every = "every number" if paper.study else "every claim"
    return ", ".join([*links, f"[{every}]({place}/README.md)"])
