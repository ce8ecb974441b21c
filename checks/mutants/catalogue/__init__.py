"""The faults, in one file for each part of the package, each with a list `MUTANTS`."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from checks.mutants.mutant import Mutant


def every() -> dict[str, tuple[Mutant, ...]]:
    """All faults, by the name of their file here."""
    names = sorted(module.name for module in iter_modules(__path__))
    return {name: import_module(f"{__name__}.{name}").MUTANTS for name in names}
