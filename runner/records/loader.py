"""The loader of configs: a user's option takes precedence over the experiment, and mistakes are told in a sentence.

Hydra merges an experiment after the options of groups. So the experiment's settings of a group would replace the
settings of a user's option, although the user typed that option to replace them. They are dropped. For an option of
this package they stay, because the papers' experiments are varied in this way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from hydra._internal import hydra as of_hydra
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, IConfigRepository
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import ResultDefault
from hydra.errors import ConfigCompositionException
from hydra.plugins.config_source import ConfigResult
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from runner.config import FIELDS, REPOSITORY, Config, options_of
from runner.config.checkout import scan
from runner.config.yaml_file import read_yaml

_CONF, _PRIMARY = str(REPOSITORY / "conf"), "config"
_TYPED = "command-line"  # how Hydra says that a folder of options was named there
_GROUPS = {name for name, kind in get_type_hints(Config).items() if FIELDS[name].names_class or is_dataclass(kind)}


class Loader(ConfigLoaderImpl):
    """Hydra's loader of configs, which lets a user's typed option be all that is said of its group.

    Raises:
        ConfigCompositionException: configs are to be taken from another folder than conf/ first.
    """

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        if [entry.path for entry in config_search_path.get_path() if entry.provider == "main"] != [_CONF]:
            raise ConfigCompositionException("A run starts from conf/config.yaml: name more folders by --config-dir.")
        super().__init__(config_search_path)
        self._chosen: frozenset[str] = frozenset()  # the groups whose options are typed, of what is composed

    def load_configuration(
        self, config_name: str | None, overrides: list[str], run_mode: RunMode, *args: Any, **kwargs: Any
    ) -> DictConfig:
        """Compose a config as Hydra does.

        Raises:
            ConfigCompositionException: the config cannot be composed, or an option has the name of one of this package.
        """
        if config_name not in (None, _PRIMARY):  # None: of --hydra-help
            raise ConfigCompositionException("A run starts from conf/config.yaml: --config-name names no other.")
        parsed, repository = self._parse_overrides_and_create_caching_repo(config_name, overrides)
        for source in repository.get_sources():
            if source.provider.endswith(_TYPED) and source.scheme() == "file":
                _check_names(Path(source.path))
        self._chosen = frozenset(override.key_or_group for override in parsed if isinstance(override.value(), str))
        try:
            config = super().load_configuration(config_name, overrides, run_mode, *args, **kwargs)
        except yaml.YAMLError as error:  # it names its file and line
            raise ConfigCompositionException(str(error)) from error
        except (ConfigCompositionException, RecursionError, ValueError) as error:
            folders = [Path(source.path) for source in repository.get_sources() if source.scheme() == "file"]
            cause = error.__cause__ if isinstance(error, ConfigCompositionException) else error
            in_file = isinstance(cause, (OmegaConfBaseException, RecursionError, UnicodeDecodeError))
            if in_file and (file := _unreadable(folders, cause)) is not None:
                raise ConfigCompositionException(f"{file} {_why(cause)}.") from None
            if isinstance(error, ConfigCompositionException):
                raise
            raise ConfigCompositionException(str(error)) from error
        for group in sorted(_GROUPS & config.keys()):
            if OmegaConf.is_missing(config, group):
                place = self._removal_of(group, config_name, overrides, run_mode)
                names = ", ".join(options_of(group))
                raise ConfigCompositionException(f"{place}{group} cannot be without an option: choose from {names}.")
        return config

    def _compose_config_from_defaults_list(self, defaults: list[ResultDefault], repo: IConfigRepository) -> DictConfig:
        """Merge files as Hydra does. Then a typed option of the user's own is all that is said of its group."""
        try:
            config = super()._compose_config_from_defaults_list(defaults, repo)
        except ConfigCompositionException as error:
            raise ConfigCompositionException(f"{error}{_line_of(str(error), repo)}") from error.__cause__
        for group in (name for name, field in FIELDS.items() if field.names_class and name in self._chosen):
            files = [default for default in defaults if (default.config_path or "").rpartition("/")[0] == group]
            if any(self._load_single_config(file, repo).provider.endswith(_TYPED) for file in files):
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

    def _removal_of(self, group: str, config_name: str | None, overrides: list[str], run_mode: RunMode) -> str:
        """Return the file, line and a colon of the last list of defaults that takes a group's option away, or ""."""
        _, repository = self._parse_overrides_and_create_caching_repo(config_name, overrides)
        for default in reversed(self.compute_defaults_list(config_name, overrides, run_mode).defaults):
            loaded = super()._load_single_config(default, repository)
            if default.primary or not loaded.path.startswith("file://"):
                continue
            file = Path(loaded.path.removeprefix("file://")) / f"{default.config_path}.yaml"
            defaults = read_yaml(file).inside(("defaults",))
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
    for ours in (*scan(conf, "*/**/*.yaml"), *scan(REPOSITORY / "sweeps", "**/*.yaml")):
        name = ours.relative_to(conf if ours.is_relative_to(conf) else REPOSITORY)
        path = folder / name
        if path.exists() and not path.samefile(ours):
            group, _, option = name.with_suffix("").as_posix().partition("/")
            raise ConfigCompositionException(
                f"{path} is not used, as {group}={option} is an option of this package: give the file another name."
            )


def _unreadable(folders: Sequence[Path], error: BaseException | None) -> Path | None:
    """Return the config file that OmegaConf cannot read because of an error, or None; the user's come first."""
    users_first = sorted(folders, key=lambda folder: folder.is_relative_to(REPOSITORY))
    for path in (path for folder in users_first for path in scan(folder, "**/*.yaml")):
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


def use_loader() -> None:
    """Have Hydra load configs by `Loader` from now on, in this process, under the name that Hydra has for it now."""
    vars(of_hydra)["ConfigLoaderImpl"] = Loader
