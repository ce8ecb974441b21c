"""Check the options that are typed for groups, because Hydra's messages for bad ones do not name the cause."""

from __future__ import annotations

from collections.abc import Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep
from hydra.errors import HydraException

from runner.config import REPOSITORY, ConfigError

# Hydra's options, in full only. Hydra accepts abbreviations, and would read --experiment as --experimental-rerun. That
# option unpickles a file, which can run any code, so it is left out.
OF_HYDRA = (
    "--help", "--hydra-help", "--version", "--cfg", "--resolve", "--package", "--run", "--multirun",
    "--shell-completion", "--config-path", "--config-name", "--config-dir", "--info",
)  # fmt: skip


def check_options(arguments: Sequence[str]) -> None:
    """Check that a command line chooses options of groups by name. Hydra checks that the option exists.

    Raises:
        ConfigError: the value is null or not a name, or an argument begins with dashes and is not an option of Hydra.
    """
    parser = OverridesParser.create()
    for argument in arguments:
        name = argument.partition("=")[0]
        if name.startswith("--") and name not in OF_HYDRA:
            raise ConfigError(
                f"There is no {name}: what a run is made of has no dashes, as in experiment=tempered_sigmoid/mnist_tanh"
            )
        try:
            override = parser.parse_override(argument)
        except HydraException:
            continue  # Hydra says so, or it is no override
        group = override.key_or_group
        if override.is_delete() or not (REPOSITORY / "conf" / group).is_dir():
            continue
        chosen = override.value()
        for each in chosen.list if isinstance(chosen, ChoiceSweep) else [chosen]:
            _check(group, each)


def _check(group: str, chosen: object) -> None:
    if chosen in (None, ""):
        raise ConfigError(
            f"{group} cannot be null: leave it out, or where an experiment chooses one, take it away with ~{group}"
        )
    names = chosen if isinstance(chosen, list) else [chosen]
    if isinstance(chosen, (bool, int, float, list)) and not all(isinstance(name, str) for name in names):
        options = ", ".join(sorted(path.stem for path in (REPOSITORY / "conf" / group).glob("*.yaml")))
        raise ConfigError(f"{group}={chosen} names no option of {group}: choose from {options}")
