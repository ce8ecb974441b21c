"""The English of this project, checked by rules: `python -m checks style`.

No sentence has more than 25 words. This holds for docstrings, comments, texts for people in `runner/`, YAML files and
the pages that are written by hand. In texts for people a semicolon ends no sentence. Code in backticks counts as one
word. A docstring begins with a verb or a noun. Words that only this project would understand do not occur. No table in
Markdown, a generated one included, has a footnote symbol, or a hyphen before a digit.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import yaml

from runner.config import REPOSITORY
from runner.terminal import Parser

LONGEST = 25  # words of a sentence
CLAUSES = ("What", "Whether", "Which", "How", "Why", "Where", "Who", "When", "That")  # no docstring begins so
PRIVATE = ("hangs on", "tells apart", "takes to be", "beside", "so many", "ours", "whoever", "of one's own", "stranger")
HEAVY = ("is of", "are of", "was of", "those of", "that of", "of which", "nobody")  # not in docstrings and comments
_QUOTED = re.compile(r"``[^`]*``|`[^`]*`|\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)|\([^()]*\)")
_ENDS = re.compile(r"(?<=[.!?:;])\s+|\n\s*\n|\n\s*(?=[-*] |\w+(?:, \w+)*: )")
_ENDS_TEXT = re.compile(r"(?<=[.!?:])[*)]*\s+|\n\s*\n|\n\s*(?=[-*] |\d+[.] )")
_BLOCK = re.compile(r"(?:.*\S.*\n?)+")
_NOT_PROSE = re.compile(r"```.*?^```|<!--.*?-->|^(?:\||#| {4}).*?$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_IN_TABLE = {"a hyphen for a minus": re.compile(r"^\|.*[|\[,] *-\d"), "a footnote symbol": re.compile(r"^\|.*[†‡§⁰]")}
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
        yield from _in_text(line, text, _ENDS, (*PRIVATE, *HEAVY))
    for line, text in _comments(source):
        yield from _in_text(line, text, _ENDS, (*PRIVATE, *HEAVY))


def faults_of_strings(source: str) -> Iterator[tuple[int, str]]:
    """Check the texts in a Python source that are no docstrings."""
    tree = ast.parse(source)
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            texts = [str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values]
            yield from _in_text(node.lineno, "".join(texts), _ENDS_TEXT, PRIVATE)
        elif isinstance(node, ast.Constant) and " " in str(node.value) and id(node) not in parts | said:
            yield from _in_text(node.lineno, str(node.value), _ENDS_TEXT, PRIVATE)


def faults_of_yaml(source: str) -> Iterator[tuple[int, str]]:
    """Check the comments and the values of a YAML file. A value without a space before its first comma is a list."""
    blocks = re.finditer(r"(?:^ *# .*\n?)+", source, re.MULTILINE)
    texts = [(source.count("\n", 0, block.start()) + 1, re.sub(r"(?m)^ *# ", "", block[0])) for block in blocks]
    for node in yaml.compose_all(source):
        texts += _scalars(node)
    for line, text in texts:
        yield from _in_text(line, text, _ENDS_TEXT, PRIVATE)


def _scalars(node: yaml.Node | None) -> Iterator[tuple[int, str]]:
    if isinstance(node, yaml.ScalarNode) and " " in node.value.partition(",")[0]:
        yield node.start_mark.line + 1, node.value
    elif isinstance(node, yaml.CollectionNode):
        for each in node.value:
            for inner in each if isinstance(each, tuple) else (each,):
                yield from _scalars(inner)


def faults_of_markdown(source: str) -> Iterator[tuple[int, str]]:
    """Check the sentences of a page that is written by hand. Code, tables, headings and comments are left out."""
    prose = _NOT_PROSE.sub(lambda found: "\n" * found[0].count("\n"), _LINK.sub(r"\1", source))
    for block in _BLOCK.finditer(prose):
        yield from _in_text(prose.count("\n", 0, block.start()) + 1, block[0], _ENDS_TEXT, PRIVATE)


def faults_of_tables(source: str) -> Iterator[tuple[int, str]]:
    """Check the tables of any page in Markdown."""
    for line, text in enumerate(source.splitlines(), 1):
        yield from ((line, fault) for fault, pattern in _IN_TABLE.items() if pattern.match(text))


def _in_text(line: int, text: str, ends: re.Pattern[str], words: Sequence[str]) -> Iterator[tuple[int, str]]:
    plain = _QUOTED.sub("X", text.split(">>>")[0])
    for sentence in ends.split(plain):
        found = _WORD.findall(sentence)
        if len(found) > LONGEST:
            yield line, f"a sentence of {len(found)} words: {' '.join(found[:6])} ..."
    for word in words:
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
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders (default: all tracked files)")
    chosen = parser.parse_args(arguments)
    found = 0
    for name in _files(chosen.paths):
        source = (REPOSITORY / name).read_text(encoding="utf-8") if name.endswith((".py", ".yaml", ".md")) else ""
        for line, fault in sorted({each for check in _checks(name) for each in check(source)}):
            print(f"{name}:{line}: {fault}")
            found += 1
    print(f"{found} faults", file=sys.stderr)
    return 1 if found else 0


def _checks(name: str) -> list[Callable[[str], Iterator[tuple[int, str]]]]:
    """Choose the checks of a file by its path."""
    if name.endswith(".py"):
        people = name.startswith("runner/") or name.endswith("/report.py")
        return [faults, faults_of_strings] if people else [faults]
    if name.endswith(".md"):
        return [faults_of_tables] if name.startswith("results/") else [faults_of_tables, faults_of_markdown]
    return [faults_of_yaml] if name.endswith(".yaml") and not name.startswith("results/") else []


def _files(paths: Sequence[Path]) -> list[str]:
    """List the tracked files below some paths, sorted."""
    asked = [str(path) for path in paths] or ["."]
    listed = subprocess.run(
        ["git", "ls-files", "--", *asked], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return sorted(listed.stdout.splitlines())
