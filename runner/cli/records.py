"""`python -m runner verify` and `migrate`: the records of a folder, checked or filed anew."""

import sys
from collections.abc import Sequence
from pathlib import Path

from runner.config import RESULTS
from runner.config.checkout import scan
from runner.records import migrate as migration
from runner.records.verify import check_files, noise_line
from runner.terminal import Line, Parser, printable


def verify(arguments: Sequence[str]) -> int:
    """Return 0 if every record agrees with its config, 1 if one does not or cannot be read, 2 if there are none."""
    parser = Parser(
        prog="python -m runner verify", description="Compare every record with the values that follow from its config."
    )
    parser.add_argument("folder", type=Path, nargs="?", default=RESULTS, help="a results folder")
    parser.add_argument("--jobs", type=int, help="processes (default: one for each core, fewer for few records)")
    parser.add_argument("--fresh", action="store_true", help="do not use the ε kept in the user's cache folder")
    chosen = parser.parse_args(arguments)
    if chosen.jobs is not None and chosen.jobs < 1:
        parser.error(f"--jobs has to be 1 or greater, not {chosen.jobs}.")
    paths = scan(chosen.folder / "runs", "*.json")
    if not paths:
        print(f"verify: {chosen.folder} has no records: expected runs/*.json in it.", file=sys.stderr)
        return 2
    line, wrong, noise = Line(), 0, []
    for position, checked in enumerate(check_files(paths, chosen.jobs, fresh=chosen.fresh), 1):
        line.show(f"verify: {position} of {len(paths)} records ...")
        if checked.faults:
            wrong += 1
            line.clear()
            print(printable(f"{checked.path.name}: {'; '.join(checked.faults)}"), flush=True)
        noise += [] if checked.noise is None else [checked.noise]
    line.clear()
    print(noise_line(noise))
    print(f"{len(paths)} records, {wrong} of which contradict their config")
    return 1 if wrong else 0


def migrate(arguments: Sequence[str]) -> int:
    """File records under the ids that their configs have now, and print the old and the new ids."""
    parser = Parser(prog="python -m runner migrate", description=migration.__doc__)
    parser.add_argument("folder", type=Path, help="a results folder: results, or results/smoke")
    moves = "a class, or a module with all that is in it, that has moved: runner.losses=runner.networks.losses"
    parser.add_argument("--target", action="append", default=[], metavar="OLD=NEW", help=moves)
    chosen = parser.parse_args(arguments)
    pairs = [pair.partition("=") for pair in chosen.target]
    for old, _, new in pairs:
        if not (old and new):
            raise ValueError("--target needs an old and a new dotted path: old.module.Class=new.module.Class.")
    ids = migration.migrate(chosen.folder, {old: new for old, _, new in pairs})
    for old, new in ids.items():
        if old != new:
            print(old, new)
    print(f"{len(ids)} records, {sum(old != new for old, new in ids.items())} under a new id", file=sys.stderr)
    return 0
