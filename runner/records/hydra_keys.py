"""Restrict Hydra's own settings in config files, and give a user's option precedence over the experiment.

The hydra node of a config can start code: callbacks, launchers, sweepers, logging. Hydra reads it before the
`_target_`s of a run are checked (see `runner.training.targets`). A config file from another person must not set it. So
every composed config is checked before Hydra uses it, also the config of each job of a sweep. Its hydra node has to
follow from conf/config.yaml and the command line alone. Only `hydra.mode` and plain values in `hydra.sweeper.params`
may differ.

Hydra merges an experiment after the options of groups. So the experiment's settings of a group would replace the
settings of a user's option, although the user typed that option to replace them. They are dropped. For an option of
this package they stay, because the papers' experiments are varied in this way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from hydra._internal import hydra as of_hydra
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, IConfigRepository
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import ResultDefault
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException
from hydra.plugins.config_source import ConfigResult
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from runner.config import FIELDS, REPOSITORY, Config, options_of
from runner.config.checkout import scan
from runner.config.yaml_file import read_yaml

_CONF, _PRIMARY = str(REPOSITORY / "conf"), "config"
# Files may set the first two. Hydra sets the next three for each config, and takes the last from no other file.
_FREE = ("mode", "sweeper.params", "runtime", "overrides", "job.override_dirname", "searchpath")
_TYPED = "command-line"  # how Hydra says that a folder of options was named there
_ABSENT = object()
_GROUPS = {name for name, kind in get_type_hints(Config).items() if FIELDS[name].names_class or is_dataclass(kind)}


class Judge(ConfigLoaderImpl):
    """Hydra's loader of configs, which refuses one whose files tell Hydra more than they may.

    Raises:
        ConfigCompositionException: configs are to be taken from another folder than conf/ first.
    """

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        if [each.path for each in config_search_path.get_path() if each.provider == "main"] != [_CONF]:
            raise ConfigCompositionException("A run starts from conf/config.yaml: name more folders by --config-dir.")
        super().__init__(config_search_path)
        self._typed: tuple[str, ...] | None = None
        self._chosen: frozenset[str] = frozenset()  # the groups whose options are typed, of what is composed

    def load_configuration(
        self, config_name: str | None, overrides: list[str], run_mode: RunMode, *others: Any, **named: Any
    ) -> DictConfig:
        """Compose a config as Hydra does, and judge it.

        Raises:
            ConfigCompositionException: a file tells Hydra more than it may, or the config cannot be composed.
        """
        if config_name not in (None, _PRIMARY):  # None: of --hydra-help
            raise ConfigCompositionException("A run starts from conf/config.yaml: --config-name names no other.")
        parsed, repository = self._parse_overrides_and_create_caching_repo(config_name, overrides)
        for source in repository.get_sources():
            if source.provider.endswith(_TYPED) and source.scheme() == "file":
                _check_names(Path(source.path))
        self._chosen = frozenset(each.key_or_group for each in parsed if isinstance(each.value(), str))
        if self._typed is None:  # the first config belongs to the command line, later ones may belong to a sweep's jobs
            self._typed = tuple(overrides)
        try:
            config = super().load_configuration(config_name, overrides, run_mode, *others, **named)
        except yaml.YAMLError as error:  # it names its file and line
            raise ConfigCompositionException(str(error)) from error
        except (ConfigCompositionException, RecursionError, ValueError) as error:
            folders = [Path(source.path) for source in repository.get_sources() if source.scheme() == "file"]
            cause = error.__cause__ if isinstance(error, ConfigCompositionException) else error
            known = isinstance(cause, (OmegaConfBaseException, RecursionError, UnicodeDecodeError))
            if known and (file := _unreadable(folders, cause)) is not None:
                raise ConfigCompositionException(f"{file} {_why(cause)}.") from None
            if isinstance(error, ConfigCompositionException):
                raise
            raise ConfigCompositionException(str(error)) from error
        for group in sorted(_GROUPS & config.keys()):
            if OmegaConf.is_missing(config, group):
                taken = self._taken_in(group, config_name, overrides, run_mode)
                names = ", ".join(options_of(group))
                raise ConfigCompositionException(f"{taken}{group} cannot be without an option: choose from {names}.")
        for key in _undue(config, _due(config_name, _of_hydra(self._typed)), len(overrides)):
            where = self._where(key, config_name, overrides, run_mode)
            raise ConfigCompositionException(
                f"{where}hydra.{key} is refused: of Hydra's own settings, a config file may set hydra.mode and plain "
                f"values of hydra.sweeper.params. Others belong on the command line."
            )
        return config

    def _compose_config_from_defaults_list(self, defaults: list[ResultDefault], repo: IConfigRepository) -> DictConfig:
        """Merge files as Hydra does. Then a typed option of the user's own is all that is said of its group."""
        try:
            config = super()._compose_config_from_defaults_list(defaults, repo)
        except ConfigCompositionException as error:
            raise ConfigCompositionException(f"{error}{_line_of(str(error), repo)}") from error.__cause__
        for group in (name for name, field in FIELDS.items() if field.names_class and name in self._chosen):
            files = [each for each in defaults if (each.config_path or "").rpartition("/")[0] == group]
            if any(self._load_single_config(each, repo).provider.endswith(_TYPED) for each in files):
                assert isinstance(repo, CachingConfigRepository)  # what it holds was merged into, and is read anew
                config[group] = None
                config.merge_with(super()._compose_config_from_defaults_list(files, repo.delegate))
        return config

    def _load_single_config(self, default: ResultDefault, repo: IConfigRepository) -> ConfigResult:
        """Load a file as Hydra does, and refuse another value than a mapping where a group is meant.

        Raises:
            ConfigCompositionException: there is one. The message has the line.
        """
        loaded = super()._load_single_config(default, repo)
        if loaded.path.startswith("file://") and isinstance(loaded.config, DictConfig) and not default.primary:
            file = Path(loaded.path.removeprefix("file://")) / f"{default.config_path}.yaml"
            content: Any = OmegaConf.to_container(loaded.config, resolve=False)
            for group in sorted(_GROUPS & content.keys()):
                if not (OmegaConf.is_missing(loaded.config, group) or OmegaConf.is_interpolation(loaded.config, group)):
                    _check_group(file, group, content[group], is_option=file.parent.name == group)
        return loaded

    def _where(self, key: str, config_name: str | None, overrides: list[str], run_mode: RunMode) -> str:
        """Return the last file that sets a key, and a colon, or "" if no file does."""
        for file, loaded in self._files(config_name, overrides, run_mode):
            if OmegaConf.select(loaded.config, f"hydra.{key}") is not None:
                return f"{file}: "
        return ""

    def _taken_in(self, group: str, config_name: str | None, overrides: list[str], run_mode: RunMode) -> str:
        """Return the file, line and a colon of the last list of defaults that takes a group's option away, or ""."""
        for file, _ in self._files(config_name, overrides, run_mode):
            defaults = read_yaml(file).inside(("defaults",))
            for item in defaults.listed if defaults else ():
                for name, option in item.content.items() if isinstance(item.content, dict) else ():
                    if option.content is None and re.fullmatch(rf"(?:override )?/?{group}", name):
                        return f"{option.place}: "
        return ""

    def _files(
        self, config_name: str | None, overrides: list[str], run_mode: RunMode
    ) -> Iterator[tuple[Path, ConfigResult]]:
        """Yield the files that a config is composed of, the last one first, without the primary one."""
        _, repository = self._parse_overrides_and_create_caching_repo(config_name, overrides)
        for default in reversed(self.compute_defaults_list(config_name, overrides, run_mode).defaults):
            loaded = super()._load_single_config(default, repository)
            if loaded.path.startswith("file://") and not default.primary:
                yield Path(loaded.path.removeprefix("file://")) / f"{default.config_path}.yaml", loaded


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


