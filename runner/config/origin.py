"""Origin of a class, by the name of its module."""

from __future__ import annotations

PACKAGE = __name__.partition(".")[0]


def defined_in(kind: type, *packages: str) -> bool:
    """Return True if one of these packages, by dotted name, defines a class."""
    return f"{kind.__module__}.".startswith(tuple(f"{package}." for package in packages))


def is_own(part: object) -> bool:
    """Return True if an object's class is the user's, so neither this package nor PyTorch defines it."""
    return not defined_in(type(part), PACKAGE, "torch")
