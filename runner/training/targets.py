"""Checks of the `_target_`s of a config, which name code to be called, before the first one is imported.

Importing a module runs it, and calling its contents may do anything. `torch.load` runs code from a file. So a config
that another person wrote must not name arbitrary code. It may name

- a class of torch.nn, torch.optim, opacus.layers or this package that is a subclass of the type of its group.
  `runner.config` states this type next to the field. Below a group, the type of any group is accepted;
- a function of `runner.networks` that returns a network, if the group takes a network;
- a user's class or function, from a file or a package in the folder in which the command was started.

The place of an object's definition counts, not the path that leads to it. `torch.nn.modules.module.torch.load` is none
of these. The tools of this checkout are never a user's code, from any folder.

All other code has to be named in the environment variable DP_REPRO_TRUST: modules, packages or classes as dotted paths
with commas between them. It is no field, as the untrusted file itself could set a field. Code that calls its arguments,
as all of `hydra` and `builtins` may, is still refused. A record from another person may name less than a config. A file
in the folder of the command could have the same name by accident. So it is taken only if it and all files that it
imports have the SHA-256 that the record's `sources` state, which is checked before any of them is imported.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import shlex
import sys
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from runner.config import FIELDS, TRUSTED, ConfigError
from runner.data.reading import reproducible
from runner.terminal import nearest
from runner.training.modules import LIBRARIES, is_beside, spec_of

_PACKAGE, _NETWORKS = "runner", "runner.networks"
_LIBRARIES = ("torch.nn", "torch.optim", "opacus.layers")
_NEVER = ("builtins", "hydra")
_NETWORK = "torch.nn.Module"

logging.getLogger("hydra.utils").addFilter(lambda _: False)  # what it says of a class, a ConfigError says


def targets(content: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every `_target_` of a config's plain values, nested ones too, as (its place, its value)."""
    if isinstance(content, dict):
        for name, value in content.items():
            inner = f"{place}.{name}" if place else str(name)
            if name == "_target_":
                yield inner, value
            yield from targets(value, inner)
    elif isinstance(content, list):
        for index, value in enumerate(content):
            yield from targets(value, f"{place}[{index}]")


def own_targets(content: Any) -> list[str]:
    """Return the `_target_`s of a config's plain values that are neither of this package nor of PyTorch."""
    return [target for _, target in targets(content) if target.partition(".")[0] not in (_PACKAGE, "torch")]


def to_trust(content: Any) -> list[str]:
    """Return the classes and functions that a recorded config has to have trusted, each once."""
    named = dict.fromkeys(str(target) for _, target in targets(content))
    return [target for target in named if not _within(target, (*_LIBRARIES, _PACKAGE))]


def bare_name(target: str) -> str:
    """Return the last part of a dotted path: `Flat` for `runner.clipping.Flat`."""
    return target.rpartition(".")[2]


def check_targets(config: DictConfig, group: str, *, of_record: bool = False) -> None:
    """Check every `_target_` in a group of a config, at any depth.

    Args:
        of_record: the config comes from a record, so files in the folder of the command count only if they are those
            of the run.

    Raises:
        ConfigError: a target is not allowed by the module's text, or cannot be imported.
    """
    for place, target in targets(OmegaConf.to_container(config[group], resolve=True), group):
        _check(place, target, _taken(group, place), config if of_record else None)


def check_recorded(config: DictConfig) -> None:
    """Check every `_target_` of a config that another person may have written, with a record or with weights.

    Raises:
        ConfigError: as in `check_targets`.
    """
    for name, field in FIELDS.items():
        if field.names_class and config.get(name) is not None:
            check_targets(config, name, of_record=True)


def _taken(group: str, place: str) -> Sequence[str]:
    """Return the types that a place takes: its group's type, or, below the group, the types of all groups."""
    if group in FIELDS and place == f"{group}._target_":
        takes = FIELDS[group].takes
        return [] if takes is None else [takes]
    return sorted({field.takes for field in FIELDS.values() if field.takes is not None})


def _check(place: str, target: Any, takes: Sequence[str], record: DictConfig | None) -> None:
    if not isinstance(target, str) or "." not in target or "/" in target or target.endswith(".py"):
        raise ConfigError(f"{place}={target} names no class: write it as mymodule.NameOfTheClass.")
    if _within(target, _NEVER):
        raise ConfigError(f"{place}={target} is not run, because it can call any function: name the class itself.")
    if target.partition(".")[0] == "__main__":
        raise ConfigError(
            f"{place}={target} is not in a file, so no record could identify it: put it into a file next to the "
            f"command, and name it mymodule.{bare_name(target)}."
        )
    known = _within(target, (*_LIBRARIES, _PACKAGE, *TRUSTED))
    same = record is None or _same_sources(record.get("sources") or {}, target)
    if not known and not (same and is_beside(target)):
        _refuse(place, target, takes, record)
    found = _imported(place, target)
    if inspect.ismodule(found):
        raise ConfigError(f"{place}={target} names no class: write it as {target}.NameOfTheClass.")
    if target not in TRUSTED and not _may_be_called(found, takes, same):
        _refuse(place, target, takes, record)


