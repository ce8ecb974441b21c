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

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hydra._internal import hydra as of_hydra
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, IConfigRepository
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import ResultDefault
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from runner.config import FIELDS, REPOSITORY
from runner.config.checkout import scan

_CONF, _PRIMARY = str(REPOSITORY / "conf"), "config"
# Files may set the first two. Hydra sets the next three for each config, and takes the last from no other file.
_FREE = ("mode", "sweeper.params", "runtime", "overrides", "job.override_dirname", "searchpath")
_TYPED = "command-line"  # how Hydra says that a folder of options was named there
_ABSENT = object()


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
        except UnicodeDecodeError:
            folders = [Path(each.path) for each in repository.get_sources() if each.scheme() == "file"]
            raise ConfigCompositionException(f"{_not_utf8(folders)} is not UTF-8: save it as UTF-8.") from None
        except (yaml.YAMLError, ValueError) as error:  # the first name their file and line
            raise ConfigCompositionException(str(error)) from error
        for key in _undue(config, _due(config_name, _of_hydra(self._typed)), len(overrides)):
            where = self._where(key, config_name, overrides, run_mode)
            raise ConfigCompositionException(
                f"{where}hydra.{key} is refused: of Hydra's own settings, a config file may set hydra.mode and plain "
                f"values of hydra.sweeper.params. Others belong on the command line."
            )
        return config

    def _compose_config_from_defaults_list(self, defaults: list[ResultDefault], repo: IConfigRepository) -> DictConfig:
        """Merge files as Hydra does. Then a typed option of the user's own is all that is said of its group."""
        config = super()._compose_config_from_defaults_list(defaults, repo)
        for group in (name for name, field in FIELDS.items() if field.names_class and name in self._chosen):
            files = [each for each in defaults if (each.config_path or "").rpartition("/")[0] == group]
            if any(self._load_single_config(each, repo).provider.endswith(_TYPED) for each in files):
                assert isinstance(repo, CachingConfigRepository)  # what it holds was merged into, and is read anew
                config[group] = None
                config.merge_with(super()._compose_config_from_defaults_list(files, repo.delegate))
        return config

    def _where(self, key: str, config_name: str | None, overrides: list[str], run_mode: RunMode) -> str:
        """Return the last file that sets a key, and a colon, or "" if no file does."""
        _, repository = self._parse_overrides_and_create_caching_repo(config_name, overrides)
        for default in reversed(self.compute_defaults_list(config_name, overrides, run_mode).defaults):
            loaded = self._load_single_config(default, repository)
            says = OmegaConf.select(loaded.config, f"hydra.{key}") is not None
            if says and loaded.path.startswith("file://") and not default.primary:
                return f"{loaded.path.removeprefix('file://')}/{default.config_path}.yaml: "
        return ""


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


def _not_utf8(folders: Sequence[Path]) -> str:
    """Return the first config file that is not text in UTF-8."""
    for path in (path for folder in folders for path in scan(folder, "**/*.yaml") if path.is_file()):
        try:
            path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            return str(path)
    return "A config file"


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
