"""Carry out all tries, and write their table."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

from checks.faults.tries import data, files, messages, own_data, terminals, tracking
from checks.faults.tries.attempt import Answer, Try, attempt
from runner.config import REPOSITORY
from runner.records.identity import resolved
from runner.records.jobs import composed
from runner.report.files import Table, markdown, read_csv
from runner.runs.execute import execute
from runner.terminal import printable

_BEFORE = Path(__file__).with_name("before.csv")  # the same tries on an earlier version of the code
_CASES = Path(__file__).with_name("cases.csv")  # reports of faults, and the tries or the file of tests that show each
Tried = tuple[Try, Answer]


def all_tries() -> list[Try]:
    """List the tries of all kinds."""
    return [each for kind in (files, tracking, data, messages, terminals, own_data) for each in kind.tries()]


def play(only: str = "") -> Iterator[Tried]:
    """Carry out the tries whose kind or name contains `only`, two at a time, each in a folder of its own."""
    chosen = [each for each in all_tries() if only in f"{each.kind}: {each.name}"]
    with tempfile.TemporaryDirectory(prefix="tries-") as folder:
        Path(folder).chmod(0o755)
        if any(not each.why_not for each in chosen):
            _import_all(Path(folder))
        _PLAYED[:] = [(each, Path(folder) / str(number)) for number, each in enumerate(chosen)]
        with ProcessPoolExecutor(2, get_context("fork")) as pool:
            yield from zip(chosen, pool.map(_played, range(len(chosen))), strict=True)


_PLAYED: list[tuple[Try, Path]] = []  # that the processes of the pool inherit


def _played(number: int) -> Answer:
    each, here = _PLAYED[number]
    if each.why_not:
        return Answer(None, 0.0, "", "")
    answer = attempt(each, here)
    shutil.rmtree(here, ignore_errors=True)
    return answer


def _import_all(folder: Path) -> None:
    """Carry out a run, so that the processes of tries, which are forks of this one, need not import anything.

    It has one thread: a fork would wait for ever for a second thread of OpenMP, which it does not have.
    """
    import_module("runner.cli.run")
    own = ("tracking=disabled", "runtime.threads=1", f"runtime.results_root={folder}/first")
    config = resolved(composed([*files.RUN[:3], *own]))
    execute(config, lambda row, run: None)


def line(each: Try, answer: Answer) -> str:
    """Describe a try and its answer in a line."""
    said = printable(" / ".join(answer.said.strip().splitlines()[-3:]))
    verdict = f"FAULT ({answer.fault})" if answer.fault else "clean"
    return f"{verdict}: {each.kind}: {each.name}: exit code {answer.code}, {answer.seconds:.1f} s: {said[-700:]}"


def lines(tried: Sequence[Tried]) -> list[str]:
    """Return the text of the tables."""
    earlier = {(row["kind"], row["try"]): row["verdict"] for row in read_csv(_BEFORE)}
    left_out = [f"- left out: {each.kind}: {each.name}: {each.why_not}" for each, _ in tried if each.why_not]
    tried = [(each, answer) for each, answer in tried if not each.why_not]
    counts = Counter(each.kind for each, _ in tried)
    then = Counter(each.kind for each, _ in tried if earlier.get((each.kind, each.name), "clean") != "clean")
    faults = Counter(each.kind for each, answer in tried if answer.fault)
    rows = [(kind, count, then[kind], count - faults[kind], faults[kind]) for kind, count in counts.items()]
    total = ("all", len(tried), then.total(), len(tried) - faults.total(), faults.total())
    every = [
        (each.kind, each.name, earlier.get((each.kind, each.name), "not tried"), str(answer.code),
         f"FAULT: {answer.fault}" if answer.fault else "clean", _last(answer))
        for each, answer in tried
    ]  # fmt: skip
    header = ("kind", "tried", "faults before", "clean now", "faults now")
    return [
        markdown(Table(header, [tuple(map(str, row)) for row in [*rows, total]])),
        *left_out,
        "",
        "## Reports of faults",
        "",
        "Faults that were reported of this or other tools, and tries of the same kind.",
        "",
        markdown(
            Table(("case", "reported", "tries", "faults before", "faults now", "an answer"), _cases(tried, earlier))
        ),
        "",
        "## All tries",
        "",
        markdown(Table(("kind", "surroundings or input", "before", "exit code", "now", "its last line"), every)),
    ]


def _cases(tried: Sequence[Tried], earlier: Mapping[tuple[str, str], str]) -> list[tuple[str, ...]]:
    """Return the rows of the table of reports. A report that a file of tests shows has no counts."""
    rows: list[tuple[str, ...]] = []
    for case in read_csv(_CASES):
        shown = case["shown by"]
        its = [(each, answer) for each, answer in tried if re.search(shown, f"{each.kind}: {each.name}")]
        before = sum(earlier.get((each.kind, each.name), "clean") != "clean" for each, _ in its)
        counts = (len(its), before, sum(bool(answer.fault) for _, answer in its), _last(its[0][1])) if its else ()
        rows.append((case["case"], case["reported"], *(map(str, counts or (f"`{shown}`", "", "", "")))))
    return rows


def _last(answer: Answer) -> str:
    said = printable((answer.said.strip().splitlines() or [""])[-1])
    said = re.sub(r"/\S*/tries-\w+/\d+", "HERE", said).replace(str(REPOSITORY), "REPOSITORY")
    return said if len(said) <= 160 else f"{said[:160]}…"
