"""Counts of claims, each once, by verdict and by guarantee."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from runner.claims import verdicts
from runner.claims.rows import ClaimRow
from runner.claims.verdicts import NOT_JUDGED, NOT_RUN

_LEAST_FAVOURABLE = (
    *(verdicts.NOT_REPRODUCED, verdicts.FAILS, verdicts.DIFFERS, verdicts.TOO_FEW_RUNS, verdicts.CONSISTENT),
    *(verdicts.HOLDS, verdicts.REPRODUCED, verdicts.EXCEEDS, NOT_JUDGED, NOT_RUN),
)


def judged(row: ClaimRow) -> bool:
    """Return True if a row is a claim to judge, with runs or still without; others are shown for context."""
    return row.verdict != NOT_JUDGED and not row.claim.for_context


def guaranteed_of(rows: Sequence[ClaimRow]) -> tuple[int, int]:
    """Count the claimed epsilons that are guaranteed, and all that are decided."""
    private = Counter(row.guarantee for row in rows if judged(row))
    decided = (verdicts.GUARANTEED, verdicts.NOT_GUARANTEED, verdicts.REFUTED)
    return private[verdicts.GUARANTEED], sum(private[word] for word in decided)


def counted_once(rows: Sequence[ClaimRow]) -> list[ClaimRow]:
    """Select one row for each claim.

    Of its readings the first counts, and of claims with one number of the same runs the least favourable.
    """
    leading = {row.claim.identity: row for row in reversed(rows)}
    groups: dict[object, list[ClaimRow]] = {}
    for place, row in enumerate(rows):
        if leading[row.claim.identity] is row or not row.claim.reading:
            shared = row.claim.pairs and row.measured is not None and not row.computed
            key = row.claim.pairs, row.claim.quantity, row.measured
            groups.setdefault(key if shared else place, []).append(row)
    return [min(rows, key=lambda row: _LEAST_FAVOURABLE.index(row.verdict)) for rows in groups.values()]
