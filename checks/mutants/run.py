"""Small planted faults, one at a time, which the tests have to notice: `python -m checks mutants`.

A fault is a replaced text (see `mutants.catalogue`), chosen by hand for its effect on privacy, a gradient or a verdict.
Automatic tools (mutmut, cosmic-ray) change operators and constants everywhere, by the thousand, and most changes are
harmless. They accept no list of faults. They measure how well lines are covered, and not the detection of a forgotten
charge or an incomplete batch.

The source itself never changes: each fault is in a copy of the tree, in a temporary folder, on which its tests run. At
the end, the tests that noticed a fault have to pass on a copy without one. Compiled kernels are cached under a hash of
their source, so a fault in one is compiled anew. Copies have their own cache.

Exit codes: 0 every fault was noticed, 1 one was not, 2 a fault no longer fits the code or the tests fail without one.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from checks.mutants.catalogue import Mutant, every
from checks.mutants.trial import HANGS, NOTICED, PASSED, PRELOADED, UNUSABLE, Outcome, Trial, compiled, copied, start

REPOSITORY = Path(__file__).resolve().parents[2]
_PAUSE = 0.05  # seconds


def main(arguments: Sequence[str]) -> int:
    """Try all faults and write the table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m checks mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="faults whose part, file or reason contains this; writes no table")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="faults tried at a time")
    parser.add_argument("--tests", action="store_true", help="print the tests that have to notice a fault; try nothing")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "results" / "mutants")
    chosen = parser.parse_args(arguments)
    if chosen.tests:
        print("\n".join(tests()))
        return 0
    faults = [
        (part, mutant)
        for part, mutants in every().items()
        for mutant in mutants
        if chosen.only in f"{part} {mutant.file} {mutant.why}"
    ]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no trial is left behind
    for name in PRELOADED:  # once, as every trial would take seconds to import them
        import_module(name)
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            outcomes = _all(faults, Path(folder), chosen.jobs)
    except ValueError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    noticed = sum(outcome.word in (NOTICED, HANGS) for outcome in outcomes)
    print(f"{noticed} of {len(outcomes)} faults noticed, {time.monotonic() - started:.0f} s")
    if not chosen.only:
        print(write(chosen.output, faults, outcomes))
    return 0 if noticed == len(outcomes) else 1


def tests() -> list[str]:
    """Return the tests that have to notice a fault, each once, file by file."""
    names = {f"tests/{test}" for mutants in every().values() for mutant in mutants for test in mutant.tests.split()}
    return sorted(test for test in names if test.partition("::")[0] == test or test.partition("::")[0] not in names)


def _all(faults: list[tuple[str, Mutant]], folder: Path, jobs: int) -> list[Outcome]:
    """Return the outcome of each fault.

    Raises:
        ValueError: a fault does not fit, or a test also fails without it.
    """
    tree = copied(REPOSITORY, folder / "tree")  # once: later edits are no part of any trial
    for _, mutant in faults:
        mutant.mutated((tree / "runner" / mutant.file).read_text(encoding="utf-8"))
    cache = folder / "cache"
    compiled(tree, cache)
    outcomes: dict[int, Outcome] = {}
    trials = [(mutant.tests.split(), mutant) for _, mutant in faults]
    for number, outcome in _tried(trials, tree, cache, jobs):
        part, mutant = faults[number]
        outcomes[number] = outcome
        print(f"{part}, {mutant.file}: {mutant.why}: {outcome.word} {outcome.message}", flush=True)
    unusable = [
        f"{faults[n][1].file}, '{faults[n][1].why}'" for n, outcome in outcomes.items() if outcome.word == UNUSABLE
    ]
    if unusable:
        raise ValueError(f"pytest could not try {'; '.join(unusable)}.")
    noticing = sorted({outcome.message for outcome in outcomes.values() if outcome.word == NOTICED and outcome.test})
    for _, outcome in _tried([(noticing, None)] if noticing else [], tree, cache, 1):
        if outcome.word != PASSED:
            raise ValueError(f"fails without a fault, too: {outcome.message}")
    return [outcomes[number] for number in sorted(outcomes)]


def _tried(
    trials: Sequence[tuple[list[str], Mutant | None]], tree: Path, cache: Path, jobs: int
) -> Iterator[tuple[int, Outcome]]:
    """Yield number and outcome of each trial when it ends, with `jobs` at a time. No process is left in the end."""
    going: dict[int, Trial] = {}
    due = list(enumerate(trials))
    try:
        while due or going:
            while due and len(going) < jobs:
                number, (tests, mutant) = due.pop(0)
                going[number] = start(tree, tree.parent / str(number), cache, tests, mutant)
            for number, trial in list(going.items()):
                outcome = trial.ended()
                if outcome is not None:
                    del going[number]
                    shutil.rmtree(trial.folder)
                    yield number, outcome
            time.sleep(_PAUSE)
    finally:
        for trial in going.values():
            trial.stop()


def write(folder: Path, faults: Sequence[tuple[str, Mutant]], outcomes: Sequence[Outcome]) -> Path:
    """Write README.md: the score, the score by part, and a row for each fault. Return its path."""
    from runner.report.formats import Table, markdown, write_text  # here: no trial may find it imported

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
        f"- **{sum(map(sum, by_part.values()))} of {len(faults)} faults are noticed.**",
        *(f"- {part}: {sum(marks)} of {len(marks)}" for part, marks in sorted(by_part.items())),
        "",
        markdown(Table(("part", "file", "fault", "noticed by"), rows)),
    ]
    return write_text(folder / "README.md", "\n".join(lines))
