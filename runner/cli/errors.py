"""Errors for people: one sentence and an exit code."""

import os
import re
import sys
from pathlib import Path
from traceback import walk_tb

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError

from runner.config import REPOSITORY, ConfigError
from runner.config.hydra_errors import sentence
from runner.config.yaml_file import read_yaml
from runner.trust.sources import is_installed

_EXTRAS = {"playwright": "browser", "optuna": "search", "wandb_workspaces": "dashboard"}
_MEMORY = re.compile("MemoryError|allocate memory|out of memory|bad_alloc|could not create a primitive")
_FRAMES = "\nException raised from"  # the beginning of a stack of C++ in some of PyTorch's messages


def refused(error: Exception) -> str | None:
    """Explain in one sentence why a request cannot be carried out; None if the error is no user's."""
    from runner.data import DataError

    if isinstance(error, (HydraException, OmegaConfBaseException, MarkedYAMLError)):
        return sentence(error)
    name = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
    if name in _EXTRAS:
        return f"{name} is not installed: pip install -e '.[{_EXTRAS[name]}]' brings it."
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error) + line_of(error) if isinstance(error, (DataError, OverflowError, ValueError)) else None


def explained(error: Exception) -> tuple[str, int]:
    """Return a message for an error, and the exit code: 2 for a wrong configuration, 1 for a failed run.

    A run that had begun has a note with the place of its traceback.
    """
    from runner.data import DataError

    if isinstance(error, (HydraException, OmegaConfBaseException)):
        return sentence(error), 2
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    if isinstance(error, (ConfigError, DataError)):
        message = str(error).partition(_FRAMES)[0]
        message, code = message + (file_of(message) or line_of(error)) + notes, 1 if notes else 2
    else:
        message, code = f"failed, {type(error).__name__}: {error}{line_of(error)}{notes}", 1
    return ("there is not enough memory: " if _MEMORY.search(message) else "") + message, code


def line_of(error: BaseException | None) -> str:
    """Return the last line of a user's own code that an error or its causes left, in brackets, or ""."""
    place, seen = "", set[int]()
    while error is not None and id(error) not in seen:
        for frame, line in walk_tb(error.__traceback__):
            path = Path(frame.f_code.co_filename)
            if path.is_file() and not is_installed(path):
                place = f" ({os.path.relpath(path)}, line {line})"
        seen.add(id(error))
        error = error.__cause__
    return place


def file_of(message: str) -> str:
    """Return the file and the line that set the field which a message begins with, in brackets.

    Returns "" if no option of the user's own sets it, but the command line or this package.
    """
    match = re.search(r"\b([a-z_]+)\.(\w+)(?:=| is | has )", message)
    if match is None or not HydraConfig.initialized() or any(f"{match[1]}.{match[2]}=" in text for text in sys.argv):
        return ""
    runtime = HydraConfig.get().runtime
    for group, names in (("experiment", match.groups()), (match[1], match.groups()[1:])):
        for source in (source for source in runtime.config_sources if source.schema == "file"):
            path = Path(source.path) / group / f"{runtime.choices.get(group)}.yaml"
            if path.is_relative_to(REPOSITORY) or not path.is_file():
                continue
            if (entry := read_yaml(path).inside(names)) is not None:
                return f" ({entry.place})"
    return ""
