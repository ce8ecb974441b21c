"""What Hydra composes, composed once: it takes 0.1 s a time, and tests ask for the same things by the hundred.

What is composed is kept in pytest's cache, for the other process of a session and for the next session, under a hash of
all that Hydra reads. `pytest --cache-clear` empties it, and `-p no:cacheprovider` does without.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import inspect
import os
import pickle
import shutil
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import hydra
import omegaconf
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from runner.config import REPOSITORY, Config, register

CONF = REPOSITORY / "conf"
_UNREADABLE = (OSError, EOFError, pickle.UnpicklingError, AttributeError, ImportError)


def composed(overrides: Sequence[str], return_hydra_config: bool = False) -> DictConfig:
    """A copy of what Hydra composes of these overrides.

    Of options of groups alone one config is composed for every scale, which is swapped (tests/test_config.py compares).
    """
    if return_hydra_config or not all(is_option(text) for text in overrides):
        return copy.deepcopy(_composed(tuple(overrides), return_hydra_config))
    scales = [text for text in overrides if text.startswith("scale=")]
    config = copy.deepcopy(_composed(tuple(text for text in overrides if text not in scales)))
    if scales:
        config.scale = copy.deepcopy(_composed(tuple(scales)).scale)
    return config


def is_option(override: str) -> bool:
    """Whether an override chooses an option of a group, and sets no value."""
    name = override.partition("=")[0]
    return name == "sweeps" or (CONF / name).is_dir()


def keep_in(folder: Path) -> None:
    """Keep what is composed from now on in a folder, and take from there what is kept of the same files."""
    mine = folder / _digest()
    mine.mkdir(parents=True, exist_ok=True)
    for other in folder.iterdir():
        if other != mine:
            shutil.rmtree(other, ignore_errors=True)
    _folders[:] = [mine]


_folders: list[Path] = []  # the folder, if any


def files_read() -> list[Path]:
    """What Hydra reads: the configs, and the package of their schema, which imports no other."""
    schema = Path(inspect.getfile(Config)).parent
    return sorted([*CONF.rglob("*.yaml"), *(REPOSITORY / "sweeps").rglob("*.yaml"), *schema.rglob("*.py")])


def _digest() -> str:
    """A hash of what Hydra reads, and of what reads it."""
    found = hashlib.sha256(f"{sys.version} {hydra.__version__} {omegaconf.__version__}".encode())
    for path in files_read():
        found.update(f"{path} {path.stat().st_size} ".encode() + path.read_bytes())
    return found.hexdigest()[:32]


@cache
def _composed(overrides: tuple[str, ...], return_hydra_config: bool = False) -> DictConfig:
    """To be copied, never changed. Where an override names a folder, which is a test's own, nothing is kept."""
    register()
    key = hashlib.sha256(repr((overrides, return_hydra_config)).encode()).hexdigest()[:32]
    paths = [] if any("=/" in text for text in overrides) else [folder / key for folder in _folders]
    for path in paths:
        try:
            kept: DictConfig = pickle.loads(path.read_bytes())
            return kept
        except _UNREADABLE:
            pass  # not there yet, or cut short
    config = _by_hydra(overrides, return_hydra_config)
    for path in paths:
        if path.parent.name == _digest():  # else a file was edited meanwhile
            whole = path.with_suffix(f".{os.getpid()}")
            with contextlib.suppress(OSError):  # a session that finds other files has taken the folder away
                whole.write_bytes(pickle.dumps(config))
                whole.replace(path)
    return config


def _by_hydra(overrides: tuple[str, ...], return_hydra_config: bool) -> DictConfig:
    if GlobalHydra.instance().is_initialized():
        return compose("config", list(overrides), return_hydra_config=return_hydra_config)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", list(overrides), return_hydra_config=return_hydra_config)
