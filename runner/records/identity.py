"""Compute run and setting ids as hashes of the resolved config, of which the hash of a user's examples is a part.

The names of the papers' data sets stand for known files. Other sets of torchvision are read from any files of their
format. A user's class or function may give other images each time, from an unseeded split, a random transform, the
clock, or a folder that has changed. So the hash of the images and labels is a part of the run, like the hash of a
class's source (see `runner.trust.sources`).
"""

import hashlib
import json
import pickle
import sys
from collections.abc import Mapping
from multiprocessing import parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf, open_dict

from runner.config import BUDGETS, FIELDS, ConfigError, check_ranges, check_values
from runner.config.checkout import scan
from runner.config.fields import Part
from runner.data import BUNDLED_TEST, BUNDLED_TRAIN
from runner.data.originals import known
from runner.data.reproducible import digest
from runner.trust.sources import bare_name, own_targets, sources_of

if TYPE_CHECKING:
    from runner.data.datasets import ImageDataset

_hashes: dict[str, str] = {}  # of what this process has read, by what names it
_OTHERS = "the clock, a generator without a seed, or the order of a set"
_MAY_MOVE = ("runner.", "torch.")  # the packages whose classes are known by their bare names, wherever they are


def resolved(composed: DictConfig) -> DictConfig:
    """Resolve a config: apply `sound_epsilon` and `scale`, resolve interpolations, hash a user's classes and examples.

    Interpolations are resolved after the limits: `${batch_size}` is the batch that is trained. The input is not
    changed.

    Raises:
        ConfigError: a number is not in its range, a user's class cannot be imported, or a hash is set.
        DataError: a user's data set cannot be read.
    """
    config: DictConfig = pickle.loads(pickle.dumps(composed))  # a tenth of the time of a deep copy
    limit(config)
    OmegaConf.resolve(config)
    return config


def limit(config: DictConfig) -> None:
    """Apply `sound_epsilon` and the limits of `scale` to a config in place, and hash a user's classes and examples.

    Raises:
        ConfigError, DataError: as in `resolved`.
    """
    check_ranges(config)
    if config.sound_epsilon is not None:  # the noise follows from it, and an experiment or a default may have set these
        config.update(dict.fromkeys(BUDGETS))
    scale = config.scale
    if scale.bundled_data:
        if str(config.dataset.get("_target_")).startswith(_MAY_MOVE):  # one of the user's own is cut where it is built
            with open_dict(config.dataset):
                config.dataset.update({"bundled": True, "train_examples": BUNDLED_TRAIN, "test_examples": BUNDLED_TEST})
        config.max_epsilon = None  # a budget chosen for a data set forty times as large
    if scale.epochs is not None:
        config.epochs = min(config.epochs, scale.epochs)
    if scale.batch_size is not None:
        config.batch_size = min(config.batch_size, scale.batch_size)
    if scale.seeds is not None:
        config.seed = config.seed % scale.seeds
    for name, hashes_of, whose in (
        ("sources", sources_of, "the files that the classes of a run come from"),
        ("examples", examples_of, "the images and labels of a user's data set"),
    ):
        hashed: Any = hashes_of(config)
        if config[name] and config[name] != hashed:
            raise ConfigError(f"{name} cannot be set: it is the hash of {whose}.")
        config[name] = hashed


def plain(config: DictConfig) -> dict[str, Any]:
    """Return a whole config, resolved, as JSON values, without `sources` and `examples` if they are empty.

    Raises:
        ConfigError: no record can hold one of its values.
    """
    values: Any = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    check_values(values)
    return {name: value for name, value in values.items() if value or name not in ("sources", "examples")}


def recorded_config(config: DictConfig) -> dict[str, Any]:
    """Return the part of a config that records have. It leaves out the fields of the machine."""
    return {name: value for name, value in plain(config).items() if name not in FIELDS or FIELDS[name].part.recorded}


