"""The English of docstrings and comments, checked by rules: `python -m checks style`.

A docstring begins with a verb or a noun, and no sentence has more than 25 words. Words that only this project would
understand do not occur. Code in backticks counts as one word.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

from runner.config import REPOSITORY
from runner.terminal import Parser

LONGEST = 25  # words of a sentence
CLAUSES = ("What", "Whether", "Which", "How", "Why", "Where", "Who", "When", "That")  # no docstring begins so
PRIVATE = (
    "hangs on", "is of", "are of", "was of", "those of", "that of", "of which", "so many", "nobody", "ours", "whoever",
    "of one's own", "stranger",
)  # fmt: skip
_QUOTED = re.compile(r"``[^`]*``|`[^`]*`|\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)|\([^()]*\)")
_ENDS = re.compile(r"(?<=[.!?:;])\s+|\n\s*\n|\n\s*(?=[-*] |\w+(?:, \w+)*: )")
_WORD = re.compile(r"[^\W\d_][\w'’-]*")


def faults(source: str) -> Iterator[tuple[int, str]]:
    """Check the English of a Python source.

    Yields:
        The number of a line and the fault that begins there.
    """
    for line, text in _docstrings(source):
        first = _WORD.match(text.lstrip())
        if first and first[0] in CLAUSES:
            yield line, f"begins with {first[0]!r}: begin with a verb or a noun"
        yield from _in_text(line, text)
    for line, text in _comments(source):
        yield from _in_text(line, text)


def _in_text(line: int, text: str) -> Iterator[tuple[int, str]]:
    plain = _QUOTED.sub("X", text.split(">>>")[0])
    for sentence in _ENDS.split(plain):
        words = _WORD.findall(sentence)
        if len(words) > LONGEST:
            yield line, f"a sentence of {len(words)} words: {' '.join(words[:6])} ..."
    for word in PRIVATE:
        if re.search(rf"\b{word}\b", plain):
            yield line, f"{word!r}: say it in the field's words"


def _docstrings(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Join the lines of a comment that stand below each other."""
    found: list[tuple[int, int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line, column = token.start
            text = token.string.lstrip("# ")
            alone = not token.line[:column].strip()
            if alone and found and found[-1][0] == line - 1 and found[-1][1] == column:
                text = f"{found.pop()[2]} {text}"
            found.append((line, column, text))
    yield from ((line, text) for line, _, text in found)


def main(arguments: Sequence[str]) -> int:
    """Print every fault.

    Returns:
        1 if there is one.
    """
    parser = Parser(prog="python -m checks style", description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders (default: all tracked Python files)")
    chosen = parser.parse_args(arguments)
    found = 0
    for path in _files(chosen.paths):
        for line, fault in sorted(faults(path.read_text(encoding="utf-8"))):
            print(f"{path.relative_to(REPOSITORY)}:{line}: {fault}")
            found += 1
    print(f"{found} faults", file=sys.stderr)
    return 1 if found else 0


def _files(paths: Sequence[Path]) -> list[Path]:
    """List the tracked Python files below some paths, sorted."""
    asked = [str(path) for path in paths] or ["."]
    listed = subprocess.run(
        ["git", "ls-files", "--", *asked], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return sorted(REPOSITORY / name for name in listed.stdout.splitlines() if name.endswith(".py"))
