"""Keep composed configs in the user's cache folder: composing one takes Hydra a tenth of a second and more.

An entry depends on the files that were read for it, and on the environment variables that they name. It also depends on
the code of ids and the versions of Hydra and OmegaConf. It is used while all of these are unchanged. Its checksum has
to match, and only the user may have write access to it. Otherwise the config is composed again. All entries can be
deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hydra._internal.config_repository import ConfigRepository
from hydra.plugins.config_source import ConfigResult

from runner.config import PACKAGE, REPOSITORY
from runner.config.checkout import scan
from runner.data.files import SEAL, cache_folder, is_sealed, safe_folder, sealed, write_whole

_CODE = (  # that a resolved config and its ids depend on
    "runner/config/*.py", "runner/data/__init__.py", "runner/study/progress.py", "runner/trust/sources.py",
    "runner/trust/targets.py",
    *(f"runner/records/{name}.py" for name in ("cache", "examples", "identity", "jobs")),
)  # fmt: skip
_PACKAGES = ("hydra-core", "omegaconf")
_parsed: dict[str, tuple[str, tuple[int, ...], bytes]] = {}  # by path and sources: the file, its state, its content
_under_way: list[set[str]] = []  # the files read for each entry that is being made, the outermost first
_FILE = "file://"  # how Hydra names a source that is a folder
_VARIABLE = re.compile(r"\$\{oc\.env:\s*([A-Za-z_]\w*)")
_TABLE = re.compile(r"\$\{chosen:\s*([^,}]+?)\s*,")


def cached(key: Sequence[str], compose: Callable[[], Any], keep: Callable[[Any], bool] = lambda content: True) -> Any:
    """Return what `compose` composes by Hydra for a key, as JSON values, from the cache if it is there.

    A result that follows from other files than Hydra reads may not be kept: then `keep` is False.
    """
    name = hashlib.sha256(json.dumps([str(REPOSITORY), *key]).encode()).hexdigest()[:32]
    path = cache_folder() / "configs" / f"{name}.json"
    with suppress(OSError, KeyError, TypeError):  # there is none, or a file that it was made of is gone
        entry = read_entry(path)
        if entry["made_of"] == _made_of(entry["made_of"]["files"]):
            for outer in _under_way:
                outer.update(entry["made_of"]["files"])
            return entry["content"]
    with _reading() as read:
        content = compose()
    if keep(content):
        write_entry(path, {"made_of": _made_of(read), "content": content})
    return content


def read_entry(path: Path) -> Any:
    """Return an entry. It is None if there is none, or if the file is damaged or not of the user alone."""
    with suppress(OSError, ValueError):
        return json.loads(path.read_bytes()[:-SEAL]) if is_sealed(path) else None
    return None


def write_entry(path: Path, content: Any) -> None:
    """Write an entry. Where that is not possible, its content is computed again next time."""
    with suppress(OSError):
        safe_folder(path.parent)
        write_whole(path, sealed(json.dumps(content).encode()), replace=True, private=True)


def _made_of(files: Iterable[str]) -> dict[str, Any]:
    """Return what an entry depends on: hashes of files and of code, versions, and variables that the files name."""
    hashes: dict[str, str] = {}
    variables: set[str] = set()
    tables: set[str] = set()
    for file in sorted(files):
        state = Path(file).stat()
        hashes[file], file_variables, file_tables = _hash_and_names(file, state.st_mtime_ns, state.st_size)
        variables.update(file_variables)
        tables.update(str(REPOSITORY / name) for name in file_tables)
    for table in sorted(tables - hashes.keys()):
        hashes[table] = hashlib.sha256(Path(table).read_bytes()).hexdigest()
    environment = {name: os.environ.get(name) for name in sorted(variables)}
    return {"code": hash_of(_PACKAGES, _CODE), "environment": environment, "files": hashes}


@cache
def _hash_and_names(file: str, _changed: int, _size: int) -> tuple[str, list[str], list[str]]:
    """Return the hash of a file, and the variables and tables that it names; read once unless it changes."""
    content = Path(file).read_bytes()
    text = content.decode(errors="replace")
    return hashlib.sha256(content).hexdigest(), _VARIABLE.findall(text), _TABLE.findall(text)


@cache
def hash_of(packages: tuple[str, ...], files: tuple[str, ...]) -> str:
    """Hash the versions of some packages and the content of files of the checkout, which may be patterns."""
    digest = hashlib.sha256(" ".join(version(name) for name in packages).encode())
    for path in scan(PACKAGE.parent, *files):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(PACKAGE.parent)} {len(content)}".encode() + content)
    return digest.hexdigest()


def _state_of(path: str) -> tuple[int, ...]:
    """Return time and size of a file; () if it is none, as "" for a config of a package."""
    with suppress(OSError):
        status = os.stat(path)
        return status.st_mtime_ns, status.st_size
    return ()


@contextmanager
def _reading() -> Iterator[Iterable[str]]:
    """Collect the paths of the config files that Hydra reads, and have each file parsed once unless it changes."""
    read: set[str] = set()
    load = ConfigRepository.load_config

    def load_once(repository: ConfigRepository, config_path: str) -> ConfigResult | None:
        key = repr([config_path, *((source.provider, source.path) for source in repository.get_sources())])
        path, state, content = _parsed.get(key, ("", (), b""))
        if not content or state != _state_of(path):
            result = load(repository, config_path)
            if result is None:  # it may be there next time
                return None
            is_file = result.path.startswith(_FILE)
            path = f"{result.path.removeprefix(_FILE)}/{config_path.removesuffix('.yaml')}.yaml" if is_file else ""
            content = pickle.dumps(result)
            _parsed[key] = path, _state_of(path), content
        if path:
            read.add(path)
        copied: ConfigResult = pickle.loads(content)  # Hydra merges others into it
        return copied

    repositories: Any = ConfigRepository
    repositories.load_config = load_once
    _under_way.append(read)
    try:
        yield read
    finally:
        _under_way.pop()
        repositories.load_config = load
