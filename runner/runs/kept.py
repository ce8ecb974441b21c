"""What plans need again: kept in the user's cache, for as long as nothing that it follows from has changed.

Everything is filed under the content of all code, configs and sweeps of this checkout, the versions of what composes
and computes, and the environment that configs may read: whatever of it changes, all is worked out anew. What is kept
ends in its SHA-256, and is not read unless that fits and nobody else can have written it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

from runner.config import REPOSITORY
from runner.data.cache import cache_folder, of_the_user_alone, safe_folder
from runner.data.files import write_whole

_SOURCES = {"runner": (".py", ".cpp", ".h"), "conf": (".yaml",), "sweeps": (".yaml", ".csv")}
_OF_ENVIRONMENT = re.compile(r"\$\{oc\.env:\s*([A-Za-z_][A-Za-z0-9_]*)")
_VERSIONS = ("hydra-core", "omegaconf", "torch")
_CHECKSUM = hashlib.sha256().digest_size  # bytes at the end of a file
_CHECKOUTS = 4  # whose files are kept: those used last


def recalled(key: str) -> bytes | None:
    """What was kept under a key; None where nothing was, or it is damaged or not the user's alone."""
    path = _path(key)
    try:
        content = path.read_bytes() if of_the_user_alone(path) else b""
    except OSError:
        return None
    kept, checksum = content[:-_CHECKSUM], content[-_CHECKSUM:]
    return kept if hashlib.sha256(kept).digest() == checksum else None


def keep(key: str, content: bytes) -> None:
    """Keep some bytes under a key, whole or not at all. Where it cannot be, they are worked out again next time."""
    path = _path(key)
    try:
        safe_folder(path.parent.parent)
        safe_folder(path.parent)
        write_whole(path, content + hashlib.sha256(content).digest(), replace=True, private=True)
        _make_room(path.parent)
    except OSError:
        pass


def _path(key: str) -> Path:
    return cache_folder() / "plans" / fingerprint() / hashlib.sha256(key.encode()).hexdigest()[:16]


def _make_room(ours: Path) -> None:
    """Remove what other checkouts, or this one as it was, left: all but the folders used last."""
    others = sorted(
        (place for place in ours.parent.iterdir() if place != ours), key=lambda place: place.stat().st_mtime
    )
    for place in others[: -(_CHECKOUTS - 1)]:
        shutil.rmtree(place, ignore_errors=True)


@cache
def fingerprint() -> str:
    """Changes with all that plans follow from but records: code, configs, sweeps, versions, machine, environment."""
    digest = hashlib.sha256()

    def add(*parts: str) -> None:
        for part in parts:
            digest.update(f"{len(part)}:{part}".encode())

    add(str(REPOSITORY), sys.version, platform.node(), *(version(name) for name in _VERSIONS))
    named: set[str] = set()
    for folder, endings in _SOURCES.items():
        for path in sorted((REPOSITORY / folder).rglob("*")):
            if path.suffix in endings and path.is_file():
                text = path.read_text(encoding="utf-8")
                named |= set(_OF_ENVIRONMENT.findall(text))
                add(str(path.relative_to(REPOSITORY)), text)
    named |= {name for name in os.environ if name.startswith("DP_REPRO_")}
    for name in sorted(named):
        add(name, repr(os.environ.get(name)))
    return digest.hexdigest()[:16]
