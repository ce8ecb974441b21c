"""The classes that a config names by `_target_`, and hashes of a user's: every file that one comes from or imports.

A run's id is made of class names and arguments. A user may edit a file, which makes it another class. So the hash of
each file is a part of the run. The first files define the class, its bases and the objects on the config's path to it.
Their imports are followed: at the top of a file or in a function, by name, relative, with a star or by
`importlib.import_module("a.name")`. So is each file that an argument of a network or of features names, such as
pre-trained weights. Three kinds of files are not covered: installed libraries, data, and what is loaded under a name
that no argument has. A file that was edited since its module was imported is refused, as its hash would be that of
other code than runs.
"""

import ast
import hashlib
import importlib.util
import inspect
import logging
import marshal
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from runner.config import FIELDS, PACKAGE, REPOSITORY, ConfigError
from runner.data.reproducible import reproducible
from runner.terminal import nearest

LIBRARIES = ("runner", "torch", "torchvision", "opacus")  # their classes are not a user's
_WITH_WEIGHTS = ("architecture", "features")  # groups whose arguments may name files that are read
_INSTALLED = ("site-packages", "dist-packages")
_PLACES = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), PACKAGE, REPOSITORY / "checks")
_Source = tuple[object, str, frozenset[str]]  # a module's spec, the hash of its file, and the names that it imports
_loaded: dict[str, _Source] = {}  # a module that is edited while the process runs stays what it is in the process


logging.getLogger("hydra.utils").addFilter(lambda _: False)  # what it says of a class, a ConfigError says


