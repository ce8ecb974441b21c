"""Check the options that are typed, because Hydra's messages for bad ones do not name the cause."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep, Sweep
from hydra.errors import HydraException
from omegaconf import DictConfig

from runner.config import BUDGETS, PAPER, REPOSITORY, Config, ConfigError, options_of

# Hydra's options, in full only. Hydra accepts abbreviations, and would read --experiment as --experimental-rerun. That
# option unpickles a file, which can run any code, so it is left out.
_OF_HYDRA = {name for action in get_args_parser()._actions for name in action.option_strings} - {"--experimental-rerun"}

_PLUGINS = {
    "hydra/launcher=submitit": "a paper or a study goes to Slurm by --launcher slurm (docs/running.md).",
    "hydra/launcher=ray": "a paper or a study goes to Ray by --launcher ray (docs/running.md).",
    "hydra/sweeper=optuna": "Optuna searches for a study, by `search` in its file (docs/extending.md).",
}


def arranged(arguments: Sequence[str]) -> list[str]:
    """Return a command line with Hydra's own options first, because Hydra takes none between overrides.

    Raises:
        ConfigError: --config-dir names no folder.
        SystemExit: an option of Hydra has no value.
    """
    parsed, unknown = get_args_parser().parse_known_args(list(arguments))
    overrides, options = [*parsed.overrides, *unknown], list(arguments)
    for override in reversed(overrides):
        del options[len(options) - 1 - options[::-1].index(override)]
    folder = own_folder(parsed.config_dir)
    if parsed.config_dir is None and folder is not None:
        options = [f"--config-dir={folder}", *options]
    return [*options, *as_typed(overrides)]


def as_typed(overrides: Sequence[str]) -> list[str]:
    """Add what makes typed fields win over those of files, and drop the + that Hydra's users write before experiments.

    A typed target_epsilon or noise_multiplier takes the place of the other one, as one follows from the other. A typed
    number of epochs, batch size or seed is not limited by a small scale.

    >>> as_typed(["+experiment=tempered-sigmoid/mnist-tanh", "target_epsilon=3"])
    ['experiment=tempered_sigmoid/mnist_tanh', 'target_epsilon=3', 'noise_multiplier=null']
    >>> as_typed(["scale=smoke", "epochs=5"])
    ['scale=smoke', 'epochs=5', 'scale.epochs=null']
    >>> as_typed(["scale=smoke", "++epochs=5"])
    ['scale=smoke', '++epochs=5', 'scale.epochs=null']
    """
    # An experiment or a sweep is written as its file is called, whichever way it was typed.
    option = re.compile(r"^\+?(experiment|sweeps)=(.*)", re.DOTALL)
    texts = [option.sub(lambda m: f"{m[1]}={m[2].replace('-', '_')}", text) for text in overrides]
    typed = {name.lstrip("+"): value for name, _, value in (text.partition("=") for text in texts)}
    given_up = []
    for name, other in (("target_epsilon", "noise_multiplier"), ("noise_multiplier", "target_epsilon")):
        given_up += [other] if typed.get(name, "null") != "null" else []
    if typed.get("scale", PAPER) != PAPER:
        limits = {"epochs": "scale.epochs", "batch_size": "scale.batch_size", "seed": "scale.seeds"}
        given_up += [limit for name, limit in limits.items() if name in typed]
    return [*texts, *(f"{name}=null" for name in given_up if name not in typed)]


def own_folder(config_dir: str | None) -> Path | None:
    """Return the folder of the user's own options: the one that --config-dir names, or conf/ of the current folder.

    It is None where --config-dir is not given and there is no such folder other than the checkout's.

    Raises:
        ConfigError: --config-dir names no folder.
    """
    folder = Path("conf" if config_dir is None else config_dir)
    if config_dir is None:
        return folder if folder.is_dir() and not folder.samefile(REPOSITORY / "conf") else None
    if not (config_dir and folder.expanduser().is_dir()):
        raise ConfigError(f"--config-dir={config_dir}: there is no such folder.")
    return folder


def search_path(config_dir: str | None) -> list[str]:
    """Return the override of Hydra that finds the options in `own_folder`, for configs composed in this process.

    Raises:
        ConfigError: --config-dir names no folder.
    """
    folder = own_folder(config_dir)
    if folder is None:
        return []
    paths = [str(path).replace("'", "\\'") for path in (REPOSITORY, folder.expanduser().resolve())]
    return ["hydra.searchpath=[" + ",".join(f"'file://{path}'" for path in paths) + "]"]


def check_options(arguments: Sequence[str]) -> None:
    """Check that a command line chooses options of groups by name. Hydra checks that the option exists.

    Raises:
        ConfigError: the value is null or not a name, or an argument begins with dashes and is not an option of Hydra.
    """
    parser = OverridesParser.create()
    several = any(argument in ("-m", "--multirun", "hydra.mode=MULTIRUN") for argument in arguments)
    if several and any(argument.partition("=")[0] in ("-c", "--cfg") for argument in arguments):
        raise ConfigError("--cfg shows the config of one run: leave -m out.")
    for argument in arguments:
        name = argument.partition("=")[0]
        if name.startswith("-") and not {name, name[:2]} & _OF_HYDRA:
            raise ConfigError(
                f"There is no {name}: what a run is made of has no dashes, as in experiment=tempered_sigmoid/mnist_tanh"
            )
        try:
            override = parser.parse_override(argument)
        except HydraException as error:
            _check_quotes(argument, error)
            continue  # Hydra says so, or it is no override
        if override.is_delete():
            continue
        _check_values(argument, override, several)
        group, value = override.key_or_group, override.value()
        if not (REPOSITORY / "conf" / group).is_dir():
            continue
        for choice in value.list if isinstance(value, ChoiceSweep) else [value]:
            if choice in (None, ""):
                raise ConfigError(
                    f"{group} cannot be null: leave it out, or where an experiment chooses one, take it away with "
                    f"~{group}"
                )
            names = choice if isinstance(choice, list) else [choice]
            if isinstance(choice, (bool, int, float, list)) and not all(isinstance(name, str) for name in names):
                raise ConfigError(
                    f"{group}={choice} is read as a number or as a truth value, and an option has a name: choose from "
                    f"{', '.join(options_of(group))}, or give your file another name"
                )


def _check_values(argument: str, override: Override, several: bool) -> None:
    """Name this project's way for what is common with Hydra, and not possible here."""
    name, value = override.key_or_group, override.value()
    if isinstance(value, IntervalSweep):
        raise ConfigError(f"{argument}: ranges are searched by a study: search: {{{name}: {{from: .., to: ..}}}}.")
    if isinstance(value, Sweep) and not several:
        raise ConfigError(f"{argument} has several values: add -m to run them all.")
    if isinstance(value, RangeSweep) and not list(override.sweep_iterator()):
        raise ConfigError(f"{argument} has no values.")
    wanted = str(Config.__annotations__.get(name, "Any"))
    if isinstance(value, list) and not wanted.startswith(("list", "Any")):
        values = ",".join(map(str, value))
        raise ConfigError(f"{argument}: {name} takes one value. For several runs write -m {name}={values}.")
    if isinstance(value, str) and wanted.startswith("list"):
        raise ConfigError(f"{argument}: {name} takes a list: write {name}=[{value}].")
    plugin = _PLUGINS.get(f"{name}={str(value).partition('_')[0]}") if not several or isinstance(value, str) else None
    if plugin:
        raise ConfigError(f"{argument}: {plugin}")


def check_budgets(composed: DictConfig, overrides: Sequence[str]) -> None:
    """Check that nobody asks for a sound epsilon and for another field that decides the noise.

    Raises:
        ConfigError: one of `overrides`, which were typed, gives such a field. Those of files give way.
    """
    if composed.sound_epsilon is None:
        return
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        name = override.key_or_group
        if name in BUDGETS and not override.is_delete() and override.value() is not None:
            raise ConfigError(f"The noise follows from sound_epsilon={composed.sound_epsilon:g}: leave {name} out.")


def _check_quotes(argument: str, error: HydraException) -> None:
    """Check that an override that Hydra cannot read would not be one with quotes around its value."""
    name, equals, value = argument.partition("=")
    if not equals or argument.startswith("-"):
        return
    if re.search(r"\s[+~]*[\w./]+=", value):
        raise ConfigError(f"{argument}: these are several overrides: give each as an argument of its own.") from error
    quoted = name + "='" + value.replace("'", "\\'") + "'"
    try:
        OverridesParser.create().parse_override(quoted)
    except HydraException:
        return
    raise ConfigError(f"{argument}: this value needs quotes for Hydra: write {shlex.quote(quoted)}.") from error
