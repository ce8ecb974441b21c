"""The processes of this machine, as /proc lists them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A running process: its parent, its session, and its command line with spaces between the arguments."""

    parent: int
    session: int
    command: str


def running() -> dict[int, Process]:
    """Return all processes by number, those left out that have ended and wait for their parent."""
    found: dict[int, Process] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended while we looked
            state, parent, _, session, *_ = stat.read_text(errors="replace").rpartition(")")[2].split()
            command = (stat.parent / "cmdline").read_text(errors="replace").replace("\0", " ")
            if state != "Z":
                found[int(stat.parent.name)] = Process(int(parent), int(session), command)
    return found


def with_descendants(those: Collection[int], among: Mapping[int, Process]) -> set[int]:
    """Return some processes and all their descendants."""
    found = set(those)
    while more := {number for number, its in among.items() if its.parent in found and number not in found}:
        found |= more
    return found
