"""Counts of claims by their words and by the words on their epsilon.

Of several readings of a claim the first one counts, and a number for context does not (`Claim.counted`). A claim that
was run at another scale than the paper's has no word, so it does not count either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from runner.claims.rows import ClaimRow


def counted(rows: Sequence[ClaimRow]) -> list[ClaimRow]:
    """Select the rows that lists and totals are made of: one for each claim that has a word."""
    return [row for row in rows if row.claim.counts and row.verdict]


def by_word(rows: Sequence[ClaimRow]) -> Counter[str]:
    """Count claims by verdict."""
    return Counter(row.verdict for row in counted(rows))


def by_guarantee(rows: Sequence[ClaimRow]) -> Counter[str]:
    """Count claims by the word on their epsilon, if they have one."""
    return Counter(row.guarantee for row in counted(rows) if row.guarantee)