def hashed_config(values: dict[str, Any], *, exact: bool = False) -> dict[str, Any]:
    """Return the part of a resolved config, as JSON values, that defines the run.

    A class of this package or of PyTorch is given by its bare name and its arguments, so its file can move. Null and
    empty values are left out. So is a new field at the value that older runs had implicitly (see
    `runner.config.fields`), which keeps the ids of old records. Any other class is given by its whole path. If it is
    the user's, `sources` has the hash of its source.

    Args:
        exact: for a hash: numbers are floats, and the arguments of any other class are a text (see `_normalized`).
    """
    unhashed = {name: field.unhashed_at for name, field in FIELDS.items()}
    identifying = {n: v for n, v in values.items() if _part(n).identifies and (n not in FIELDS or v != unhashed[n])}
    return dict(_normalized(identifying, exact))


def identify(config: DictConfig) -> tuple[str, str]:
    """Return the run id and the setting id of a resolved config: 12 hex digits of the SHA-256 of `hashed_config`.

    The same config and seed have the same run id on any machine. The setting id leaves the seed out.
    """
    return identify_recorded(plain(config))


def identify_recorded(config: dict[str, Any]) -> tuple[str, str]:
    """Return the run id and the setting id of a recorded config, also if its classes have moved since."""
    content = hashed_config(config, exact=True)
    setting = {name: value for name, value in content.items() if _part(name).defines_setting}
    return _digest(content), _digest(setting)


def trained(values: dict[str, Any]) -> str:
    """Hash the part of a setting that affects training. Settings with the same hash differ in measurements only."""
    return identify_recorded({name: v for name, v in values.items() if _part(name) is not Part.observed})[1]


def _part(name: str) -> Part:
    """Return the part that a field belongs to. An unknown field counts as part of the setting."""
    return FIELDS[name].part if name in FIELDS else Part.setting


def _normalized(value: Any, exact: bool, *, in_list: bool = False) -> Any:
    """Give classes that may move their bare names, and drop `_partial_`, which changes no run.

    Null and empty values are dropped, too, unless they are in a list. If the value is `exact`, arguments of a user's
    class are one text, as their order, nulls and empty values may matter there. Numbers are then floats, where these
    have whole numbers exactly: `lr=1` and `lr=1.0` are the same run.
    """
    if isinstance(value, list):
        return [_normalized(v, exact, in_list=True) for v in value]
    if not isinstance(value, dict):
        whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 2**53
        return float(value) if exact and whole else value
    target: Any = value.get("_target_")
    may_move = isinstance(target, str) and target.startswith(_MAY_MOVE)
    if exact and isinstance(target, str) and not may_move:
        arguments = {name: v for name, v in value.items() if name not in ("_target_", "_partial_")}
        return {"_target_": target, "arguments": json.dumps(arguments)}
    entries = {name: _normalized(v, exact, in_list=in_list) for name, v in value.items() if name != "_partial_"}
    entries = {name: v for name, v in entries.items() if in_list or (v is not None and v != [] and v != {})}
    return entries | {"_target_": bare_name(target)} if may_move else entries


def _digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


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
    if not own_targets({"_target_": target}) and (
        config.dataset.get("bundled") or known(str(config.dataset.get("name")))
    ):
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


def check_examples(config: DictConfig, folder: Path, dataset: "ImageDataset") -> None:
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
    sources, target = sources_of(config, ["dataset"]), json.dumps(group["_target_"])
    for path in scan(folder / "runs", "*.json"):
        text = path.read_text(encoding="utf-8", errors="replace")
        try:
            recorded: Mapping[str, Any] = json.loads(text)["config"] if target in text else {}
        except (ValueError, KeyError, TypeError):  # no record
            continue
        stated = recorded.get("examples")
        alike = recorded.get("dataset") == group and recorded["scale"]["bundled_data"] == config.scale.bundled_data
        same_source = all(recorded.get("sources", {}).get(name) == hashed for name, hashed in sources.items())
        if stated not in (None, config.examples) and alike and same_source:
            raise ConfigError(
                f"dataset: {config.dataset._target_} gives other images or labels than in {path}, so the runs cannot "
                f"be compared: bring the old data back, or give the new data another name or "
                f"runtime.results_root=FOLDER. If you changed nothing, take away what it draws from: {_OTHERS}."
            )
