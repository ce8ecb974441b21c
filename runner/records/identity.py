"""Compute run and setting ids as hashes of the resolved config."""

from __future__ import annotations

import hashlib
import json
import pickle
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from runner.config import BUDGETS, FIELDS, ConfigError, check_ranges, check_values
from runner.config.fields import Part
from runner.data import BUNDLED_TEST, BUNDLED_TRAIN
from runner.records.examples import examples_of
from runner.trust.sources import sources_of
from runner.trust.targets import bare_name

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
    sources = sources_of(config)
    if config.sources and config.sources != sources:
        raise ConfigError("sources cannot be set: it is the hash of the files that the classes of a run come from.")
    config.sources = sources
    examples = examples_of(config)
    if config.examples not in (None, examples):
        raise ConfigError("examples cannot be set: it is the hash of the images and labels of a user's data set.")
    config.examples = examples


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


def hashed_config(values: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a resolved config, as JSON values, that defines the run.

    A class of this package or of PyTorch is given by its bare name and its arguments, so its file can move. Null and
    empty values are left out. So is a new field at the value that older runs had implicitly (see
    `runner.config.fields`), which keeps the ids of old records. Any other class is given by its whole path. If it is
    the user's, `sources` has the hash of its source, and `identify_recorded` takes its arguments as they stand.
    """
    identifying = {
        name: value
        for name, value in values.items()
        if _part(name).identifies and (name not in FIELDS or value != FIELDS[name].unhashed_at)
    }
    return dict(_normalized(identifying))


def identify(config: DictConfig) -> tuple[str, str]:
    """Return the run id and the setting id of a resolved config: 12 hex digits of the SHA-256 of `hashed_config`.

    The same config and seed have the same run id on any machine. The setting id leaves the seed out.
    """
    return identify_recorded(plain(config))


def identify_recorded(config: dict[str, Any]) -> tuple[str, str]:
    """Return the run id and the setting id of a recorded config, also if its classes have moved since."""
    content = hashed_config(_as_they_stand(config))
    setting = {name: value for name, value in content.items() if _part(name).defines_setting}
    return _digest(content), _digest(setting)


def trained(values: dict[str, Any]) -> str:
    """Hash the part of a setting that affects training. Settings with the same hash differ in measurements only."""
    return identify_recorded({name: v for name, v in values.items() if _part(name) is not Part.observed})[1]


def _part(name: str) -> Part:
    """Return the part that a field belongs to. An unknown field counts as part of the setting."""
    return FIELDS[name].part if name in FIELDS else Part.setting


def _as_they_stand(value: Any) -> Any:
    """Write the arguments of a user's classes as one text, as their order, nulls and empty values may matter there."""
    if isinstance(value, dict):
        target = value.get("_target_")
        if isinstance(target, str) and not target.startswith(_MAY_MOVE):
            arguments = {name: v for name, v in value.items() if name not in ("_target_", "_partial_")}
            return {"_target_": target, "arguments": json.dumps(arguments)}
        return {name: _as_they_stand(v) for name, v in value.items()}
    return [_as_they_stand(v) for v in value] if isinstance(value, list) else value


def _normalized(value: Any, *, in_list: bool = False) -> Any:
    """Give classes that may move their bare names, and drop `_partial_`, which changes no run.

    Null and empty values are dropped, too, unless they are in a list.
    """
    if isinstance(value, dict):
        entries = {name: _normalized(v, in_list=in_list) for name, v in value.items() if name != "_partial_"}
        entries = {name: v for name, v in entries.items() if in_list or (v is not None and v != [] and v != {})}
        target: Any = entries.get("_target_")
        may_move = isinstance(target, str) and target.startswith(_MAY_MOVE)
        return entries | {"_target_": bare_name(target)} if may_move else entries
    return [_normalized(v, in_list=True) for v in value] if isinstance(value, list) else value


def _digest(content: dict[str, Any]) -> str:
    text = json.dumps(_floats(content), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _floats(value: Any) -> Any:
    """Numbers as floats, where they have whole numbers exactly: `lr=1` and `lr=1.0` are the same run."""
    if isinstance(value, dict):
        return {name: _floats(v) for name, v in value.items()}
    if isinstance(value, list):
        return [_floats(v) for v in value]
    exact = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 2**53
    return float(value) if exact else value
