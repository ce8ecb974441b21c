"""Cases: every option of the groups of conf/ that a step depends on, each in a run that can have it."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from hydra.errors import HydraException

from runner.build.prepare import prepare
from runner.config import REPOSITORY, ConfigError
from runner.config.yaml_file import read_yaml
from runner.records.identity import resolved
from runner.records.jobs import composed
from runner.training.run import Run

CONF = REPOSITORY / "conf"
STEPS = ("activation", "architecture", "clipping", "constraint", "loss", "mechanism")  # groups, for single steps
RUNS = (
    "augmentation", "averaging", "clipping", "constraint", "loss", "mechanism", "normalization", "optimizer",
    "schedule", "screening",
)  # fmt: skip
_EVERYWHERE = ("tracking=disabled", "diagnostics=[]", "max_epsilon=null", "runtime.threads=1", "runtime.device=cpu")
_FEW = {"banded": ("mechanism.bands=2",)}  # parts, as the data sets here are small
_FREELY = "mechanism.asked_for=original_bug"  # a mechanism that wants to be asked for by its name


def case(group: str, option: str, *more: str) -> Run:
    """Prepare the run that an option is compared in: with the defaults, or in the first experiment that can have it.

    Experiments that name the option come first, for an architecture or a mechanism even before the defaults.

    `more` are overrides of it. Where they ask for noise and there can be none, there is none.

    Raises:
        ConfigError: no experiment can.
    """
    quiet = [(), ("noise_multiplier=0",)] if more else [()]
    for overrides in _candidates(group, option):
        for without_noise in quiet:
            try:
                return prepared(*overrides, *_FEW.get(option, ()), *more, *without_noise)
            except ConfigError:
                continue
    raise ConfigError(f"No experiment can have {group}={option}, so there is no step to compare.")


def prepared(*overrides: str) -> Run:
    """Prepare a run of these overrides for the CPU.

    Raises:
        ConfigError: it cannot be run.
    """
    try:
        return prepare(resolved(composed([*_EVERYWHERE, *overrides])))
    except HydraException as error:
        raise ConfigError(str(error).partition("\n")[0]) from error


def _candidates(group: str, option: str) -> Iterator[tuple[str, ...]]:
    namesakes = [(f"experiment={name}",) for name, chosen in _experiments().items() if chosen.get(group) == option]
    defaults = (f"{group}={option}",)
    yield from [*namesakes, defaults] if group in ("architecture", "mechanism") else [defaults, *namesakes]
    one_each: dict[tuple[str | None, str | None], str] = {}
    for name, chosen in _experiments().items():
        one_each.setdefault((chosen.get("architecture"), chosen.get("clipping")), name)
    for more in ((), (_FREELY,)):
        for name in one_each.values():
            yield f"experiment={name}", f"{group}={option}", *more


@cache
def _experiments() -> dict[str, dict[str, str]]:
    """Return every experiment, those with small images first, with the options that it and its base files choose."""
    folder = CONF / "experiment"
    paths = [path for path in folder.glob("*/*.yaml") if not path.stem.startswith("base_")]
    paths.sort(key=lambda path: ("cifar" in path.stem, path))
    return {path.relative_to(folder).with_suffix("").as_posix(): _chosen(path) for path in paths}


def _chosen(path: Any) -> dict[str, str]:
    options: dict[str, str] = {}
    for default in read_yaml(path).plain.get("defaults", []):
        if isinstance(default, dict):
            options |= {name.removeprefix("override").strip(" /"): option for name, option in default.items()}
        elif default != "_self_":
            base = CONF / default.lstrip("/") if default.startswith("/") else path.parent / default
            options |= _chosen(base.with_suffix(".yaml"))
    return options
