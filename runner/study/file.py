"""Read the YAML file of a study, and name the line of each mistake.

    base: experiment=tempered_sigmoid/fashion_mnist_tanh
    arms:
      flat clipping: clipping=flat
      DP-PSAC: clipping=psac
    datasets: [mnist, fashion_mnist]
    epsilon: [1, 3]
    seeds: 5
    search: {optimizer.lr: [0.25, 0.5, 1, 2, 4]}

An arm is a text of overrides, or a block with `overrides` and a `search` of its own. A searched field has a list of
values, multiples of the arm's own value `{times: [0.5, 1, 2]}`, or a range `{from: 0.1, to: 10}`. If that depends on
epsilon, it has one for each: `{1: [0.5, 1, 2], 3: [1, 2, 4]}`. All arms get the same number of trials, unless the file
says `equal: false`. With `factorial: true` the arms are parts: each has its new level, or a list of its old and its new
one, which are written as arms are. `baseline` then names the arm with all parts at their old levels.

A `finding` has a text with numbers by name, and for each name the fields of a row of table.csv or effects.csv:

    finding:
      text: "**AUTO-S is better.** It gains {gain:gain} points {gain:interval}."
      numbers: {gain: {arm: AUTO-S, dataset: MNIST, epsilon: 3, answer: better}}
      decided: 1

It is made only while every row is there, and `decided` arms are better or worse.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from string import Formatter
from typing import Any, NoReturn, TypeAlias

import yaml

from runner.claims.contrasts import cells_of
from runner.config import FIELDS, REPOSITORY, ConfigError, Dimension
from runner.report.items import Statement
from runner.report.statements import PARTS
from runner.report.studies import statement_of
from runner.study.definition import RATES, Arm, ByEpsilon, Search, Study, Times, combinations_of, space_at
from runner.terminal import nearest

SEEDS = 5
_MOST, _MOST_PARTS = 10_000, 8  # seeds or trials, and parts of a factorial
_LARGEST, _LARGEST_SEED = 1e9, 2**32 - 1
EPSILON = 3.0
_KEYS = (
    *("title", "base", "arms", "factorial", "baseline", "datasets", "epsilon", "seeds", "search", "trials", "equal"),
    *("widen", "finding", "remarks"),
)
_OF_ARM = ("overrides", "search")
_OF_FINDING = ("text", "numbers", "decided", "readme")
_RANGE = ("from", "to", "log", "times")
_OF_STUDY = {  # fields that a study sets itself, and the key that sets them
    **{"dataset": "datasets", "seed": "seeds", "evaluation": "", "scale": "--scale", "accountant": "epsilon"},
    **{"runtime": "the command line", "tracking": "the command line"},
    **{"target_epsilon": "epsilon", "max_epsilon": "epsilon", "sound_epsilon": "epsilon"},
}

Place: TypeAlias = tuple[str, ...]  # the keys that lead to a value of the file


def read(path: Path) -> Study:
    """Read a study file.

    Raises:
        ConfigError: the file is no study. The message has one sentence, with the line and the key.
    """
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path} cannot be read: it is no file.")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is no UTF-8 text'}."
        ) from error
    return _Reader(path, text).study()


@dataclass
class _Reader:
    path: Path
    text: str
    content: dict[str, Any] = field(init=False)
    lines: dict[Place, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        try:
            loader = yaml.SafeLoader(self.text)
            node = loader.get_single_node()
            self.content = {} if node is None else loader.construct_document(node)
            json.dumps(self.content)  # a tree of texts and numbers
        except yaml.MarkedYAMLError as error:
            line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
            raise ConfigError(f"{self.path}{line}: {error.problem}.") from error
        except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            told = " ".join(str(error).split())
            raise ConfigError(f"{self.path}: a value is neither a text nor a number ({told}).") from error
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError(f"{self.path} is no study: expected keys, of {', '.join(_KEYS)}.")
        self._number(node, ())

    def _number(self, node: yaml.MappingNode, place: Place) -> None:
        for key, value in node.value:
            inner = (*place, str(key.value))
            line = key.start_mark.line + 1
            if inner in self.lines:
                raise ConfigError(f"{self.path}, line {line}: {'.'.join(inner)} is here twice.")
            self.lines[inner] = line
            if isinstance(value, yaml.MappingNode):
                self._number(value, inner)

    def study(self) -> Study:
        self._names((), self.content, _KEYS)
        if "arms" not in self.content:
            raise ConfigError(f"{self.path} has no arms: name two methods or more, each with its overrides.")
        factorial = self._flag("factorial", False)
        if "baseline" in self.content and not factorial:
            self._wrong(("baseline",), "it names the first arm of a factorial. Rename the first of arms instead")
        common = self._search(("search",), self.content["search"]) if "search" in self.content else RATES
        found = (
            {"parts": tuple(self._arms()), "arms": tuple(self._cells(common))}
            if factorial
            else {"arms": tuple(self._arm(name, of, common) for name, of in self._arms().items())}
        )
        trials = self.content.get("trials")
        if "trials" in self.content and not _whole(trials, 1):
            self._wrong(("trials",), f"expected a number of trials from 1 to {_MOST:,}, got {trials!r}")
        epsilons = self._list("epsilon", [EPSILON], _epsilon, "numbers > 0 of at most six digits")
        study = Study(
            name=self.path.stem,
            path=self.path,
            title=self._title(),
            base=self._overrides(("base",), self.content.get("base", "")),
            datasets=tuple(self._list("datasets", [""], lambda name: isinstance(name, str), "names of data sets")),
            epsilons=tuple(map(float, epsilons)),
            seeds=self._seeds(),
            trials=trials,
            equal=self._flag("equal", True),
            widen=self._flag("widen", True),
            finding=self._finding(),
            remarks=tuple(self._list("remarks", [], _text, "sentences")) if "remarks" in self.content else (),
            **found,
        )
        self._check_trials(study)
        self._check_names(study)
        return study

    def _title(self) -> str:
        title = self.content.get("title", self.path.stem.replace("_", " "))
        if not _line(title):
            self._wrong(("title",), f"expected a text in one line, without | < > [ ], got {title!r}")
        return str(title)

    def _arms(self) -> dict[str, Any]:
        arms = self.content["arms"]
        least = 1 if self.content.get("factorial") else 2
        if not isinstance(arms, dict) or len(arms) < least:
            self._wrong(("arms",), f"expected {least} names or more, each with its overrides")
        if self.content.get("factorial") and len(arms) > _MOST_PARTS:
            self._wrong(("arms",), f"a factorial has at most {_MOST_PARTS} parts, as each doubles the number of arms")
        for name in arms:
            if not _line(str(name)):
                self._wrong(("arms",), f"expected a name in one line for each arm, got {name!r}")
        return {str(name): of for name, of in arms.items()}

    def _arm(self, name: str, of: Any, common: Search) -> Arm:
        place = ("arms", name)
        overrides, own = self._level(place, of)
        return Arm(name, overrides, {**common, **own}, self._where(place))

    def _level(self, place: Place, found: Any) -> tuple[tuple[str, ...], Search]:
        """Return the overrides of an arm or a level, and the fields that are searched for it alone."""
        if not isinstance(found, dict):
            return self._overrides(place, found), {}
        self._names(place, found, _OF_ARM)
        return self._overrides(place, found.get("overrides", "")), self._search(
            (*place, "search"), found.get("search", {})
        )

    def _cells(self, common: Search) -> Iterator[Arm]:
        parts, baseline = self._arms(), self.content.get("baseline", "none of them")
        if not _line(baseline) or baseline in parts:
            self._wrong(("baseline",), f"expected a name in one line that no part has, got {baseline!r}")
        levels = []
        for name, found in parts.items():
            place = ("arms", name)
            pair = found if isinstance(found, list) else ["", found]
            if len(pair) != 2:
                self._wrong(place, "a part of a factorial has its new level, or a list of its old and its new one")
            levels.append([self._level(place, level) for level in pair])
        for cell in cells_of(len(parts)):
            of = [level[new] for level, new in zip(levels, cell, strict=True)]
            overrides = tuple(text for texts, _ in of for text in texts)
            search = {name: values for own in (common, *(own for _, own in of)) for name, values in own.items()}
            names = [name for name, new in zip(parts, cell, strict=True) if new]
            yield Arm(" + ".join(names) or baseline, overrides, search, self._where(("arms",)), cell)

    def _overrides(self, place: Place, text: Any) -> tuple[str, ...]:
        if text is None or not isinstance(text, str):
            self._wrong(place, f"expected overrides such as clipping=flat, got {text!r}")
        try:
            words = shlex.split(text)
        except ValueError as error:
            self._wrong(place, f"{text!r}: {error}")
        for word in words:
            name, equals, _ = word.partition("=")
            top = name.lstrip("+~").partition(".")[0]
            if not equals and not word.startswith("~"):
                self._wrong(place, f"{word!r} is no override: write name=value, such as clipping=flat")
            if top in _OF_STUDY and (word != "target_epsilon=null" or place == ("base",)):
                self._wrong(place, f"{word} is set by the study{_use(top)}")
            if top == "noise_multiplier" and place == ("base",):
                self._wrong(place, f"{word} is not for all arms, as their noise follows from epsilon")
        return tuple(words)

    def _search(self, place: Place, content: Any) -> Search:
        if not isinstance(content, dict):
            self._wrong(place, "expected fields with their values, such as {optimizer.lr: [0.5, 1, 2]}")
        for name in map(str, content):
            if (top := name.partition(".")[0]) in _OF_STUDY:
                self._wrong((*place, name), f"{name} is set by the study{_use(top)}")
            if top not in FIELDS:
                group = f" {nearest(top, FIELDS)}" if "." in name else " Name its group too, as in optimizer.lr."
                self._wrong((*place, name), f"there is no field {name!r}.{group}")
            if name == "delta":
                self._wrong((*place, name), "arms are compared at the same delta, so it belongs to base")
            if name and (REPOSITORY / "conf" / name).is_dir():
                self._wrong((*place, name), f"{name} is a group: make each of its options an arm")
        return {str(name): self._searched((*place, str(name)), of) for name, of in content.items()}

    def _searched(self, place: Place, of: Any) -> Any:
        if isinstance(of, dict) and of and all(map(_number, of)):
            found = ByEpsilon({float(epsilon): self._searched(place, values) for epsilon, values in of.items()})
            if any(isinstance(values, ByEpsilon) for values in found.values()):
                self._wrong(place, "values by ε are {1: [0.5, 1], 3: [1, 2]}")
            return found
        if isinstance(of, dict):
            self._names(place, of, _RANGE)
            if "times" in of:
                factors = () if isinstance(of["times"], dict) else self._searched(place, of["times"])
                if len(of) > 1 or not factors or not all(isinstance(each, float) and each > 0 for each in factors):
                    self._wrong(place, "multiples are {times: [0.5, 1, 2]}, with factors above 0")
                return Times(factors)
            low, high, log = _read(of.get("from")), _read(of.get("to")), of.get("log", True)
            if not (isinstance(low, float) and isinstance(high, float) and low < high and isinstance(log, bool)):
                self._wrong(place, "a range is {from: 0.1, to: 10}, and log: false if it is not of magnitudes")
            if log and low <= 0:
                self._wrong(place, f"a range of magnitudes begins above 0, not at {low}: or set log: false")
            return Dimension(low, high, log)
        values = of if isinstance(of, list) else [of]
        values = [_read(value) for value in values]
        if not values or not all(isinstance(value, (float, str, bool)) for value in values):
            self._wrong(place, f"expected values such as [0.5, 1, 2], got {of!r}")
        if _repeated(values):
            self._wrong(place, "a value is here twice")
        return tuple(values)

    def _seeds(self) -> tuple[int, ...]:
        seeds = self.content.get("seeds", SEEDS)
        listed = seeds if isinstance(seeds, list) else range(1, seeds + 1) if _whole(seeds, 1) else []
        if len(listed) < 2 or not all(_whole(seed, 0, _LARGEST_SEED) for seed in listed) or _repeated(listed):
            numbers = f"expected a number of seeds from 2 to {_MOST:,}"
            self._wrong(("seeds",), f"{numbers}, or a list of different ones from 0, got {seeds!r}")
        return tuple(listed)

    def _finding(self) -> Statement | None:
        if "finding" not in self.content:
            return None
        found = self.content["finding"]
        if not isinstance(found, dict) or not _text(found.get("text")):
            self._wrong(("finding",), "expected a text, and numbers by name")
        self._names(("finding",), found, _OF_FINDING)
        if not _whole(found.get("decided", 0), 0):
            self._wrong(("finding", "decided"), "expected the number of arms that are better or worse")
        if not isinstance(found.get("readme", False), bool):
            self._wrong(("finding", "readme"), "expected true or false")
        numbers = found.get("numbers", {})
        if not isinstance(numbers, dict) or not all(isinstance(fields, dict) for fields in numbers.values()):
            self._wrong(("finding", "numbers"), "expected the fields of a row for each name")
        try:
            parsed = [each for _, *each in Formatter().parse(found["text"]) if each[0] is not None]
        except ValueError as error:
            self._wrong(("finding", "text"), str(error))
        for name, part, conversion in parsed:
            if name not in numbers:
                self._wrong(("finding", "text"), f"numbers has no {name!r}")
            if part not in PARTS or conversion:
                self._wrong(("finding", "text"), f"a part of {name} is one of {', '.join(filter(None, PARTS))}")
        return statement_of(self.path.stem, found)

    def _check_names(self, study: Study) -> None:
        """Check that a finding names arms of the study."""
        arms = [arm.name for arm in study.arms]
        for name, fields in (study.finding.numbers if study.finding else {}).items():
            if fields.get("study") == study.name and fields.get("arm", arms[0]) not in arms:
                self._wrong(("finding", "numbers", name), f"there is no arm {fields['arm']!r} here")

    def _list(self, key: str, otherwise: list[Any], holds: Any, words: str) -> list[Any]:
        content = self.content.get(key, otherwise)
        listed = content if isinstance(content, list) else [content]
        if not listed or not all(map(holds, listed)) or _repeated(listed):
            self._wrong((key,), f"expected {words}, each once, got {content!r}")
        return listed

    def _flag(self, key: str, otherwise: bool) -> bool:
        found = self.content.get(key, otherwise)
        if not isinstance(found, bool):
            self._wrong((key,), f"expected true or false, got {found!r}")
        return bool(found)

    def _check_trials(self, study: Study) -> None:
        """Check that each arm has values at each epsilon, and that all get the same number of trials."""
        for arm, epsilon in product(study.arms, study.epsilons):
            for name, of in arm.search.items():
                if isinstance(of, ByEpsilon) and epsilon not in of:
                    raise ConfigError(f"{arm.place}: {name} has nothing to search at ε = {epsilon:g}.")
            size = combinations_of(space_at(arm.search, epsilon))
            if study.trials is None and size is None:
                raise ConfigError(f"{study.path}: a range needs the number of trials of each arm, such as trials: 20.")
            if study.trials is not None and size is not None and size < study.trials and arm.search:
                raise ConfigError(f"{arm.place}: {size} combinations are less than trials: {study.trials}.")
        for arm, epsilon in product(study.arms[1:], study.epsilons):
            first, size = (combinations_of(space_at(of.search, epsilon)) for of in (study.arms[0], arm))
            if study.equal and study.trials is None and size != first:
                raise ConfigError(
                    f"{arm.place}: {size} trials, but {first} for {study.arms[0].name}. Give each arm the same number, "
                    f"set trials, or set equal: false."
                )

    def _names(self, place: Place, content: Mapping[Any, Any], known: Sequence[str]) -> None:
        for name in map(str, content):
            if name not in known:
                self._wrong((*place, name), f"there is no key {name!r} here. {nearest(name, known)}")

    def _where(self, place: Place) -> str:
        known = next((place[:end] for end in range(len(place), 0, -1) if place[:end] in self.lines), ())
        line = f", line {self.lines[known]}" if known else ""
        return f"{self.path}{line}: {'.'.join(place)}"

    def _wrong(self, place: Place, text: str) -> NoReturn:
        raise ConfigError(f"{self._where(place)}: {text}{'' if text[-1] in '.?' else '.'}")


def _read(value: Any) -> Any:
    """Return a number as a float, also one such as 1e-3, which YAML takes for a text; None is one too large."""
    try:
        found = value if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return value
    return found if isinstance(found, bool) or _number(found) else None if isinstance(value, float) else value


def _use(field: str) -> str:
    return f": use {_OF_STUDY[field]}" if _OF_STUDY[field] else ""


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _line(value: Any) -> bool:
    return _text(value) and not re.search(r"[\n|<>\[\]]", value)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _epsilon(value: Any) -> bool:
    return _number(value) and value >= 1 / _LARGEST and float(f"{value:g}") == value


def _whole(value: Any, least: int, most: int = _MOST) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _repeated(listed: Sequence[Any]) -> bool:
    return len(set(listed)) < len(listed)
