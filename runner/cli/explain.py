"""A recorded run (its training, releases, cost), an item of a paper or a study: `python -m runner explain RUN`.

Exit codes: 0 explained, 2 bad input (no such run, item or study, a damaged record) with one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from runner.config import RESULTS
from runner.terminal import Parser


def main(arguments: Sequence[str]) -> int:
    parser = Parser(prog="python -m runner explain", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "what",
        help="the beginning of the id of a run or a setting (9f3a), an item (tempered_sigmoid/fig-3), or a study with "
        "a page (studies/composition)",
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="the runs' runtime.results_root")
    chosen = parser.parse_args(arguments)
    results = chosen.results.expanduser()
    from runner.report import explain  # here, because --help needs no PyTorch
    from runner.study.page import runs_of_studies

    if re.fullmatch("[0-9a-f]{1,12}", chosen.what):
        path = explain.find_run(results, chosen.what)
        print(explain.run_text(path, results, runs_of_studies(results, path.stem)))
    elif chosen.what.startswith("studies/"):
        print(explain.study_text(results, Path(chosen.what).stem))
    else:
        print(explain.item_text(results, *explain.find_item(chosen.what)))
    return 0
