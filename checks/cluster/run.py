"""Faults on a Slurm and a Ray of two nodes while they run a small paper: `python -m checks cluster`.

The clusters are real, and on this machine alone. Afterwards every record has to be there once, whole, and equal to an
undisturbed one, and so do the tables. A cluster that is impossible here is left out, with the reason.

Exit codes: 0 nothing was lost, 1 something was.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from checks.cluster import paper, ray, slurm
from checks.cluster.report import Played, write
from checks.cluster.scenes import on_ray, on_slurm
from runner.config import REPOSITORY

SCENES = ("slurm", "slurm-accounts", "ray")


def main(arguments: Sequence[str]) -> int:
    """Play the scenes and write the transcript, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m checks cluster", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=SCENES, help="this cluster alone; writes no transcript")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "results" / "cluster")
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing is left behind
    found: list[Played] = []
    with tempfile.TemporaryDirectory(prefix="dp") as folder:
        undisturbed = Path(folder) / "undisturbed"
        paper.said(paper.command(undisturbed, "--jobs", "2"), {})
        for name in SCENES if chosen.only is None else (chosen.only,):
            played = _play(name, Path(folder) / name, undisturbed)
            print(f"{name}: {played.why_not or '; '.join(played.wrong) or 'nothing wrong'}", flush=True)
            found.append(played)
    if chosen.only is None:
        print(write(chosen.output, found))
    else:
        print("\n".join(found[0].said))
    return int(any(each.wrong for each in found))


def _play(name: str, folder: Path, undisturbed: Path) -> Played:
    played = Played(name, ray.why_not() if name == "ray" else slurm.why_not(name == "slurm-accounts"))
    if played.why_not:
        return played
    folder.mkdir()
    started = time.monotonic()
    try:
        if name == "ray":
            on_ray(folder, played)
        else:
            on_slurm(folder, played, accounts=name == "slurm-accounts")
        played.wrong += paper.wrong(folder / "results", undisturbed)
    except (TimeoutError, RuntimeError, subprocess.SubprocessError) as error:
        played.wrong.append(f"{type(error).__name__}: {error}")
        shutil.copytree(folder, Path(tempfile.gettempdir()) / f"cluster-{name}-{time.time():.0f}", ignore=_sockets)
    played.runs, played.seconds = len(paper.measured(folder / "results")), time.monotonic() - started
    return played


def _sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if Path(folder, name).is_socket()]
