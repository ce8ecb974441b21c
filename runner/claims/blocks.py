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
from dataclasses import replace
from typing import TypeAlias

from runner.config.yaml_file import Entry

DATASETS = {"MNIST": "mnist", "FashionMNIST": "fashion_mnist", "CIFAR10": "cifar10"}  # names in papers, and in files
TEXTS = ("method", "note", "open", "cause", "because")  # `+` may add to these
LISTS = ("sweep", "runs", "against", "every")  # of one text or several
FIELDS = (
    *("item", "dataset", "method", "quantity", "claimed", "unit", "of", "source", "network"),
    *("epsilon", "delta", "number", "at", "where", "by", "among", "statistic", "compare", "level", "margin"),
    *("direction", "note", "open", "cause", "because", "reading", *LISTS),
)

Fields: TypeAlias = dict[str, Entry]  # each a text or a list of texts
Leaves: TypeAlias = Iterator[tuple[list[Fields], Entry]]  # the layers of fields of a claim, and its block


def dataset_name(dataset: str) -> str:
    """Return the name that people give a data set of a claim."""
    return {"CIFAR10": "CIFAR-10", "any": "any data set", "all": "all data sets"}.get(dataset, dataset)


def claims_in(file: Entry) -> Iterator[tuple[Fields, Entry]]:
    """Read the blocks of a file of claims.

    Yields:
        The fields of each claim, in the order of the file, and the entry that the claim begins with.

    Raises:
        ConfigError: the file is not made as described above, or a field is misspelt.
    """
    items = dict(file.entries)
    given = items.pop("defaults").entries if "defaults" in items else {}
    everywhere = _fields({name: entry for name, entry in given.items() if name not in DATASETS})
    of_datasets = {name: _fields(entry.entries) for name, entry in given.items() if name in DATASETS}
    for item, block in items.items():
        for layers, place in _leaves(block, [{"item": replace(block, content=item)}], {}):
            dataset = _merged(layers).get("dataset", replace(place, content=None)).text
            yield _merged([everywhere, of_datasets.get(dataset, {}), *layers]), place


def _fields(entries: Mapping[str, Entry]) -> Fields:
    """Check that all of these entries are fields, or raise a ConfigError."""
    for name, entry in entries.items():
        if name not in FIELDS and not (name.endswith("+") and name[:-1] in TEXTS):
            there_are = ", ".join((*FIELDS, "claims", "settings", *DATASETS))
            raise entry.wrong(f"no field or data set {name!r}: choose from {there_are}")
        values = entry.listed if name in LISTS else [entry]
        if any(isinstance(value.content, (list, dict)) for value in values):
            raise entry.wrong(f"{name} is a text or a number")
    return dict(entries)


def _leaves(block: Entry, outer: Sequence[Fields], settings: Mapping[str, Fields]) -> Leaves:
    """Yield the layers of fields of each claim in a block, the outermost first, and the claim's entry."""
    own: dict[str, Entry] = {}
    inside: dict[str, Entry] = {}
    for name, entry in block.entries.items():
        if name == "settings":
            for method, fields in entry.entries.items():
                settings = {**settings, method: {**settings.get(method, {}), **_fields(fields.entries)}}
        elif name in (*DATASETS, "claims") or (name == "claimed" and isinstance(entry.content, dict)):
            inside[name] = entry
        else:
            own |= _fields({name: entry})
    layers = [*outer, own]
    if not inside:
        yield layers, block
    for name, entry in inside.items():
        if name in DATASETS:
            yield from _leaves(entry, [*layers, {"dataset": replace(entry, content=name)}], settings)
        elif name == "claimed":
            yield from _cells(entry, layers, settings)
        elif not isinstance(entry.content, list):
            raise entry.wrong("claims is a list")
        else:
            for claim in entry.content:
                yield from _leaves(claim, layers, settings)


def _cells(row: Entry, layers: Sequence[Fields], settings: Mapping[str, Fields]) -> Leaves:
    """Yield the layers of a row of a table: of one claim or several for each setting that the row names."""
    for method, cell in row.entries.items():
        if method not in settings:
            there_are = ", ".join(settings) or "none are named"
            raise cell.wrong(f"no setting {method!r}: choose from {there_are}")
        around = [{"method": replace(cell, content=method)}, *layers, settings[method]]
        if isinstance(cell.content, dict):
            yield from _leaves(cell, around, settings)
        else:
            yield [*around, _fields({"claimed": cell})], cell


def _merged(layers: Sequence[Fields]) -> Fields:
    """Merge layers of fields: a later one replaces an earlier one or, with a `+`, adds to it."""
    merged: Fields = {}
    for layer in layers:
        for key, entry in layer.items():
            name = key.removesuffix("+")
            added = name != key and name in merged
            between = ". " if entry.text[:1].isupper() and name != "method" else ", "
            merged[name] = replace(entry, content=f"{merged[name].text}{between}{entry.text}") if added else entry
    return merged
