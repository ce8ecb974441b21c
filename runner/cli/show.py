"""`python -m runner show`: the runs of one's own, those in the results that this repository does not hold.

Exit codes: 0 shown, 1 all shown but files that cannot be read, 2 no such folder; each is said in one sentence.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from runner.config import REPOSITORY
from runner.report.own import own_records, runs_text
from runner.terminal import Parser


def main(arguments: Sequence[str]) -> int:
    """The command line; returns the exit code."""
    parser = Parser(prog="python -m runner show", description="A table of one's own runs.")
    parser.add_argument("--results", type=Path, default=REPOSITORY / "results", help="what runtime.results_root was")
    parser.add_argument("--last", type=int, default=30, help="so many at most, the latest (default: 30)")
    chosen = parser.parse_args(arguments)
    folder = chosen.results.expanduser()
    if not folder.is_dir() or chosen.last < 1:
        what = f"{folder} is no folder" if not folder.is_dir() else f"--last {chosen.last} is not 1 or more"
        print(f"show: {what}.", file=sys.stderr)
        return 2
    records, refused = own_records(folder)
    for sentence in refused:
        print(f"show: {sentence}", file=sys.stderr)
    if not (records or refused):
        print(f"No runs in {folder} but those of this repository: python -m runner --help says how to run one.")
        return 0
    if records:
        print(runs_text(records[-chosen.last :]))
        if len(records) > chosen.last:
            print(f"These are the last {chosen.last} of {len(records)}.")
        print("One of them: python -m runner explain RUN")
    return 1 if refused else 0
