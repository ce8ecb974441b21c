"""A study, as its YAML file defines it. Each mistake is named with its line.

    base: experiment=tempered_sigmoid/fashion_mnist_tanh
    arms:
      flat clipping: clipping=flat
      DP-PSAC: clipping=psac
    datasets: [mnist, fashion_mnist]
    epsilon: [1, 3]
    seeds: 5
    search: {optimizer.lr: [0.25, 0.5, 1, 2, 4]}

docs/extending.md explains the keys.
"""

import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple, TypeAlias

from runner.config import FIELDS, REPOSITORY, ConfigError
from runner.config.yaml_file import Entry, is_line, read_yaml
from runner.report.papers import Statement, statement_of
from runner.report.statements import PARTS
from runner.terminal import nearest

SEARCH_SEED = 0
SAMPLERS = ("tpe", "gp", "random", "nsga-ii")  # of Optuna; the first one is used by default
SEEDS = 5
_MOST, _MOST_PARTS = 10_000, 8  # seeds or trials, and parts of a factorial
_LARGEST, _LARGEST_SEED = 1e9, 2**32 - 1
_NONE = Entry("", "", None)  # where a key is not there
EPSILON = 3.0
_KEYS = (
    *("title", "base", "arms", "factorial", "baseline", "datasets", "epsilon", "seeds", "search", "trials", "equal"),
    *("widen", "finding", "remarks"),
)
_COLUMNS = ("study", "dataset", "epsilon", "arm", "seeds", "trials", "parts", "answer")  # that choose a row of a table
_RANGE = ("from", "to", "log", "integer", "times")
_METHOD = {"sampler": SAMPLERS, "prune": ("hyperband",), "objective": ("accuracy", "front")}
_SET_BY_STUDY = {  # fields that a study sets itself, and what to use in their place
    **{"dataset": ": use datasets", "seed": ": use seeds", "evaluation": "", "scale": ": use --scale"},
    **dict.fromkeys(("runtime", "tracking", "launcher", "hydra"), ": use the command line"),
    "sweeps": "",
    **dict.fromkeys(("accountant", "target_epsilon", "max_epsilon", "sound_epsilon"), ": use epsilon"),
}

Cell: TypeAlias = tuple[bool, ...]  # by part, True if it is new
Value: TypeAlias = float | str | bool
Values: TypeAlias = tuple[Value, ...]


@dataclass(frozen=True)
class Dimension:
    """A range that is searched: uniform, or uniform in the logarithm; of whole numbers if `integer` is set."""

    low: float
    high: float
    log: bool = True
    integer: bool = False

    def rounded(self, value: float) -> float:
        """Round to three significant digits, or to a whole number, within the range."""
        return min(max(float(round(value)) if self.integer else three_digits(value), self.low), self.high)


class Times(tuple[float, ...]):
    """Factors of the value that an arm's config has."""

    __slots__ = ()


class ByEpsilon(dict[float, Any]):
    """Values, factors or a range of a field for each epsilon of the study."""


Space: TypeAlias = Mapping[str, Values | Times | Dimension]  # by searched field


class Searched(NamedTuple):
    """What is tried of a field, and the name of its place in the file, for messages."""

    values: Values | Times | Dimension | ByEpsilon
    place: str


Search: TypeAlias = Mapping[str, Searched]
RATES: Search = {
    "optimizer.lr": Searched(Times((0.25, 0.354, 0.5, 0.707, 1.0, 1.41, 2.0, 2.83, 4.0)), "")
}  # by default


@dataclass(frozen=True)
class Arm:
    """A method that is compared: its overrides, and the fields that are searched for it."""

    name: str
    overrides: tuple[str, ...]
    search: Search
    place: str  # the name of its place in the file, for messages
    cell: Cell = ()  # the levels of the parts, in a factorial
    over: str = ""  # the arm that it is compared with; "" for the first one


