"""`python -m runner wandb-sync`: send the files that offline runs wrote for W&B, each run once.

A run that was stopped and repeated left several files of one id. The last one that ended well has the whole run,
because a resumed run writes the earlier epochs again. It replaces whatever was sent of the others. A damaged file is
named, and the other files are still sent.

Exit codes: 0 all is sent, 1 a file is damaged or not sent, 2 a login or W&B itself is missing.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from runner.config import PLACE, ConfigError
from runner.records.files import claim
from runner.runs.tracking import check_login
from runner.terminal import Parser

_FOLDER = re.compile(r"offline-run-(\d{8}_\d{6})-(\w+)")
_AT_ONCE = 50  # folders of a command
_LATE = 3600.0  # seconds
_READING = 60.0  # seconds that reading a file may take
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
    def going_on(self) -> bool:
        """True if its run is not over and wrote within the last hour. It is not sent yet, as W&B would take no more."""
        late = time.time() - self.file.lstat().st_mtime >= _LATE
        return not late and self.exit_code is None and not self.damage

    @property
    def sent(self) -> bool:
        return self.file.with_suffix(".wandb.synced").exists()

    def mark_as_sent(self) -> None:
        """Mark it as W&B does, so that its commands skip it, too."""
        with suppress(OSError):  # this command skips it all the same, because another attempt of its run was sent
            self.file.with_suffix(".wandb.synced").touch()

    @property
    def exit_code(self) -> int | None:
        """The exit code of its run, or None if the run did not end or the file is damaged."""
        return self._read[0]

    @property
    def damage(self) -> str:
        """The reason why its file cannot be read, or "" if it can."""
        return self._read[1]

    @cached_property
    def _read(self) -> tuple[int | None, str]:
        if not self.file.is_file():  # a folder, a broken link, or a pipe, which would be waited for
            return None, f"{self.file.name} is not a file"
        command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(self.file)]
        try:
            shown = subprocess.run(command, capture_output=True, text=True, timeout=_READING, check=True).stdout
            last = json.loads((shown.strip().splitlines() or ["{}"])[-1])
            return (int(last["exit"].get("exit_code", 0)) if last.get("type") == "exit" else None), ""
        except subprocess.CalledProcessError as error:
            return None, _last_line(error.stderr)
        except (subprocess.TimeoutExpired, ValueError) as error:
            return None, str(error)


def attempts(folder: Path) -> dict[str, list[Attempt]]:
    """List the attempts in a folder of W&B, by run id, the oldest first."""
    found: dict[str, list[Attempt]] = {}
    for place in sorted(folder.glob("offline-run-*")):
        match = _FOLDER.fullmatch(place.name)
        if match and os.path.lexists((attempt := Attempt(match[1], match[2], place)).file):
            found.setdefault(attempt.run_id, []).append(attempt)
    return {run_id: sorted(each) for run_id, each in found.items()}


def due(tries: Sequence[Attempt]) -> Attempt | None:
    """Return the attempt of a run to send: the last that ended well, else the last. None if it was sent already."""
    best = tries[-1]
    if len(tries) > 1 and not all(each.sent for each in tries):  # reading the files takes time
        well = [each for each in tries if each.exit_code == 0]
        best = (well or [each for each in tries if not each.damage] or tries)[-1]
    return None if best.sent else best


def send(chosen: Sequence[Attempt]) -> dict[Attempt, str]:
    """Send attempts with W&B's command, and return the attempts that it did not send, each with the reason.

    The command sends nothing if it cannot read one of its files, so the rest is sent one by one. A file may keep the
    command from ending. After three timeouts in a row nothing more is sent.
    """
    silent, left = 0, {each: each.damage for each in chosen if not each.file.is_file()}
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


def _send_all(tries: Mapping[str, Sequence[Attempt]]) -> int:
    best = [attempt for each in tries.values() if (attempt := due(each)) is not None]
    chosen = [attempt for attempt in best if not attempt.going_on]
    others = [other for attempt in chosen for other in tries[attempt.run_id] if other is not attempt]
    damaged = {other: other.damage for other in others if other.damage}
    left = send(chosen)
    for attempt in set(chosen) - set(left):
        for other in tries[attempt.run_id]:
            other.mark_as_sent()
    print(
        f"sent {len(chosen) - len(left)} of {len(tries)} runs; {len(tries) - len(best)} were before, "
        f"{len(best) - len(chosen)} are still going on"
    )
    for attempt, why in (damaged | left).items():
        print(f"{'not sent' if attempt in left else 'damaged'}: {attempt.folder}: {why}", file=sys.stderr)
    return 1 if damaged or left else 0
