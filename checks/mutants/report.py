"""The table of faults and of the tests that noticed them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from checks.mutants.mutant import Mutant
from checks.mutants.trial import NOTICED, PASSED, Outcome
from runner.report.files import Table, markdown, write_text

_HEADER = ("part", "file", "fault", "noticed by")


def write(folder: Path, faults: Sequence[tuple[str, Mutant]], outcomes: Sequence[Outcome]) -> Path:
    """Write README.md: the score, the score by part, and a row for each fault. Return its path."""
    noticed = [outcome.word != PASSED for outcome in outcomes]
    by_part: dict[str, list[bool]] = {}
    rows = []
    for (part, mutant), outcome in zip(faults, outcomes, strict=True):
        by_part.setdefault(part, []).append(outcome.word != PASSED)
        test = f"`{outcome.message}`" if outcome.word == NOTICED else outcome.message
        rows.append((part, f"`{mutant.file}`", mutant.why, "**nothing**" if outcome.word == PASSED else test))
    lines = [
        "# Faults that the tests notice",
        "",
        "Each small fault is planted alone in a copy of the package. The table has the first test that fails for it. "
        "`checks/mutants/catalogue/` has the changed texts. Written by `make mutants`.",
        "",
        f"- **{sum(noticed)} of {len(noticed)} faults are noticed.**",
        *(f"- {part}: {sum(marks)} of {len(marks)}" for part, marks in sorted(by_part.items())),
        "",
        markdown(Table(_HEADER, rows)),
    ]
    return write_text(folder / "README.md", "\n".join(lines))
