"""Blocks of a file of claims: the fields of each claim, inherited ones included, and the line of each.

The file has a block for each item, under its name. A block has fields, which hold for all claims inside it unless an
inner block has them, too. A block may also have:

- a data set's name: a block of this data set;
- `claims`: a list of blocks;
- `settings`: fields by a setting's name, which is its `method` unless a block gives another; the fields of a setting
  that an outer block names, too, are added to it;
- `claimed` as a mapping: a claim for each setting named, its number or a block.

A block under another heading names the `item` of its claims. `defaults` has fields for all items, and blocks of fields
for data sets. A text field followed by `+` adds to the text that it inherits, as a sentence if it has a capital letter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import yaml

DATASETS = {"MNIST": "mnist", "FashionMNIST": "fashion_mnist", "CIFAR10": "cifar10"}  # names in papers, and in files
TEXTS = ("method", "note", "open", "because")  # `+` may add to these
LISTS = ("sweep", "runs", "against", "every")  # of one text or several
FIELDS = (
    *("item", "dataset", "method", "quantity", "claimed", "unit", "of", "source", "network"),
    *("epsilon", "delta", "number", "at", "where", "by", "among", "statistic", "compare", "level", "margin"),
    *("direction", "note", "open", "because", "reading", *LISTS),
)


@dataclass(frozen=True)
class Value:
    """The line of a name, and its content: a text, a list, or a mapping of names to values."""

    line: int
    content: Any

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.content,) if isinstance(self.content, str) else tuple(self.content)

    @property
    def text(self) -> str:
        return ", ".join(self.texts)


Fields: TypeAlias = dict[str, Value]  # each a text or a list of texts
Leaves: TypeAlias = Iterator[tuple[list[Fields], int]]  # the layers of fields of a claim, and its line


class ClaimsError(ValueError):
    """A mistake in a line of a file of claims."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


class _Loader(getattr(yaml, "CBaseLoader", yaml.BaseLoader)):  # type: ignore[misc]  # the former is in C
    """A loader that reads every scalar as text and keeps the lines of names."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.value in found:
                raise ClaimsError(line, f"{key.value!r} is here twice")
            found[key.value] = Value(line, self.construct_object(value, deep=True))
        return found


def dataset_name(dataset: str) -> str:
    """Return the name that people give a data set of a claim."""
    return {"CIFAR10": "CIFAR-10", "any": "any data set", "all": "all data sets"}.get(dataset, dataset)


def claims_in(text: str) -> Iterator[tuple[Fields, int]]:
    """Read a file of claims.

    Yields:
        The fields of each claim, in the order of the file, and the line that the claim begins in.

    Raises:
        ClaimsError: the text is no valid YAML or not made as described above, or a field is misspelt.
    """
    try:
        items = dict(_entries(Value(1, yaml.load(text, Loader=_Loader))))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ClaimsError(mark.line + 1 if mark else 1, f"no valid YAML: {error.problem}") from error
    given = _entries(items.pop("defaults", Value(1, {})))
    everywhere = _fields({name: value for name, value in given.items() if name not in DATASETS})
    of_datasets = {name: _fields(_entries(value)) for name, value in given.items() if name in DATASETS}
    for item, block in items.items():
        for layers, line in _leaves(block, [{"item": Value(block.line, item)}], {}):
            dataset = _merged(layers).get("dataset", Value(line, "")).text
            yield _merged([everywhere, of_datasets.get(dataset, {}), *layers]), line


def _entries(block: Value) -> Mapping[str, Value]:
    if not isinstance(block.content, dict):
        raise ClaimsError(block.line, "a mapping of names to values is expected here")
    return block.content


def _fields(values: Mapping[str, Value]) -> Fields:
    """Check that all of these values are fields, or raise a ClaimsError."""
    for name, value in values.items():
        if name not in FIELDS and not (name.endswith("+") and name[:-1] in TEXTS):
            there_are = ", ".join((*FIELDS, "claims", "settings", *DATASETS))
            raise ClaimsError(value.line, f"no field or data set {name!r}: choose from {there_are}")
        texts = value.content if isinstance(value.content, list) and name in LISTS else [value.content]
        if not all(isinstance(text, str) for text in texts):
            raise ClaimsError(value.line, f"{name} is a text or a number")
    return dict(values)


def _leaves(block: Value, outer: Sequence[Fields], settings: Mapping[str, Fields]) -> Leaves:
    """Yield the layers of fields of each claim in a block, the outermost first, and the claim's line."""
    own: dict[str, Value] = {}
    inside: dict[str, Value] = {}
    for name, value in _entries(block).items():
        if name == "settings":
            for method, fields in _entries(value).items():
                settings = {**settings, method: {**settings.get(method, {}), **_fields(_entries(fields))}}
        elif name in (*DATASETS, "claims") or (name == "claimed" and isinstance(value.content, dict)):
            inside[name] = value
        else:
            own |= _fields({name: value})
    layers = [*outer, own]
    if not inside:
        yield layers, block.line
    for name, value in inside.items():
        if name in DATASETS:
            yield from _leaves(value, [*layers, {"dataset": Value(value.line, name)}], settings)
        elif name == "claimed":
            yield from _cells(value, layers, settings)
        elif not isinstance(value.content, list):
            raise ClaimsError(value.line, "claims is a list")
        else:
            for each in value.content:
                line = next(iter(each.values())).line if isinstance(each, dict) and each else value.line
                yield from _leaves(Value(line, each), layers, settings)


def _cells(row: Value, layers: Sequence[Fields], settings: Mapping[str, Fields]) -> Leaves:
    """Yield the layers of a row of a table: of one claim or several for each setting that the row names."""
    for method, cell in _entries(row).items():
        if method not in settings:
            there_are = ", ".join(settings) or "none are named"
            raise ClaimsError(cell.line, f"no setting {method!r}: choose from {there_are}")
        around = [{"method": Value(cell.line, method)}, *layers, settings[method]]
        if isinstance(cell.content, dict):
            yield from _leaves(cell, around, settings)
        else:
            yield [*around, _fields({"claimed": cell})], cell.line


def _merged(layers: Sequence[Fields]) -> Fields:
    """Merge layers of fields: a later one replaces an earlier one or, with a `+`, adds to it."""
    found: Fields = {}
    for layer in layers:
        for key, value in layer.items():
            name = key.removesuffix("+")
            added = name != key and name in found
            between = ". " if value.text[:1].isupper() and name != "method" else ", "
            found[name] = Value(value.line, f"{found[name].text}{between}{value.text}") if added else value
    return found
