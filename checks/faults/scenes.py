"""Faults for the command: a name, a number of times, and a function that returns the number of faults dealt."""

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

LIMIT = 900.0  # seconds in which a command has to end, whatever was dealt


@dataclass(frozen=True)
class Scene:
    """A fault.

    Attributes:
        times: the number of faults to deal; a command may be dealt several.
        deal: deals faults while the command runs, and returns their number.
        before: changes the folder before the command starts.
        after: changes it back after the command has ended.
        limit: called in the command's process before it starts.
        why_not: the reason why it cannot be dealt here; "" if it can.
    """

    name: str
    times: int
    deal: Callable[[Command, Random], int] = lambda command, random: 1  # the fault is in the command's surroundings
    before: Callable[[Path], None] = lambda root: None
    after: Callable[[Path], None] = lambda root: None
    limit: Callable[[], None] = lambda: None
    why_not: str = ""


def still_runs(command: Command, random: Random, most: float) -> bool:
    """Wait until a run is under way, and then at most so many seconds more. Return True if the command still runs."""
    command.wait_until(lambda: command.has(WORKER))
    return not command.ended_within(random.uniform(0, most))


def send_to_one(kind: str, number: signal.Signals, most: int, command: Command, random: Random) -> int:
    """Send a signal to a random process of this kind, at random moments."""
    dealt = 0
    while dealt < most and command.wait_until(lambda: command.has(kind)):
        if command.ended_within(random.uniform(0, 3)):
            break
        processes = sorted(process for process, name in command.members().items() if name == kind)
        dealt += bool(processes) and send(random.choice(processes), number)
    return dealt


def send_to_all(numbers: tuple[signal.Signals, ...], command: Command, random: Random) -> int:
    """Send signals to the driver's whole process group, as a terminal does, a moment apart."""
    if not still_runs(command, random, 8):
        return 0
    for number in numbers:
        if command.process.poll() is None:
            os.killpg(command.process.pid, number)
            time.sleep(random.uniform(0.05, 0.5))
    return 1


def interrupt_imports(command: Command, random: Random) -> int:
    """Interrupt the driver in its first seconds."""
    return 0 if command.ended_within(random.uniform(0.3, 4)) else int(send(command.process.pid, signal.SIGINT))


def stop_and_continue(command: Command, random: Random) -> int:
    """Stop a process of any kind for a while, and let it continue."""
    if not still_runs(command, random, 3):
        return 0
    process, _ = random.choice(sorted(command.members().items()))
    dealt = send(process, signal.SIGSTOP)
    command.ended_within(random.uniform(1, 4))
    send(process, signal.SIGCONT)
    return int(dealt)


def limit_memory(command: Command, random: Random) -> int:
    """Limit the memory of a run's process to its present use."""
    for process, kind in command.members().items() if still_runs(command, random, 3) else ():
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
    command.wait_until(lambda: len(records(command.root / "results")) > 2)
    command.ended_within(random.uniform(0, 5))
    dealt = send(random.choice([command, other]).process.pid, signal.SIGKILL)
    if not other.ended_within(LIMIT):
        other.stop()
        raise TimeoutError("the other command")
    other.left_over()
    return int(dealt)


def mount_results(options: str, folder: Path) -> None:
    """Mount `results` of a folder: read-only ("ro"), or in memory with these options."""
    place = folder / "results"
    place.mkdir(exist_ok=True)
    if options == "ro":
        subprocess.run(["mount", "--bind", str(place), str(place)], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", str(place)], check=True)
    else:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)


def unmount_results(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder / "results")], check=False)


def change_mode(mode: int, root: Path) -> None:
    for folder in [root / "results", *(root / "results").rglob("*/")]:
        folder.chmod(mode)


def scenes(kills: int) -> list[Scene]:
    """List all faults, with `kills` SIGKILLs in all."""
    may_mount = subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
    kill, share = signal.SIGKILL, kills // 10
    listed = [
        Scene("SIGKILL to a run", kills - 8 * share, partial(send_to_one, WORKER, kill, 8)),
        Scene("SIGKILL to W&B's process", 3 * share, partial(send_to_one, WANDB, kill, 8)),
        Scene("SIGKILL to the fork server", 2 * share, partial(send_to_one, FORK_SERVER, kill, 3)),
        Scene("SIGKILL to the driver", 2 * share, partial(send_to_one, DRIVER, kill, 1)),
        Scene("SIGKILL to all at once", share, partial(send_to_all, (kill,))),
        Scene("SIGSTOP, then SIGCONT", 2, stop_and_continue),
        Scene("SIGTERM to the driver", 2, partial(send_to_one, DRIVER, signal.SIGTERM, 1)),
        Scene("SIGHUP to all", 1, partial(send_to_all, (signal.SIGHUP,))),
        Scene("SIGINT to all", 1, partial(send_to_all, (signal.SIGINT,))),
        Scene("SIGINT to all, twice", 2, partial(send_to_all, (signal.SIGINT,) * 2)),
        Scene("SIGINT while importing", 2, interrupt_imports),
        Scene("no more memory for a run", 2, limit_memory),
        Scene("SIGKILL to one of two commands", 1, start_another),
        Scene("no file beyond 1 KiB", 1, limit=partial(resource.setrlimit, resource.RLIMIT_FSIZE, (1024, 1024))),
    ]
    if os.geteuid() == 0 and may_mount:  # it has all rights of an administrator
        for name, options in (("disk full", "size=64k"), ("results read-only", "ro")):
            listed.append(Scene(name, 1, before=partial(mount_results, options), after=unmount_results))
        return listed
    writable, fixed = partial(change_mode, 0o700), partial(change_mode, 0o500)
    full = Scene("disk full", 1, why_not="takes an administrator's rights to mount one")
    return [*listed, full, Scene("results read-only", 1, before=fixed, after=writable)]
