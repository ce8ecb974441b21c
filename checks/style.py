"""The English of this project, as far as a machine can check it: `python -m checks style`.

No sentence has more than 35 words. This holds for docstrings, comments, texts for people in `runner/`, YAML files and
the pages that are written by hand. Code in backticks, a quotation and what stands in brackets count as one word. A
table in Markdown, a generated one included, has no footnote symbol and no hyphen in the place of a minus. Three short
sentences in a row, in a page or a docstring, read like a telegram. They are a warning, which fails nothing. The name of
a test has at most 60 characters. Only files that git tracks are read, so the files of a user never matter.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from runner.config import REPOSITORY, ConfigError
from runner.config.checkout import git
from runner.terminal import Parser

LONGEST = 35  # words of a sentence
LONGEST_NAME = 60  # characters of the name of a test
SHORT, IN_A_ROW = 8, 3  # the most words of a short sentence, and how many in a row are a warning
_AS_ONE_WORD = re.compile(r"``[^`]*``|`[^`]*`|\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)|\([^()]*\)")
_PARAGRAPHS = re.compile(r"\n\s*\n|\n\s*(?=[-*] |\d+[.] |\w+(?:, \w+)*: )")  # or entries of a list
_SENTENCES = re.compile(r"(?<=[.!?])[*)]*\s+")
_BLOCK = re.compile(r"(?:.*\S.*\n?)+")
_NOT_PROSE = re.compile(r"```.*?^```|<!--.*?-->|^(?:\||#| {4}).*?$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_IN_TABLE = {"a hyphen for a minus": re.compile(r"^\|.*[|\[,] *-\d"), "a footnote symbol": re.compile(r"^\|.*[†‡§⁰]")}
_TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
_WORD = re.compile(r"[^\W\d_][\w'’-]*")


class Text(NamedTuple):
    """A text for people: the number of its first line, and whether short sentences in it are worth a warning."""

    line: int
    words: str
    prose: bool = False


class Remark(NamedTuple):
    """What is wrong with the text on a line. A warning fails nothing."""

    line: int
    words: str
    warning: bool = False


def remarks_on(text: Text) -> Iterator[Remark]:
    """Check the lengths of the sentences of a text, up to the first example in it."""
    for paragraph in _PARAGRAPHS.split(_AS_ONE_WORD.sub("X", text.words.partition(">>>")[0])):
        sentences = [words for sentence in _SENTENCES.split(paragraph) if (words := _WORD.findall(sentence))]
        for words in sentences:
            if len(words) > LONGEST:
                yield Remark(text.line, f"a sentence of {len(words)} words: {' '.join(words[:6])} ...")
        for last in range(IN_A_ROW, len(sentences) + 1) if text.prose else ():
            if all(len(words) <= SHORT for words in sentences[last - IN_A_ROW : last]):
                yield Remark(text.line, f"{IN_A_ROW} short sentences, up to: {' '.join(sentences[last - 1])}", True)


def texts_of_python(source: str, *, people: bool = True) -> Iterator[Text]:
    """Yield the docstrings and comments of a Python source and, if it writes for people, its other strings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            yield from [Text(node.body[0].lineno, text, prose=True)] if text else ()
    yield from _comments(source)
    if not people:
        return
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            texts = [str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values]
            yield Text(node.lineno, "".join(texts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts | alone:
            yield Text(node.lineno, node.value)


def _comments(source: str) -> Iterator[Text]:
    """Yield the comments of a Python source. Lines of a comment that stand below each other are one text."""
    comments: list[tuple[int, int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line, column = token.start
            text = token.string.lstrip("# ")
            alone = not token.line[:column].strip()
            if alone and comments and comments[-1][0] == line - 1 and comments[-1][1] == column:
                text = f"{comments.pop()[2]} {text}"
            comments.append((line, column, text))
    yield from (Text(line, text) for line, _, text in comments)


def texts_of_yaml(source: str) -> Iterator[Text]:
    """Yield the comments and values of a YAML file. A value without a space before its first comma is a list."""
    for block in re.finditer(r"(?:^ *# .*\n?)+", source, re.MULTILINE):
        yield Text(source.count("\n", 0, block.start()) + 1, re.sub(r"(?m)^ *# ", "", block[0]))
    for document in yaml.compose_all(source):
        yield from _scalars(document)


def _scalars(node: yaml.Node | None) -> Iterator[Text]:
    if isinstance(node, yaml.ScalarNode) and " " in node.value.partition(",")[0]:
        yield Text(node.start_mark.line + 1, node.value)
    elif isinstance(node, yaml.CollectionNode):
        for entry in node.value:
            for inner in entry if isinstance(entry, tuple) else (entry,):
                yield from _scalars(inner)


def texts_of_markdown(source: str) -> Iterator[Text]:
    """Yield the paragraphs of a page. Code, tables, headings and comments are left out."""
    prose = _NOT_PROSE.sub(lambda left_out: "\n" * left_out[0].count("\n"), _LINK.sub(r"\1", source))
    for block in _BLOCK.finditer(prose):
        yield Text(prose.count("\n", 0, block.start()) + 1, block[0], prose=True)


def remarks_on_tables(source: str) -> Iterator[Remark]:
    """Check the tables of any page in Markdown."""
    for line, text in enumerate(source.splitlines(), 1):
        yield from (Remark(line, fault) for fault, pattern in _IN_TABLE.items() if pattern.match(text))


def remarks_on_names(source: str) -> Iterator[Remark]:
    """Check the lengths of the names of the tests in a Python source."""
    for test in _TEST.finditer(source):
        if len(test[1]) > LONGEST_NAME:
            yield Remark(source.count("\n", 0, test.start()) + 1, f"a name of {len(test[1])} characters: {test[1]}")


def remarks(name: str, source: str) -> Iterator[Remark]:
    """Check a file by what its path says of it: pages and YAML files in results/ are generated."""
    by_hand = not name.startswith("results/")
    texts: Iterable[Text] = ()
    if name.endswith(".py"):
        yield from remarks_on_names(source)
        texts = texts_of_python(source, people=name.startswith("runner/") or name.endswith("/report.py"))
    elif name.endswith(".yaml") and by_hand:
        texts = texts_of_yaml(source)
    elif name.endswith(".md"):
        yield from remarks_on_tables(source)
        texts = texts_of_markdown(source) if by_hand else texts
    for text in texts:
        yield from remarks_on(text)


def main(arguments: Sequence[str]) -> int:
    """Print every fault and warning.

    Returns:
        1 if there is a fault.
    """
    parser = Parser(prog="python -m checks style", description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders (default: all tracked files)")
    chosen = parser.parse_args(arguments)
    faults = warnings = 0
    for name in _tracked(chosen.paths):
        for line, words, warning in sorted(set(remarks(name, (REPOSITORY / name).read_text(encoding="utf-8")))):
            print(f"{name}:{line}: {'warning: ' if warning else ''}{words}")
            faults, warnings = faults + (not warning), warnings + warning
    print(f"{faults} faults, {warnings} warnings", file=sys.stderr)
    return 1 if faults else 0


def _tracked(paths: Iterable[Path]) -> list[str]:
    """List the files below some paths that git tracks and that can have texts, sorted."""
    asked = [str(path) for path in paths] or ["."]
    listed = git(REPOSITORY, "ls-files", "-z", "--", *asked)
    if listed is None:
        raise ConfigError("style reads the files that git tracks, and git lists none here.")
    names = [name for name in listed.split("\0") if name.endswith((".py", ".yaml", ".md"))]
    return sorted(name for name in names if (REPOSITORY / name).is_file())  # one may be deleted, but not yet committed
