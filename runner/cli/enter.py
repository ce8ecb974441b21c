"""An entry to the leaderboard, checked: `python -m runner enter entries/mine`.

It checks the rules of docs/enter.md, that the packed records are those of the study, and every ε of them. It imports
the classes of the entry, so read them before. docs/enter.md tells how to pack an entry.

Exit codes: 0 the entry is in order, 1 it is not, with a sentence for each reason, 2 bad input.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from runner.build.prepare import prepare
from runner.cli import study as study_command
from runner.config import PAPER
from runner.records import verify
from runner.records.options import search_path
from runner.study.board import board
from runner.study.definition import read
from runner.study.entry import broken_rules, differences, read_entrant
from runner.study.outcome import compared
from runner.study.page import answers
from runner.study.plan import settings_of
from runner.study.progress import Progress, progress_of
from runner.terminal import Parser
from runner.trust.dp_mechanism import FromDPMechanism


def main(arguments: Sequence[str]) -> int:
    parser = Parser(prog="python -m runner enter", description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder of the entry: entries/mine")
    parser.add_argument("--smoke", action="store_true", help="also train one seed of each arm at the smoke scale")
    chosen = parser.parse_args(arguments)
    entrant = read_entrant(chosen.folder)
    sys.path.insert(0, str(entrant.folder.resolve()))  # its classes can be imported, whatever the current folder is
    options = entrant.folder / "options"
    extra = ["--config-dir", str(options)] if options.is_dir() else []
    if chosen.smoke and (code := study_command.main([str(entrant.study), *extra, "--scale", "smoke", "--seeds", "1"])):
        return code
    study = read(entrant.study)
    root = f"runtime.results_root='{entrant.folder.resolve()}'"
    arms = progress_of(study, settings_of(study, PAPER, [*search_path(extra[1] if extra else None), root]))
    faults = [*broken_rules(entrant, study, PAPER, arms), *differences(entrant, arms)]
    for fault in faults:
        print(f"{entrant.folder}: {fault}")
    if verify.main([str(entrant.folder), "--fresh"]) or faults:
        return 1
    outcome = compared(arms)
    print("\n".join(answers(study, outcome)))
    print(board(study, outcome).strip())
    for arm in arms:
        if arm.setting.arm.name == entrant.arm and arm.finals:
            print("\n".join(_noise_lines(arm)))
    print(f"{entrant.folder}: the entry {entrant.method!r} is in order. Somebody still has to read its classes.")
    return 0


def _noise_lines(arm: Progress) -> list[str]:
    """State the noise that was charged, and next to it what the class of a `DPMechanism` states by itself."""
    run = prepare(arm.finals[0].job.config)
    lines = [f"{arm.setting.place}: noise multiplier {run.mechanism.noise_multiplier:.4g}, charged at every step."]
    own = getattr(run.clipping, "own", None)
    if isinstance(own, FromDPMechanism):
        first, last = own.stated_noise()
        name = own.mechanism.__qualname__
        lines.append(f"  {name} states {first:.4g} times as much at first and {last:.4g} at last.")
    return lines
