"""The claims of a paper, read from runner/papers/<paper>/claims.yaml and checked.

The file has a block for each item, under its name. A block has fields, which hold for all claims inside it unless an
inner block has them, too. A block may also have:

- a data set's name: a block of this data set;
- `claims`: a list of blocks;
- `settings`: fields by a setting's name, which is its `method` unless a block gives another; the fields of a setting
  that an outer block names, too, are added to it;
- `claimed` as a mapping: a claim for each setting named, its number or a block.

A block under another heading names the `item` of its claims. `defaults` has fields for all items, and blocks of fields
for data sets. A text field followed by `+` adds to the text that it inherits, as a sentence if it has a capital letter.

Most fields have the names of `Claim`. These differ:

- `epsilon`, `delta`: the privacy at which a number is claimed.
- `sweep`: one sweep or several.
- `runs`: the experiments that are measured.
- `against`: the experiments that `runs` are compared with.
- `every`: the data sets for which the claim has to hold.

Experiments and sweeps may omit the paper's folder. In their names, `{dataset}` is the data set's name in files.
"""

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields as fields_of
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from omegaconf import OmegaConf

from runner.claims.claim import ANOTHER_READING, COUNTED, DATASETS, DIRECTIONS, FOR_CONTEXT, STATISTICS, Call, Claim
from runner.claims.numbers import check_call
from runner.config import PACKAGE, REPOSITORY
from runner.config.yaml_file import Entry, number_of, read_yaml

TEXTS = ("method", "note", "open", "cause", "because")  # `+` may add to these
LISTS = ("sweep", "runs", "against", "every")  # of one text or several
_MADE = ("place", "paper", "at_epsilon", "at_delta", "sweeps", "pairs", "counted")  # of other fields
_AS_GIVEN = [field.name for field in fields_of(Claim) if field.name not in _MADE]
FIELDS = (*_AS_GIVEN, "epsilon", "delta", *LISTS)

Fields: TypeAlias = dict[str, Entry]  # each a text or a list of texts
Leaves: TypeAlias = Iterator[tuple[list[Fields], Entry]]  # the layers of fields of a claim, and its block
_CHOICES: dict[str, Collection[str]] = {
    "direction": DIRECTIONS,
    "statistic": STATISTICS,
    "compare": ("value", "difference", "ratio", "order"),
    "every": tuple(DATASETS),
}
_NUMBERS = ("among", "level", "margin")  # fields of `Claim`
_ALLOWED: dict[str, tuple[str, Callable[[float], bool]]] = {
    "among": ("a number", math.isfinite),
    "level": ("a number", math.isfinite),
    "margin": ("a number, 0 or greater", lambda number: number >= 0),
    "epsilon": ("a number greater than 0", lambda number: number > 0),
    "delta": ("a number from 0 to below 1", lambda number: 0 <= number < 1),
}
_BY_DIFFERENCE = ("higher", "lower", "match")  # directions that need a margin
_SELECTION = re.compile(r"|search_choice|target_epsilon = claimed|[\w.]+ = [-+.\de]+")
_NONE = Entry("", "", None)


def claims_path(paper: str) -> Path:
    """Return the file with a paper's claims."""
    return PACKAGE / "papers" / paper / "claims.yaml"


def read_claims(paper: str, items: Collection[str], formulas: Collection[str]) -> list[Claim]:
    """Read the claims of a paper, in the order of their file.

    Args:
        paper: its name.
        items: the items that claims may name.
        formulas: the functions that `number` may name.

    Raises:
        ConfigError: a field, data set, item, setting, reader, sweep or experiment is misspelt, or a number is none. The
            message has the file and the line.
    """
    items_of_file = dict(read_yaml(claims_path(paper)).entries)
    defaults = items_of_file.pop("defaults").entries if "defaults" in items_of_file else {}
    everywhere = _fields({name: entry for name, entry in defaults.items() if name not in DATASETS})
    by_dataset = {name: _fields(entry.entries) for name, entry in defaults.items() if name in DATASETS}
    claims: list[Claim] = []
    leading: set[tuple[str, ...]] = set()
    for item, block in items_of_file.items():
        for layers, entry in _leaves(block, [{"item": replace(block, content=item)}], {}):
            dataset = _merged(layers).get("dataset", _NONE).text
            fields = _merged([everywhere, by_dataset.get(dataset, {}), *layers])
            for name, value in fields.items():
                _check_field(name, value, {**_CHOICES, "item": items}, formulas)
            claim = _claim(entry.place, paper, fields)
            _check_claim(claim, entry)
            reason = FOR_CONTEXT if claim.contextual else ANOTHER_READING if claim.identity in leading else COUNTED
            claims.append(replace(claim, counted=reason))
            leading |= {claim.identity} if reason == COUNTED else set()
    return claims


