"""The transcript: the faults on each cluster, their detection, their effect, and the commands' output."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from checks.cluster.paper import ITEMS, PAPER
from runner.report.files import Table, markdown, write_text

_LEFT_OUT = {
    r"\x1b\[[0-9;]*m": "",
    r"(?<![\w.])/[\w./-]+": "PATH",
    r"\b\d+(?:\.\d+){3}\b": "ADDRESS",
    r"\b[0-9a-f]{32,}\b": "ID",
    r"(?<=Error: Task failed because the node it was running on is dead or unavailable\.)[^\n]*": "",
}
_HEADER = ("cluster", "dealt", "what followed")


@dataclass
class Played:
    """The result of a scene.

    Attributes:
        why_not: the reason why it could not be played here; "" if it was.
        dealt: the faults and their consequences.
        said: output of commands, each under a heading.
        wrong: the differences from an undisturbed run.
        runs: the number of records in the end.
    """

    name: str
    why_not: str
    dealt: list[tuple[str, str]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    runs: int = 0
    seconds: float = 0.0

    def deal(self, what: str, followed: str) -> None:
        """Note a fault."""
        self.dealt.append((what, followed))

    def note(self, what: str, text: str) -> None:
        """Keep the output of a command, without the paths of this machine."""
        self.said.append(f"{what}:\n\n```\n{plain(text).strip()}\n```\n")


def plain(text: str) -> str:
    """Remove colours, paths, addresses and long ids from a text."""
    for pattern, instead in _LEFT_OUT.items():
        text = re.sub(pattern, instead, text)
    return text


def write(folder: Path, found: Sequence[Played]) -> Path:
    """Write README.md.

    Returns:
        Its path.
    """
    rows = [(each.name, *one) for each in found for one in each.dealt]
    rows += [(each.name, "nothing", f"left out: {each.why_not}") for each in found if each.why_not]
    ends = [
        f"- **{each.name}: {each.runs} records, {'; '.join(each.wrong) or 'nothing wrong'}** ({each.seconds:.0f} s)."
        for each in found
        if not each.why_not
    ]
    lines = [
        "# A paper in small on clusters of two nodes",
        "",
        f"`make reproduce-{PAPER} SCALE=smoke ITEMS={ITEMS}` by each launcher, with faults dealt while it runs. Each "
        f"cluster is real and has two nodes of one CPU, on one machine ({_versions()}). In the end every record has to "
        "be there once and whole. Records and tables have to be those of an undisturbed run on this machine alone. "
        "slurm keeps no accounts, slurm-accounts does (sacct). Written by `make cluster`.",
        "",
        *ends,
        "",
        markdown(Table(_HEADER, rows)),
    ]
    for each in found:
        lines += ["", f"## {each.name}", "", *each.said] if each.said else []
    return write_text(folder / "README.md", "\n".join(lines).rstrip() + "\n")


def _versions() -> str:
    said = [_version_of("slurmctld"), *(f"{name} {_package(name)}" for name in ("submitit", "ray"))]
    return ", ".join(text for text in said if text and "None" not in text)


def _version_of(command: str) -> str:
    try:
        said = subprocess.run([command, "-V"], capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""
    return said.replace("slurm-wlm", "Slurm").replace("slurm ", "Slurm ")


def _package(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
