"""The table of faults and of the tests that noticed them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from checks.mutants.mutant import Mutant
from checks.mutants.trial import NOTICED, PASSED, Outcome
from runner.report.files import Table, markdown, write_text

_HEADER = ("part", "file", "fault", "noticed by")


def write(folder: Path, faults: Sequence[tuple[str, Mutant]], outcomes: Sequence[Outcome]) -> Path:
    """Write README.md.

    Returns:
        Its path.
    """
    return write_text(folder / "README.md", page(faults, outcomes))


def page(faults: Sequence[tuple[str, Mutant]], outcomes: Sequence[Outcome]) -> str:
    """Make the page: the score, the score by part, and a row for each fault."""
    noticed = [outcome.word != PASSED for outcome in outcomes]
    parts = sorted({part for part, _ in faults})
    by_part = [
        (
            part,
            sum(n for n, (p, _) in zip(noticed, faults, strict=True) if p == part),
            sum(p == part for p, _ in faults),
        )
        for part in parts
    ]
    rows = [
        (part, f"`{mutant.file}`", mutant.why, _by(outcome))
        for (part, mutant), outcome in zip(faults, outcomes, strict=True)
    ]
    lines = [
        "# Faults that the tests notice",
        "",
        "Each small fault is planted alone in a copy of the package. The table has the first test that fails for it. "
        "`checks/mutants/catalogue/` has the changed texts. Written by `make mutants`.",
        "",
        f"- **{sum(noticed)} of {len(noticed)} faults are noticed.**",
        *(f"- {part}: {found} of {all_}" for part, found, all_ in by_part),
        "",
        markdown(Table(_HEADER, rows)),
    ]
    return "\n".join(lines)


def _by(outcome: Outcome) -> str:
    if outcome.word == PASSED:
        return "**nothing**"
    return f"`{outcome.said}`" if outcome.word == NOTICED else outcome.said
