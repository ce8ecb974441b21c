"""Faults for the command: a name, a number of times, and a function that returns the number of faults dealt."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from checks.faults.command import DRIVER, FORK_SERVER, WANDB, WORKER, Command, records, send

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


def send_at_random(kind: str, number: signal.Signals, most: int = 1) -> Deed:
    """Send a signal to a random process of this kind, at random moments."""

    def deal(command: Command, random: Random) -> int:
        dealt = 0
        while dealt < most and command.wait_until(lambda: kind in command.members().values(), _READY):
            if command.ended_within(random.uniform(0, 3)):
                break
            processes = sorted(process for process, name in command.members().items() if name == kind)
            dealt += bool(processes) and send(random.choice(processes), number)
        return dealt

    return deal


def send_to_group(*numbers: signal.Signals) -> Deed:
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


def send_while_importing(number: signal.Signals) -> Deed:
    """Send a signal to the driver in its first seconds."""

    def deal(command: Command, random: Random) -> int:
        return 0 if command.ended_within(random.uniform(0.3, 4)) else int(send(command.process.pid, number))

    return deal


def stop_and_continue(command: Command, random: Random) -> int:
    """Stop a process of any kind for a while, and let it continue."""
    command.wait_until(lambda: WORKER in command.members().values(), _READY)
    if command.ended_within(random.uniform(0, 3)):
        return 0
    process, _ = random.choice(sorted(command.members().items()))
    dealt = send(process, signal.SIGSTOP)
    command.ended_within(random.uniform(1, 4))
    send(process, signal.SIGCONT)
    return int(dealt)


def limit_memory(command: Command, random: Random) -> int:
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


def start_another(command: Command, random: Random) -> int:
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


def wait(command: Command, random: Random) -> int:
    """Wait: the fault is in the command's surroundings."""
    return 1


def mount_results(options: str, fill: int = 0) -> Callable[[Path], None]:
    """Return a function that mounts `results` of a folder: read-only ("ro"), or in memory with `fill` bytes in use."""

    def mount(folder: Path) -> None:
        place = folder / "results"
        place.mkdir(exist_ok=True)
        if options == "ro":
            subprocess.run(["mount", "--bind", str(place), str(place)], check=True)
            subprocess.run(["mount", "-o", "remount,bind,ro", str(place)], check=True)
            return
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)
        if fill:
            (place / "filling").write_bytes(b"x" * fill)

    return mount


def unmount_results(folder: Path) -> None:
    """Undo `mounted`."""
    subprocess.run(["umount", "--lazy", str(folder / "results")], check=False)


def _small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))


def _change_mode(mode: int, root: Path) -> None:
    for folder in [root / "results", *(root / "results").rglob("*/")]:
        folder.chmod(mode)


def scenes(kills: int) -> list[Scene]:
    """List all faults, with `kills` SIGKILLs in all."""
    may_mount = subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
    root = os.geteuid() == 0 and may_mount  # it has all rights of an administrator
    share = kills // 10
    listed = [
        Scene("SIGKILL to a run", kills - 8 * share, send_at_random(WORKER, signal.SIGKILL, 8)),
        Scene("SIGKILL to W&B's process", 3 * share, send_at_random(WANDB, signal.SIGKILL, 8)),
        Scene("SIGKILL to the fork server", 2 * share, send_at_random(FORK_SERVER, signal.SIGKILL, 3)),
        Scene("SIGKILL to the driver", 2 * share, send_at_random(DRIVER, signal.SIGKILL)),
        Scene("SIGKILL to all at once", share, send_to_group(signal.SIGKILL)),
        Scene("SIGSTOP, then SIGCONT", 2, stop_and_continue),
        Scene("SIGTERM to the driver", 2, send_at_random(DRIVER, signal.SIGTERM)),
        Scene("SIGHUP to all", 1, send_to_group(signal.SIGHUP)),
        Scene("SIGINT to all", 1, send_to_group(signal.SIGINT)),
        Scene("SIGINT to all, twice", 2, send_to_group(signal.SIGINT, signal.SIGINT)),
        Scene("SIGINT while importing", 2, send_while_importing(signal.SIGINT)),
        Scene("no more memory for a run", 2, limit_memory),
        Scene("SIGKILL to one of two commands", 1, start_another),
        Scene("no file beyond 1 KiB", 1, wait, limits=_small_files),
    ]
    if root:
        listed.append(Scene("disk full", 1, wait, mount_results("size=64k"), unmount_results))
        listed.append(Scene("results read-only", 1, wait, mount_results("ro"), unmount_results))
    else:
        listed.append(Scene("disk full", 1, wait, why_not="takes an administrator's rights to mount one"))
        listed.append(Scene("results read-only", 1, wait, partial(_change_mode, 0o500), partial(_change_mode, 0o700)))
    return listed
