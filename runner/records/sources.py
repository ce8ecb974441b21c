"""Hash the source of a user's classes: every file that a class comes from or imports.

A run's id is made of class names and arguments. Classes of PyTorch, of this package and of installed libraries keep
their meaning. A user may edit a file, which makes it another class. So the hash of each file is a part of the run.

The first files define the class, its bases and the objects on the config's path to it. Their imports are followed: at
the top of a file or in a function, by name, relative, with a star or by `importlib`. An import under a name that is
computed at run time is found if a module holds the result. Three kinds of files are not covered: installed libraries,
data, and modules that a function loads under a computed name.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.machinery import ModuleSpec
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from runner.config import FIELDS, ConfigError
from runner.training.modules import LIBRARIES, is_installed, place_of, spec_of
from runner.training.targets import check_targets, targets

# A file with one of these may import what a text in it names.
_BY_TEXT = (
    b"importlib", b"__import__", b"runpy", b"exec", b"resolve_name", b"locate",
    b"_target_", b"get_class", b"get_object",
)  # fmt: skip
_MANY = 1000  # what is looked at of a list: one with more holds data
_NAME = re.compile(r"\.*[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def sources_of(config: DictConfig, groups: Iterable[str] = FIELDS) -> dict[str, str]:
    """Hash the files of all classes and functions of a resolved config that the user defines, or of some groups.

    Returns the SHA-256 of each file by the name of its module, sorted. It is empty if every class belongs to a library.
    The classes are imported after `runner.training.targets` has checked them.

    Raises:
        ConfigError: a class may not be named, or cannot be imported.
    """
    found: dict[str, str] = {}
    for group in groups:
        if FIELDS[group].names_class and OmegaConf.is_config(config.get(group)):
            named = (target for _, target in targets(OmegaConf.to_container(config[group], resolve=True)))
            own = [target for target in named if isinstance(target, str) and _is_own(target)]
            if own:
                check_targets(config, group)
            for target in own:
                found |= _closure(_roots(target))
    return dict(sorted(found.items()))


def check_sources(config: DictConfig) -> None:
    """Check that the files of a config's classes are what they were when it was resolved, or recorded.

    Raises:
        ConfigError: one is not.
    """
    stated, found = dict(config.get("sources") or {}), sources_of(config)
    changed = sorted(name for name in stated.keys() | found.keys() if stated.get(name) != found.get(name))
    if changed:
        raise ConfigError(
            f"The source of {', '.join(changed)} is not what it was for this run: bring it back, or start a new run."
        )


def _is_own(target: str) -> bool:
    top = target.partition(".")[0]
    spec = None if top in LIBRARIES else spec_of(top)
    place = None if spec is None else place_of(spec)
    return place is not None and not is_installed(place)


def _roots(target: str) -> set[str]:
    """Return the modules on a target's path, and the modules that define the object and its bases."""
    parts = target.split(".")
    through = {".".join(parts[:count]) for count in range(1, len(parts))}
    return through.intersection(sys.modules) | set(_defining(get_object(target)))


def _closure(names: Iterable[str]) -> dict[str, str]:
    """Hash the files of some modules, and of all modules that they import, directly or not."""
    found: dict[str, str] = {}
    left, seen = set(names), set[str]()
    while left:
        name = left.pop()
        seen.add(name)
        source = _source(name)
        if source is not None:
            found[Path(os.path.relpath(name)).as_posix() if os.path.isabs(name) else name] = source.digest
            left |= source.imports - seen
        left |= {name.rpartition(".")[0]} - seen - {""}  # importing pkg.module runs pkg/__init__.py
    return found


@dataclass(frozen=True)
class _Source:
    """A file: its hash, and the names of the modules that it imports; of a file that is no module, its path."""

    spec: ModuleSpec | None
    digest: str
    imports: frozenset[str]


_loaded: dict[str, _Source] = {}  # a module that is edited while the process runs stays what it is in the process


def _source(name: str) -> _Source | None:
    """Read the file of a user's module, or a file by its path. None if it belongs to a library or does not exist."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if spec is not None and name in _loaded and _loaded[name].spec is spec:  # another one once it is loaded anew
        return _loaded[name]
    file = name if os.path.isabs(name) else getattr(module, "__file__", None)
    if file is None and module is None:
        found = spec_of(name)
        file = found.origin if found is not None and found.has_location else None
    if file is None or is_installed(path := Path(file).absolute()) or not path.is_file():
        return None
    content = path.read_bytes()
    imports = {*_imported(name, path, content), *(() if module is None else _kept(module))}
    source = _Source(spec, hashlib.sha256(content).hexdigest(), frozenset(imports))
    if spec is not None:
        _loaded[name] = source
    return source


def _imported(name: str, path: Path, content: bytes) -> Iterator[str]:
    """Yield the names that a file's code may import. Names that are no modules are dropped later."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):  # not Python's source
        return
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    by_text = any(word in content for word in _BY_TEXT)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute("." * node.level + (node.module or ""), package)
            names = [alias.name for alias in node.names]
            if names == ["*"]:
                names = list(getattr(sys.modules.get(base), "__all__", ()))
            yield from (base, *(f"{base}.{each}" for each in names))
        elif by_text and isinstance(node, ast.Constant) and isinstance(text := node.value, str):
            if text.endswith(".py"):
                yield from (str((folder / text).absolute()) for folder in (path.parent, Path.cwd()))
            elif _NAME.fullmatch(text):
                yield _absolute(text, package)


def _absolute(name: str, package: str) -> str:
    """Resolve a module's name, which may be relative to a package. A name that leads out of the package stays."""
    try:
        return importlib.util.resolve_name(name, package)
    except (ImportError, ValueError):
        return name.lstrip(".")


def _kept(module: ModuleType) -> Iterator[str]:
    """Yield the modules that define a module's values: at its top, in its classes, and in its lists and mappings."""
    for value in list(vars(module).values()):
        inner = vars(value).values() if inspect.isclass(value) and value.__module__ == module.__name__ else ()
        for each in (value, *inner):
            some = each.values() if isinstance(each, dict) else each
            for one in islice(some, _MANY) if isinstance(each, (dict, list, tuple, set)) else (each,):
                yield from _defining(one)


def _defining(value: Any) -> Iterator[str]:
    """Yield a value that is a module, or the modules that define a function, a class and its bases, or an object."""
    wrapped = getattr(value, "__dict__", {}).get("__wrapped__")
    if isinstance(value, (staticmethod, classmethod, partial)):
        wrapped = value.func if isinstance(value, partial) else value.__func__
    if wrapped is not None:
        yield from _defining(wrapped)
    if isinstance(value, ModuleType):
        yield _module_or_file(value.__name__, getattr(value, "__file__", None))
    elif inspect.isfunction(value):
        yield _module_or_file(value.__module__, value.__code__.co_filename)
    else:
        of = value if inspect.isclass(value) else type(value)
        for kind in (*of.__mro__, *type(of).__mro__):
            functions = [each for each in vars(kind).values() if inspect.isfunction(each)]
            files = (each.__code__.co_filename for each in functions if each.__module__ == kind.__module__)
            yield _module_or_file(kind.__module__, next(files, None))


def _module_or_file(name: str | None, file: str | None) -> str:
    return str(name) if name in sys.modules or file is None else os.path.abspath(file)
