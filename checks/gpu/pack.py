"""New files of a call in archives, each small enough to be sent: `tar -xzf` in the checkout puts them in place."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path

LIMIT = 15 << 20  # bytes of an archive's files before compression
_HEADER = 1024  # bytes of a file's header and padding


def pack(files: Iterable[Path], root: Path, output: Path, name: str) -> list[Path]:
    """Write files below `root` to `output`/NAME-1.tar.gz and so on, under results/. Older archives of a name go.

    Args:
        root: the folder of all results.
    """
    output.mkdir(parents=True, exist_ok=True)
    groups: list[list[Path]] = []
    filled = LIMIT
    for file in files:
        size = file.stat().st_size + _HEADER
        if filled + size > LIMIT:
            groups.append([])
            filled = 0
        groups[-1].append(file)
        filled += size
    archives = []
    for number, group in enumerate(groups, 1):
        archives.append(output / f"{name}-{number}.tar.gz")
        part = archives[-1].with_suffix(".part")
        with tarfile.open(part, "w:gz") as archive:
            for file in group:
                archive.add(file, Path("results") / file.relative_to(root))
        part.replace(archives[-1])
    return archives
