"""The classes that a config names, by `_target_`: told apart by their bare names, and where those do not suffice."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from omegaconf import OmegaConf

from runner.config import REPOSITORY, ConfigError
from runner.training.targets import targets

_PACKAGE = "runner."


def bare_name(target: str) -> str:
    """The last part of a dotted path: `Flat` of `runner.clipping.Flat`."""
    return target.rpartition(".")[2]


@lru_cache
def targets_of_options() -> frozenset[str]:
    """Every `_target_` of the files in conf/.

    Raises:
        ConfigError: a file that names one cannot be read.
    """
    found: set[str] = set()
    for path in sorted((REPOSITORY / "conf").rglob("*.yaml")):
        if "_target_" not in path.read_text():  # loading all of them takes half a second
            continue
        try:
            found |= {target for _, target in targets(OmegaConf.to_container(OmegaConf.load(path)))}
        except Exception as error:
            raise ConfigError(f"{path} cannot be read: {error}") from error
    return frozenset(found)


def check_names(content: dict[str, Any]) -> None:
    """Check that no class outside the package has the bare name of another one in conf/.

    Ids are made of bare names, so that a run of such a class could pass for a run of the other.

    Raises:
        ConfigError: one has.
    """
    for place, target in targets(content):
        if target.startswith(_PACKAGE):
            continue
        for other in sorted(targets_of_options()):
            if other != target and bare_name(other) == bare_name(target):
                raise ConfigError(
                    f"{place}={target} has the same name as {other}, and runs are told apart by the names of their "
                    f"classes: give it another name."
                )


def check_same_classes(content: dict[str, Any], other: dict[str, Any], what: str) -> None:
    """Check that two configs of the same id name the same classes, where they are not all the package's own.

    The package's own may have moved from one module to another.

    Args:
        what: who names the classes of `other`, to be told in the message.

    Raises:
        ConfigError: they name different ones.
    """
    theirs = dict(targets(other))
    for place, target in targets(content):
        named = theirs.get(place, "")
        if named != target and not (named.startswith(_PACKAGE) and target.startswith(_PACKAGE)):
            raise ConfigError(
                f"{place}={target}, but {what}, which has the same id, names {named or 'no class'} there: give one of "
                f"the two another name, or, if the class has moved, use python -m runner.runs.migrate."
            )
