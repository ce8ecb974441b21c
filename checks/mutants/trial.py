"""One trial of a fault: a copy of the tree with it, and its tests, in a process of their own."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from checks.mutants.catalogue import Mutant

COPIED = ("runner", "conf", "sweeps", "studies", "tests", "checks", "pyproject.toml")
PRELOADED = (
    "torch", "torch.func", "torchvision.datasets", "opacus.accountants",
    "dp_accounting.pld.privacy_loss_distribution", "scipy.stats", "scipy.optimize", "pandas", "pydantic",
    "matplotlib.pyplot", "sklearn.datasets", "hydra", "pytest",
)  # fmt: skip
_ROOMS = ("runner", "tests", "checks")
_LIMIT = 600.0  # seconds: a fault that makes the tests hang is noticed, too
_FAILED = re.compile(r"^(?:FAILED|ERROR) tests/(.+?)(?: - .*)?$", re.MULTILINE)
PASSED, NOTICED, HANGS, UNUSABLE = "passed", "noticed", "hangs", "unusable"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a trial: one of the words above, and the first test that failed or pytest's message."""

    word: str
    message: str
    test: bool = False  # True if `message` is the name of a test


@dataclass
class Trial:
    """A trial under way."""

    process: int
    folder: Path
    started: float

    def ended(self) -> Outcome | None:
        """Return the outcome, or None while the trial runs."""
        ended, status = os.waitpid(self.process, os.WNOHANG)
        if not ended:
            if time.monotonic() - self.started < _LIMIT:
                return None
            self.stop()
            return Outcome(HANGS, f"no answer within {_LIMIT:.0f} s")
        output = (self.folder / "said").read_text(encoding="utf-8", errors="replace")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)  # whatever a test left behind
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return Outcome(PASSED, "")
        if failed := _FAILED.search(output):
            return Outcome(NOTICED, failed[1], test=True)
        signalled = Outcome(NOTICED, f"the process ends by signal {-code}")
        return signalled if code < 0 else Outcome(UNUSABLE, output[-2000:])

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)


def copied(repository: Path, copy: Path) -> Path:
    """Copy the files that the tests need from a repository, and return the copy's path."""
    copy.mkdir(parents=True)
    for name in COPIED:
        source = repository / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    return copy


def compiled(tree: Path, cache: Path) -> None:
    """Put the kernels of `tree` into `cache`, from the user's own cache, after compiling them there if necessary."""
    code = (
        "from runner.files import cache_folder\n"
        "from runner.speed import kernels\n"
        "for source in kernels._FOLDER.glob('*.cpp'): kernels.library(source.stem, lambda compiled: True)\n"
        "print(cache_folder())"
    )
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, env=environment, capture_output=True, check=True)
    mine = Path(done.stdout.decode().strip())
    theirs = cache / mine.name
    theirs.mkdir(mode=0o700, parents=True)
    for library in mine.glob("*.so"):
        shutil.copy(library, theirs)


def start(tree: Path, folder: Path, cache: Path, tests: list[str], mutant: Mutant | None) -> Trial:
    """Start the tests on a copy of `tree`, with the fault or, for comparison, without.

    `cache` holds the kernels without a fault. A trial compiles into its own copy.

    Raises:
        ValueError: the fault does not fit the code: see `Mutant`.
    """
    copy = copied(tree, folder / "copy")
    if mutant is not None:
        path = copy / "runner" / mutant.file
        path.write_text(mutant.mutated(path.read_text(encoding="utf-8")), encoding="utf-8")
        mutant.check_tests(copy)
    shutil.copytree(cache, folder / "cache")
    process = os.fork()
    if not process:
        _test(copy, folder, folder / "cache", tests)
    return Trial(process, folder, time.monotonic())


def _test(copy: Path, folder: Path, cache: Path, tests: list[str]) -> None:
    code = 70
    try:
        os.setpgid(0, 0)
        output = os.open(folder / "said", os.O_WRONLY | os.O_CREAT, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(copy)
        sys.dont_write_bytecode = True
        for name in [name for name in sys.modules if name.partition(".")[0] in _ROOMS]:
            del sys.modules[name]
        sys.path.insert(0, str(copy))
        os.environ |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "XDG_CACHE_HOME": str(cache)}
        import pytest

        quiet = ("-q", "-x", "--tb=line", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist")
        where = [f"tests/{test}" for test in tests]
        code = int(pytest.main([*quiet, f"--basetemp={folder / 'tmp'}", "-m", "not slow", *where]))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