@dataclass(frozen=True)
class Study:
    """The question of a study file."""

    name: str
    path: Path
    title: str
    base: tuple[str, ...]
    arms: tuple[Arm, ...]  # the first one is the baseline of those that name none
    datasets: tuple[str, ...]  # options of the group `dataset`; "" for the base's own
    epsilons: tuple[float, ...]
    seeds: tuple[int, ...]  # of the final runs
    trials: int | None = None  # the number of each arm; None for all combinations of the listed values
    equal: bool = True  # give all arms the same number of trials
    widen: bool = True  # have a range widened whose best value is at its edge
    parts: tuple[str, ...] = ()  # the names of the parts of a factorial; empty for other studies
    sampler: str = SAMPLERS[0]  # suggests values of a range
    prune: bool = False  # have Hyperband stop trials
    # Search for accuracy against epsilon, with every epoch of every trial as a point. All epsilons then share one
    # search, up to the largest, and no noise is calibrated.
    front: bool = False
    finding: Statement | None = None  # the answer in a few sentences, with numbers, that its page begins with
    remarks: tuple[str, ...] = ()  # sentences that a reader of its page has to know

    @property
    def baseline(self) -> str:
        """The name of the arm that all arms are compared with, or words if some name another one."""
        return "its baseline" if any(arm.over for arm in self.arms) else self.arms[0].name


