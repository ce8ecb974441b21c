"""The loader of configs: a user's option takes precedence over the experiment, and mistakes are told in a sentence.

Hydra merges an experiment after the options of groups. So the experiment's settings of a group would replace the
settings of a user's option, although the user typed that option to replace them. They are dropped. For an option of
this package they stay, because the papers' experiments are varied in this way.

Composed configs are kept in the user's cache folder, because composing one takes Hydra a tenth of a second and more. An
entry depends on the files that were read for it, on the environment variables that they name, on the code of ids and
the versions of Hydra and OmegaConf. It is used while all of these are unchanged, if its checksum matches and only the
user may have write access to it. Else the config is composed again, so all entries can be deleted at any time.
"""

import hashlib
import json
import os
import pickle
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from hydra._internal import hydra as of_hydra
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, ConfigRepository, IConfigRepository
from hydra._internal.core_plugins.importlib_resources_config_source import ImportlibResourcesConfigSource
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import ResultDefault
from hydra.core.override_parser.types import Override
from hydra.errors import ConfigCompositionException
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from runner.config import FIELDS, PACKAGE, REPOSITORY, Config, options_of
from runner.config.checkout import scan
from runner.config.yaml_file import read_yaml
from runner.files import SEAL, cache_folder, is_sealed, safe_folder, sealed, write_whole

_TYPED = "command-line"  # how Hydra says that a folder of options was named there
_GROUPS = {name for name, kind in get_type_hints(Config).items() if FIELDS[name].names_class or is_dataclass(kind)}

_CODE = (  # that a resolved config and its ids depend on
    "runner/config/*.py", "runner/data/__init__.py", "runner/study/progress.py", "runner/trust/sources.py",
    "runner/records/identity.py", "runner/records/jobs.py",
)  # fmt: skip
_VARIABLE = re.compile(r"\$\{oc\.env:\s*([A-Za-z_]\w*)")
_TABLE = re.compile(r"\$\{chosen:\s*([^,}]+?)\s*,")
_under_way: list[set[str]] = []  # the files read for each config that is being composed for the cache
_parsed: dict[tuple[Any, ...], bytes] = {}  # by source, name and state of the file


class _Repository(ConfigRepository):
    """Hydra's repository of configs, which parses each file once unless it changes, and names it in errors."""

    def load_config(self, config_path: str) -> ConfigResult | None:
        """Load a config as Hydra does, and note the path of its file."""
        source = next((source for source in self.get_sources() if _has(source, config_path)), None)
        if source is None:
            return None
        path = f"{source.path}/{config_path.removesuffix('.yaml')}.yaml" if source.scheme() == "file" else ""
        state = os.stat(path) if path else None
        key = (config_path, source.provider, source.path, state and (state.st_mtime_ns, state.st_size))
        if key not in _parsed:
            try:
                _parsed[key] = pickle.dumps(super().load_config(config_path))
            except yaml.YAMLError as error:  # it names its file and line
                raise ConfigCompositionException(str(error)) from error
            except (OmegaConfBaseException, RecursionError, ValueError) as error:
                why = f"cannot be read: {str(error).partition(chr(10))[0]}"
                why = "is not UTF-8: save it as UTF-8" if isinstance(error, UnicodeDecodeError) else why
                why = "is nested too deeply" if isinstance(error, RecursionError) else why
                raise ConfigCompositionException(f"{path} {why}.") from None
        if path:
            note_file(path)
        copied: ConfigResult = pickle.loads(_parsed[key])  # Hydra merges others into it
        return copied


def note_file(path: str) -> None:
    """Note a file that is read for what is being composed."""
    for files in _under_way:
        files.add(path)


def _has(source: ConfigSource, config_path: str) -> bool:
    return _is_in_package(source.path, config_path) if source.scheme() == "pkg" else source.is_config(config_path)


@cache
def _is_in_package(package: str, config_path: str) -> bool:  # which stays so, and takes long to find out
    return ImportlibResourcesConfigSource("", f"pkg://{package}").is_config(config_path)


