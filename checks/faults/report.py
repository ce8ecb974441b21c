"""The table of faults and of the ways commands ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from checks.faults.scenes import Scene
from runner.report.files import Table, markdown, write_text

_HEADER = ("fault", "dealt", "commands", "how they ended", "tracebacks", "wrong afterwards")


@dataclass
class Found:
    """The result of a scene: numbers of faults and commands, the commands' ends, and the errors."""

    scene: Scene
    dealt: int = 0
    commands: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    tracebacks: int = 0
    wrong: list[str] = field(default_factory=list)


def write(folder: Path, found: Sequence[Found], folders: int, wrong: Sequence[str]) -> Path:
    """Write README.md.

    Returns:
        Its path.
    """
    kills = sum(each.dealt for each in found if each.scene.name.startswith("SIGKILL"))
    faults, commands = sum(each.dealt for each in found), sum(each.commands for each in found)
    every = [*wrong, *(f"{each.scene.name}: {text}" for each in found for text in each.wrong)]
    lines = [
        "# What is left of runs when the machine fails",
        "",
        "A command carries out ten short runs, two at a time, and is dealt faults at random moments. After each fault, "
        "every record has to be whole, and none gone or done again. In the end the same command runs without a fault. "
        "It has to record the missing runs, and every record has to equal that of a run without faults. "
        "Written by `make faults`.",
        "",
        f"- **{faults} faults, {kills} of them SIGKILL, dealt to {commands} commands on {folders} folders of results: "
        f"{len(every) or 'nothing'} wrong afterwards.**",
        *(f"- {text}" for text in every),
        "",
        markdown(Table(_HEADER, [_row(each) for each in found])),
    ]
    return write_text(folder / "README.md", "\n".join(lines))


def _row(found: Found) -> tuple[str, ...]:
    if found.scene.why_not:
        return (found.scene.name, "0", "0", f"left out: {found.scene.why_not}", "", "")
    endings = ", ".join(f"{count} × {ending}" for ending, count in sorted(found.endings.items()))
    wrong = str(len(found.wrong)) if found.wrong else "nothing"
    return (found.scene.name, str(found.dealt), str(found.commands), endings, str(found.tracebacks), wrong)
