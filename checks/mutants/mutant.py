"""One fault: what is replaced by what in which file, why that is wrong, and which tests have to notice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


def named(file: str, *names: str) -> str:
    """Some tests of a file, as pytest wants them."""
    return " ".join(f"{file}::{name}" for name in names)


@dataclass(frozen=True)
class Mutant:
    """A fault.

    Attributes:
        file: in runner/.
        old: text that is in the file exactly once; the lines around it make it so where it must.
        new: what stands there instead.
        why: what is wrong then, for people.
        tests: in tests/, files or single tests, separated by spaces.
    """

    file: str
    old: str
    new: str
    why: str
    tests: str

    def apply(self, repository: Path) -> None:
        """Put the fault into the copy of the package in `repository`.

        Raises:
            ValueError: the old text is not there exactly once, or a test is not there: the code has changed, and the
                fault has to follow it.
        """
        path = repository / "runner" / self.file
        path.write_text(self.mutated(path.read_text(encoding="utf-8")), encoding="utf-8")
        self.check_tests(repository)

    def check_tests(self, repository: Path) -> None:
        """Raise ValueError where a test that has to notice is not there."""
        for test in self.tests.split():
            file, _, name = test.partition("::")
            where = repository / "tests" / file
            if not where.exists() or (name and f"def {name}(" not in where.read_text(encoding="utf-8")):
                raise ValueError(f"{self.file}, '{self.why}': there is no tests/{test}.")

    def mutated(self, source: str) -> str:
        """The source with the fault. Raises ValueError as `apply` does."""
        found = source.count(self.old)
        if found != 1 or self.new == self.old:
            raise ValueError(f"{self.file}, '{self.why}': the old text is there {found} times, not once: {self.old!r}.")
        return source.replace(self.old, self.new)
