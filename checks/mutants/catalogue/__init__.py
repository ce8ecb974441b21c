"""The faults, in one YAML file for each part of the package. `CONTRIBUTING.md` describes the files."""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.config.yaml_file import read_yaml

_FOLDER = Path(__file__).parent
_SHARED = _FOLDER.parent / "tests.yaml"  # lists of tests that several parts name


@dataclass(frozen=True)
class Mutant:
    """A fault.

    Attributes:
        file: in runner/.
        old: text that occurs exactly once in the file, with further lines if necessary.
        new: the text that replaces it.
        why: a description of the error, for people.
        tests: files or single tests in tests/ that have to notice it, separated by spaces.
    """

    file: str
    old: str
    new: str
    why: str
    tests: str

    def check_tests(self, repository: Path) -> None:
        """Check that the tests that have to notice exist.

        Raises:
            ValueError: one does not.
        """
        for test in self.tests.split():
            file, *names = test.split("::")
            where = repository / "tests" / file
            defined = rf"^(def|class) {names[0]}\b" if names else ""
            if not where.exists() or not re.search(defined, where.read_text(encoding="utf-8"), re.MULTILINE):
                raise ValueError(f"{self.file}, '{self.why}': there is no tests/{test}.")

    def mutated(self, source: str) -> str:
        """Return the source with the fault.

        Raises:
            ValueError: the old text does not occur exactly once, or the source is no Python any more, which every test
                would notice. The code has changed, and the fault has to follow it.
        """
        count = source.count(self.old)
        if count != 1 or self.new == self.old:
            raise ValueError(f"{self.file}, '{self.why}': the old text is there {count} times, not once: {self.old!r}.")
        changed = source.replace(self.old, self.new)
        if self.file.endswith(".py"):
            try:
                ast.parse(changed)
            except SyntaxError as error:
                raise ValueError(f"{self.file}, '{self.why}': no Python any more: {error}.") from error
        return changed


def every() -> dict[str, list[Mutant]]:
    """All faults, by the name of their file here."""
    shared, faults = _lists(read_yaml(_SHARED).plain), dict[str, list[Mutant]]()
    for path in sorted(_FOLDER.glob("*.yaml")):
        part = read_yaml(path).plain
        lists = shared | _lists(part.get("tests", {}))
        faults[path.stem] = [
            Mutant(group["in"], tests=" ".join(lists.get(word, word) for word in group["noticed by"].split()), **fault)
            for group in part["groups"]
            for fault in group["faults"]
        ]
    return faults


def _lists(written: Mapping[str, Mapping[str, list[str]]]) -> dict[str, str]:
    """Return the tests that the name of a list stands for, in pytest's syntax."""
    return {
        name: " ".join(f"{file}::{test}" for file, tests in by_file.items() for test in tests)
        for name, by_file in written.items()
    }
