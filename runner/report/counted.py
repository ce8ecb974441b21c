"""Counts of claims by their words, for the index of results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from runner.claims.claim import ANOTHER_READING
from runner.claims.judgement import ClaimRow, by_guarantee, by_word, counted
from runner.claims.verdicts import ON_EPSILON, WORDS
from runner.report.cells import wrong_epsilon
from runner.report.files import Table, enumerated, markdown

NO_EPSILON = "number holds or is not contradicted, ε refuted or not guaranteed"


def _cells(rows: Sequence[ClaimRow]) -> list[str]:
    """Count the claims with each word, and in brackets those by a formula."""
    every, formula = by_word(rows), by_word([row for row in rows if row.computed])
    return [f"{every[word]} ({formula[word]} by formula)" if formula[word] else str(every[word]) for word in WORDS]


def totals(by_paper: Mapping[str, Sequence[ClaimRow]]) -> str:
    """Write the tables of counts, of the numbers and of the claimed ε: a row for each paper and one for all."""
    rows = {**by_paper, "**all**": [row for of in by_paper.values() for row in of]}
    numbers = [[name, *_cells(of), str(len(counted(of)))] for name, of in rows.items()]
    epsilons = [
        [name, *(str(by_guarantee(of)[word]) for word in ON_EPSILON), str(sum(map(wrong_epsilon, counted(of))))]
        for name, of in rows.items()
    ]
    tables = [
        Table(("paper", *WORDS, "all"), numbers),
        Table(("paper, claimed ε", *ON_EPSILON, NO_EPSILON), epsilons),
    ]
    note = (
        "A claim is a number or a statement of a paper, and each counts once. If it has several readings, the first "
        f"counts. {_left_out(rows['**all**'])} `python -m runner claims --verdict fails` lists the claims with a word, "
        "and `--all` adds the rows that do not count."
    )
    return "\n".join(map(markdown, tables)) + f"\n{note}\n"


def _left_out(rows: Sequence[ClaimRow]) -> str:
    """Say how many rows do not count, and which words the other readings have."""
    readings = [row for row in rows if row.claim.counted == ANOTHER_READING]
    words = Counter(row.verdict for row in readings if row.verdict)
    named = [f"{words[word]} *{word}*" for word in WORDS if words[word]]
    of_readings = f"{len(readings)} of other readings" + (f" ({', '.join(named)})" if named else "")
    context = sum(row.claim.for_context for row in rows)
    parts = [of_readings] * bool(readings) + [f"{context} for context"] * bool(context)
    return f"Rows that are shown, but not counted: {enumerated(parts)}." if parts else ""
