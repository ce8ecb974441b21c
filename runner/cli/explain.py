"""A recorded run (its training, releases and cost) or an item of a paper, explained: `python -m runner explain RUN`.

Exit codes: 0 explained, 2 bad input (no such run or item, a damaged record) with one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from runner.config import RESULTS
from runner.terminal import Parser


def main(arguments: Sequence[str]) -> int:
    """Explain a run or an item, and return the exit code."""
    parser = Parser(prog="python -m runner explain", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "what", help="the beginning of the id of a run or a setting (9f3a), or an item (tempered_sigmoid/fig-3)"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="the runs' runtime.results_root")
    chosen = parser.parse_args(arguments)
    results = chosen.results.expanduser()
    from runner.report.explain import found, item_text, named, run_text  # here, because --help needs no PyTorch

    if re.fullmatch("[0-9a-f]{1,12}", chosen.what):
        print(run_text(found(results, chosen.what), results))
    else:
        print(item_text(results, *named(chosen.what)))
    return 0
