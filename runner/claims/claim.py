"""A claim of a paper, and how it is checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from runner.config import REPOSITORY
from runner.config.checkout import scan
from runner.config.yaml_file import number_of

DATASETS = {"MNIST": "mnist", "FashionMNIST": "fashion_mnist", "CIFAR10": "cifar10"}  # names in papers, and in files
THRESHOLDS = ("above", "below")  # directions of claims that a level is passed
ORDERS = ("above_other", "below_other")  # directions of claims that one setting is above another
OVER_VALUES = ("best_value", "lowest", "spread", "correlation")  # of mean accuracies by the values of a field
COUNTED, ANOTHER_READING, FOR_CONTEXT = "yes", "no, another reading", "no, for context"
_RUNS = re.compile(r"(?:mean of |max of |)(\d+)(?: runs)?(?: \(not said\))?")
_CALL = re.compile(r"(\w+)(?:\(([^()]*)\))?")
_SELECTION = re.compile(r"search_choice|target_epsilon = claimed|[\w.]+ = [-+.\de]+")


def dataset_name(dataset: str) -> str:
    """Return the name that people give a data set of a claim."""
    return {"CIFAR10": "CIFAR-10", "any": "any data set", "all": "all data sets"}.get(dataset, dataset)


@dataclass(frozen=True)
class Printed:
    """A number as a paper prints it: "98.1", ">5", "<3", "~1" or "inf"; empty if it gives none.

    number: without its sign, None if the text is no number.
    """

    text: str = ""
    sign: str = ""
    number: float | None = None

    @classmethod
    def parse(cls, text: str) -> Printed:
        digits = text.lstrip("<>~")
        return cls(text, text.removesuffix(digits), number_of(digits))

    def __bool__(self) -> bool:
        return bool(self.text)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Summarised:
    """What a claimed number is made of: "mean of 10", "max of 5", "single", "computed" or "copied".

    "(not said)" after it marks a usual statistic that is assumed, because the paper gives none.

    runs: the number of runs behind a mean or a best; 1 if the paper names none.
    """

    text: str = ""
    runs: int = 1

    @classmethod
    def parse(cls, text: str) -> Summarised:
        stated = _RUNS.fullmatch(text)
        return cls(text, int(stated[1]) if stated else 1)

    @property
    def is_best(self) -> bool:
        """True for a best of runs, of a search or of a sweep."""
        return self.text.startswith(("max ", "best "))

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Call:
    """A name, and an argument in brackets if it has one: `config(optimizer.lr)`."""

    name: str
    argument: str = ""

    @classmethod
    def parse(cls, text: str) -> Call:
        """Split a text.

        Raises:
            ValueError: it is no such text.
        """
        parts = _CALL.fullmatch(text)
        if not parts:
            raise ValueError(f"{text!r} is not a name or a name with an argument, as in config(optimizer.lr)")
        return cls(parts[1], parts[2] or "")

    def __str__(self) -> str:
        return f"{self.name}({self.argument})" if self.argument else self.name


@dataclass(frozen=True)
class Selection:
    """A choice of the planned runs: by the value of a field of their config, or by a search on held-out images.

    field: "" for a search.
    value: None for the epsilon that the claim names.
    """

    field: str = ""
    value: float | None = None

    @classmethod
    def parse(cls, text: str) -> Selection | None:
        """Read "field = number", "target_epsilon = claimed" or "search_choice"; None of an empty text.

        Raises:
            ValueError: it is none of these.
        """
        if text and not _SELECTION.fullmatch(text):
            raise ValueError(f"where is search_choice or field = number, and not {text!r}")
        name, _, value = text.partition(" = ")
        return cls(name if value else "", number_of(value)) if text else None


SEARCH_CHOICE = Selection()
_PARSED: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("claimed", "at_epsilon", "at_delta"), Printed.parse),
    **dict.fromkeys(("number", "at"), Call.parse),
    **{"of": Summarised.parse, "where": Selection.parse},
}


def typed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the fields of a claim that are texts in a file, in the types that `Claim` has for them.

    Raises:
        ValueError: one is no such text.
    """
    return {name: _PARSED[name](value) if name in _PARSED else value for name, value in fields.items()}


