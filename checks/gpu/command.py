"""`python -m checks gpu`: missing packages are refused in one sentence, before anything that needs them is imported."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

_PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
_NOT_NEEDED = ("wandb",)  # runs are not tracked here
_WHOLE = ("torch", "torchvision")  # builds for CUDA name libraries that a machine can have from elsewhere


def main(arguments: Sequence[str]) -> int:
    """Carry out the command, and return the exit code.

    Raises:
        ValueError: packages are missing.
    """
    wanted = tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]
    if missing := missing_packages([text for text in wanted if not text.startswith(_NOT_NEEDED)]):
        names = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'}"
        raise ValueError(f"{names} not installed here: bring wheels (`pip wheel --no-deps`) if there is no network.")
    from checks.gpu import run

    return run.main(arguments)


def missing_packages(requirements: Iterable[str]) -> list[str]:
    """List the packages among some requirements, and among the requirements of these, that are not installed.

    >>> missing_packages(["torch>=2", "no-such-package==1"])
    ['no-such-package']
    """
    missing, left, met = list[str](), list(requirements), set[str]()
    while left:
        name = re.split(r"[^\w.-]", left.pop(0).strip(), maxsplit=1)[0]
        if name.lower() in met:
            continue
        met.add(name.lower())
        try:
            required = requires(name) or []
        except PackageNotFoundError:
            missing.append(name)
            continue
        if name not in _WHOLE:
            left += [text for text in required if _applies(text)]
    return missing


def _applies(requirement: str) -> bool:
    """Return True for a requirement of every installation here: one of no extra and of no other machine."""
    if ";" not in requirement:
        return True
    try:
        from packaging.requirements import Requirement
    except ImportError:  # it is missing itself, and matplotlib requires it
        return False
    marker = Requirement(requirement).marker
    return marker is None or marker.evaluate({"extra": ""})