def _claim(place: str, paper: str, fields: Fields) -> Claim:
    texts = {name: value.text for name, value in fields.items() if name in _AS_GIVEN}
    numbers = {name: float(text) if text else None for name, text in texts.items() if name in _NUMBERS}
    epsilon, delta = (fields.get(name, _NONE).text for name in ("epsilon", "delta"))
    item, dataset = texts["item"], texts.get("dataset", "")

    def paths(name: str, dataset: str) -> list[str]:
        listed = [value.text for value in fields.get(name, _NONE).listed if value.text]
        names = [text.replace("{dataset}", DATASETS.get(dataset, dataset)) for text in listed]
        return [text if "/" in text else f"{paper}/{text}" for text in names]

    pairs: list[tuple[str, ...]] = []
    for tested in [value.text for value in fields.get("every", _NONE).listed if value.text] or [dataset]:
        runs, against = paths("runs", tested), paths("against", tested)
        pairs += [(*runs, other) for other in against] or ([tuple(runs)] if runs else [])
    quantity = re.sub(r"\(([^()]*)\)", r"_\1", texts.get("number", "test_accuracy"))
    best, ratio = texts.get("of", "").startswith("max of "), texts.get("compare") == "ratio"
    measured = texts.get("quantity", quantity)
    stated: dict[str, Any] = {
        "dataset": "",
        "method": "",
        "quantity": quantity,
        "unit": "%" if measured == "test_accuracy" else "epsilon" if measured.startswith("epsilon") else "",
        "source": item.replace("fig-", "figure ").replace("-", " "),
        "statistic": "best" if best else "geometric" if ratio else "mean",
        **{**texts, **numbers, "at_epsilon": epsilon, "at_delta": "0" if epsilon == "inf" else delta},
    }
    return Claim(place, paper, **stated, sweeps=tuple(paths("sweep", dataset)), pairs=tuple(pairs))


def _check_field(name: str, value: Entry, choices: dict[str, Collection[str]], formulas: Collection[str]) -> None:
    text = value.text
    for choice in [entry.text for entry in value.listed] if name in choices else ():
        if choice not in choices[name]:
            kind = "data set" if name == "every" else name
            raise value.wrong(f"no {kind} {choice!r}: choose from {', '.join(choices[name])}")
    if name in _ALLOWED and text:
        expected, allowed = _ALLOWED[name]
        number = number_of(text.lstrip("<>"))
        if number is None or not allowed(number):  # nothing that is compared with NaN is allowed
            raise value.wrong(f"{name} has to be {expected}, and is {text!r}")
    if name == "where" and not _SELECTION.fullmatch(text):
        raise value.wrong(f"where is search_choice or field = number, and not {text!r}")
    if name in ("at", "number"):
        try:
            check_call("epoch" if name == "at" else name, Call(text), formulas if name == "number" else ())
        except ValueError as error:
            raise value.wrong(str(error)) from error


def _check_claim(claim: Claim, entry: Entry) -> None:
    if not claim.method or not claim.dataset:
        raise entry.wrong("a claim needs a method and a data set")
    aim = claim.claimed.number if claim.claimed else 0.0
    if claim.level is None and (aim is None or math.isnan(aim)):
        raise entry.wrong(f"{str(claim.claimed)!r} is no number, so that the claim needs a level")
    if claim.direction in _BY_DIFFERENCE and not claim.copied and (claim.margin is None or claim.aim is None):
        raise entry.wrong(f"direction {claim.direction} needs a number and a margin")
    for sweep in claim.sweeps:
        if experiments_of(sweep) is None:
            raise entry.wrong(f"no sweep {sweep!r}")
    for name in claim.experiments:
        if not (REPOSITORY / "conf" / "experiment" / f"{name}.yaml").exists():
            raise entry.wrong(f"no experiment {name!r}")
        if not any(name in (experiments_of(sweep) or ()) for sweep in claim.sweeps):
            sweeps = ", ".join(claim.sweeps) or "none is named"
            raise entry.wrong(f"{name} is an experiment of none of the claim's sweeps ({sweeps})")


@cache
def experiments_of(sweep: str) -> tuple[str, ...] | None:
    """Return the experiments that a sweep's file names, or None if there is no such file."""
    path = REPOSITORY / "sweeps" / f"{sweep}.yaml"
    if not path.exists():
        return None
    names = OmegaConf.select(OmegaConf.load(path), "hydra.sweeper.params.experiment") or ""
    return tuple(name.strip() for name in str(names).split(",") if name.strip())


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
    fields: Fields = {}
    inside: dict[str, Entry] = {}
    for name, entry in block.entries.items():
        if name == "settings":
            for method, setting in entry.entries.items():
                settings = {**settings, method: {**settings.get(method, {}), **_fields(setting.entries)}}
        elif name in (*DATASETS, "claims") or (name == "claimed" and isinstance(entry.content, dict)):
            inside[name] = entry
        else:
            fields |= _fields({name: entry})
    layers = [*outer, fields]
    if not inside:
        yield layers, block
    for name, entry in inside.items():
        if name in DATASETS:
            yield from _leaves(entry, [*layers, {"dataset": replace(entry, content=name)}], settings)
        elif name == "claims":
            if not isinstance(entry.content, list):
                raise entry.wrong("claims is a list")
            for claim in entry.content:
                yield from _leaves(claim, layers, settings)
        else:  # a row of a table: one claim or several for each setting that it names
            for method, cell in entry.entries.items():
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