def cached(key: Sequence[str], compose: Callable[[], Any], keep: Callable[[Any], bool] = lambda content: True) -> Any:
    """Return what `compose` composes by Hydra for a key, as JSON values, from the cache if it is there.

    A result that follows from other files than Hydra reads may not be kept: then `keep` is False.
    """
    name = hashlib.sha256(json.dumps([str(REPOSITORY), *key]).encode()).hexdigest()[:32]
    path = cache_folder() / "configs" / f"{name}.json"
    with suppress(OSError, KeyError, TypeError):  # there is none, or a file that it was made of is gone
        entry = read_entry(path)
        if entry["made_of"] == _made_of(entry["made_of"]["files"]):
            for files in _under_way:
                files.update(entry["made_of"]["files"])
            return entry["content"]
    read = set[str]()
    _under_way.append(read)
    try:
        content = compose()
    finally:
        _under_way.pop()
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
    """Return what an entry depends on: hashes of files, of tables that they name and of code, versions, variables."""
    hashes: dict[str, str] = {}
    variables, pending = set[str](), set(files)
    while file := min(pending - hashes.keys(), default=""):
        state = os.stat(file)
        hashes[file], names, tables = _hash_and_names(file, state.st_mtime_ns, state.st_size)
        variables.update(names)
        pending.update(str(REPOSITORY / table) for table in tables)
    environment = {name: os.environ.get(name) for name in sorted(variables)}
    return {"code": hash_of(("hydra-core", "omegaconf"), _CODE), "environment": environment, "files": hashes}


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


class Loader(ConfigLoaderImpl):
    """Hydra's loader of configs, which lets a user's typed option be all that is said of its group.

    Raises:
        ConfigCompositionException: configs are to be taken from another folder than conf/ first.
    """

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        folders = [entry.path for entry in config_search_path.get_path() if entry.provider == "main"]
        if folders != [str(REPOSITORY / "conf")]:
            raise ConfigCompositionException("A run starts from conf/config.yaml: name more folders by --config-dir.")
        super().__init__(config_search_path)
        self.repository = _Repository(config_search_path)
        self._chosen: frozenset[str] = frozenset()  # the groups whose options are typed, of what is composed
        self._files: list[Path] = []  # of options and experiments, as they are merged

    def load_configuration(
        self, config_name: str | None, overrides: list[str], run_mode: RunMode, *args: Any, **kwargs: Any
    ) -> DictConfig:
        """Compose a config by `compose`, and refuse one that lacks a group."""
        config = self.compose(config_name, overrides, run_mode, *args, **kwargs)
        for group in sorted(_GROUPS & config.keys()):
            if OmegaConf.is_missing(config, group):
                removal, names = _removal(self._files, group), ", ".join(options_of(group))
                raise ConfigCompositionException(f"{removal}{group} cannot be without an option: choose from {names}.")
        return config

    def compose(
        self, config_name: str | None, overrides: list[str], run_mode: RunMode, *args: Any, **kwargs: Any
    ) -> DictConfig:
        """Compose a config as Hydra does, unless an option of the user's has the name of one of this package."""
        if config_name not in (None, "config"):  # None: of --hydra-help
            raise ConfigCompositionException("A run starts from conf/config.yaml: --config-name names no other.")
        self._files.clear()
        try:
            return super().load_configuration(config_name, overrides, run_mode, *args, **kwargs)
        except (RecursionError, ValueError) as error:
            raise ConfigCompositionException(str(error)) from error

    def _parse_overrides_and_create_caching_repo(
        self, config_name: str | None, overrides: list[str]
    ) -> tuple[list[Override], CachingConfigRepository]:
        """Parse overrides as Hydra does, note which options are typed, and check the folders they are taken from."""
        parsed, repository = super()._parse_overrides_and_create_caching_repo(config_name, overrides)
        for source in repository.get_sources():
            if source.provider.endswith(_TYPED) and source.scheme() == "file":
                _check_names(Path(source.path))
        self._chosen = frozenset(override.key_or_group for override in parsed if isinstance(override.value(), str))
        return parsed, repository

    def _compose_config_from_defaults_list(self, defaults: list[ResultDefault], repo: IConfigRepository) -> DictConfig:
        """Merge files as Hydra does. Then a typed option of the user's own is all that is said of its group."""
        try:
            config = super()._compose_config_from_defaults_list(defaults, repo)
        except ConfigCompositionException as error:  # perhaps a key of the last file could not be merged
            merged, key = re.search(r"In '([^']+)'", str(error)), re.search(r"full_key: (\S+)", str(error))
            file = self._files[-1] if self._files else Path()
            is_last = merged is not None and file.match(f"{merged[1]}.yaml")
            place = f"\n({_place(file, key[1] if key else '')})" if is_last else ""
            raise ConfigCompositionException(f"{error}{place}") from error.__cause__
        for group in (name for name, field in FIELDS.items() if field.names_class and name in self._chosen):
            files = [default for default in defaults if (default.config_path or "").rpartition("/")[0] == group]
            if any(self._load_single_config(file, repo).provider.endswith(_TYPED) for file in files):
                assert isinstance(repo, CachingConfigRepository)  # what it holds was merged into, and is read anew
                config[group] = None
                config.merge_with(super()._compose_config_from_defaults_list(files, repo.delegate))
        return config

    def _load_single_config(self, default: ResultDefault, repo: IConfigRepository) -> ConfigResult:
        """Load a file as Hydra does, and check its groups."""
        loaded = super()._load_single_config(default, repo)
        if loaded.path.startswith("file://") and isinstance(loaded.config, DictConfig):
            file = Path(loaded.path.removeprefix("file://")) / f"{default.config_path}.yaml"
            self._files.append(file)
            if not default.primary:
                check_groups(file, loaded.config)
        return loaded


