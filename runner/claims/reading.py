"""Read the claims of a paper from sweeps/<paper>/claims.yaml.

The file has a block for each item, under its name. A block has fields, which hold for all claims inside it unless one
says otherwise, and any of:

- a data set's name: a block of this data set;
- `claims`: a list of blocks;
- `settings`: fields by a setting's name, which is its `method` where no block says otherwise;
- `claimed` as a mapping: a claim for each setting named, its number or a block.

A block under another heading names the `item` of its claims. `defaults` has fields for all items, and blocks of fields
for data sets. A text field followed by `+` adds to the text
that it inherits. In `runs`, `against` and `sweep` the paper's own folder may be left out, and `{dataset}` stands for
the data set's name as files have it. `every` lists data sets for which the comparison of `runs` and `against` has to
hold.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

import yaml

from runner.claims import epochs, readers
from runner.claims.claim import COMPARISONS, DIRECTIONS, OVER_VALUES, STATISTICS, Claim
from runner.config import REPOSITORY

DATASETS = {"MNIST": "mnist", "FashionMNIST": "fashion_mnist", "CIFAR10": "cifar10"}  # as papers, as files say
FIELDS = {  # of the file: of a claim
    **{
        name: name
        for name in ("item", "dataset", "method", "quantity", "unit", "of", "source", "network", "accounting")
    },
    **{"claimed": "claimed", "epsilon": "at_epsilon", "delta": "at_delta", "note": "note"},
    **{name: name for name in ("number", "at", "where", "by", "among", "statistic", "compare", "level", "margin")},
    **{name: name for name in ("direction", "open", "because")},
}
LISTS = ("runs", "against", "every", "sweep")  # of one text or several; the first three make up the pairs
_TEXTS = ("method", "note", "open", "because")
_CHOICES = {"direction": DIRECTIONS, "statistic": (*STATISTICS, *OVER_VALUES), "compare": COMPARISONS}
_NUMBERS = ("among", "level", "margin")
_WHERE = re.compile(r"search_choice|target_epsilon = claimed|[\w.]+ = [-+.\de]+")

Node: TypeAlias = yaml.nodes.Node


@dataclass(frozen=True)
class _Value:
    """A field's text, or texts, and the line they stand in."""

    texts: tuple[str, ...]
    line: int

    @property
    def text(self) -> str:
        return ", ".join(self.texts)


_Layer: TypeAlias = dict[str, _Value]


class ClaimsError(ValueError):
    """A mistake in a file of claims, with its line."""

    def __init__(self, path: Path, line: int, what: str) -> None:
        shown = path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else path
        super().__init__(f"{shown}, line {line}: {what}.")


def claims_path(paper: str) -> Path:
    """The file with a paper's claims."""
    return REPOSITORY / "sweeps" / paper / "claims.yaml"


def read_claims(paper: str, items: Collection[str] = (), formulas: Collection[str] = ()) -> list[Claim]:
    """Read the claims of a paper, in the order of the file.

    Args:
        items: the items there are; any, if none are named.
        formulas: the names of the paper's own functions, which `number` may name; any, if none are named.

    Raises:
        ValueError: a field, data set, item, setting, reader, sweep or experiment is misspelt, or a number is none. The
            message has the file and the line.
    """
    path = claims_path(paper)
    return list(_Reading(path, path.parent.name, tuple(items), tuple(formulas)).claims(path.read_text()))


def claims_of(paper: str, **fields: str) -> list[Claim]:
    """The claims of a paper that have these values in these fields."""
    return [claim for claim in read_claims(paper) if all(getattr(claim, k) == value for k, value in fields.items())]


