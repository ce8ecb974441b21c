"""What a config may have built and called: its `_target_`s, all of which are checked before the first is imported.

Importing a module runs it, and calling what is in one may do anything: `torch.load` runs what a file says. So a config
that somebody else wrote must not name whatever it likes. It may name

- classes of torch.nn, torch.optim and this package, which do what a run needs;
- functions of this package that return a network;
- classes and functions of a module in the folder where the command was started: the user's own.

Where an object was defined counts, and not the path that leads to it: `torch.nn.modules.module.torch.load` is of none
of these. Anything else, another library's loss for instance, has to be named by whoever starts the command, in the
environment variable DP_REPRO_TRUST, as dotted paths with commas between them. It is no field, as a field could be set
by the very file that is not to be trusted. What calls whatever it is told to, as all of `hydra` and `builtins` may, is
refused all the same.
"""

from __future__ import annotations

import importlib.machinery
import inspect
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from runner.config import TRUSTED, ConfigError

_PACKAGE = "runner"
_LIBRARIES = ("torch.nn", "torch.optim")
_NEVER = ("builtins", "hydra")


def targets(content: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yields every `_target_` of a config's plain values, nested ones too, as (where it stands, dotted path)."""
    if isinstance(content, dict):
        for name, value in content.items():
            inner = f"{place}.{name}" if place else str(name)
            if name == "_target_" and isinstance(value, str):
                yield inner, value
            yield from targets(value, inner)
    elif isinstance(content, list):
        for index, value in enumerate(content):
            yield from targets(value, f"{place}[{index}]")


def check_targets(config: DictConfig, group: str) -> None:
    """Check every `_target_` in a group of a config, however deep.

    Raises:
        ConfigError: one is none of those that the module's text names, or cannot be imported.
    """
    for place, target in targets(OmegaConf.to_container(config[group], resolve=True), group):
        _check(place, target)


def _check(place: str, target: str) -> None:
    if _within(target, _NEVER):
        raise ConfigError(f"{place}={target} calls whatever it is told to: name the class itself.")
    trusted = target in TRUSTED
    if not (trusted or _may_be_imported(target)):
        _refuse(place, target)
    try:
        found = get_object(target)
    except Exception as error:
        raise ConfigError(f"{place}={target} cannot be imported: {error}") from error
    if not (trusted or _may_be_called(found)):
        _refuse(place, target)


def _may_be_imported(target: str) -> bool:
    return _within(target, (*_LIBRARIES, _PACKAGE)) or _is_the_users(target)


def _may_be_called(found: Any) -> bool:
    defined_in = getattr(found, "__module__", None)
    if not isinstance(defined_in, str):
        return False
    if inspect.isclass(found):
        return _may_be_imported(defined_in)
    if not inspect.isfunction(found):
        return False
    return _is_the_users(defined_in) or (_within(defined_in, (_PACKAGE,)) and _returns_a_network(found))


def _returns_a_network(function: Any) -> bool:
    from torch import nn  # not above: what only reads a config's classes needs no PyTorch, which takes seconds

    returned = typing.get_type_hints(function).get("return")
    return inspect.isclass(returned) and issubclass(returned, nn.Module)


def _within(path: str, packages: tuple[str, ...]) -> bool:
    return any(path == package or path.startswith(f"{package}.") for package in packages)


def _is_the_users(path: str) -> bool:
    """Whether the path begins with a module or a package that lies in the folder where the command was started.

    Nothing is imported to find out. Libraries below that folder, in a virtual environment, are not in it.
    """
    here, top = Path.cwd(), path.partition(".")[0]
    spec = importlib.machinery.PathFinder.find_spec(top, [place or str(here) for place in sys.path])
    if spec is None:
        return False
    if spec.submodule_search_locations is not None:
        return Path(next(iter(spec.submodule_search_locations))) == here / top
    return spec.origin is not None and Path(spec.origin).parent == here


def _refuse(place: str, target: str) -> None:
    raise ConfigError(
        f"{place}={target} is not run: a config may name classes of {', '.join(_LIBRARIES)}, of this package and of a "
        f"module in the folder where you start; if you trust it, set DP_REPRO_TRUST={target} in the environment."
    )
