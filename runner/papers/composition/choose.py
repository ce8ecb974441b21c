"""`python -m runner choose-rates`: write the learning rates that the searches chose for the final runs.

Reads the records of the searches, on held-out images, and writes sweeps/composition/chosen.csv for the experiments.
Prints the best cell, for conf/experiment/composition/base_best*.yaml. Trains nothing.

Exit codes: 0 done, 2 bad input, with a message of one sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runner.claims.evidence import Evidence, collect
from runner.config import REPOSITORY
from runner.papers.composition.choices import DATASETS, FIELDS, PAPER, RATE, best_cell, choices
from runner.papers.composition.design import words
from runner.report.files import write_csv
from runner.terminal import Parser

CHOSEN = REPOSITORY / "sweeps" / PAPER / "chosen.csv"


def write(evidence: Evidence, path: Path = CHOSEN) -> tuple[int, int]:
    """Write the table of chosen rates, a row per searched setting; return the numbers of rows and of settings."""
    found = choices(evidence, evidence.sweeps)
    rows = [
        {**dict(zip(FIELDS, setting, strict=True)), RATE: choice.rate}
        for setting, choice in found.items()
        if choice.rate is not None
    ]
    write_csv(path, [*FIELDS, RATE], rows)
    return len(rows), len(found)


def search_sweeps() -> list[str]:
    """Return the sweeps that search for rates."""
    return sorted(f"{PAPER}/{path.stem}" for path in (REPOSITORY / "sweeps" / PAPER).glob("*_search*.yaml"))


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    Parser(prog="python -m runner choose-rates", description=__doc__).parse_args(arguments)
    evidence = collect(search_sweeps())
    written, of = write(evidence)
    print(f"{CHOSEN}: a rate for {written} of {of} settings.")
    cell = best_cell(evidence)
    named = "not known until every cell has been searched" if cell is None else ", ".join(words(cell))
    print(f"The best cell on held-out images of {' and '.join(DATASETS.values())}: {named}.")
    return 0
