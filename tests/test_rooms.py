"""The rooms of runner/: imports point downwards only, nothing imports a paper, few files stand outside the rooms."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.config import REPOSITORY

# From the top to the bottom: a room may import itself and those after it. Above them all are the commands, below them
# all what every room may use; both are files in runner/ itself.
ROOMS = (
    "papers", "report", "claims", "runs", "training", "mechanism", "clipping", "gradients", "speed", "data", "networks",
    "accounting",
)  # fmt: skip
COMMANDS, BASE = "commands", "base"
IN_BASE = ("config", "terminal")
ORDER = (COMMANDS, *ROOMS, BASE)
MOST_FILES = 8  # in runner/ itself

# Arrows that still point upwards, as "importing module -> imported module", each with its reason. May only shrink.
UPWARDS: dict[str, str] = {}

PACKAGE = REPOSITORY / "runner"
OURS = {path.parent.name for path in REPOSITORY.glob("*/*.py")}  # the package, and what stands beside it
MODULES = {path.relative_to(REPOSITORY).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


def module_of(path: str) -> str:
    """runner/data/cache.py is runner.data.cache, and runner/data/__init__.py is runner.data."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


NAMES = {module_of(path) for path in MODULES}


def imported(path: str, source: str) -> Iterator[str]:
    """The modules of the repository that a source imports, anywhere in it: for types and in functions, too."""
    package = module_of(path) if path.endswith("__init__.py") else module_of(path).rpartition(".")[0]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if _ours(alias.name))
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            if _ours(module):
                within = [f"{module}.{alias.name}" for alias in node.names]
                yield from {name if name in NAMES else module for name in within}


def _ours(module: str) -> bool:
    return module.partition(".")[0] in OURS


def room_of(module: str) -> str:
    """The room of runner.data.cache is data, that of runner.cli.reproduce the commands."""
    first = (module.split(".")[1:] or [BASE])[0]
    if first in (BASE, *IN_BASE):
        return BASE
    return first if (PACKAGE / first).is_dir() else COMMANDS


def paper_of(module: str) -> str | None:
    """The paper whose module it is, if any; `runner.papers` itself is none's."""
    parts = module.split(".")
    return parts[2] if parts[1:2] == ["papers"] and len(parts) > 2 else None


def violations(path: str, source: str) -> dict[str, str]:
    """What a source may not import, as "module -> module", and why."""
    found, here = {}, module_of(path)
    for there in imported(path, source):
        arrow = f"{here} -> {there}"
        if not there.startswith("runner"):
            found[arrow] = "it is not part of the package"
        elif ORDER.index(room_of(there)) < ORDER.index(room_of(here)):
            found[arrow] = f"{room_of(there)} is above {room_of(here)}"
        elif room_of(there) == "papers" and (paper_of(here) is None or paper_of(there) != paper_of(here)):
            found[arrow] = "nothing imports a paper but the paper itself"
    return found


def test_every_folder_of_the_package_is_a_room() -> None:
    folders = {Path(path).parts[1] for path in MODULES if len(Path(path).parts) > 2}
    assert folders <= {*ROOMS, *IN_BASE}


def test_few_files_stand_outside_the_rooms() -> None:
    assert len([path for path in PACKAGE.iterdir() if path.is_file()]) <= MOST_FILES


@pytest.mark.parametrize("path", MODULES)
def test_imports_point_downwards(path: str) -> None:
    found = violations(path, MODULES[path])
    assert {arrow: why for arrow, why in found.items() if arrow not in UPWARDS} == {}


def test_the_exceptions_are_still_needed() -> None:
    every = {arrow for path, source in MODULES.items() for arrow in violations(path, source)}
    assert set(UPWARDS) <= every


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("runner/accounting/pld.py", "from runner.mechanism import dp_sgd"),
        ("runner/accounting/pld.py", "from ..mechanism.dp_sgd import Mechanism"),
        ("runner/data/cache.py", "def late():\n    import runner.records.files"),
        (
            "runner/config/__init__.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from runner import networks",
        ),
        ("runner/terminal.py", "from runner import aggregate"),
        ("runner/report/pages.py", "import runner.papers.tempered_sigmoid as paper"),
        ("runner/cli/aggregate.py", "from runner.papers import losing_less"),
        ("runner/papers/losing_less/tables.py", "from runner.papers.tempered_sigmoid import measures"),
        ("runner/speed/machine.py", "from benchmarks import measure"),
        ("runner/mechanism/dp_sgd.py", "from audit.bounds import lower_bounds"),
        ("runner/launch/processes.py", "import mutants.trial"),
    ],
)
def test_a_wrong_import_is_found(path: str, source: str) -> None:
    assert len(violations(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("runner/cli/aggregate.py", "from runner.report import pages"),
        ("runner/papers/losing_less/tables.py", "from runner.papers.losing_less.figures import PAPER"),
        ("runner/mechanism/dp_sgd.py", "from runner.accounting import Ledger\nfrom . import sampling\nimport torch"),
        ("runner/data/features.py", "from runner.terminal import Line"),
    ],
)
def test_a_right_import_is_let_pass(path: str, source: str) -> None:
    assert violations(path, source) == {}
