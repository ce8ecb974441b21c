"""Errors of Hydra and OmegaConf as one sentence, with what was probably meant."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.errors import MissingConfigException
from omegaconf import DictConfig, OmegaConf

from runner.config import REPOSITORY
from runner.config.checkout import scan

_ELSEWHERE = {  # names that Opacus and others have for fields, where no name here is similar
    **dict.fromkeys(("max_grad_norm", "clip_norm", "l2_norm_clip"), "clipping.norm"),
    **{"sigma": "noise_multiplier", "sample_rate": "batch_size"},
}
_ALIKE = 0.75  # similarity of a suggested field


def sentence(error: BaseException) -> str:
    """Reduce an error of Hydra or OmegaConf to one line: the message of the innermost cause, and its place."""
    outermost = str(error)
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).partition("Config search path:")[0].splitlines() if line.strip()]
    where = next((line.removeprefix("full_key: ") for line in lines if line.startswith("full_key: ")), "")
    if not where and (override := re.search(r"Error merging override \+*([\w.]+)=", outermost)):
        where = override[1]
    said = " ".join(line for line in lines if not line.startswith(("full_key:", "object_type=", "reference_type=")))
    unknown = re.search(r"Key '(\S+)' (?:is not in struct|not in '\w+')", said)
    if unknown:
        hint = _fields(error, unknown[1]) or _options_with(where)
        hint = (
            f". It is called {_ELSEWHERE[unknown[1]]} here"
            if unknown[1] in _ELSEWHERE and where in ("", unknown[1])
            else hint
        )
        hint = _header(unknown[1], said) or _options_named(unknown[1], sys.argv[1:]) or hint
        said = said.replace(unknown[0], f"there is no field '{unknown[1]}'") + hint
    said = re.sub(r"^Multiple values for (\w+)\..*: (\w+)'", r"\1 has a value already: write \1=\2 without +", said)
    if isinstance(error, MissingConfigException):
        missing, options = error.missing_cfg_file or "", error.options or ()
        other = _misnamed(missing, outermost)
        said = other or (_no_option(missing, options) if options else said + _nearest(missing))
    return f"{where}: {said}" if where and where not in said else said


def _no_option(missing: str, options: Sequence[str]) -> str:
    """State that a group has no option of this name, and list its options, with the most similar one."""
    group, _, name = missing.rpartition("/")
    options = [option for option in options if not option.startswith(".")]  # left by other programs
    near = difflib.get_close_matches(name, options, n=1)
    end = f". Did you mean {near[0]}?" if near else ". Options of your own are found with --config-dir FOLDER"
    return f"{group} has no option {name!r}: choose from {', '.join(options)}{end}"


def _misnamed(missing: str, outermost: str) -> str:
    """Name the file that lies where Hydra looks for an option and would be it under the right name, or return ""."""
    group, _, name = missing.removesuffix(".yaml").rpartition("/")
    folders = [Path(place) / group for place in re.findall(r"path=file://(.+)", outermost)]
    for path in (path for folder in folders if folder.is_dir() for path in scan(folder, "*")):
        if path.name.lower().partition(".")[0] == name.lower():
            return f"{group} has no option {name!r}, but {path} is there: its name has to be {name}.yaml"
    return ""


def _header(field: str, said: str) -> str:
    """Say that an experiment's file puts its fields into the group of its folder, or return ""."""
    place = re.search(r"In '((?:experiment|sweeps)/[^']+)'", said)
    if place is None or field != place[1].partition("/")[0]:
        return ""
    return f". The first line of {place[1]}.yaml has to be `# @package _global_`"


def _options_with(field: str) -> str:
    """List the options of a group that have the field `group.name`, which the chosen one lacks."""
    group, _, name = field.partition(".")
    files = scan(REPOSITORY / "conf" / group, "*.yaml") if name else []
    options = [f"{group}={path.stem}" for path in files if name in OmegaConf.load(path)]
    return f". It belongs to {' and '.join(options)}" if options else ""


def _nearest(missing: str) -> str:
    """Suggest similar experiments or sweeps, which are too many to list."""
    group, _, name = missing.partition("/")
    folder = {"experiment": REPOSITORY / "conf" / group, "sweeps": REPOSITORY / group}.get(group)
    if folder is None:
        return ""
    paths = [path for path in scan(folder, "*/*.yaml") if not path.stem.startswith("base_")]
    names = [path.relative_to(folder).with_suffix("").as_posix() for path in paths]
    near = difflib.get_close_matches(name, names, cutoff=0.5)
    if near:
        return f". Did you mean {' or '.join(near)}?"
    return f". They are the files of {folder.relative_to(REPOSITORY)}/"


def _fields(error: BaseException, name: str) -> str:
    """Suggest a similar field, or list all fields, in the part of the config that lacks one."""
    parent: Any = getattr(error, "parent_node", None) or {}
    names = [str(field) for field in parent]
    fields = [field for field in names if field != "hydra" and not field.startswith("_")]
    if name in ("epsilon", "eps") and "max_epsilon" in fields:
        return ". sound_epsilon calibrates the noise to a proven ε, and max_epsilon ends training within the paper's"
    inside = [f"{group}.{name}" for group in fields if isinstance(parent[group], DictConfig) and name in parent[group]]
    near = inside or difflib.get_close_matches(name, fields, n=1, cutoff=_ALIKE)
    if near:
        return f". Did you mean {near[0]}?"
    more = ". Write + before any other argument of its class" if "_target_" in names else ""
    return f". Choose from {', '.join(fields)}{more}" if fields else ""


def _options_named(field: str, overrides: Sequence[str]) -> str:
    """Suggest the groups that have an option given to a missing field: `model=resnet` is an architecture."""
    values = [value for name, _, value in (text.partition("=") for text in overrides) if name == field and value]
    paths = scan(REPOSITORY / "conf", "*/*.yaml") if values else []
    options = [f"{path.parent.name}={path.stem}" for path in paths if values[0] in path.stem.split("_")]
    return f". Did you mean {' or '.join(options[:3])}?" if options else ""