def _line_of(error: str, repo: IConfigRepository) -> str:
    """Return the file and the line of the key that Hydra could not merge, on a line of their own, or ""."""
    merged, key = re.search(r"In '([^']+)'", error), re.search(r"full_key: (\S+)", error)
    folders = [Path(source.path) for source in repo.get_sources() if source.scheme() == "file"]
    files = [folder / f"{merged[1]}.yaml" for folder in folders] if merged else []
    return next((f"\n({_place(file, key[1] if key else '')})" for file in files if file.is_file()), "")


def _place(file: Path, key: str) -> str:
    """Return a config file, and the line of a key in it if that can be told: its names, or those after its group's."""
    names = key.split(".")
    entry = read_yaml(file).inside(names[1:] if names[0] == file.parent.name else names)
    return str(file) if entry is None else entry.place


def _check_names(folder: Path) -> None:
    """Check that no option in a folder of the user's has the name of one of this package, which Hydra would take."""
    conf = Path(_CONF)
    for known in (*scan(conf, "*/**/*.yaml"), *scan(REPOSITORY / "sweeps", "**/*.yaml")):
        name = known.relative_to(conf if known.is_relative_to(conf) else REPOSITORY)
        path = folder / name
        if path.exists() and not path.samefile(known):
            group, _, option = name.with_suffix("").as_posix().partition("/")
            raise ConfigCompositionException(
                f"{path} is not used, as {group}={option} is an option of this package: give the file another name."
            )


