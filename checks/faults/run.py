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
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from checks.faults.command import Command, measured, records
from checks.faults.driver import planned
from checks.faults.scenes import LIMIT, Scene, scenes
from runner.config import REPOSITORY
from runner.report.files import Table, markdown, write_text

_HEADER = ("fault", "dealt", "commands", "how they ended", "tracebacks", "wrong afterwards")


@dataclass
class Played:
    """The result of a scene: numbers of faults and commands, the commands' ends, and the errors."""

    scene: Scene
    dealt: int = 0
    commands: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    tracebacks: int = 0
    wrong: list[str] = field(default_factory=list)


def main(arguments: Sequence[str]) -> int:
    """Play all scenes and write the table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m checks faults", description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20, help="SIGKILLs in all")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--only", default="", help="scenes whose name contains this; writes no table")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "results" / "faults")
    chosen = parser.parse_args(arguments)
    random, results = Random(chosen.seed), []
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing is left behind
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        stage = _Stage(Path(folder))
        for scene in scenes(chosen.kills):
            if chosen.only in scene.name:
                results.append(stage.play(scene, random))
                print(_line(results[-1]), flush=True)
        stage.close()
    if not chosen.only:
        print(write(chosen.output, results, stage.folders, stage.wrong))
    for text in stage.wrong:
        print(text)
    return int(bool(stage.wrong) or any(result.wrong for result in results))


def _line(played: Played) -> str:
    endings = ", ".join(f"{count} x {ending}" for ending, count in sorted(played.endings.items()))
    dealt = f"{played.dealt} dealt to {played.commands} commands"
    return f"{played.scene.name}: {dealt} ({endings}) {'; '.join(played.wrong)}"


class _Stage:
    """A sequence of folders of results, with a new one when all runs of the last one are recorded."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._logs = folder, 0
        self._runs = len(planned(str(folder)))
        self.folders, self.wrong = 0, list[str]()
        self._undisturbed: dict[str, Any] | None = None
        self._root: Path | None = None
        self._known: dict[str, tuple[int, int]] = {}

    def play(self, scene: Scene, random: Random) -> Played:
        """Deal the scene's faults, with as many commands as needed."""
        played = Played(scene)
        while not scene.why_not and played.dealt < scene.times and played.commands < 3 * scene.times:
            if self._root is not None and len(self._known) > self._runs - 5:
                self._finish(self._root)  # too few runs are left for another fault
            root = self._present()
            scene.before(root)
            command = self._command(root, scene)
            played.commands += 1
            try:
                played.dealt += scene.deal(command, random)
                if not command.ended_within(LIMIT):
                    played.wrong.append(f"still there after {LIMIT:.0f} s")
                    played.endings["hangs"] += 1
                    shutil.copy(command.log, f"{tempfile.gettempdir()}/faults-hangs.log")
                else:
                    code = command.process.returncode
                    played.endings[f"by signal {-code}" if code < 0 else f"exit code {code}"] += 1
                    left = command.left_over(30)
                    played.wrong += [f"left running: {', '.join(left)}"] if left else []
            finally:
                command.stop()
                scene.after(root)
            output = command.log.read_text(errors="replace")
            played.tracebacks += output.count("Traceback (most recent call last)")
            played.wrong += list(self._changed())
        return played

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
            output = command.log.read_text(errors="replace")[-500:]
            self.wrong.append(f"folder {self.folders}: the same command again ends {command.process.poll()}: {output}")
        command.stop()
        self.wrong += [f"folder {self.folders}: {wrong}" for wrong in self._changed()]
        if len(self._known) != self._runs:
            self.wrong.append(f"folder {self.folders}: {len(self._known)} records instead of {self._runs}")
        if self._undisturbed is None:
            undisturbed = self._folder / "undisturbed"
            undisturbed.mkdir()
            self._command(undisturbed).process.wait()
            self._undisturbed = measured(undisturbed / "results")
        numbers = measured(root / "results")
        for name in self._known:
            if numbers.get(name) != self._undisturbed.get(name):
                self.wrong.append(f"folder {self.folders}: {name} says something else than undisturbed")
        self._root = None


def write(folder: Path, results: Sequence[Played], folders: int, wrong: Sequence[str]) -> Path:
    """Write README.md.

    Returns:
        Its path.
    """
    kills = sum(result.dealt for result in results if result.scene.name.startswith("SIGKILL"))
    faults, commands = sum(result.dealt for result in results), sum(result.commands for result in results)
    errors = [*wrong, *(f"{result.scene.name}: {text}" for result in results for text in result.wrong)]
    lines = [
        "# What is left of runs when the machine fails",
        "",
        "A command carries out ten short runs, two at a time, and is dealt faults at random moments. After each fault, "
        "every record has to be whole, and none gone or done again. In the end the same command runs without a fault. "
        "It has to record the missing runs, and every record has to equal that of a run without faults. "
        "Written by `make faults`.",
        "",
        f"- **{faults} faults, {kills} of them SIGKILL, dealt to {commands} commands on {folders} folders of results: "
        f"{len(errors) or 'nothing'} wrong afterwards.**",
        *(f"- {text}" for text in errors),
        "",
        markdown(Table(_HEADER, [_row(result) for result in results])),
    ]
    return write_text(folder / "README.md", "\n".join(lines))


def _row(result: Played) -> tuple[str, ...]:
    if result.scene.why_not:
        return (result.scene.name, "0", "0", f"left out: {result.scene.why_not}", "", "")
    endings = ", ".join(f"{count} × {ending}" for ending, count in sorted(result.endings.items()))
    wrong = str(len(result.wrong)) if result.wrong else "nothing"
    return (result.scene.name, str(result.dealt), str(result.commands), endings, str(result.tracebacks), wrong)
