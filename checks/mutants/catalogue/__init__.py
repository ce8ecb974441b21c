"""The faults, in one YAML file for each part of the package. `CONTRIBUTING.md` describes the files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checks.mutants.mutant import Mutant, named
from runner.config.yaml_file import read_yaml

_FOLDER = Path(__file__).parent
_SHARED = _FOLDER.parent / "tests.yaml"  # lists of tests that several parts name


def every() -> dict[str, tuple[Mutant, ...]]:
    """All faults, by the name of their file here."""
    shared = _lists(read_yaml(_SHARED).plain)
    return {path.stem: _faults(read_yaml(path).plain, shared) for path in sorted(_FOLDER.glob("*.yaml"))}


def _lists(written: Mapping[str, Mapping[str, list[str]]]) -> dict[str, str]:
    """Return the tests that the name of a list stands for, in pytest's syntax."""
    return {name: " ".join(named(file, *tests) for file, tests in by_file.items()) for name, by_file in written.items()}


def _faults(part: dict[str, Any], shared: Mapping[str, str]) -> tuple[Mutant, ...]:
    lists = {**shared, **_lists(part.get("tests", {}))}
    return tuple(
        Mutant(file=group["in"], tests=" ".join(lists.get(word, word) for word in group["noticed by"].split()), **fault)
        for group in part["groups"]
        for fault in group["faults"]
    )