def _unreadable(folders: Sequence[Path], error: BaseException | None) -> Path | None:
    """Return the config file that OmegaConf cannot read because of an error, or None."""
    for path in (path for folder in folders for path in scan(folder, "**/*.yaml") if path.is_file()):
        try:
            OmegaConf.load(path)
        except Exception as fault:  # perhaps another one, of a file that is not used
            if type(fault) is type(error) and (isinstance(error, RecursionError) or _why(fault) == _why(error)):
                return path
    return None


def _why(error: BaseException | None) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "is not UTF-8: save it as UTF-8"
    deep = isinstance(error, RecursionError)
    return "is nested too deeply" if deep else f"cannot be read: {str(error).partition(chr(10))[0]}"


def judge() -> None:
    """Have Hydra load configs by `Judge` from now on, in this process, under the name that Hydra has for it now."""
    _due.cache_clear()
    vars(of_hydra)["ConfigLoaderImpl"] = Judge


def _of_hydra(overrides: Sequence[str]) -> tuple[str, ...]:
    """Return the overrides of Hydra's node. Its search path is left out, as it may name files of other people."""
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    own = [each for each in parsed if each.is_hydra_override() or each.key_or_group == "hydra"]
    return tuple(str(each.input_line) for each in own if each.key_or_group != "hydra.searchpath")


@cache
def _due(config_name: str | None, overrides: tuple[str, ...]) -> Any:
    """Return the hydra node that follows from the primary config and the overrides, without other config folders."""
    loader = ConfigLoaderImpl(create_config_search_path(_CONF))
    config = loader.load_configuration(config_name, list(overrides), RunMode.RUN, validate_sweep_overrides=False)
    return OmegaConf.to_container(config.hydra)


def _undue(config: DictConfig, due: Any, overrides: int) -> Iterator[str]:
    """List the keys of a config's hydra node that differ from the expected node.

    Args:
        overrides: the number of overrides that were typed. If the node has more, a file added them.
    """
    yield from _different(OmegaConf.to_container(config.hydra), due)
    if len(config.hydra.overrides.hydra) + len(config.hydra.overrides.task) != overrides:
        yield "overrides"
    params: Any = OmegaConf.select(config, "hydra.sweeper.params")
    said: Any = {} if params is None else OmegaConf.to_container(params, resolve=True)
    if "_target_" in said or any(map(_holds_mapping, said.values())):  # Hydra would build what it names
        yield "sweeper.params"


def _different(found: Any, due: Any, place: str = "") -> Iterator[str]:
    if place in _FREE:
        return
    if isinstance(found, dict) and isinstance(due, dict):
        for name in {**due, **found}:
            inner = f"{place}.{name}" if place else str(name)
            yield from _different(found.get(name, _ABSENT), due.get(name, _ABSENT), inner)
    elif found != due or type(found) is not type(due):
        yield place


def _holds_mapping(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(map(_holds_mapping, value)))
