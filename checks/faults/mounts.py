"""Results folders on a file system of their own, which takes an administrator's rights."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path


def mounted(options: str, fill: int = 0) -> Callable[[Path], None]:
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


def unmount(folder: Path) -> None:
    """Undo `mounted`."""
    subprocess.run(["umount", "--lazy", str(folder / "results")], check=False)
