"""The loader of configs: a user's option takes precedence over the experiment, and mistakes are told in a sentence.

Hydra merges an experiment after the options of groups. So the experiment's settings of a group would replace the
settings of a user's option, although the user typed that option to replace them. They are dropped. For an option of
this package they stay, because the papers' experiments are varied in this way.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra._internal import hydra as of_hydra
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, IConfigRepository
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import ResultDefault
from hydra.errors import ConfigCompositionException
from hydra.types import RunMode
from omegaconf import DictConfig

from runner.config import FIELDS, REPOSITORY
from runner.config.checkout import scan

_CONF, _PRIMARY = str(REPOSITORY / "conf"), "config"
_TYPED = "command-line"  # how Hydra says that a folder of options was named there


class Loader(ConfigLoaderImpl):
    """Hydra's loader of configs, which lets a user's typed option be all that is said of its group.

    Raises:
        ConfigCompositionException: configs are to be taken from another folder than conf/ first.
    """

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        if [each.path for each in config_search_path.get_path() if each.provider == "main"] != [_CONF]:
            raise ConfigCompositionException("A run starts from conf/config.yaml: name more folders by --config-dir.")
        super().__init__(config_search_path)
        self._chosen: frozenset[str] = frozenset()  # the groups whose options are typed, of what is composed

    def load_configuration(
        self, config_name: str | None, overrides: list[str], run_mode: RunMode, *others: Any, **named: Any
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
        self._chosen = frozenset(each.key_or_group for each in parsed if isinstance(each.value(), str))
        try:
            return super().load_configuration(config_name, overrides, run_mode, *others, **named)
        except UnicodeDecodeError:
            folders = [Path(each.path) for each in repository.get_sources() if each.scheme() == "file"]
            raise ConfigCompositionException(f"{_not_utf8(folders)} is not UTF-8: save it as UTF-8.") from None
        except (yaml.YAMLError, ValueError) as error:  # the first name their file and line
            raise ConfigCompositionException(str(error)) from error

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


def use_loader() -> None:
    """Have Hydra load configs by `Loader` from now on, in this process, under the name that Hydra has for it now."""
    vars(of_hydra)["ConfigLoaderImpl"] = Loader
