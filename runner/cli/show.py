"""A table of your own runs, the recorded ones that are not committed here: `python -m runner show`.

Exit codes: 0 shown, 1 shown, but some files cannot be read, 2 no such folder. Each problem gets one sentence.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from runner.config import REPOSITORY
from runner.report.own import explain_command, own_records, runs_text
from runner.terminal import Parser


def main(arguments: Sequence[str]) -> int:
    """Print the table.

    Returns:
        The exit code.
    """
    parser = Parser(prog="python -m runner show", description="Print a table of your own runs.")
    parser.add_argument("--results", type=Path, default=REPOSITORY / "results", help="the runs' runtime.results_root")
    parser.add_argument("--last", type=int, default=30, help="number of runs, the latest (default: 30)")
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
        print(f"The last one: {explain_command(records[-1], folder)}")
    return 1 if refused else 0
