"""The claims of a paper, read from runner/papers/<paper>/claims.yaml (see `runner.claims.blocks`) and checked.

Most fields have the names of `Claim`. These differ:

- `epsilon`, `delta`: the privacy at which a number is claimed.
- `sweep`: one sweep or several.
- `runs`: the experiments that are measured.
- `against`: the experiments that `runs` are compared with.
- `every`: the data sets for which the claim has to hold.

Experiments and sweeps may omit the paper's folder. In their names, `{dataset}` is the data set's name in files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import fields as fields_of
from dataclasses import replace
from functools import cache
from pathlib import Path

from omegaconf import OmegaConf

from runner.claims import epochs, readers
from runner.claims.blocks import DATASETS, Fields, claims_in
from runner.claims.claim import (
    ANOTHER_READING,
    COMPARISONS,
    COUNTED,
    DIRECTIONS,
    FOR_CONTEXT,
    OVER_VALUES,
    STATISTICS,
    Claim,
)
from runner.config import PACKAGE, REPOSITORY
from runner.config.yaml_file import Entry, number_of, read_yaml

_CHOICES: dict[str, Collection[str]] = {
    "direction": DIRECTIONS,
    "statistic": (*STATISTICS, *OVER_VALUES),
    "compare": COMPARISONS,
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
_WHERE = re.compile(r"search_choice|target_epsilon = claimed|[\w.]+ = [-+.\de]+")
_AS_GIVEN = {field.name for field in fields_of(Claim)} - {"counted"}
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
    claims: list[Claim] = []
    leading: set[tuple[str, ...]] = set()
    for fields, entry in claims_in(read_yaml(claims_path(paper))):
        for name, value in fields.items():
            _check_field(name, value, {**_CHOICES, "item": items}, formulas)
        claim = _claim(entry.place, paper, fields)
        _check_claim(claim, entry)
        reason = FOR_CONTEXT if claim.for_context else ANOTHER_READING if claim.identity in leading else COUNTED
        claims.append(replace(claim, counted=reason))
        leading |= {claim.identity} if reason == COUNTED else set()
    return claims


def _claim(place: str, paper: str, fields: Fields) -> Claim:
    given = {name: value.text for name, value in fields.items() if name in _AS_GIVEN}
    numbers = {name: float(text) if text else None for name, text in given.items() if name in _NUMBERS}
    epsilon, delta = (fields.get(name, _NONE).text for name in ("epsilon", "delta"))
    item, dataset = given["item"], given.get("dataset", "")
    quantity = re.sub(r"\(([^()]*)\)", r"_\1", given.get("number", "test_accuracy"))
    best, ratio = given.get("of", "").startswith("max of "), given.get("compare") == "ratio"
    measured = given.get("quantity", quantity)
    usual = {
        "dataset": "",
        "method": "",
        "quantity": quantity,
        "unit": "%" if measured == "test_accuracy" else "epsilon" if measured.startswith("epsilon") else "",
        "source": item.replace("fig-", "figure ").replace("-", " "),
        "statistic": "best" if best else "geometric" if ratio else "mean",
    }
    return Claim(
        place=place,
        paper=paper,
        **{**usual, **given, **numbers},  # type: ignore[arg-type]
        at_epsilon=epsilon,
        at_delta="0" if epsilon == "inf" else delta,
        sweeps=tuple(_path_of(paper, sweep, dataset) for sweep in _texts(fields, "sweep")),
        pairs=tuple(_pairs(paper, fields, dataset)),
    )


def _pairs(paper: str, fields: Fields, dataset: str) -> Iterator[tuple[str, ...]]:
    """Yield the experiments of each data set, paired with each that they are compared with."""
    runs, against = _texts(fields, "runs"), _texts(fields, "against")
    for tested in _texts(fields, "every") or (dataset,):
        names = [_path_of(paper, name, tested) for name in runs]
        if against:
            yield from ((*names, _path_of(paper, other, tested)) for other in against)
        elif names:
            yield tuple(names)


def _texts(fields: Fields, name: str) -> list[str]:
    return [value.text for value in fields.get(name, _NONE).listed if value.text]


def _path_of(paper: str, name: str, dataset: str) -> str:
    name = name.replace("{dataset}", DATASETS.get(dataset, dataset))
    return name if "/" in name else f"{paper}/{name}"


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
    if name == "where" and text and not _WHERE.fullmatch(text):
        raise value.wrong(f"where is search_choice or field = number, and not {text!r}")
    try:
        if name == "at":
            epochs.check(text)
        if name == "number":
            readers.check(text, formulas)
    except ValueError as error:
        raise value.wrong(str(error)) from error


def _check_claim(claim: Claim, entry: Entry) -> None:
    if not claim.method or not claim.dataset:
        raise entry.wrong("a claim needs a method and a data set")
    aim = number_of(claim.claimed.lstrip("<>~") or "0")
    if claim.level is None and (aim is None or math.isnan(aim)):
        raise entry.wrong(f"{claim.claimed!r} is no number, so that the claim needs a level")
    if claim.direction in _BY_DIFFERENCE and not claim.copied and (claim.margin is None or claim.aim is None):
        raise entry.wrong(f"direction {claim.direction} needs a number and a margin")
    for sweep in claim.sweeps:
        if experiments_of(sweep) is None:
            raise entry.wrong(f"no sweep {sweep!r}")
    for name in claim.experiments:
        if not (REPOSITORY / "conf" / "experiment" / f"{name}.yaml").exists():
            raise entry.wrong(f"no experiment {name!r}")
        if not any(name in (experiments_of(sweep) or ()) for sweep in claim.sweeps):
            of = ", ".join(claim.sweeps) or "none is named"
            raise entry.wrong(f"{name} is an experiment of none of the claim's sweeps ({of})")


@cache
def experiments_of(sweep: str) -> tuple[str, ...] | None:
    """Return the experiments that a sweep's file names, or None if there is no such file."""
    path = REPOSITORY / "sweeps" / f"{sweep}.yaml"
    if not path.exists():
        return None
    named = OmegaConf.select(OmegaConf.load(path), "hydra.sweeper.params.experiment") or ""
    return tuple(name.strip() for name in str(named).split(",") if name.strip())
