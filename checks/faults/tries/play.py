"""Carry out all tries, and write their table."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

from checks.faults.tries import data, files, messages, terminals, tracking
from checks.faults.tries.attempt import Answer, Try, attempt
from runner.config import REPOSITORY
from runner.records.identity import resolved
from runner.records.jobs import composed
from runner.report.files import Table, markdown
from runner.runs.execute import execute
from runner.terminal import printable

Tried = tuple[Try, Answer]


def all_tries() -> list[Try]:
    """List the tries of all kinds."""
    return [each for kind in (files, tracking, data, messages, terminals) for each in kind.tries()]


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
    left_out = [f"- left out: {each.kind}: {each.name}: {each.why_not}" for each, _ in tried if each.why_not]
    tried = [(each, answer) for each, answer in tried if not each.why_not]
    counts = Counter(each.kind for each, _ in tried)
    faults = Counter(each.kind for each, answer in tried if answer.fault)
    rows = [(kind, count, count - faults[kind], faults[kind]) for kind, count in counts.items()]
    total = ("all", len(tried), len(tried) - faults.total(), faults.total())
    every = [
        (each.kind, each.name, str(answer.code), f"FAULT: {answer.fault}" if answer.fault else "clean", _last(answer))
        for each, answer in tried
    ]
    header = ("kind", "tried", "clean", "faults")
    return [
        markdown(Table(header, [tuple(map(str, row)) for row in [*rows, total]])),
        *left_out,
        "",
        "## All cases",
        "",
        markdown(Table(("kind", "surroundings or input", "exit code", "result", "its last line"), every)),
    ]


def _last(answer: Answer) -> str:
    said = printable((answer.said.strip().splitlines() or [""])[-1])
    said = re.sub(r"/\S*/tries-\w+/\d+", "HERE", said).replace(str(REPOSITORY), "REPOSITORY")
    return said if len(said) <= 160 else f"{said[:160]}…"
