"""Faults of the machine during a command with many runs, and their effect: `python -m checks faults`.

After each fault, every record is whole, by its digest and its schema. No earlier record has changed or gone. The
command has ended, with all its processes. At the end of each folder, the same command runs without a fault. It records
the missing runs, each once, and every record equals an undisturbed one.

It needs Linux. An ordinary user cannot mount a small disk; that fault is then left out, with a message.

Exit codes: 0 nothing was lost, 1 something was.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from checks.faults.command import Command, measured, records
from checks.faults.driver import planned
from checks.faults.report import Found, write
from checks.faults.scenes import LIMIT, Scene, scenes
from runner.config import REPOSITORY


def main(arguments: Sequence[str]) -> int:
    """Play all scenes and write the table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m checks faults", description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20, help="SIGKILLs in all")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--only", default="", help="scenes whose name contains this; writes no table")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "results" / "faults")
    chosen = parser.parse_args(arguments)
    random, found = Random(chosen.seed), []
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing is left behind
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        stage = _Stage(Path(folder))
        for scene in scenes(chosen.kills):
            if chosen.only in scene.name:
                found.append(stage.play(scene, random))
                print(_line(found[-1]), flush=True)
        stage.close()
    if not chosen.only:
        print(write(chosen.output, found, stage.folders, stage.wrong))
    for text in stage.wrong:
        print(text)
    return int(bool(stage.wrong) or any(each.wrong for each in found))


def _line(found: Found) -> str:
    endings = ", ".join(f"{count} x {ending}" for ending, count in sorted(found.endings.items()))
    return f"{found.scene.name}: {found.dealt} dealt to {found.commands} commands ({endings}) {'; '.join(found.wrong)}"


class _Stage:
    """A sequence of folders of results, with a new one when all runs of the last one are recorded."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._logs = folder, 0
        self._runs = len(planned(str(folder)))
        self.folders, self.wrong = 0, list[str]()
        self._undisturbed: dict[str, Any] | None = None
        self._root: Path | None = None
        self._known: dict[str, tuple[int, int]] = {}

    def play(self, scene: Scene, random: Random) -> Found:
        """Deal the scene's faults, with as many commands as needed."""
        found = Found(scene)
        while not scene.why_not and found.dealt < scene.times and found.commands < 3 * scene.times:
            self._fresh_if_done()
            root = self._present()
            scene.before(root)
            command = self._command(root, scene)
            found.commands += 1
            try:
                found.dealt += scene.deal(command, random)
                if not command.ended_within(LIMIT):
                    found.wrong.append(f"still there after {LIMIT:.0f} s")
                    found.endings["hangs"] += 1
                    shutil.copy(command.log, f"{tempfile.gettempdir()}/faults-hangs.log")
                else:
                    found.endings[_ending(command.process.returncode)] += 1
                    left = command.left_over(30)
                    found.wrong += [f"left running: {', '.join(left)}"] if left else []
            finally:
                command.stop()
                scene.after(root)
            said = command.log.read_text(errors="replace")
            found.tracebacks += said.count("Traceback (most recent call last)")
            found.wrong += list(self._changed())
        return found

    def close(self) -> None:
        """Finish the last folder and check it."""
        if self._root is not None:
            self._finish(self._root)

    def _present(self) -> Path:
        if self._root is None:
            self.folders += 1
            self._root = self._folder / str(self.folders)
            self._root.mkdir()
            self._known = {}
        return self._root

    def _fresh_if_done(self) -> None:
        """Finish a folder with too few runs left for another fault."""
        if self._root is not None and len(self._known) > self._runs - 5:
            self._finish(self._root)

    def _command(self, root: Path, scene: Scene | None = None) -> Command:
        self._logs += 1
        return Command(root, self._folder / f"{self._logs}.log", scene.limits if scene else None)

    def _changed(self) -> Iterator[str]:
        """List the errors in the records of the present folder."""
        try:
            now = records(self._present())
        except ValueError as error:
            yield str(error)
            return
        for name, was in self._known.items():
            if now.get(name) != was:
                yield f"{name} was recorded and is {'done again' if name in now else 'gone'}"
        self._known = now

    def _finish(self, root: Path) -> None:
        """Run the same command once more, undisturbed: no run may be missing or different."""
        command = self._command(root)
        if not command.ended_within(LIMIT) or command.process.returncode != 0:
            said = command.log.read_text(errors="replace")[-500:]
            self.wrong.append(f"folder {self.folders}: the same command again ends {command.process.poll()}: {said}")
        command.stop()
        self.wrong += [f"folder {self.folders}: {wrong}" for wrong in self._changed()]
        if len(self._known) != self._runs:
            self.wrong.append(f"folder {self.folders}: {len(self._known)} records instead of {self._runs}")
        if self._undisturbed is None:
            self._undisturbed = self._reference()
        found = measured(root / "results")
        for name in self._known:
            if found.get(name) != self._undisturbed.get(name):
                self.wrong.append(f"folder {self.folders}: {name} says something else than undisturbed")
        self._root = None

    def _reference(self) -> dict[str, Any]:
        """Return the numbers of undisturbed runs."""
        root = self._folder / "undisturbed"
        root.mkdir()
        command = self._command(root)
        command.process.wait()
        return measured(root / "results")


def _ending(code: int) -> str:
    return f"by signal {-code}" if code < 0 else f"exit code {code}"
