"""The command that repeats a recorded run: overrides from which Hydra composes the very same one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from runner.config import FIELDS, REPOSITORY, register
from runner.config.fields import Part
from runner.records.identity import identify_recorded, recorded_config, resolved
from runner.training.targets import bare_name

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./")


def overrides_of(config: Mapping[str, Any], experiment: str = "") -> list[str]:
    """Overrides that compose the run of a recorded config, none of which can be left out; from an experiment, if any.

    Raises:
        ValueError: none are found, as an option that it was made of is not what it was.
    """
    register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(REPOSITORY / "conf"), version_base="1.3"):
        found = [f"experiment={experiment}"] if experiment else []
        found += _options(config, _composed(found))
        found += _values(config, _composed(found))
        wanted = identify_recorded(dict(config))
        if _identity(found) != wanted:
            raise ValueError("No overrides give this run: what it was made of has changed since.")
        for override in reversed(found):
            fewer = [other for other in found if other != override]
            if _identity(fewer) == wanted:
                found = fewer
    added = [text[1:].partition("._target_=")[0] for text in found if text.startswith("+") and "._target_=" in text]
    return found + [f"+{name}._partial_=true" for name in added if (config.get(name) or {}).get("_partial_")]


def first_that_gives(config: Mapping[str, Any], candidates: Sequence[Sequence[str]]) -> Sequence[str] | None:
    """The first of some lists of overrides that composes the run of a recorded config; None where none does."""
    register()
    GlobalHydra.instance().clear()
    wanted = identify_recorded(dict(config))
    with initialize_config_dir(str(REPOSITORY / "conf"), version_base="1.3"):
        return next((candidate for candidate in candidates if _identity(candidate) == wanted), None)


def _composed(overrides: Sequence[str]) -> dict[str, Any]:
    return recorded_config(resolved(compose("config", list(overrides))))


def _identity(overrides: Sequence[str]) -> tuple[str, str] | None:
    """The ids of what overrides compose; None where they do not."""
    try:
        return identify_recorded(_composed(overrides))
    except Exception:  # Hydra's and OmegaConf's of all kinds, for a needed override that is missing
        return None


def _options(config: Mapping[str, Any], composed: Mapping[str, Any]) -> list[str]:
    """For every group the option that comes closest to what was recorded, where the composed one is not it."""
    found = [f"scale={config['scale']['name']}"] if config["scale"]["name"] != composed["scale"]["name"] else []
    for name, field in FIELDS.items():
        if not field.names_class:
            continue
        wanted, there_is = config.get(name) or {}, composed[name] or {}
        if wanted == there_is:
            continue
        if not wanted:
            found.append(f"~{name}")
            continue
        options = {path.stem: _option(path, name) for path in sorted((REPOSITORY / "conf" / name).glob("*.yaml"))}
        same = {
            stem: sum(wanted.get(argument) == value for argument, value in option.items())
            for stem, option in options.items()
            if bare_name(str(option.get("_target_", ""))) == bare_name(wanted["_target_"])
        }
        closest = max(same, key=lambda stem: same[stem], default=None)
        now = sum(wanted.get(argument) == value for argument, value in there_is.items())
        if closest and (there_is.get("_target_") != wanted["_target_"] or same[closest] > now):
            found.append(f"{name}={closest}")
        elif not closest and there_is.get("_target_") != wanted["_target_"]:  # of no file here
            found.append(f"{'' if there_is else '+'}{name}._target_={wanted['_target_']}")
    return found


def _option(path: Path, group: str) -> Mapping[str, Any]:
    """What an option's file says of its group: all of it, or where it sets other fields too, its part."""
    loaded: Any = OmegaConf.to_container(OmegaConf.load(path))
    part: Mapping[str, Any] = loaded.get(group, loaded)
    return part


def _values(config: Mapping[str, Any], composed: Mapping[str, Any]) -> list[str]:
    wanted, there_is = _leaves(config), _leaves(composed)
    changed = [name for name in wanted if name not in there_is or wanted[name] != there_is[name]]
    set_ = [f"{'' if name in there_is else '+'}{name}={text_of(wanted[name])}" for name in changed]
    return set_ + [f"~{name}" for name in there_is if name not in wanted and there_is[name] is not None]


def _leaves(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Everything that identifies a run, by dotted name."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if not prefix and (name == "sources" or (name in FIELDS and FIELDS[name].part is Part.machine)):
            continue  # sources follow from the classes
        if isinstance(value, Mapping):
            found |= _leaves(value, f"{prefix}{name}.")
        elif name != "_partial_":
            found[prefix + name] = value
    return found


def text_of(value: Any) -> str:
    """A value as Hydra's command line reads it."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{','.join(text_of(each) for each in value)}]"
    text = str(value)
    return text if not isinstance(value, str) or set(text) <= _PLAIN else f"'{text}'"
