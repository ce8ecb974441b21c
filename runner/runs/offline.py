"""`python -m runner wandb-sync`: send the files that offline runs wrote for W&B, each run once.

A run that was stopped and repeated left several files of one id. The last one has the whole run, because a resumed run
writes the earlier epochs again. When it begins, the others are marked as sent (`runner.runs.tracking`), and if one was,
the last one replaces it. A damaged file is named, and the other files are still sent.

Exit codes: 0 all is sent, 1 a file is not sent, 2 a login or W&B itself is missing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.config import PLACE, ConfigError
from runner.data.files import locked
from runner.records.files import claim
from runner.runs.tracking import check_login, mark_of
from runner.terminal import Parser

_FOLDER = re.compile(r"offline-run-(\d{8}_\d{6})-(\w+)")
_AT_ONCE = 50  # folders of a command
_SILENT = 3  # timeouts in a row after which nothing more is sent
_SENDING = 60.0, 10.0  # seconds that a command may take, and more for each of its folders


@dataclass(frozen=True, order=True)
class Attempt:
    """One file that a run wrote: its start, run id and folder."""

    started: str
    run_id: str
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / f"run-{self.run_id}.wandb"

    @property
    def sent(self) -> bool:
        return mark_of(self.file).exists()


def attempts(folder: Path) -> list[Attempt]:
    """List the attempts in a folder of W&B, the oldest first."""
    found = [
        Attempt(match[1], match[2], place)
        for place in folder.glob("offline-run-*")
        if (match := _FOLDER.fullmatch(place.name))
    ]
    return sorted(each for each in found if os.path.lexists(each.file))


def under_way(attempt: Attempt) -> bool:
    """Return True if a process is writing it. It is not sent yet, as W&B would take no more."""
    with locked(attempt.folder) as free:
        return not free


def send(chosen: Sequence[Attempt]) -> dict[Attempt, str]:
    """Send attempts with W&B's command, and return the attempts that it did not send, each with the reason.

    The command sends nothing if it cannot read one of its files, so the rest is sent one by one. A file may keep the
    command from ending. After three timeouts in a row nothing more is sent.
    """
    # A folder, a broken link, or a pipe, which would be waited for.
    silent, left = 0, {each: f"{each.file.name} is not a file" for each in chosen if not each.file.is_file()}
    files = [each for each in chosen if each not in left]
    for begin in range(0, len(files), _AT_ONCE):
        if not silent and _synced(files[begin : begin + _AT_ONCE], None) is None:
            silent = 1
    for each in files:
        if not each.sent:
            said = _synced([each], subprocess.PIPE) if silent < _SILENT else None
            silent = silent + 1 if said is None else 0
            if not each.sent:
                left[each] = "W&B does not answer" if said is None else _last_line(said)
    return left


def _synced(chosen: Sequence[Attempt], stderr: int | None) -> str | None:
    """Run W&B's command, and return its messages if they are captured, or None after a timeout."""
    command = [sys.executable, "-m", "wandb", "sync", "--yes", *(str(each.folder) for each in chosen)]
    seconds = _SENDING[0] + _SENDING[1] * len(chosen)
    try:
        return subprocess.run(command, stderr=stderr, text=True, timeout=seconds, check=False).stderr or ""
    except subprocess.TimeoutExpired:
        return None


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


def main(arguments: Sequence[str]) -> int:
    parser = Parser(prog="python -m runner wandb-sync", description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=PLACE, help="what tracking.directory was")
    folder = parser.parse_args(arguments).folder.expanduser() / "wandb"
    tries = attempts(folder)
    if not tries:
        print(f"There are no offline runs in {folder}: nothing is to be sent.")
        return 0
    try:
        check_login("make wandb-sync")
    except ConfigError as error:
        print(f"offline: {error}", file=sys.stderr)
        return 2
    with claim(folder, "sync") as alone:
        if not alone:
            print("offline: another process is sending them.", file=sys.stderr)
            return 1
        return _send_all(tries)


def _send_all(tries: Sequence[Attempt]) -> int:
    due = [attempt for attempt in tries if not attempt.sent]
    chosen = [attempt for attempt in due if not under_way(attempt)]
    left = send(chosen)
    print(
        f"sent {len(chosen) - len(left)} of {len(tries)} files; {len(tries) - len(due)} were before, or are in later "
        f"files, {len(due) - len(chosen)} are still written"
    )
    for attempt, why in left.items():
        print(f"not sent: {attempt.folder}: {why}", file=sys.stderr)
    return 1 if left else 0
