"""Planted faults: each fits the present code, and a trial distinguishes noticed faults from others."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from checks.mutants.catalogue import Mutant, every
from checks.mutants.trial import NOTICED, PASSED, copied
from runner.config import REPOSITORY, RESULTS

NOTICING = "claims/test_verdicts.py::test_a_claimed_single_run_is_judged_by_prediction_interval"
MUTANTS = [mutant for mutants in every().values() for mutant in mutants]


def test_every_fault_fits_the_code_as_it_is() -> None:
    for mutant in MUTANTS:
        mutant.mutated((REPOSITORY / "runner" / mutant.file).read_text(encoding="utf-8"))
        mutant.check_tests(REPOSITORY)


def test_faults_are_many_and_each_its_own() -> None:
    assert len(MUTANTS) >= 40
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)
    assert len({mutant.why for mutant in MUTANTS}) == len(MUTANTS)


def test_the_page_names_tests_that_exist() -> None:
    """Where one is renamed or removed, try its faults again: `python -m checks mutants --only WORDS`."""
    page = (RESULTS / "mutants" / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\S+\.py)::(?:\w+::)?(\w+)", page))
    assert len(named) > 100
    texts = {file: (REPOSITORY / "tests" / file).read_text(encoding="utf-8") for file, _ in named}
    assert [name for file, name in named if f"def {name}(" not in texts[file]] == []


def test_a_trial_is_on_a_copy_and_tells_what_is_noticed(tmp_path: Path) -> None:
    """Two faults in one file of a copy of this tree: one that a test notices, and one that it does not check."""
    tree = copied(REPOSITORY, tmp_path / "tree")
    program = f"""
from pathlib import Path
import hydra, pytest, torch  # once, and not in each trial
from checks.mutants.run import _tried
from checks.mutants.catalogue import Mutant
test = {NOTICING!r}
faults = [
    Mutant("claims/intervals.py", "-margin <= self.low and", "", "one side", test),
    Mutant("claims/intervals.py", "MOST_RUNS = 1000", "MOST_RUNS = 999", "another number", test),
]
Path({str(tmp_path / "cache")!r}).mkdir()
for number, outcome in _tried([([test], f) for f in faults], Path({str(tree)!r}), Path({str(tmp_path / "cache")!r}), 1):
    print(number, outcome.word, outcome.message)
"""
    before = (tree / "runner/claims/intervals.py").read_text()
    result = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == [
        f"0 {NOTICED} {NOTICING}",
        f"1 {PASSED} ",
    ]
    assert (tree / "runner/claims/intervals.py").read_text() == before


def test_a_fault_or_a_test_that_is_not_there_is_an_error() -> None:
    """The text of a fault has to be there once, and Python has to read what it makes of a file."""
    for old, count in (("b", 2), ("c", 0)):
        with pytest.raises(ValueError, match=f"there {count} times"):
            Mutant("x.py", old, "d", "wrong", "test_fields.py").mutated("ab b")
    with pytest.raises(ValueError, match="no Python any more: expected an indented block"):
        Mutant("x.py", "    b = 1", "b = 1", "wrong", "test_fields.py").mutated("for a in c:\n    b = 1\n")
    for test in ("no_such.py", "test_fields.py::test_no_such"):
        with pytest.raises(ValueError, match="there is no tests/"):
            Mutant("config.py", "a", "b", "wrong", test).check_tests(REPOSITORY)