def shortened(study: Study) -> Study:
    """Return the study with the two middle values of each list and two trials of each arm, which test its file."""

    def middle_two(values: Any) -> Any:
        if isinstance(values, ByEpsilon):
            return ByEpsilon({epsilon: middle_two(inner) for epsilon, inner in values.items()})
        if isinstance(values, Dimension):
            return values
        start = max(0, len(values) // 2 - 1)
        return type(values)(values[start : start + 2])

    arms = tuple(
        replace(arm, search={name: s._replace(values=middle_two(s.values)) for name, s in arm.search.items()})
        for arm in study.arms
    )
    counts = [combinations_of(space_at(arm.search, epsilon)) for arm in arms for epsilon in study.epsilons]
    return replace(study, arms=arms, trials=min(2, *(2 if count is None else count for count in counts)), widen=False)


def space_at(search: Search, epsilon: float) -> Space:
    return {name: v[epsilon] if isinstance(v, ByEpsilon) else v for name, (v, _) in search.items()}


def combinations_of(search: Space) -> int | None:
    """Return the number of combinations of listed values, or None if a range is among them."""
    lengths = [None if isinstance(values, Dimension) else len(values) for values in search.values()]
    return None if None in lengths else math.prod(filter(None, lengths))


def three_digits(value: float) -> float:
    return float(f"{value:.3g}")


def read(path: Path) -> Study:
    """Read a study file.

    Raises:
        ConfigError: the file is no study. The message has one sentence, with the line and the key.
    """
    file = read_yaml(path)
    if not file.content or not isinstance(file.content, dict):
        raise ConfigError(f"{path} is no study: expected keys, of {', '.join(_KEYS)}.")
    _check_names(file, _KEYS)
    content = file.entries
    if "arms" not in content:
        raise ConfigError(f"{path} has no arms: name two methods or more, each with its overrides.")
    method, common = _method(content["search"]) if "search" in content else ({}, RATES)
    front, factorial = method.get("objective") == "front", _flag(content, "factorial", False)
    trials, line = f"a number of trials from 1 to {_MOST:,}", "a text in one line, without | < > [ ]"
    seeds = f"a number of seeds from 2 to {_MOST:,}, or a list of different ones from 0"
    epsilons = "numbers > 0 of at most five digits, each once"
    study = Study(
        name=path.stem,
        path=path,
        title=_key(content, "title", _line, line, path.stem.replace("_", " ")),
        base=_overrides(content["base"], front=front) if "base" in content else (),
        arms=tuple(_arms(content, common, factorial)),
        datasets=_key(content, "datasets", _several(_option), "names of data sets, each once", ("",)),
        epsilons=_key(content, "epsilon", _several(_epsilon), epsilons, (EPSILON,)),
        seeds=_key(content, "seeds", _seeds, seeds, tuple(range(1, SEEDS + 1))),
        trials=_key(content, "trials", lambda entry: _whole(entry, 1), trials),
        equal=_flag(content, "equal", True),
        widen=_flag(content, "widen", True) and not front,
        sampler=method.get("sampler", SAMPLERS[0]),
        prune="prune" in method,
        front=front,
        parts=tuple(content["arms"].entries) if factorial else (),
        finding=_finding(path.stem, content["finding"]) if "finding" in content else None,
        remarks=_key(content, "remarks", _several(_text), "sentences, each once", ()),
    )
    _check_trials(study)
    names = [arm.name for arm in study.arms]
    for name, fields in (study.finding.numbers if study.finding else {}).items():
        if fields["study"] == study.name and fields.get("arm", names[0]) not in names:
            entry = content["finding"].entries["numbers"].entries[name]
            raise entry.wrong(f"there is no arm {fields['arm']!r} here")
    return study


def _arms(content: Mapping[str, Entry], common: Search, factorial: bool) -> Iterator[Arm]:
    """Yield the arms, or all combinations of the parts of a factorial, with what is searched for all and for each."""
    arms, least = content["arms"], 1 if factorial else 2
    if not isinstance(arms.content, dict) or len(arms.content) < least:
        raise arms.wrong(f"expected {least} names or more, each with its overrides")
    if factorial and len(arms.content) > _MOST_PARTS:
        raise arms.wrong(f"a factorial has at most {_MOST_PARTS} parts, as each doubles the number of arms")
    for name in arms.content:
        if not is_line(name):
            raise arms.wrong(f"expected a name in one line for each arm, got {name!r}")
    if not factorial:
        if "baseline" in content:
            raise content["baseline"].wrong("it names the first arm of a factorial. Rename the first of arms instead")
        for name, entry in arms.content.items():
            overrides, search = _level(entry, ("over",))
            yield Arm(name, overrides, {**common, **search}, entry.where, over=_baseline(arms, name))
        return
    words = "a name in one line that no part has"
    baseline = _key(content, "baseline", lambda e: None if e.text in arms.content else _line(e), words, "none of them")
    levels: list[list[tuple[tuple[str, ...], Search]]] = []
    for part in arms.content.values():
        pair = part.listed
        if isinstance(part.content, list) and len(pair) != 2:
            raise part.wrong("a part of a factorial has its new level, or a list of its old and its new one")
        levels.append([*([] if len(pair) == 2 else [((), {})]), *map(_level, pair)])
    for cell in product((False, True), repeat=len(levels)):  # all old first, all new last
        chosen = [level[new] for level, new in zip(levels, cell, strict=True)]
        overrides = tuple(text for texts, _ in chosen for text in texts)
        search = {name: values for space in (common, *(s for _, s in chosen)) for name, values in space.items()}
        names = [name for name, new in zip(arms.content, cell, strict=True) if new]
        yield Arm(" + ".join(names) or baseline, overrides, search, arms.where, cell)


def _baseline(arms: Entry, name: str) -> str:
    """Return the arm that the arm of this name is compared with, "" if it names none: one that names none itself."""
    named = {other: over for other, arm in arms.entries.items() if (over := arm.inside(("over",)))}
    over, others = named.get(name), [other for other in arms.entries if other not in named]
    if over and over.text not in others:
        raise over.wrong(f"expected an arm without `over`: {', '.join(others)}, got {over.shown}")
    return over.text if over else ""


def _level(entry: Entry, further: Sequence[str] = ()) -> tuple[tuple[str, ...], Search]:
    """Return the overrides of an arm or a level, and the fields that are searched for it alone."""
    if not isinstance(entry.content, dict):
        return _overrides(entry), {}
    _check_names(entry, ("overrides", "search", *further))
    overrides, search = (entry.content.get(name) for name in ("overrides", "search"))
    return _overrides(overrides) if overrides else (), _search(search) if search else {}


def _overrides(entry: Entry, *, front: bool = False) -> tuple[str, ...]:
    if not isinstance(entry.content, str):
        raise entry.wrong(f"expected overrides such as clipping=flat, got {entry.shown}")
    try:
        words = shlex.split(entry.text)
    except ValueError as error:
        raise entry.wrong(f"{entry.text!r}: {error}") from error
    for word in words:
        name, equals, _ = word.partition("=")
        top = re.split(r"[./]", name.lstrip("+~"))[0]
        if not equals and not word.startswith("~"):
            raise entry.wrong(f"{word!r} is no override: write name=value, such as clipping=flat")
        if top in _SET_BY_STUDY and (word != "target_epsilon=null" or entry.name == "base"):
            raise entry.wrong(f"{word} is set by the study{_SET_BY_STUDY[top]}")
        if top == "noise_multiplier" and entry.name == "base" and not front:
            raise entry.wrong(f"{word} is not for all arms, as their noise follows from epsilon")
    return tuple(words)


def _method(entry: Entry) -> tuple[dict[str, str], Search]:
    if not isinstance(entry.content, dict):
        return {}, _search(entry)
    method = {name: inner for name, inner in entry.content.items() if name in _METHOD}
    for name, inner in method.items():
        if inner.text not in _METHOD[name]:
            raise inner.wrong(f"expected {' or '.join(_METHOD[name])}, got {inner.shown}")
    fields = {name: values for name, values in entry.content.items() if name not in method}
    search = RATES if method and not fields else _search(replace(entry, content=fields))
    return {name: inner.text for name, inner in method.items()}, search


def _search(entry: Entry) -> Search:
    if not isinstance(entry.content, dict):
        raise entry.wrong("expected fields with their values, such as {optimizer.lr: [0.5, 1, 2]}")
    for name, values in entry.content.items():
        if (top := name.partition(".")[0]) in _SET_BY_STUDY:
            raise values.wrong(f"{name} is set by the study{_SET_BY_STUDY[top]}")
        if top not in FIELDS:
            group = f" {nearest(top, FIELDS)}" if "." in name else " Name its group too, as in optimizer.lr."
            raise values.wrong(f"there is no field {name!r}.{group}")
        if name == "delta":
            raise values.wrong("arms are compared at the same delta, so it belongs to base")
        if (REPOSITORY / "conf" / name).is_dir():
            raise values.wrong(f"{name} is a group: make each of its options an arm")
    return {name: Searched(_searched(values), values.where) for name, values in entry.content.items()}


def _searched(entry: Entry) -> Any:
    if not isinstance(entry.content, dict):
        flags = {"true": True, "false": False}
        values = [
            _number(v) if v.number is not None else flags.get(v.text.lower(), v.text or None) for v in entry.listed
        ]
        if not values or None in values:
            raise entry.wrong(f"expected values such as [0.5, 1, 2], got {entry.shown}")
        if len(set(values)) < len(values):
            raise entry.wrong("a value is here twice")
        return tuple(values)
    content = entry.content
    epsilons = [_number(replace(entry, content=name)) for name in content]
    if epsilons and None not in epsilons:
        searched = {float(name): _searched(values) for name, values in content.items()}
        if any(isinstance(values, ByEpsilon) for values in searched.values()):
            raise entry.wrong("values by ε are {1: [0.5, 1], 3: [1, 2]}")
        return ByEpsilon(searched)
    _check_names(entry, _RANGE)
    if "times" in content:
        factors = () if isinstance(content["times"].content, dict) else _searched(content["times"])
        positive = all(isinstance(factor, float) and factor > 0 for factor in factors)
        if len(content) > 1 or not factors or not positive:
            raise entry.wrong("multiples are {times: [0.5, 1, 2]}, with factors above 0")
        return Times(factors)
    low, high = (_number(content.get(name, _NONE)) for name in ("from", "to"))
    log = content["log"].flag if "log" in content else True
    integer = content["integer"].flag if "integer" in content else False
    if low is None or high is None or low >= high or log is None:
        raise entry.wrong("a range is {from: 0.1, to: 10}, and log: false if it is not of magnitudes")
    if log and low <= 0:
        raise entry.wrong(f"a range of magnitudes begins above 0, not at {low}: or set log: false")
    if integer is None or (integer and not (low.is_integer() and high.is_integer())):
        raise entry.wrong("a range of whole numbers is {from: 1, to: 10, integer: true}")
    return Dimension(low, high, log, integer)


def _finding(study: str, entry: Entry) -> Statement | None:
    if not isinstance(entry.content, dict) or _text(entry.content.get("text", _NONE)) is None:
        raise entry.wrong("expected a text, and numbers by name")
    _check_names(entry, ("text", "numbers", "decided", "readme"))
    text, numbers = entry.content["text"], entry.content.get("numbers", Entry("", "", {}))
    _key(entry.content, "decided", lambda number: _whole(number, 0), "the number of arms that are better or worse")
    _flag(entry.content, "readme", False)
    if not isinstance(numbers.content, dict) or not all(isinstance(n.content, dict) for n in numbers.content.values()):
        raise numbers.wrong("expected the fields of a row for each name")
    for number in numbers.entries.values():
        _check_names(number, _COLUMNS)
    try:
        parsed = [field for _, *field in Formatter().parse(text.text) if field[0] is not None]
    except ValueError as error:
        raise text.wrong(str(error)) from error
    for name, part, conversion in parsed:
        if name not in numbers.entries:
            raise text.wrong(f"numbers has no {name!r}")
        if part not in PARTS or conversion:
            raise text.wrong(f"a part of {name} is one of {', '.join(filter(None, PARTS))}")
    return statement_of(entry, {"study": study})


def _check_trials(study: Study) -> None:
    """Check that each arm has values at each epsilon, and that all get the same number of trials."""
    first = study.arms[0]
    for arm, epsilon in product(study.arms, study.epsilons):
        for name, (values, _) in arm.search.items():
            if isinstance(values, ByEpsilon) and study.front:
                raise ConfigError(f"{arm.place}: {name}: a front has one search, so it has no values by ε.")
            if isinstance(values, ByEpsilon) and epsilon not in values:
                raise ConfigError(f"{arm.place}: {name} has nothing to search at ε = {epsilon:g}.")
        size, size_of_first = (combinations_of(space_at(other.search, epsilon)) for other in (arm, first))
        if study.trials is None and size is None:
            raise ConfigError(f"{study.path}: a range needs the number of trials of each arm, such as trials: 20.")
        if study.trials is not None and size is not None and size < study.trials and arm.search:
            raise ConfigError(f"{arm.place}: {size} combinations are less than trials: {study.trials}.")
        if study.equal and study.trials is None and size != size_of_first:
            raise ConfigError(
                f"{arm.place}: {size} trials, but {size_of_first} for {first.name}. Give each arm the same number, "
                f"set trials, or set equal: false."
            )


def _check_names(entry: Entry, keys: Sequence[str]) -> None:
    for name, inner in entry.entries.items():
        if name not in keys:
            raise inner.wrong(f"there is no key {name!r} here. {nearest(name, keys)}")


def _key(
    content: Mapping[str, Entry], key: str, value_of: Callable[[Entry], Any], words: str, otherwise: Any = None
) -> Any:
    """Return the value of a key, which is refused in these words if `value_of` has none."""
    value = value_of(content[key]) if key in content else otherwise
    if value is None and key in content:
        raise content[key].wrong(f"expected {words}, got {content[key].shown}")
    return value


def _flag(content: Mapping[str, Entry], key: str, otherwise: bool) -> bool:
    return bool(_key(content, key, lambda entry: entry.flag, "true or false", otherwise))


def _several(value_of: Callable[[Entry], Any]) -> Callable[[Entry], tuple[Any, ...] | None]:
    """Return the reader of one value or a list of different ones."""

    def values_of(entry: Entry) -> tuple[Any, ...] | None:
        values = tuple(map(value_of, entry.listed))
        return values if values and None not in values and len(set(values)) == len(values) else None

    return values_of


def _seeds(entry: Entry) -> tuple[int, ...] | None:
    if isinstance(entry.content, list):
        seeds = _several(lambda seed: _whole(seed, 0, _LARGEST_SEED))(entry)
    else:
        seeds = tuple(range(1, (_whole(entry, 1) or 0) + 1))
    return seeds if seeds and len(seeds) > 1 else None


def _text(entry: Entry) -> str | None:
    return entry.text if entry.text.strip() else None


def _option(entry: Entry) -> str | None:
    return None if "," in entry.text else _text(entry)


def _line(entry: Entry) -> str | None:
    return entry.text if is_line(entry.text) else None


def _number(entry: Entry) -> float | None:
    number = entry.number
    return number if number is not None and abs(number) <= _LARGEST else None


def _epsilon(entry: Entry) -> float | None:
    number = _number(entry)  # records have five digits of an epsilon, rounded up: more could never be met
    return number if number is not None and number >= 1 / _LARGEST and float(f"{number:.5g}") == number else None


def _whole(entry: Entry, least: int, most: int = _MOST) -> int | None:
    return entry.whole if entry.whole is not None and least <= entry.whole <= most else None
