"""Read and check the claims of a paper, runner/papers/<paper>/claims.yaml (how it is made: `runner.claims.blocks`).

The fields are those of `Claim`, but for these: `epsilon` and `delta`, where it is claimed; `sweep`, one or several; and
what makes up the pairs: `runs`, `against` (each of these beside the one of `runs`) and `every`, the data sets for which
it has to hold. In experiments and sweeps the paper's own folder may be left out, and `{dataset}` stands for the data
set's name as files have it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

import yaml

from runner.claims import epochs, readers
from runner.claims.blocks import DATASETS, ClaimsError, Fields, Value, claims_in, place_of
from runner.claims.claim import COMPARISONS, DIRECTIONS, OVER_VALUES, STATISTICS, Claim
from runner.config import REPOSITORY

_CHOICES = {"direction": DIRECTIONS, "statistic": (*STATISTICS, *OVER_VALUES), "compare": COMPARISONS}
_BY_DIFFERENCE = ("higher", "lower", "match")  # directions that need a margin
_WHERE = re.compile(r"search_choice|target_epsilon = claimed|[\w.]+ = [-+.\de]+")
_NONE = Value((), 0)


def claims_path(paper: str) -> Path:
    """The file with a paper's claims."""
    return REPOSITORY / "runner" / "papers" / paper / "claims.yaml"


def read_claims(paper: str, items: Collection[str] = (), formulas: Collection[str] = ()) -> list[Claim]:
    """Read the claims of a paper, in the order of their file.

    Args:
        items: the items there are; any, if none are named.
        formulas: the names of the paper's own functions, which `number` may name; any, if none are named.

    Raises:
        ValueError: a field, data set, item, setting, reader, sweep or experiment is misspelt, or a number is none. The
            message has the file and the line.
    """
    path = claims_path(paper)
    claims = []
    for fields, line in claims_in(path):
        for name, value in fields.items():
            _check_field(path, name, value, items, formulas)
        claim = _claim(path, paper, fields, line)
        _check_claim(path, claim, line)
        claims.append(claim)
    return claims


def claims_of(paper: str, **fields: str) -> list[Claim]:
    """The claims of a paper that have these values in these fields."""
    return [claim for claim in read_claims(paper) if all(getattr(claim, k) == value for k, value in fields.items())]


def _claim(path: Path, paper: str, fields: Fields, line: int) -> Claim:
    def text(name: str, default: str = "") -> str:
        return fields[name].text if name in fields else default

    def number(name: str) -> float | None:
        return float(text(name)) if text(name) else None

    of, compare, direction = text("of"), text("compare", "value"), text("direction", "higher")
    quantity = text("quantity", re.sub(r"\(([^()]*)\)", r"_\1", text("number", "test_accuracy")))
    usual = "best" if of.startswith("max of ") else "geometric" if compare == "ratio" else "mean"
    dataset = text("dataset")
    return Claim(
        place=place_of(path, line),
        paper=paper,
        item=text("item"),
        dataset=dataset,
        method=text("method"),
        quantity=quantity,
        claimed=text("claimed"),
        unit=text("unit", "%" if quantity == "test_accuracy" else ""),
        of=of,
        source=text("source", text("item").replace("fig-", "figure ").replace("-", " ")),
        network=text("network"),
        accounting=text("accounting"),
        reading=text("reading"),
        note=text("note"),
        at_epsilon=text("epsilon"),
        at_delta="0" if text("epsilon") == "inf" else text("delta"),
        sweeps=tuple(_path_of(paper, sweep, dataset) for sweep in fields.get("sweep", _NONE).texts),
        pairs=tuple(_pairs(paper, fields, dataset)),
        number=text("number", "test_accuracy"),
        at=text("at", "last"),
        where=text("where"),
        by=text("by"),
        among=number("among"),
        statistic=text("statistic", usual),
        compare=compare,
        level=number("level"),
        margin=number("margin"),
        direction=direction,
        open=text("open"),
        because=text("because"),
    )


def _pairs(paper: str, fields: Fields, dataset: str) -> Iterator[tuple[str, ...]]:
    """The experiments that are compared, a pair after another: of every data set, with each that it is against."""
    runs, against = (fields.get(name, _NONE).texts for name in ("runs", "against"))
    for of in fields["every"].texts if "every" in fields else (dataset,):
        names = [_path_of(paper, name, of) for name in runs]
        if against:
            yield from ((*names, _path_of(paper, other, of)) for other in against)
        elif names:
            yield tuple(names)


def _path_of(paper: str, name: str, dataset: str) -> str:
    name = name.replace("{dataset}", DATASETS.get(dataset, dataset))
    return name if "/" in name else f"{paper}/{name}"


def _check_field(path: Path, name: str, value: Value, items: Collection[str], formulas: Collection[str]) -> None:
    text = value.text
    there_are: dict[str, Collection[str]] = {**_CHOICES, "every": DATASETS, **({"item": items} if items else {})}
    for each in value.texts if name in there_are else ():
        if each not in there_are[name]:
            kind = "data set" if name == "every" else name
            raise ClaimsError(path, value.line, f"no {kind} {each!r}: choose from {', '.join(there_are[name])}")
    if name in ("among", "level", "margin", "epsilon", "delta") and text and not _is_number(text.lstrip("<>")):
        raise ClaimsError(path, value.line, f"{name} is a number, and {text!r} is none")
    if name == "where" and text and not _WHERE.fullmatch(text):
        raise ClaimsError(path, value.line, f"where is search_choice or field = number, and not {text!r}")
    try:
        if name == "at":
            epochs.check(text)
        if name == "number":
            readers.check(text, formulas)
    except ValueError as error:
        raise ClaimsError(path, value.line, str(error)) from error


def _check_claim(path: Path, claim: Claim, line: int) -> None:
    """Check what takes more than one field."""
    if not claim.method or not claim.dataset:
        raise ClaimsError(path, line, "a claim needs a method and a data set")
    if claim.level is None and not _is_number(claim.claimed.lstrip("<>~") or "0"):
        raise ClaimsError(path, line, f"{claim.claimed!r} is no number, so that the claim needs a level")
    if claim.direction in _BY_DIFFERENCE and not claim.copied and (claim.margin is None or claim.aim is None):
        raise ClaimsError(path, line, f"direction {claim.direction} needs a number and a margin")
    for sweep in claim.sweeps:
        if experiments_of(sweep) is None:
            raise ClaimsError(path, line, f"no sweep {sweep!r}")
    for name in claim.experiments:
        if not (REPOSITORY / "conf" / "experiment" / f"{name}.yaml").exists():
            raise ClaimsError(path, line, f"no experiment {name!r}")
        if not any(name in (experiments_of(sweep) or ()) for sweep in claim.sweeps):
            of = ", ".join(claim.sweeps) or "none is named"
            raise ClaimsError(path, line, f"{name} is an experiment of none of the claim's sweeps ({of})")


def _is_number(text: str) -> bool:
    """Whether a text is a number, infinity included."""
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False


@cache
def experiments_of(sweep: str) -> tuple[str, ...] | None:
    """The experiments that a sweep's file names; None if there is no such file."""
    path = REPOSITORY / "sweeps" / f"{sweep}.yaml"
    if not path.exists():
        return None
    params = (yaml.safe_load(path.read_text()).get("hydra") or {}).get("sweeper", {}).get("params", {})
    return tuple(name.strip() for name in str(params.get("experiment", "")).split(",") if name.strip())
