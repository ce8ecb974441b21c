"""Planted faults: each fits the present code, and a trial distinguishes noticed faults from others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from checks.mutants.catalogue import every
from checks.mutants.mutant import Mutant
from checks.mutants.report import page
from checks.mutants.trial import NOTICED, PASSED, Outcome, copied
from runner.config import REPOSITORY

MUTANTS = [mutant for mutants in every().values() for mutant in mutants]


def test_every_fault_fits_the_code_as_it_is() -> None:
    for mutant in MUTANTS:
        mutant.mutated((REPOSITORY / "runner" / mutant.file).read_text(encoding="utf-8"))
        mutant.check_tests(REPOSITORY)


def test_faults_are_many_and_each_its_own() -> None:
    assert len(MUTANTS) >= 40
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)
    assert len({mutant.why for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize(("old", "found"), [("b", 2), ("c", 0)])
def test_a_text_that_is_not_there_once_is_an_error(old: str, found: int) -> None:
    with pytest.raises(ValueError, match=f"there {found} times"):
        Mutant("x.py", old, "d", "wrong", "test_fields.py").mutated("ab b")


@pytest.mark.parametrize("test", ["no_such.py", "test_fields.py::test_no_such"])
def test_a_test_that_is_not_there_is_an_error(test: str) -> None:
    with pytest.raises(ValueError, match="there is no tests/"):
        Mutant("config.py", "a", "b", "wrong", test).check_tests(REPOSITORY)


def test_the_page_counts_what_no_test_noticed() -> None:
    one = Mutant("x.py", "a", "b", "wrong", "test_fields.py")
    said = page([("data", one), ("data", one)], [Outcome(NOTICED, "t.py::test", test=True), Outcome(PASSED, "")])
    assert "1 of 2 faults are noticed" in said
    assert "**nothing**" in said


def test_a_trial_is_on_a_copy_and_tells_what_is_noticed(tmp_path: Path) -> None:
    """Two faults in one file of a copy of this tree: one that a test notices, and one that it does not check."""
    tree = copied(REPOSITORY, tmp_path / "tree")
    program = f"""
import sys
from pathlib import Path
from checks.mutants.run import _tried
from checks.mutants.mutant import Mutant
test = "claims/test_intervals.py::test_within"
faults = [
    Mutant("claims/statistics.py", "-margin <= self.low and", "", "one side", test),
    Mutant("claims/statistics.py", "MOST_RUNS = 1000", "MOST_RUNS = 999", "another number", test),
]
Path({str(tmp_path / "cache")!r}).mkdir()
for number, outcome in _tried([([test], f) for f in faults], Path({str(tree)!r}), Path({str(tmp_path / "cache")!r}), 1):
    print(number, outcome.word, outcome.said)
"""
    before = (tree / "runner/claims/statistics.py").read_text()
    said = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == [f"0 {NOTICED} claims/test_intervals.py::test_within", f"1 {PASSED} "]
    assert (tree / "runner/claims/statistics.py").read_text() == before
