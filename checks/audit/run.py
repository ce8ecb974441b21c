"""Attacks on the implementation and on planted mistakes: `python -m checks audit`, with tables in results/audit.

A million draws for many rows take a while, so rows are also kept in rows.jsonl as they come. When the command begins
again, an attack with the same arguments and code is not made again.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path

import torch

from checks.audit.cases import Row, faults, rows
from checks.audit.records import records
from checks.audit.records import write as write_records
from checks.audit.report import write, write_page
from checks.audit.trained import faulty_runs, runs
from checks.audit.trained import write as write_runs
from runner.config import REPOSITORY, register
from runner.config.checkout import scan

JOURNAL = "rows.jsonl"


def main(arguments: Sequence[str]) -> int:
    """Run all attacks.

    Returns:
        The exit code: 1 if a sound target is accused, or a fault is missed.
    """
    parser = argparse.ArgumentParser(prog="python -m checks audit", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few trials at one epsilon: a minute or two, loose bounds")
    parser.add_argument("--output", type=Path, help="default: results/audit, with --quick its folder quick")
    parser.add_argument("--page", action="store_true", help="only write the page and the figure again, from the tables")
    parser.add_argument("--records", action="store_true", help="attack the steps of ten random records instead")
    parser.add_argument("--runs", action="store_true", help="attack whole runs by canaries instead: an hour of a core")
    chosen = parser.parse_args(arguments)
    folder = chosen.output or REPOSITORY / "results" / "audit" / ("quick" if chosen.quick else "")
    if chosen.page:
        print(*write_page(folder, quick=chosen.quick), sep="\n")
        return 0
    torch.set_num_threads(1)
    if chosen.runs or chosen.records:
        register()
        return (_attack_runs if chosen.runs else _attack_records)(folder)
    started = time.perf_counter()
    attacked, planted = [], []
    recall = {} if chosen.quick else {"recall": partial(_once, folder / JOURNAL, _code())}
    for row in rows(**recall, quick=chosen.quick):
        attacked.append(row)
        print(_line(row), flush=True)
    for name, right, wrong in faults(**recall, quick=chosen.quick):
        planted.append((name, right, wrong))
        print(f"{name}: {'caught' if wrong.accused else 'MISSED'}\n  {_line(right)}\n  {_line(wrong)}", flush=True)
    for path in write(folder, attacked, planted, quick=chosen.quick):
        print(path)
    print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)
    wrong_verdict = any(row.accused for row in attacked) or any(r.accused or not w.accused for _, r, w in planted)
    return int(wrong_verdict)


def _once(journal: Path, code: str, attack: partial[list[Row]]) -> list[Row]:
    """Carry out an attack, unless the journal has its rows already, for the same arguments and code."""
    key = sha256(f"{code} {attack.func.__name__} {attack.args}".encode()).hexdigest()
    stored = map(json.loads, journal.read_text(encoding="utf-8").splitlines() if journal.exists() else ())
    if key in (attacks := dict(stored)):
        return [Row(**values) for values in attacks[key]]
    attacked = attack()
    journal.parent.mkdir(parents=True, exist_ok=True)
    with journal.open("a", encoding="utf-8") as file:
        file.write(json.dumps([key, [asdict(row) for row in attacked]]) + "\n")
    return attacked


def _code() -> str:
    """Return a digest of all code and options that an attack may use."""
    folders = (REPOSITORY / "runner", REPOSITORY / "conf", Path(__file__).parent)
    files = [path for folder in folders for path in scan(folder, "**/*.py", "**/*.yaml", "**/*.cpp")]
    unused = {Path(__file__), Path(__file__).with_name("report.py")}
    return sha256(b"".join(path.read_bytes() for path in files if path not in unused)).hexdigest()


def _attack_runs(folder: Path) -> int:
    rows = []
    for row in chain(runs(), faulty_runs()):
        rows.append(row)
        print(
            f"{row.setting}, {row.way}, {row.fault or 'as it is'}: sound {row.sound:.4g}, at least {row.one_run:.4g} "
            f"(any mechanism), {row.curve:.4g} (as charged), {row.independent:.4g} (independent canaries)"
            f"{', ACCUSED' if row.accused else ''}",
            flush=True,
        )
    print(write_runs(folder, rows))
    return int(any(row.accused != row.faulty for row in rows))


def _attack_records(folder: Path) -> int:
    attacked = []
    for record, row in records():
        attacked.append((record, row))
        print(f"{record['run_id']}: {_line(row)}", flush=True)
    print(write_records(folder, attacked))
    return int(any(row.accused for _, row in attacked))


def _line(row: Row) -> str:
    accused = "  ACCUSED" if row.accused else ""
    return (
        f"{row.what}, {row.mechanism}, {row.sampling}, steps {row.steps}, {row.sees}, δ {row.delta:g}: "
        f"claimed {row.claimed:.4g}, sound {row.sound:.4g}, at least {row.lower:.4g} "
        f"(any shape {row.any_shape:.4g}), {row.verdict}{accused}"
    )
