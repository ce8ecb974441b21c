"""What files of configs may tell Hydra itself, which runs before any code of this package: how a sweep goes, no more.

Hydra instantiates callbacks, launchers and sweepers, and Python's logging calls what its configuration names, before
a run's own `_target_`s are checked (see `runner.training.targets`). A file that somebody gave you must not reach them,
so that every file of conf/ and sweeps/, and of a folder named on the command line, is read first, and refused where it
says more to Hydra than `hydra.mode` and `hydra.sweeper.params`. The primary file, conf/config.yaml, is as good as code.
What is typed on the command line is the user's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from runner.config import REPOSITORY, ConfigError

_PRIMARY = REPOSITORY / "conf" / "config.yaml"
_FOLDERS = (REPOSITORY / "conf", REPOSITORY / "sweeps")
_OPTIONS = ("--config-dir", "-cd", "--config-path", "-cp")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_HEADER = re.compile(r"^\s*#\s*@package\s+(\S+)", re.MULTILINE)


def check_files(arguments: Sequence[str]) -> None:
    """Check every file that a command with these arguments may compose.

    Raises:
        ConfigError: one tells Hydra more than it may.
    """
    for folder in (*_FOLDERS, *_named(arguments)):
        for path in sorted(folder.rglob("*.y*ml")):
            if path != _PRIMARY:
                _check(path)


def _named(arguments: Sequence[str]) -> Iterator[Path]:
    """Folders of configs that are named on the command line."""
    for place, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if option in _OPTIONS:
            yield Path(value if equals else (*arguments, ".")[place + 1])


def _check(path: Path) -> None:
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        content = yaml.load(text, Loader=_LOADER)
    except yaml.YAMLError:
        return  # Hydra says so, if it is asked for
    if any("hydra" in package for package in _HEADER.findall(text)) or "hydra" in path.parts[-2:-1]:
        _refuse(path, "package")
    if not isinstance(content, dict):
        return
    for default in content.get("defaults") or ():
        if "hydra" in str(default):
            _refuse(path, f"defaults: {default}")
    for key, value in content.items():
        if "hydra" in str(key):
            _check_own(path, str(key), value)


def _check_own(path: Path, key: str, value: Any) -> None:
    told = value if isinstance(value, dict) else {"": value}
    sweeper = told.get("sweeper") or {}
    more = [
        *(told.keys() - {"mode", "sweeper"}),
        *(sweeper.keys() - {"params"} if isinstance(sweeper, dict) else ["sweeper"]),
    ]
    if key != "hydra" or more:
        _refuse(path, f"{key}.{more[0]}" if more else key)


def _refuse(path: Path, what: str) -> None:
    raise ConfigError(f"{path}: {what}: a file of a config may tell Hydra its mode and the sweeper's params, no more.")
