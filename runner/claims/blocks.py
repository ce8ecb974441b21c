"""The blocks of a file of claims: the fields of each claim, with those that it inherits, and the lines they stand in.

The file has a block for each item, under its name. A block has fields, which hold for all claims inside it unless one
says otherwise, and any of:

- a data set's name: a block of this data set;
- `claims`: a list of blocks;
- `settings`: fields by a setting's name, which is its `method` where no block says otherwise; those of a setting that
  an outer block names, too, are added to it;
- `claimed` as a mapping: a claim for each setting named, its number or a block.

A block under another heading names the `item` of its claims. `defaults` has fields for all items, and blocks of fields
for data sets. A text field followed by `+` adds to the text that it inherits, as a sentence if it has a capital letter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import yaml

from runner.config import REPOSITORY

DATASETS = {"MNIST": "mnist", "FashionMNIST": "fashion_mnist", "CIFAR10": "cifar10"}  # as papers, as files say
TEXTS = ("method", "note", "open", "because")  # which may be added to
LISTS = ("sweep", "runs", "against", "every")  # of one text or several
FIELDS = (
    *("item", "dataset", "method", "quantity", "claimed", "unit", "of", "source", "network", "accounting"),
    *("epsilon", "delta", "number", "at", "where", "by", "among", "statistic", "compare", "level", "margin"),
    *("direction", "note", "open", "because", "reading", *LISTS),
)
Entries: TypeAlias = list[tuple[str, int, yaml.nodes.Node]]


@dataclass(frozen=True)
class Value:
    """A field's text, or texts, and the line that it stands in."""

    texts: tuple[str, ...]
    line: int

    @property
    def text(self) -> str:
        return ", ".join(self.texts)


Fields: TypeAlias = dict[str, Value]


class ClaimsError(ValueError):
    """A mistake in a file of claims, with its line."""

    def __init__(self, path: Path, line: int, what: str) -> None:
        super().__init__(f"{place_of(path, line)}: {what}.")


def place_of(path: Path, line: int) -> str:
    """`runner/papers/losing_less/claims.yaml, line 12`."""
    shown = path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else path
    return f"{shown}, line {line}"


def claims_in(path: Path) -> Iterator[tuple[Fields, int]]:
    """The fields of each claim of a file, in its order, and the line that it begins in.

    Raises:
        ClaimsError: the file is no valid YAML or not made as said above, or a field is misspelt.
    """
    try:
        root = yaml.compose(path.read_text())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ClaimsError(path, mark.line + 1 if mark else 1, f"no valid YAML: {error.problem}") from error
    return _File(path).claims(root)


@dataclass(frozen=True)
class _File:
    path: Path

    def claims(self, root: yaml.nodes.Node | None) -> Iterator[tuple[Fields, int]]:
        blocks = self.entries(root)
        defaults: Fields = {}
        of_datasets: dict[str, Fields] = {}
        for key, line, node in (
            entry for name, _, block in blocks if name == "defaults" for entry in self.entries(block)
        ):
            if key in DATASETS:
                of_datasets[key] = self.fields(node)
            else:
                defaults |= self.field(key, line, node)
        for item, line, block in blocks:
            if item != "defaults":
                for layers, at in self.leaves(block, line, [{"item": Value((item,), line)}], {}):
                    own = _merged(layers)
                    dataset = own["dataset"].text if "dataset" in own else ""
                    yield _merged([defaults, of_datasets.get(dataset, {}), *layers]), at

    def entries(self, node: yaml.nodes.Node | None) -> Entries:
        """The keys of a mapping, with their lines and values."""
        if not isinstance(node, yaml.MappingNode):
            line = node.start_mark.line + 1 if node else 1
            raise ClaimsError(self.path, line, "a mapping of names to values is expected here")
        found: Entries = []
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.value in (name for name, _, _ in found):
                raise ClaimsError(self.path, line, f"{key.value!r} is here twice")
            found.append((key.value, line, value))
        return found

    def field(self, key: str, line: int, node: yaml.nodes.Node) -> Fields:
        if key not in FIELDS and not (key.endswith("+") and key[:-1] in TEXTS):
            there_are = ", ".join((*FIELDS, "claims", "settings", *DATASETS))
            raise ClaimsError(self.path, line, f"no field or data set {key!r}: choose from {there_are}")
        values = node.value if isinstance(node, yaml.SequenceNode) and key in LISTS else [node]
        if not all(isinstance(value, yaml.ScalarNode) for value in values):
            raise ClaimsError(self.path, line, f"{key} is a text or a number")
        return {key: Value(tuple(str(value.value) for value in values), line)}

    def fields(self, node: yaml.nodes.Node) -> Fields:
        return {name: value for entry in self.entries(node) for name, value in self.field(*entry).items()}

    def leaves(
        self, node: yaml.nodes.Node, line: int, outer: list[Fields], settings: Mapping[str, Fields]
    ) -> Iterator[tuple[list[Fields], int]]:
        """The fields of each claim in a block, those of the outermost block first."""
        own: Fields = {}
        inside: Entries = []
        for key, at, value in self.entries(node):
            if key == "settings":
                named = {name: self.fields(of) for name, _, of in self.entries(value)}
                settings = {**settings, **{name: {**settings.get(name, {}), **of} for name, of in named.items()}}
            elif key in (*DATASETS, "claims") or (key == "claimed" and isinstance(value, yaml.MappingNode)):
                inside.append((key, at, value))
            else:
                own |= self.field(key, at, value)
        layers = [*outer, own]
        if not inside:
            yield layers, line
        for key, at, value in inside:
            if key in DATASETS:
                yield from self.leaves(value, at, [*layers, {"dataset": Value((key,), at)}], settings)
            elif key == "claims":
                if not isinstance(value, yaml.SequenceNode):
                    raise ClaimsError(self.path, at, "claims is a list")
                for block in value.value:
                    yield from self.leaves(block, block.start_mark.line + 1, layers, settings)
            else:
                yield from self.cells(value, layers, settings)

    def cells(
        self, node: yaml.nodes.Node, layers: list[Fields], settings: Mapping[str, Fields]
    ) -> Iterator[tuple[list[Fields], int]]:
        """The fields of the claims of a row of a table: one for each setting that it names."""
        for name, line, cell in self.entries(node):
            if name not in settings:
                there_are = ", ".join(settings) or "none are named"
                raise ClaimsError(self.path, line, f"no setting {name!r}: choose from {there_are}")
            around = [{"method": Value((name,), line)}, *layers, settings[name]]
            if isinstance(cell, yaml.MappingNode):
                yield from self.leaves(cell, line, around, settings)
            else:
                yield [*around, self.field("claimed", line, cell)], line


def _merged(layers: list[Fields]) -> Fields:
    """The fields of some layers, where a later one replaces an earlier one or, with a `+`, adds to it."""
    found: Fields = {}
    for layer in layers:
        for key, value in layer.items():
            name = key.removesuffix("+")
            added = name != key and name in found
            between = ". " if value.text[:1].isupper() and name != "method" else ", "
            found[name] = Value((f"{found[name].text}{between}{value.text}",), value.line) if added else value
    return found
