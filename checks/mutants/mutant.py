"""One fault: the file, the old and the new text, the reason why it is wrong, and the tests that have to notice it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


def named(file: str, *names: str) -> str:
    """Name some tests of a file in pytest's syntax."""
    return " ".join(f"{file}::{name}" for name in names)


@dataclass(frozen=True)
class Mutant:
    """A fault.

    Attributes:
        file: in runner/.
        old: text that occurs exactly once in the file, with further lines if necessary.
        new: the text that replaces it.
        why: a description of the error, for people.
        tests: files or single tests in tests/, separated by spaces.
    """

    file: str
    old: str
    new: str
    why: str
    tests: str

    def apply(self, repository: Path) -> None:
        """Put the fault into the copy of the package in `repository`.

        Raises:
            ValueError: the old text does not occur exactly once, or a test does not exist. The code has changed, and
                the fault has to follow it.
        """
        path = repository / "runner" / self.file
        path.write_text(self.mutated(path.read_text(encoding="utf-8")), encoding="utf-8")
        self.check_tests(repository)

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
            ValueError: see `apply`.
        """
        count = source.count(self.old)
        if count != 1 or self.new == self.old:
            raise ValueError(f"{self.file}, '{self.why}': the old text is there {count} times, not once: {self.old!r}.")
        return source.replace(self.old, self.new)
