"""Origin of a Python module, found without an import, since importing a module runs it."""

from __future__ import annotations

import sys
import sysconfig
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path

from runner.config import PACKAGE, REPOSITORY
from runner.config.checkout import git

LIBRARIES = ("runner", "torch", "torchvision", "opacus")  # their classes are not a user's
_INSTALLED = ("site-packages", "dist-packages")


def spec_of(name: str) -> ModuleSpec | None:
    """Find a module by its dotted name as Python would, without an import, or return None."""
    spec, places = None, None
    parts = name.split(".")
    if not all(parts):
        return None
    for count in range(1, len(parts) + 1):
        finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)
        found = (find(".".join(parts[:count]), places) for find in finders if find is not None)
        spec = next((each for each in found if each is not None), None)
        if spec is None or (count < len(parts) and spec.submodule_search_locations is None):
            return None
        places = spec.submodule_search_locations
    return spec


def place_of(spec: ModuleSpec) -> Path | None:
    """Return the file of a module, or the folder of a package, or None if it is built into Python."""
    if spec.submodule_search_locations is not None:
        return next((Path(place).absolute() for place in spec.submodule_search_locations), None)
    return Path(spec.origin).absolute() if spec.has_location and spec.origin else None


def is_installed(path: Path) -> bool:
    """Return True if a file or folder belongs to a library, to Python, to this package or its checks."""
    own = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), PACKAGE, REPOSITORY / "checks")
    return any(part in _INSTALLED for part in path.parts) or any(path.is_relative_to(place) for place in own)


def is_beside(name: str) -> bool:
    """Return True if a module is the user's: in a file or package of the folder in which the command was started.

    Libraries below that folder, in a virtual environment, do not count. Neither do the folders of this checkout, which
    hold its tools. Without git, no folder at the top of the checkout counts.
    """
    spec = spec_of(name.partition(".")[0])
    place = None if spec is None else place_of(spec)
    if place is None or place.parent.resolve() != Path.cwd().resolve() or is_installed(place):
        return False
    real = place.resolve()
    if not real.is_relative_to(REPOSITORY) or (real.parent == REPOSITORY and real.is_file()):
        return True
    folders = _folders_of_checkout()
    return folders is not None and real.relative_to(REPOSITORY).parts[0] not in folders


@cache
def _folders_of_checkout() -> frozenset[str] | None:
    """Return the names that git tracks at the top of this checkout, or None if it is no checkout."""
    listed = git(REPOSITORY, "ls-files", "-z")
    if listed is None:
        return None
    found = frozenset(name.partition("/")[0] for name in listed.split("\0"))
    return found if PACKAGE.name in found else None