def _imported(place: str, target: str) -> Any:
    loads = target.partition(".")[0] not in (*LIBRARIES, *sys.modules)  # a user's file, which may read data at its top
    try:
        with reproducible() if loads else nullcontext():
            return get_object(target)
    except (Exception, SystemExit) as error:  # the module may even end its process
        cause = error.__cause__ or error
        module, _, name = target.rpartition(".")
        if isinstance(cause, ModuleNotFoundError) and cause.name == target and module in sys.modules:
            there = [each for each, found in vars(sys.modules[module]).items() if _is_from(found, module)]
            raise ConfigError(f"{place}={target}: {module} has no {name}. {nearest(name, there)}") from error
        raise ConfigError(f"{place}={target} cannot be imported: {type(cause).__name__}: {cause}") from error


def _is_from(found: Any, module: str) -> bool:
    """Return True if a module, or one below it, defines a class or function for others."""
    named = inspect.isclass(found) or inspect.isfunction(found)
    return named and not found.__name__.startswith("_") and _within(found.__module__, (module,))


def _same_sources(sources: Mapping[str, str], target: str) -> bool:
    """Return True if the files of a record are those of today, and one of them is the module of a target."""
    if not any(_within(target, (name,)) for name in sources):
        return False
    for name, digest in sources.items():
        spec = None if name.endswith(".py") else spec_of(name)
        file = Path(name) if name.endswith(".py") else Path(spec.origin) if spec and spec.origin else None
        if file is None or not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            return False
    return True


def _may_be_called(found: Any, takes: Sequence[str], beside: bool) -> bool:
    """Return True if the module's text allows an object, by the place of its definition.

    Args:
        beside: files in the folder of the command count.
    """
    module = getattr(found, "__module__", None)
    if not isinstance(module, str) or not (inspect.isclass(found) or inspect.isfunction(found)):
        return False
    if inspect.isclass(found) and _within(module, (*_LIBRARIES, _PACKAGE)):
        return any(_is_a(found, get_object(kind)) for kind in takes)
    if inspect.isfunction(found) and _within(module, (_NETWORKS,)):
        return _NETWORK in takes and _returns_a_network(found)
    return _within(f"{module}.{found.__qualname__}", TRUSTED) or (beside and is_beside(module))


def _is_a(found: type, kind: Any) -> bool:
    """Return True if a class is a subclass of another, or has the methods and properties of a protocol."""
    if not getattr(kind, "_is_protocol", False):
        return issubclass(found, kind)
    asked = [name for name in vars(kind) if not name.startswith("_") or name == "__call__"]
    fields = getattr(found, "__dataclass_fields__", ())  # values, not methods, whatever their names
    return all(name not in fields and any(name in vars(each) for each in found.__mro__) for name in asked)


def _returns_a_network(function: Any) -> bool:
    from torch import nn  # not at the top: commands that only read configs need no PyTorch, which takes seconds

    returned = typing.get_type_hints(function).get("return")
    return inspect.isclass(returned) and issubclass(returned, nn.Module)


def _within(path: str, packages: typing.Iterable[str]) -> bool:
    return any(path == package or path.startswith(f"{package}.") for package in packages)


def _refuse(place: str, target: str, takes: Sequence[str], record: DictConfig | None) -> NoReturn:
    top = target.partition(".")[0]
    named = [target] if record is None else dict.fromkeys([*to_trust(OmegaConf.to_container(record)), target])
    trust = f"If you trust it, set DP_REPRO_TRUST={shlex.quote(','.join(named))} in the environment."
    if record is not None:
        raise ConfigError(
            f"{place}={target} is not run. A record may name only classes of PyTorch and of this package that its "
            f"group takes, and your own whose file is that of the run. {trust}"
        )
    if top and spec_of(top) is None:
        raise ConfigError(f"{place}={target}: there is no {top}.py in the folder where you start.")
    kind = f" ({takes[0]})" if len(takes) == 1 else ""
    raise ConfigError(
        f"{place}={target} is not run. A config may name a class of {', '.join(_LIBRARIES)} or this package that its "
        f"group takes{kind}. It may also name what a file in the folder where you start defines, if that is no folder "
        f"of this checkout. {trust}"
    )