@dataclass(frozen=True)
class _Reading:
    path: Path
    paper: str
    items: tuple[str, ...]
    formulas: tuple[str, ...]

    def error(self, line: int, what: str) -> ClaimsError:
        return ClaimsError(self.path, line, what)

    def claims(self, text: str) -> Iterator[Claim]:
        try:
            root = yaml.compose(text)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise self.error(mark.line + 1 if mark else 1, f"no valid YAML: {error.problem}") from error
        defaults: _Layer = {}
        of_datasets: dict[str, _Layer] = {}
        for item, line, node in self.entries(root):
            if item == "defaults":
                for key, at, value in self.entries(node):
                    if key in DATASETS:
                        of_datasets[key] = self.fields(value)
                    else:
                        defaults |= self.field(key, at, value)
                continue
            for layers in self.leaves(node, [{"item": _Value((item,), line)}], {}):
                yield self.claim([defaults, *layers], of_datasets)

    def entries(self, node: Node | None) -> list[tuple[str, int, Node]]:
        """The keys of a mapping, with their lines and values."""
        if not isinstance(node, yaml.MappingNode):
            raise self.error(node.start_mark.line + 1 if node else 1, "a mapping of names to values is expected here")
        found: dict[str, tuple[str, int, Node]] = {}
        for key, value in node.value:
            if key.value in found:
                raise self.error(key.start_mark.line + 1, f"{key.value!r} is here twice")
            found[key.value] = (key.value, key.start_mark.line + 1, value)
        return list(found.values())

    def field(self, key: str, line: int, node: Node) -> _Layer:
        """A field as a layer of one."""
        if key not in FIELDS and key not in LISTS and not (key[-1:] == "+" and key[:-1] in _TEXTS):
            names = (*FIELDS, *LISTS, "claims", "settings", *DATASETS)
            raise self.error(line, f"no field or data set {key!r}: choose from {', '.join(names)}")
        values = node.value if isinstance(node, yaml.SequenceNode) and key in LISTS else [node]
        if not all(isinstance(value, yaml.ScalarNode) for value in values):
            raise self.error(line, f"{key} is a text or a number")
        return {key: _Value(tuple(str(value.value) for value in values), line)}

    def fields(self, node: Node) -> _Layer:
        layer: _Layer = {}
        for key, line, value in self.entries(node):
            layer |= self.field(key, line, value)
        return layer

    def leaves(self, node: Node, outer: list[_Layer], settings: Mapping[str, _Layer]) -> Iterator[list[_Layer]]:
        """The fields of each claim in a block, a layer for every block around it, the outermost first."""
        own: _Layer = {}
        inside: list[tuple[str, int, Node]] = []
        for key, line, value in self.entries(node):
            if key == "settings":
                named = {name: self.fields(of) for name, _, of in self.entries(value)}
                settings = {**settings, **{name: {**settings.get(name, {}), **of} for name, of in named.items()}}
            elif key in DATASETS or key == "claims" or (key == "claimed" and isinstance(value, yaml.MappingNode)):
                inside.append((key, line, value))
            else:
                own |= self.field(key, line, value)
        layers = [*outer, own]
        if not inside:
            own.setdefault("", _Value((), node.start_mark.line + 1))
            yield layers
        for key, line, value in inside:
            if key in DATASETS:
                yield from self.leaves(value, [*layers, {"dataset": _Value((key,), line)}], settings)
            elif key == "claims":
                if not isinstance(value, yaml.SequenceNode):
                    raise self.error(line, "claims is a list")
                for block in value.value:
                    yield from self.leaves(block, layers, settings)
            else:
                for name, at, cell in self.entries(value):
                    if name not in settings:
                        raise self.error(at, f"no setting {name!r}: choose from {', '.join(settings) or 'none'}")
                    block = cell if isinstance(cell, yaml.MappingNode) else None
                    number = {} if block else {"claimed": _Value((str(cell.value),), at)}
                    method = {"method": _Value((name,), at)}  # unless a block has another
                    cells = [method, *layers, settings[name], {**number, "": _Value((), at)}]
                    yield from self.leaves(block, cells, settings) if block else [cells]

    def claim(self, layers: list[_Layer], of_datasets: Mapping[str, _Layer]) -> Claim:
        """The claim of these layers, defaults first; those of its data set come right after them."""
        dataset = next((layer["dataset"].text for layer in reversed(layers) if "dataset" in layer), "")
        found: _Layer = {}
        for layer in (layers[0], of_datasets.get(dataset, {}), *layers[1:]):
            for key, value in layer.items():
                before = found.get(key.removesuffix("+"))
                texts = (*(before.texts if before and key[-1:] == "+" else ()), *value.texts)
                found[key.removesuffix("+")] = _Value(("; ".join(texts),) if key[-1:] == "+" else texts, value.line)
        line = found.pop("").line
        texts = {FIELDS[key]: value.text for key, value in found.items() if key in FIELDS}
        for key, value in found.items():
            self.check(key, value, line)
        numbers = {key: float(texts.pop(key)) for key in _NUMBERS if texts.get(key)}
        if "method" not in texts or not dataset:
            raise self.error(line, "a claim needs a method and a data set")
        reader = texts.get("number", "")
        texts.setdefault("quantity", re.sub(r"\(([^()]*)\)", r"_\1", reader) or "test_accuracy")
        texts.setdefault("unit", "%" if texts["quantity"] == "test_accuracy" else "")
        texts.setdefault("source", found["item"].text.replace("fig-", "figure ").replace("-", " "))
        if texts.get("at_epsilon") == "inf":
            texts["at_delta"] = "0"
        if texts.get("direction", "higher") not in ("higher", "lower", "match"):
            numbers.pop("margin", None)
        of = texts.get("of", "")
        if "statistic" not in texts:
            best, ratio = of.startswith("max of "), texts.get("compare") == "ratio"
            texts["statistic"] = "best" if best else "geometric" if ratio else "mean"
        made = Claim(
            paper=self.paper,
            sweeps=tuple(self.path_of(sweep, dataset) for sweep in found["sweep"].texts) if "sweep" in found else (),
            pairs=tuple(self.pairs(found, dataset)),
            **{key: text for key, text in texts.items() if key not in ("dataset", *_NUMBERS)},
            **numbers,
            dataset=dataset,
        )
        self.check_whole(made, line)
        return made

    def pairs(self, found: _Layer, dataset: str) -> Iterator[tuple[str, ...]]:
        """The experiments that are compared, a pair after another: of every data set, with each that it is against."""
        runs, against = (found.get(key, _Value((), 0)).texts for key in ("runs", "against"))
        every = found["every"].texts if "every" in found else (dataset,)
        for of in every:
            if len(runs) == 1 and against:
                yield from ((self.path_of(runs[0], of), self.path_of(other, of)) for other in against)
            elif runs:
                yield tuple(self.path_of(name, of) for name in runs)

    def path_of(self, name: str, dataset: str) -> str:
        name = name.replace("{dataset}", DATASETS.get(dataset, dataset))
        return name if "/" in name else f"{self.paper}/{name}"

    def check(self, key: str, value: _Value, line: int) -> None:
        """Check a field by itself."""
        text, at = value.text, value.line
        if key in _CHOICES and text not in _CHOICES[key]:
            raise self.error(at, f"no {key} {text!r}: choose from {', '.join(_CHOICES[key])}")
        if key in _NUMBERS and text and not _is_number(text):
            raise self.error(at, f"{key} is a number, and {text!r} is none")
        if key in ("epsilon", "delta") and text and not _is_number(text.lstrip("<>")):
            raise self.error(at, f"{key} is a number, and {text!r} is none")
        if key == "where" and text and not _WHERE.fullmatch(text):
            raise self.error(at, f"where is search_choice or field = number, and not {text!r}")
        for name in value.texts if key == "every" else ():
            if name not in DATASETS:
                raise self.error(at, f"no data set {name!r}: choose from {', '.join(DATASETS)}")
        if key == "item" and self.items and text not in self.items:
            raise self.error(at, f"no item {text!r}: choose from {', '.join(self.items)}")
        if key in ("number", "at"):
            try:
                epochs.check(text) if key == "at" else readers.check(text, self.formulas)
            except ValueError as error:
                raise self.error(at, str(error)) from error

    def check_whole(self, claim: Claim, line: int) -> None:
        """Check what takes more than a field."""
        try:
            numbers = claim.aim, *(claim.epsilon or ())[:1]
        except ValueError as error:
            raise self.error(line, f"{claim.claimed!r} is no number, so that the claim needs a level") from error
        if any(number is not None and number != number for number in numbers):
            raise self.error(line, "a number is NaN")
        judged = claim.direction in ("higher", "lower", "match") and not claim.copied
        if judged and (claim.margin is None or claim.aim is None):
            raise self.error(line, f"direction {claim.direction} needs a number and a margin")
        for sweep in claim.sweeps:
            if experiments_of(sweep) is None:
                raise self.error(line, f"no sweep {sweep!r}")
        for name in claim.experiments:
            if not (REPOSITORY / "conf" / "experiment" / f"{name}.yaml").exists():
                raise self.error(line, f"no experiment {name!r}")
            if not any(name in (experiments_of(sweep) or ()) for sweep in claim.sweeps):
                raise self.error(line, f"{name} is an experiment of none of the sweeps {', '.join(claim.sweeps)}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@cache
def experiments_of(sweep: str) -> tuple[str, ...] | None:
    """The experiments that a sweep's file names; None if there is no such file."""
    path = REPOSITORY / "sweeps" / f"{sweep}.yaml"
    if not path.exists():
        return None
    params = (yaml.safe_load(path.read_text()).get("hydra") or {}).get("sweeper", {}).get("params", {})
    return tuple(name.strip() for name in str(params.get("experiment", "")).split(",") if name.strip())
