"""Carry out all tries, and write their table."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from checks.faults.tries import data, files, messages, own_data, terminals, tracking
from checks.faults.tries.attempt import Answer, Try, attempt
from runner.records.identity import resolved
from runner.records.jobs import composed
from runner.report.files import Table, markdown
from runner.runs.execute import execute
from runner.terminal import printable

Tried = tuple[Try, Answer]


def all_tries() -> list[Try]:
    """List the tries of all kinds."""
    return [each for kind in (files, tracking, data, messages, terminals, own_data) for each in kind.tries()]


def play(chosen: Sequence[Try]) -> Iterator[Tried]:
    """Carry out tries, each in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="tries-") as folder:
        _import_all(Path(folder))
        Path(folder).chmod(0o755)
        for number, each in enumerate(each for each in chosen if not each.why_not):
            here = Path(folder) / str(number)
            yield each, attempt(each, here)
            shutil.rmtree(here, ignore_errors=True)


def _import_all(folder: Path) -> None:
    """Carry out a run, so that the processes of tries, which are forks of this one, need not import anything."""
    import runner.cli.run

    config = resolved(composed([*files.RUN[:3], "tracking=disabled", f"runtime.results_root={folder}/first"]))
    execute(config, lambda row, run: None)


def line(each: Try, answer: Answer) -> str:
    """Describe a try and its answer in a line."""
    said = printable(" / ".join(answer.said.strip().splitlines()[-3:]))
    verdict = f"FAULT ({answer.fault})" if answer.fault else "clean"
    return f"{verdict}: {each.kind}: {each.name}: exit code {answer.code}, {answer.seconds:.1f} s: {said[-700:]}"


def lines(tried: Sequence[Tried]) -> list[str]:
    """Return the text of the tables."""
    counts = Counter(each.kind for each, _ in tried)
    faults = Counter(each.kind for each, answer in tried if answer.fault)
    total = (str(len(tried)), str(len(tried) - faults.total()), str(faults.total()))
    rows = [(kind, str(count), str(count - faults[kind]), str(faults[kind])) for kind, count in counts.items()]
    every = [
        (each.kind, each.name, str(answer.code), f"FAULT: {answer.fault}" if answer.fault else "clean", _last(answer))
        for each, answer in tried
    ]
    return [
        markdown(Table(("kind", "tried", "clean", "faults"), [*rows, ("all", *total)])),
        "",
        markdown(Table(("kind", "surroundings or input", "exit code", "verdict", "its last line"), every)),
    ]


def _last(answer: Answer) -> str:
    said = printable((answer.said.strip().splitlines() or [""])[-1])
    return said if len(said) <= 200 else f"{said[:200]}…"
