"""Counts of claims by verdict: of all papers for the index of results, and of one paper for its page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from runner.claims import verdicts
from runner.claims.counts import counted_once, guaranteed_of
from runner.claims.rows import ClaimRow
from runner.claims.verdicts import NOT_JUDGED, NOT_RUN
from runner.report.cells import wrong_epsilon
from runner.report.files import Table, markdown

_BETTER, _REPRODUCED = "consistent or better", "of these reproduced"
_BY_RUNS = (verdicts.DIFFERS, verdicts.NOT_REPRODUCED, verdicts.TOO_FEW_RUNS, NOT_RUN)
_BY_FORMULA = (verdicts.HOLDS, verdicts.FAILS)
_GUARANTEED, _WRONG = "claimed ε guaranteed", "as claimed, but the ε is not"
_TABLES = {  # the heading of the papers' names, and the columns
    "paper, claims with runs": (_BETTER, _REPRODUCED, *_BY_RUNS),
    "paper, claims by formula": _BY_FORMULA,
    "paper, claims that name an ε": (_GUARANTEED, _WRONG),
}


def _counts(once: Sequence[ClaimRow]) -> dict[str, str]:
    """Count claims under each heading. Each has one row, by `counted_once`."""
    of = Counter(row.verdict for row in once)
    numbers = {
        _BETTER: sum(of[word] for word in verdicts.CONFIRMED),
        _REPRODUCED: of[verdicts.REPRODUCED],
        **{word: of[word] for word in (*_BY_RUNS, *_BY_FORMULA)},
        _WRONG: sum(map(wrong_epsilon, once)),
    }
    return {name: str(number) for name, number in numbers.items()} | {
        _GUARANTEED: " of ".join(map(str, guaranteed_of(once)))
    }


def totals(by_paper: Mapping[str, Sequence[ClaimRow]]) -> str:
    """Write the tables of counts, a row for each paper and one for all."""
    once = {name: counted_once(rows) for name, rows in by_paper.items()}
    every = once["**all**"] = [row for rows in once.values() for row in rows]
    of = {name: _counts(rows) for name, rows in once.items()}
    context = sum(row.verdict == NOT_JUDGED for row in every)
    note = (
        "Claims about one measured number count once, with the worst verdict. If a claim has several readings, the "
        "first counts. Several numbers by one formula count each. "
        f"{context} more numbers are shown for context and not judged."
    )
    tables = [
        markdown(Table((heading, *columns), [[name, *(of[name][column] for column in columns)] for name in of]))
        for heading, columns in _TABLES.items()
    ]
    return "\n".join(tables) + f"\n{note}\n"


def of_paper(rows: Sequence[ClaimRow]) -> str:
    """Write the counts of one paper, a row of the same tables."""
    of = _counts(counted_once(rows))
    by_runs, by_formula, _ = _TABLES.values()
    formula = ", ".join(f"{word} {of[word]}" for word in by_formula)
    table = Table((*by_runs, "by formula, without runs"), [[*(of[name] for name in by_runs), formula]])
    guaranteed, _, decided = of[_GUARANTEED].partition(" of ")
    said = f"The claimed ε is guaranteed for the runs here in {guaranteed} of {decided} claims that name one."
    return markdown(table) + (f"\n{said}\n" if decided != "0" else "")
