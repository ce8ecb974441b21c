"""Faults for the command: a name, a number of times, and a function that returns the number of faults dealt."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from checks.faults.command import DRIVER, FORK_SERVER, WANDB, WORKER, Command, records, send
from checks.faults.mounts import mounted, unmount

Deed = Callable[[Command, Random], int]
LIMIT = 900.0  # seconds in which a command has to end, whatever was dealt
_READY = 300.0  # seconds in which a command that is not done has its first run under way


@dataclass(frozen=True)
class Scene:
    """A fault.

    Attributes:
        times: the number of faults to deal; a command may be dealt several.
        deal: deals faults while the command runs, and returns their number.
        before: changes the folder before the command starts.
        after: changes it back after the command has ended.
        limits: called in the command's process before it starts.
        why_not: the reason why it cannot be dealt here; "" if it can.
    """

    name: str
    times: int
    deal: Deed
    before: Callable[[Path], None] = lambda root: None
    after: Callable[[Path], None] = lambda root: None
    limits: Callable[[], None] | None = None
    why_not: str = ""


def at_random(kind: str, number: signal.Signals, most: int = 1) -> Deed:
    """Send a signal to a random process of this kind, at random moments."""

    def deal(command: Command, random: Random) -> int:
        dealt = 0
        while dealt < most and command.wait_until(lambda: kind in command.members().values(), _READY):
            if command.ended_within(random.uniform(0, 3)):
                break
            there = sorted(process for process, its in command.members().items() if its == kind)
            dealt += bool(there) and send(random.choice(there), number)
        return dealt

    return deal


def to_the_group(*numbers: signal.Signals) -> Deed:
    """Send signals to the driver's whole process group, as a terminal does, a moment apart."""

    def deal(command: Command, random: Random) -> int:
        command.wait_until(lambda: WORKER in command.members().values(), _READY)
        if command.ended_within(random.uniform(0, 8)):
            return 0
        for number in numbers:
            if command.process.poll() is None:
                os.killpg(command.process.pid, number)
                time.sleep(random.uniform(0.05, 0.5))
        return 1

    return deal


def while_importing(number: signal.Signals) -> Deed:
    """Send a signal to the driver in its first seconds."""

    def deal(command: Command, random: Random) -> int:
        return 0 if command.ended_within(random.uniform(0.3, 4)) else int(send(command.process.pid, number))

    return deal


def stopped_and_continued(command: Command, random: Random) -> int:
    """Stop a process of any kind for a while, and let it continue."""
    command.wait_until(lambda: WORKER in command.members().values(), _READY)
    if command.ended_within(random.uniform(0, 3)):
        return 0
    process, _ = random.choice(sorted(command.members().items()))
    dealt = send(process, signal.SIGSTOP)
    command.ended_within(random.uniform(1, 4))
    send(process, signal.SIGCONT)
    return int(dealt)


def without_memory(command: Command, random: Random) -> int:
    """Limit the memory of a run's process to its present use."""
    command.wait_until(lambda: WORKER in command.members().values(), _READY)
    if command.ended_within(random.uniform(0, 3)):
        return 0
    for process, kind in command.members().items():
        if kind == WORKER:
            try:
                pages = int(Path(f"/proc/{process}/statm").read_text(encoding="utf-8").split()[0])
                resource.prlimit(process, resource.RLIMIT_AS, (pages * resource.getpagesize(),) * 2)
            except (OSError, ValueError):  # it ended while we looked
                continue
            return 1
    return 0


def beside_another(command: Command, random: Random) -> int:
    """Start a second command on the same folder, and kill one of the two."""
    other = Command(command.root, command.log.with_suffix(".other"))
    command.wait_until(lambda: len(records(command.root)) > 2, _READY)
    command.ended_within(random.uniform(0, 5))
    dealt = send(random.choice([command, other]).process.pid, signal.SIGKILL)
    if not other.ended_within(LIMIT):
        other.stop()
        raise TimeoutError("the other command")
    other.left_over(20)
    return int(dealt)


def nothing_more(command: Command, random: Random) -> int:
    """Wait: the fault is in the command's surroundings."""
    return 1


def _small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))


def _read_only(root: Path) -> None:
    for folder in [root / "results", *(root / "results").rglob("*/")]:
        folder.chmod(0o500)


def _writable(root: Path) -> None:
    for folder in [root / "results", *(root / "results").rglob("*/")]:
        folder.chmod(0o700)


def _may_mount() -> bool:
    """Return True if this process may mount: it has all rights of an administrator."""
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


def scenes(kills: int) -> list[Scene]:
    """List all faults, with `kills` SIGKILLs in all."""
    root = os.geteuid() == 0 and _may_mount()
    share = kills // 10
    found = [
        Scene("SIGKILL to a run", kills - 8 * share, at_random(WORKER, signal.SIGKILL, 8)),
        Scene("SIGKILL to W&B's process", 3 * share, at_random(WANDB, signal.SIGKILL, 8)),
        Scene("SIGKILL to the fork server", 2 * share, at_random(FORK_SERVER, signal.SIGKILL, 3)),
        Scene("SIGKILL to the driver", 2 * share, at_random(DRIVER, signal.SIGKILL)),
        Scene("SIGKILL to all at once", share, to_the_group(signal.SIGKILL)),
        Scene("SIGSTOP, then SIGCONT", 2, stopped_and_continued),
        Scene("SIGTERM to the driver", 2, at_random(DRIVER, signal.SIGTERM)),
        Scene("SIGHUP to all", 1, to_the_group(signal.SIGHUP)),
        Scene("SIGINT to all", 1, to_the_group(signal.SIGINT)),
        Scene("SIGINT to all, twice", 2, to_the_group(signal.SIGINT, signal.SIGINT)),
        Scene("SIGINT while importing", 2, while_importing(signal.SIGINT)),
        Scene("no more memory for a run", 2, without_memory),
        Scene("SIGKILL to one of two commands", 1, beside_another),
        Scene("no file beyond 1 KiB", 1, nothing_more, limits=_small_files),
    ]
    if root:
        found.append(Scene("disk full", 1, nothing_more, mounted("size=64k"), unmount))
        found.append(Scene("results read-only", 1, nothing_more, mounted("ro"), unmount))
    else:
        found.append(Scene("disk full", 1, nothing_more, why_not="takes an administrator's rights to mount one"))
        found.append(Scene("results read-only", 1, nothing_more, _read_only, _writable))
    return found
