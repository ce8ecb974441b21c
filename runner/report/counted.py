"""Counts of claims by verdict: of all papers for the index of results, and of one paper for its page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from runner.claims import verdicts
from runner.claims.counts import counted_once, guaranteed_of, judged
from runner.claims.evidence import PAPER_SCALE
from runner.claims.rows import ClaimRow
from runner.claims.verdicts import DIFFERS, FAILS, HOLDS, NOT_REPRODUCED, NOT_RUN, TOO_FEW_RUNS
from runner.report.cells import wrong_epsilon
from runner.report.files import Table, markdown

_CONFIRMED, _NO_EPSILON = "as claimed", "as claimed, but ε refuted or not guaranteed"
_BY_RUNS = (_CONFIRMED, _NO_EPSILON, DIFFERS, NOT_REPRODUCED, TOO_FEW_RUNS, NOT_RUN)
_BY_FORMULA = (HOLDS, "holds, but ε refuted or not guaranteed", FAILS)


def _by_runs(once: Sequence[ClaimRow]) -> list[str]:
    """Count the claims with runs under each heading. Each claim has one row, by `counted_once`."""
    with_runs = [row for row in once if judged(row) and row.verdict not in (HOLDS, FAILS)]
    of = Counter(_NO_EPSILON if wrong_epsilon(row) else row.verdict for row in with_runs)
    of[_CONFIRMED] = sum(of[word] for word in verdicts.CONFIRMED)
    return [str(of[name]) for name in _BY_RUNS]


def _by_formula(once: Sequence[ClaimRow]) -> list[str]:
    """Count the claims without runs under each heading."""
    holds = [row for row in once if row.verdict == HOLDS]
    wrong = sum(map(wrong_epsilon, holds))
    return [str(count) for count in (len(holds) - wrong, wrong, sum(row.verdict == FAILS for row in once))]


def totals(by_paper: Mapping[str, Sequence[ClaimRow]]) -> str:
    """Write the tables of counts, a row for each paper and one for all."""
    once = {name: counted_once(rows) for name, rows in by_paper.items()}
    every = once["**all**"] = [row for rows in once.values() for row in rows]
    context = sum(not judged(row) for row in every)
    note = (
        "Claims about one measured number count once, with the worst verdict. If a claim has several readings, the "
        "first counts. Several numbers by one formula count each. "
        f"{context} more numbers are shown for context and not judged."
    )
    tables = [
        markdown(Table((f"paper, claims {how}", *columns), [[name, *count(once[name])] for name in once]))
        for how, columns, count in (("with runs", _BY_RUNS, _by_runs), ("by formula", _BY_FORMULA, _by_formula))
    ]
    return "\n".join(tables) + f"\n{note}\n"


def of_paper(rows: Sequence[ClaimRow]) -> str:
    """Write the counts of one paper, a row of the same tables. Then count its guaranteed ε and its other readings."""
    once = counted_once(rows)
    holds, wrong, fails = _by_formula(once)
    at = f", and {wrong} at an ε that is refuted or not guaranteed" * (wrong != "0")
    formula = f"{HOLDS} {holds}{at}, {FAILS} {fails}"
    table = Table((*_BY_RUNS, "by formula, without runs"), [[*_by_runs(once), formula]])
    guaranteed, decided = guaranteed_of(once)
    said = []
    if decided and all(row.scale == PAPER_SCALE for row in rows):
        said.append(f"The claimed ε is guaranteed for the runs here in {guaranteed} of {decided} claims that name one.")
    words = Counter(row.verdict for row in rows) - Counter(row.verdict for row in once)
    if others := [f"{words[word]} *{word}*" for word in (DIFFERS, NOT_REPRODUCED) if words[word]]:
        said.append(f"Further rows, of other readings or of numbers that count already: {', '.join(others)}.")
    return markdown(table) + f"\n{' '.join(said)}\n" * bool(said)