@dataclass(frozen=True)
class Claim:
    """One claimed number.

    place: its file and line.

    Statements of the paper:

    claimed: the number; empty if a quality is claimed.
    of: what it is made of.
    source: the place in the paper.
    at_epsilon, at_delta: the claimed privacy; empty if the paper names none.
    reading: the interpretation that is taken here, if the paper allows several. Claims that otherwise agree in all that
        the paper says are one claim. Only the first of them in the file is counted.
    counted: COUNTED, or the reason why not: it is another reading of a claim, or shown for context.

    The way to check it:

    sweeps, pairs: the records that count. A pair is an experiment, or two that are compared. All pairs have to hold.
        An experiment's runs come from the first sweep that has it.
    number: a reader of one run (`runner.claims.numbers`), or a function of the paper.
    at: the epoch of each run (`runner.claims.numbers`).
    where: a selection of the planned runs.
    by, among: the swept field by whose values accuracies are compared, and the least value to take.
    statistic: the statistic of the numbers of a setting's runs.
    compare: the number itself with the claim, or the two settings of a pair with each other.
    level: the number to compare with if `claimed` is not a number.
    margin: the largest difference that still counts as equal; for a threshold or an order, the least that matters.
    direction: higher or lower is better; match, neither is; above or below the level; above_other or below_other, the
        second setting of a pair; none, shown and not judged.
    open: settings that the paper leaves open and this project chose.
    cause: why it fails or differs, or why its epsilon is refuted.
    because: the reason for the margin, the direction or the runs.
    """

    place: str
    paper: str
    item: str
    dataset: str
    method: str
    quantity: str = "test_accuracy"
    claimed: Printed = Printed()
    unit: str = ""
    of: Summarised = Summarised()
    source: str = ""
    network: str = ""
    reading: str = ""
    note: str = ""
    at_epsilon: Printed = Printed()
    at_delta: Printed = Printed()
    sweeps: tuple[str, ...] = ()
    pairs: tuple[tuple[str, ...], ...] = ()
    number: Call = Call("test_accuracy")
    at: Call = Call("last")
    where: Selection | None = None
    by: str = ""
    among: float | None = None
    statistic: str = "mean"
    compare: str = "value"
    level: float | None = None
    margin: float | None = None
    direction: str = "higher"
    open: str = ""
    cause: str = ""
    because: str = ""
    counted: str = COUNTED

    @property
    def counts(self) -> bool:
        """True if it is one of the claims that lists and totals are made of."""
        return self.counted == COUNTED

    @property
    def sweep(self) -> str:
        """The claim's own sweep: the first."""
        return self.sweeps[0] if self.sweeps else ""

    @property
    def experiments(self) -> list[str]:
        """The experiments of all pairs, each once."""
        return list(dict.fromkeys(name for pair in self.pairs for name in pair))

    @property
    def experiment(self) -> str:
        """The claim's own experiment: the first."""
        return self.pairs[0][0] if self.pairs else ""

    @property
    def alone(self) -> str:
        """The claim's experiment if it has no other, else empty."""
        return self.experiment if len(self.experiments) == 1 else ""

    @property
    def searches(self) -> list[str]:
        """The sweeps that search for the settings of the claim's own: named like it with `_search`.

        The runs at the chosen settings may be another sweep: `table_4_chosen` has the searches of `table_4`.
        """
        paper, _, name = self.sweep.removesuffix("_chosen").partition("/")
        paths = scan(REPOSITORY / "sweeps" / paper, f"{name}_search*.yaml") if name else ()
        return [f"{paper}/{path.stem}" for path in paths if path.stem.isidentifier()]

    @property
    def runs(self) -> int:
        """The number of runs behind the claimed mean or best; 1 if the paper names none."""
        return self.of.runs

    @property
    def copied(self) -> bool:
        """True if the paper only repeats another paper's number."""
        return self.of.text == "copied"

    @property
    def contextual(self) -> bool:
        """True if the number is shown and never judged, with runs or without."""
        return self.direction == "none" or self.copied

    @property
    def aim(self) -> float | None:
        """The number to compare with; None if the claim has none."""
        return self.claimed.number if self.level is None else self.level

    @property
    def stated(self) -> str:
        """The claimed number for a table, or what the paper says without a number. A best says so."""
        if self.claimed and self.of.is_best:
            what = self.of.text.replace("max ", "best ", 1).replace(" (not said)", ", not said")
            return f"{self.claimed} ({what})"
        unnumbered = {"above_other": "higher", "below_other": "lower", "none": "–"}
        return self.claimed.text or unnumbered.get(self.direction, "in words")

    @property
    def epsilon(self) -> tuple[float, bool] | None:
        """The claimed epsilon, and True if epsilon is claimed to be less; None if none is claimed.

        A quantity `epsilon` or `epsilon_...` is one itself, unless more is claimed to be needed (">6").
        """
        printed = self.claimed if self.quantity.startswith("epsilon") else self.at_epsilon
        return None if printed.number is None or printed.sign == ">" else (printed.number, printed.sign == "<")

    @property
    def bound(self) -> float:
        """The epsilon that the claim names.

        Raises:
            ValueError: it names none.
        """
        if self.epsilon is None:
            raise ValueError(f"{self.paper}, {self.item}, {self.method}: the claim names no epsilon.")
        return self.epsilon[0]

    @property
    def delta(self) -> float | None:
        """The claimed delta; None if none above 0 is claimed."""
        return self.at_delta.number or None

    def has(self, fields: Mapping[str, str]) -> bool:
        """Return True if it has these values in these fields, as its file writes them."""
        return all(str(getattr(self, name)) == value for name, value in fields.items())

    def exceeded_by(self, delta: float | None) -> bool:
        """Return True if a delta is above the claimed one, or unknown."""
        return self.delta is not None and (delta is None or delta > self.delta)

    @property
    def identity(self) -> tuple[str, ...]:
        """The fields that all readings of one claim have in common."""
        return (self.paper, self.item, self.dataset, self.method, self.quantity, self.at_epsilon.text)
