"""Errors for people: one sentence and an exit code."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from runner.config import REPOSITORY, ConfigError

_EXTRAS = {
    **dict.fromkeys(("altair", "vl_convert", "itables", "jinja2", "markdown_it"), "report"),
    "playwright": "browser",
    "optuna": "search",
    "wandb_workspaces": "dashboard",
}
_MEMORY = re.compile("MemoryError|allocate memory|out of memory|bad_alloc|could not create a primitive")
_ALIKE = 0.75  # similarity of a suggested field
_FRAMES = "\nException raised from"  # the beginning of a stack of C++ in some of PyTorch's messages


def refused(error: Exception) -> str | None:
    """Explain in one sentence why a request cannot be carried out; None if the error is no user's."""
    from runner.data import DataError
    from runner.study.plan import ArmError

    if isinstance(error, ArmError):
        return f"{error.place}: {sentence(error)}"
    if isinstance(error, (HydraException, OmegaConfBaseException)):
        return sentence(error)
    name = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
    if name in _EXTRAS:
        return f"{name} is not installed: pip install -e '.[{_EXTRAS[name]}]' brings it."
    return str(error) if isinstance(error, (DataError, ValueError)) else None


def explained(error: Exception) -> tuple[str, int]:
    """Return a message for an error, and the exit code: 2 for a wrong configuration, 1 for a failed run."""
    from runner.data import DataError

    if isinstance(error, (HydraException, OmegaConfBaseException)):
        return sentence(error), 2
    if isinstance(error, (ConfigError, DataError)):
        said = str(error).partition(_FRAMES)[0]
        said, code = said + file_of(said), 2
    else:
        notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        said, code = f"failed, {type(error).__name__}: {error}{notes}", 1
    return ("there is not enough memory: " if _MEMORY.search(said) else "") + said, code


def file_of(said: str) -> str:
    """Return the file and the line that set the field which a message begins with, in brackets.

    Returns "" if no option of the user's own sets it, but the command line or this package.
    """
    match = re.search(r"\b([a-z_]+)\.(\w+)=", said)
    if match is None or not HydraConfig.initialized() or any(match[0] in text for text in sys.argv[1:]):
        return ""
    runtime = HydraConfig.get().runtime
    for group in ("experiment", match[1]):
        for source in (source for source in runtime.config_sources if source.schema == "file"):
            path = Path(source.path) / group / f"{runtime.choices.get(group)}.yaml"
            if path.is_relative_to(REPOSITORY) or not path.is_file():
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if line.strip().startswith(f"{match[2]}:"):
                    return f" ({path}, line {number})"
    return ""


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
        hint = _options_named(unknown[1], sys.argv[1:]) or hint
        said = said.replace(unknown[0], f"there is no field '{unknown[1]}'") + hint
    said = re.sub(r"^Multiple values for (\w+)\..*: (\w+)'", r"\1 has a value already: write \1=\2 without +", said)
    if isinstance(error, MissingConfigException):
        missing, options = error.missing_cfg_file or "", error.options or ()
        said = _no_option(missing, options) if options else said + _nearest(missing)
    return f"{where}: {said}" if where and where not in said else said


def _no_option(missing: str, options: Sequence[str]) -> str:
    """State that a group has no option of this name, and list its options, with the most similar one."""
    group, _, name = missing.rpartition("/")
    near = difflib.get_close_matches(name, options, n=1)
    end = f". Did you mean {near[0]}?" if near else ". Options of your own are found with --config-dir FOLDER"
    return f"{group} has no option {name!r}: choose from {', '.join(options)}{end}"


def _options_with(field: str) -> str:
    """List the options of a group that have the field `group.name`, which the chosen one lacks."""
    group, _, name = field.partition(".")
    files = sorted((REPOSITORY / "conf" / group).glob("*.yaml")) if name else []
    options = [f"{group}={path.stem}" for path in files if name in OmegaConf.load(path)]
    return f". It belongs to {' and '.join(options)}" if options else ""


def _nearest(missing: str) -> str:
    """Suggest similar experiments or sweeps, which are too many to list."""
    group, _, name = missing.partition("/")
    folder = {"experiment": REPOSITORY / "conf" / group, "sweeps": REPOSITORY / group}.get(group)
    if folder is None:
        return ""
    paths = sorted(path for path in folder.glob("*/*.yaml") if not path.stem.startswith("base_"))
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
    inside = [f"{group}.{name}" for group in fields if isinstance(parent[group], DictConfig) and name in parent[group]]
    near = inside or difflib.get_close_matches(name, fields, n=1, cutoff=_ALIKE)
    if near:
        return f". Did you mean {near[0]}?"
    more = ", and with a + before it whatever else its class takes" if "_target_" in names else ""
    return f". There are {', '.join(fields)}{more}" if fields else ""


def _options_named(field: str, overrides: Sequence[str]) -> str:
    """Suggest the groups that have an option given to a missing field: `model=resnet` is an architecture."""
    values = [value for name, _, value in (text.partition("=") for text in overrides) if name == field and value]
    paths = sorted((REPOSITORY / "conf").glob("*/*.yaml")) if values else []
    options = [f"{path.parent.name}={path.stem}" for path in paths if values[0] in path.stem.split("_")]
    return f". Did you mean {' or '.join(options[:3])}?" if options else ""
