"""Hash the examples of a user's data set, which make it the same data set in every run.

The names of the papers' data sets stand for known files. Other sets of torchvision are read from any files of their
format. A user's class or function may give other images each time, from an unseeded split, a random transform, the
clock, or a folder that has changed. So the hash of the images and labels is a part of the run, like the hash of a
class's source (see `runner.trust.sources`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import cache
from multiprocessing import parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from runner.config import ConfigError
from runner.config.checkout import scan
from runner.data.originals import known
from runner.data.reading import digest
from runner.trust.sources import sources_of
from runner.trust.targets import own_targets

if TYPE_CHECKING:
    from runner.data.datasets import ImageDataset

_hashes: dict[str, str] = {}  # of what this process has read, by what names it


def examples_of(config: DictConfig) -> str | None:
    """Hash the examples of a config's data set, as they are used at its scale. None if its files are known.

    They are read once a process. Then a line on stderr says what is unusual in them.

    Raises:
        ConfigError: the data set cannot be built.
        DataError: it cannot be read.
    """
    target = config.dataset.get("_target_") if OmegaConf.is_config(config.dataset) else None
    if not isinstance(target, str):
        return None
    is_users = own_targets({"_target_": target})
    if not is_users and (config.dataset.get("bundled") or known(str(config.dataset.get("name")))):
        return None
    group = OmegaConf.to_container(config.dataset, resolve=True)
    from runner.build.groups import Group  # here, as configs of this package's sets need no PyTorch
    from runner.build.parts import build_dataset

    dataset, root = build_dataset(Group(config, "dataset"), config), config.runtime.data_root
    key = json.dumps([group, root, config.scale.bundled_data, sources_of(config, ["dataset"])], default=str)
    if key not in _hashes:
        _hashes[key] = digest(dataset.load(root))
        notes = getattr(dataset, "notes", None)  # a user's function may give a data set of this package
        for note in notes(root) if notes is not None and parent_process() is None else ():
            print(f"dataset: {note}.", file=sys.stderr)
    return _hashes[key]


def check_examples(config: DictConfig, folder: Path, dataset: ImageDataset) -> None:
    """Check that a user's data set gives the examples that a config was listed with, and that its records have.

    Args:
        folder: has the records in runs/.
        dataset: the one that the run uses.

    Raises:
        ConfigError: it gives others.
        DataError: it cannot be read.
    """
    if config.get("examples") is None:
        return
    if digest(dataset.load(config.runtime.data_root)) != config.examples:
        raise ConfigError(
            f"dataset: {config.dataset._target_} gives other images or labels than a moment ago, when the run was "
            f"listed. PyTorch, NumPy and random have fixed seeds, so take away what else it draws from: {_OTHERS}."
        )
    group: Any = OmegaConf.to_container(config.dataset, resolve=True)
    sources = sources_of(config, ["dataset"])
    for path in scan(folder / "runs", "*.json"):
        text = _config_text(path, path.stat().st_mtime_ns, json.dumps(group["_target_"]))
        if not text:
            continue
        recorded: Mapping[str, Any] = json.loads(text)
        stated = recorded.get("examples")
        alike = recorded["dataset"] == group and recorded["scale"]["bundled_data"] == config.scale.bundled_data
        same_source = all(recorded.get("sources", {}).get(name) == digest for name, digest in sources.items())
        if stated not in (None, config.examples) and alike and same_source:
            raise ConfigError(
                f"dataset: {config.dataset._target_} gives other images or labels than in {path}, so the runs cannot "
                f"be compared: bring the old data back, or give the new data another name or "
                f"runtime.results_root=FOLDER. If you changed nothing, take away what it draws from: {_OTHERS}."
            )


_OTHERS = "the clock, a generator without a seed, or the order of a set"


@cache
def _config_text(path: Path, _changed: int, target: str) -> str:
    """Return the config of a record as JSON, or "" if it does not name a target or is no record."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if target not in text:
        return ""
    try:
        return json.dumps(json.loads(text)["config"])
    except (ValueError, KeyError, TypeError):
        return ""