def check_groups(file: Path, config: DictConfig) -> None:
    """Refuse another value than a mapping where a group is meant in a file, with the line."""
    content: Any = OmegaConf.to_container(config, resolve=False)
    for group in sorted(_GROUPS & content.keys()):
        if not (OmegaConf.is_missing(config, group) or OmegaConf.is_interpolation(config, group)):
            _check_group(file, group, content[group], is_option=file.parent.name == group)


def _removal(files: Sequence[Path], group: str) -> str:
    """Return the file, line and a colon of the last list of defaults that takes a group's option away, or ""."""
    for defaults in (read_yaml(file).inside(("defaults",)) for file in reversed(files)):
        for item in defaults.listed if defaults else ():
            for name, option in item.content.items() if isinstance(item.content, dict) else ():
                if option.content is None and re.fullmatch(rf"(?:override )?/?{group}", name):
                    return f"{option.place}: "
    return ""


def _check_group(file: Path, group: str, content: Any, *, is_option: bool) -> None:
    """Check what a file says of a group: fields, null for none, or in its option a class, or nothing for none."""
    if isinstance(content, dict):
        needed = FIELDS[group].names_class and (content or not FIELDS[group].optional)
        if is_option and needed and "_target_" not in content and read_yaml(file).inside(("defaults",)) is None:
            raise ConfigCompositionException(
                f"{file}: it names no class, so it needs a line `_target_: package.Class`."
            )
    elif content is not None or not FIELDS[group].optional:
        none = ", or write null for none" if FIELDS[group].optional else ""
        raise ConfigCompositionException(
            f"{_place(file, group)}: {group} is a group and takes fields: choose an option of it in the list of "
            f"defaults, as in `- override /{group}: NAME`, of {', '.join(options_of(group))}{none}."
        )


def _place(file: Path, key: str) -> str:
    """Return a config file, and the line of a key in it if that can be told: its names, or those after its group's."""
    names = key.split(".")
    entry = read_yaml(file).inside(names[1:] if names[0] == file.parent.name else names)
    return str(file) if entry is None else entry.place


def _check_names(folder: Path) -> None:
    """Check that no option in a folder of the user's has the name of one of this package, which Hydra would take."""
    conf = REPOSITORY / "conf"
    for ours in (*scan(conf, "*/**/*.yaml"), *scan(REPOSITORY / "sweeps", "**/*.yaml")):
        name = ours.relative_to(conf if ours.is_relative_to(conf) else REPOSITORY)
        path = folder / name
        if path.exists() and not path.samefile(ours):
            group, _, option = name.with_suffix("").as_posix().partition("/")
            raise ConfigCompositionException(
                f"{path} is not used, as {group}={option} is an option of this package: give the file another name."
            )


def use_loader() -> None:
    """Have Hydra load configs by `Loader` from now on, in this process, under the name that Hydra has for it now."""
    vars(of_hydra)["ConfigLoaderImpl"] = Loader
