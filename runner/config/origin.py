"""Origin of a class: check that a package defines it, even if the class claims another origin."""

from __future__ import annotations

import sys

PACKAGE = __name__.partition(".")[0]


def defined_in(kind: type, *packages: str) -> bool:
    """Return True if one of these packages, by dotted name, defines a class.

    A class can state any `__module__`, so the class is looked up there.
    """
    module = kind.__module__  # read once
    if type(module) is not str or not any(f"{module}.".startswith(f"{package}.") for package in packages):
        return False
    found: object = sys.modules.get(module)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is kind


def is_one_of(kind: type, *kinds: type) -> bool:
    """Return True if a class is one of some, by identity, as a user's metaclass may define equality."""
    return any(kind is each for each in kinds)


def is_own(part: object) -> bool:
    """Return True if an object's class is the user's, so neither this package nor PyTorch defines it."""
    return not defined_in(type(part), PACKAGE, "torch")