def leaves(content: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each number, text and `_target_` of a config's plain values, nested ones too, as (its place, its value)."""
    if not isinstance(content, dict | list) or f".{place}".endswith("._target_"):
        yield place, content
    elif isinstance(content, dict):
        for name, value in content.items():
            yield from leaves(value, f"{place}.{name}" if place else str(name))
    else:
        for index, value in enumerate(content):
            yield from leaves(value, f"{place}[{index}]")


def targets(content: Any, place: str = "") -> list[tuple[str, Any]]:
    """Return every `_target_` of a config's plain values, nested ones too, as (its place, its value)."""
    return [(inner, value) for inner, value in leaves(content, place) if f".{inner}".endswith("._target_")]


def own_targets(content: Any) -> list[str]:
    """Return the `_target_`s of a config's plain values that are neither of this package nor of PyTorch."""
    return [target for _, target in targets(content) if target.partition(".")[0] not in ("runner", "torch")]


def bare_name(target: str) -> str:
    """Return the last part of a dotted path: `Flat` for `runner.clipping.Flat`."""
    return target.rpartition(".")[2]


def import_target(place: str, target: Any) -> Any:
    """Import the class or function that a `_target_` names; `place` is its place in the config, for messages.

    Raises:
        ConfigError: it names no class or function, or cannot be imported.
    """
    if not isinstance(target, str) or "." not in target or "/" in target or target.endswith(".py"):
        raise ConfigError(f"{place}={target} names no class: write it as mymodule.NameOfTheClass.")
    top, module = target.partition(".")[0], target.rpartition(".")[0]
    if top == "__main__":
        raise ConfigError(
            f"{place}={target} is not in a file, so no record could identify it: put it into a file next to the "
            f"command, and name it mymodule.{bare_name(target)}."
        )
    is_users_file = top not in (*LIBRARIES, *sys.modules)  # it may read data when it is loaded
    try:
        with reproducible() if is_users_file else nullcontext():
            imported = get_object(target)
    except (Exception, SystemExit) as error:  # the module may even end its process
        cause = error.__cause__ or error
        if isinstance(cause, ModuleNotFoundError) and cause.name == target and module in sys.modules:
            # What is defined there or below.
            values = {n: getattr(sys.modules[module], n) for n in dir(sys.modules[module])}
            defined = {n: getattr(v, "__module__", "") for n, v in values.items() if callable(v)}
            names = [n for n, origin in defined.items() if n[0] != "_" and f"{origin}.".startswith(f"{module}.")]
            name = bare_name(target)
            raise ConfigError(f"{place}={target}: {module} has no {name}. {nearest(name, names)}") from error
        if isinstance(cause, ModuleNotFoundError) and cause.name == top:
            raise ConfigError(f"{place}={target}: there is no {top}.py in the folder where you start.") from error
        raise ConfigError(f"{place}={target} cannot be imported: {type(cause).__name__}: {cause}") from error
    if not callable(imported):
        raise ConfigError(f"{place}={target} names no class: write it as {target}.NameOfTheClass.")
    return imported


def sources_of(config: DictConfig, groups: Iterable[str] = FIELDS) -> dict[str, str]:
    """Hash the files of all classes and functions of a resolved config that the user defines, or of some groups.

    Returns the SHA-256 of each file by the name of its module, sorted. It is empty if every class belongs to a library.

    Raises:
        ConfigError: a target names no class, or cannot be imported, or its file was edited since it was imported.
    """
    hashes: dict[str, str] = {}
    for group in groups:
        if FIELDS[group].names_class and OmegaConf.is_config(config.get(group)):
            for place, target in targets(OmegaConf.to_container(config[group], resolve=True), group):
                if isinstance(target, str) and target.partition(".")[0] not in LIBRARIES and _is_users(target):
                    hashes |= _closure(target, import_target(place, target))
                    if group in _WITH_WEIGHTS:
                        hashes |= weight_files(config[group], group)
    return dict(sorted(hashes.items()))


def weight_files(part: DictConfig, name: str) -> dict[str, str]:
    """Hash the files that texts among a part's arguments name, such as pre-trained weights, by their place."""
    hashes = {}
    for place, text in leaves(OmegaConf.to_container(part, resolve=True), name):
        with suppress(OSError):  # a text that is too long for a path
            if isinstance(text, str) and text and (path := Path(text).expanduser()).is_file():
                hashes[place] = hashlib.sha256(path.read_bytes()).hexdigest()
    return hashes


def check_sources(config: DictConfig) -> None:
    """Check that the files of a config's classes are what they were when it was resolved, or recorded.

    Raises:
        ConfigError: one is not.
    """
    stated, present = dict(config.get("sources") or {}), sources_of(config)
    changed = sorted(name for name in present if stated.get(name) != present[name])
    if changed:  # which may be why another file is not imported any more
        raise ConfigError(
            f"The source of {', '.join(changed)} is not what it was for this run: bring it back, or start a new run."
        )
    if missing := sorted(stated.keys() - present.keys()):
        raise ConfigError(
            f"The files of {', '.join(missing)} are not found from here: go to the folder in which the run was started."
        )


def is_installed(path: Path) -> bool:
    """Return True if a file or folder belongs to a library, to Python, to this package or its checks."""
    return any(part in _INSTALLED for part in path.parts) or any(path.is_relative_to(place) for place in _PLACES)


def _is_users(name: str) -> bool:
    """Return True if the module or package at the top of a name is the user's, and not installed or built in."""
    spec = None
    with suppress(ImportError, ValueError):  # ValueError: no name of a module, or one without a file
        spec = importlib.util.find_spec(name.partition(".")[0])
    places = () if spec is None else spec.submodule_search_locations or [spec.origin or ""]
    return any(place not in ("", "built-in", "frozen") and not is_installed(Path(place).absolute()) for place in places)


def _closure(target: str, imported: Any) -> dict[str, str]:
    """Hash the files of the modules on a target's path, of those that it comes from, and of all that they import."""
    defined = imported.__mro__ if inspect.isclass(imported) else (imported, inspect.unwrap(imported))
    hashes: dict[str, str] = {}
    pending, seen = {target.rpartition(".")[0], *(kind.__module__ for kind in defined)}, {""}
    while pending:
        name = pending.pop()
        seen.add(name)
        if source := _source(name):
            _, hashes[name], imports = source
            pending |= imports - seen
        pending |= {name.rpartition(".")[0]} - seen  # importing pkg.module runs pkg/__init__.py
    return hashes


def _source(name: str) -> _Source | None:
    """Read the file of a user's module. None if it belongs to a library or does not exist."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if spec is not None and name in _loaded and _loaded[name][0] is spec:  # another one once it is loaded anew
        return _loaded[name]
    file = getattr(module, "__file__", None)
    if module is None and _is_users(name):
        with suppress(ImportError, AttributeError, ValueError):
            file = getattr(importlib.util.find_spec(name), "origin", None)
    if file is None or is_installed(path := Path(file).absolute()) or not path.is_file():
        return None
    content = path.read_bytes()
    if module is not None and _edited(module, content):
        raise ConfigError(
            f"{path} has changed since it was imported: start a new process (restart a notebook's kernel), and delete "
            f"{path.parent / '__pycache__'} if that does not help."
        )
    source = spec, hashlib.sha256(content).hexdigest(), frozenset(_imported(name, path, content))
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

    def absolute(relative: str) -> str:
        try:
            return importlib.util.resolve_name(relative, package)
        except (ImportError, ValueError):  # it leads out of the package
            return relative.lstrip(".")

    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = absolute("." * node.level + (node.module or ""))
            names = [alias.name for alias in node.names]
            if names == ["*"]:
                names = list(getattr(sys.modules.get(base), "__all__", ()))
            yield from (base, *(f"{base}.{alias}" for alias in names))
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            texts = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            yield from (absolute(text) for text in texts if isinstance(text, str))


def _edited(module: ModuleType, content: bytes) -> bool:
    """Return True if a module was loaded from another text, judged by its functions and by what Python has cached.

    Comments and lines may differ. Every function and method that lives has to be in the text. Constants and defaults
    are compared only by the code in `__pycache__`, which another process may have replaced since. A module that was not
    loaded by Python's own loader of files is not compared at all.
    """
    loader = getattr(module.__spec__, "loader", None)
    if type(loader) is not SourceFileLoader:
        return False
    try:
        code, compiled = _placeless(loader.source_to_code(content, loader.path)), Path(str(module.__cached__))
        written = not sys.dont_write_bytecode and compiled.is_file()
        if written and _placeless(marshal.loads(compiled.read_bytes()[16:])) != code:  # after its header
            return True
    except (EOFError, OSError, SyntaxError, TypeError, ValueError):
        return True
    codes, pending = {code}, [code]
    while pending:
        inner = {constant for constant in pending.pop().co_consts if isinstance(constant, CodeType)}
        pending += inner - codes
        codes |= inner
    classes: list[Any] = [module]
    for owner in classes:
        for value in vars(owner).values():
            function = inspect.unwrap(getattr(value, "fget", value))
            if inspect.isfunction(function):
                if function.__code__.co_filename == loader.path and _placeless(function.__code__) not in codes:
                    return True
            elif isinstance(value, type) and value.__module__ == loader.name and value not in classes:
                classes.append(value)
    return False


def _placeless(code: CodeType) -> CodeType:
    """Return code without the places of its lines."""
    inner = tuple(_placeless(constant) if isinstance(constant, CodeType) else constant for constant in code.co_consts)
    return code.replace(co_consts=inner, co_filename="", co_firstlineno=1, co_linetable=b"")
