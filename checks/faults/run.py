"""Faults of the machine during a command with many runs, and their effect: `python -m checks faults`.

After each fault, every record is whole, by its digest and its schema. No earlier record has changed or gone. The
command has ended, with all its processes. At the end of each folder, the same command runs without a fault. It records
the missing runs, each once, and every record equals an undisturbed one.

It needs Linux. An ordinary user cannot mount a small disk; that fault is then left out, with a message.

Exit codes: 0 nothing was lost, 1 something was.
"""

import argparse
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from checks.faults.command import Command, measured, records
from checks.faults.driver import planned
from checks.faults.scenes import LIMIT, Scene, scenes
from runner.config import REPOSITORY
from runner.report.formats import Table, markdown, write_text


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
        self._known: dict[Path, tuple[int, int]] = {}

    def play(self, scene: Scene, random: Random) -> Played:
        """Deal the scene's faults, with as many commands as needed."""
        played = Played(scene)
        while not scene.why_not and played.dealt < scene.times and played.commands < 3 * scene.times:
            if len(self._known) > self._runs - 5:
                self.close()  # too few runs are left for another fault
            if self._root is None:
                self.folders += 1
                self._root = self._folder / str(self.folders)
                self._root.mkdir()
            scene.before(self._root)
            command = self._command(self._root, scene.limit)
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
                    left = command.left_over()
                    played.wrong += [f"left running: {', '.join(left)}"] if left else []
            finally:
                command.stop()
                scene.after(self._root)
            output = command.log.read_text(errors="replace")
            played.tracebacks += output.count("Traceback (most recent call last)")
            played.wrong += self._changed(self._root)
        return played

    def close(self) -> None:
        """Run the same command once more on the present folder, undisturbed: no run may be missing or different."""
        if (root := self._root) is None:
            return
        command = self._command(root)
        wrong = list[str]()
        if not command.ended_within(LIMIT) or command.process.returncode != 0:
            output = command.log.read_text(errors="replace")[-500:]
            wrong.append(f"the same command again ends {command.process.poll()}: {output}")
        command.stop()
        wrong += self._changed(root)
        if len(self._known) != self._runs:
            wrong.append(f"{len(self._known)} records instead of {self._runs}")
        if self._undisturbed is None:
            undisturbed = self._folder / "undisturbed"
            undisturbed.mkdir()
            self._command(undisturbed).process.wait()
            self._undisturbed = measured(undisturbed / "results")
        for name, numbers in measured(root / "results").items():
            if numbers != self._undisturbed.get(name):
                wrong.append(f"{name} says something else than undisturbed")
        self.wrong += [f"folder {self.folders}: {text}" for text in wrong]
        self._root, self._known = None, {}

    def _command(self, root: Path, limit: Callable[[], None] = lambda: None) -> Command:
        self._logs += 1
        return Command(root, self._folder / f"{self._logs}.log", limit)

    def _changed(self, root: Path) -> list[str]:
        try:
            now = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in records(root / "results")}
        except ValueError as error:
            return [str(error)]
        before, self._known = self._known, now
        changed = [path for path, written in before.items() if now.get(path) != written]
        return [f"{path.stem} was recorded and is {'done again' if path in now else 'gone'}" for path in changed]


def write(folder: Path, results: Sequence[Played], folders: int, wrong: Sequence[str]) -> Path:
    """Write README.md, and return its path."""
    kills = sum(result.dealt for result in results if result.scene.name.startswith("SIGKILL"))
    faults, commands = sum(result.dealt for result in results), sum(result.commands for result in results)
    errors = [*wrong, *(f"{result.scene.name}: {text}" for result in results for text in result.wrong)]
    header = ("fault", "dealt", "commands", "how they ended", "tracebacks", "wrong afterwards")
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
        markdown(Table(header, [_row(result) for result in results])),
    ]
    return write_text(folder / "README.md", "\n".join(lines))


def _row(result: Played) -> tuple[str, ...]:
    if result.scene.why_not:
        return (result.scene.name, "0", "0", f"left out: {result.scene.why_not}", "", "")
    endings = ", ".join(f"{count} × {ending}" for ending, count in sorted(result.endings.items()))
    wrong = str(len(result.wrong)) if result.wrong else "nothing"
    return (result.scene.name, str(result.dealt), str(result.commands), endings, str(result.tracebacks), wrong)
