"""A claim of a paper, and how it is checked."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from runner.config import REPOSITORY
from runner.config.checkout import scan
from runner.config.yaml_file import number_of

DATASETS = {"MNIST": "mnist", "FashionMNIST": "fashion_mnist", "CIFAR10": "cifar10"}  # names in papers, and in files
THRESHOLDS = ("above", "below")  # directions of claims that a level is passed
ORDERS = ("above_other", "below_other")  # directions of claims that one setting is above another
DIRECTIONS = ("higher", "lower", "match", *THRESHOLDS, *ORDERS, "none")
OVER_VALUES = ("best_value", "lowest", "spread", "correlation")  # of mean accuracies by the values of a field
STATISTICS = ("mean", "best", "geometric", "largest", *OVER_VALUES)
COUNTED, ANOTHER_READING, FOR_CONTEXT = "yes", "no, another reading", "no, for context"
SEARCH_CHOICE = "search_choice"
_RUNS = re.compile(r"(?:mean of |max of |)(\d+)(?: runs)?(?: \(not said\))?")


def dataset_name(dataset: str) -> str:
    """Return the name that people give a data set of a claim."""
    return {"CIFAR10": "CIFAR-10", "any": "any data set", "all": "all data sets"}.get(dataset, dataset)


class Printed(str):
    """A number as a paper prints it: "98.1", ">5", "<3", "~1" or "inf"; empty if it gives none."""

    __slots__ = ()

    @property
    def number(self) -> float | None:
        """The number without its sign; None if the text is no number."""
        return number_of(self.lstrip("<>~"))


class Call(str):
    """A name, and an argument in brackets if it has one: `config(optimizer.lr)`."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return self.partition("(")[0] if self.endswith(")") else str(self)

    @property
    def argument(self) -> str:
        return self.partition("(")[2].removesuffix(")")


_UNNAMED, _ACCURACY, _LAST = Printed(), Call("test_accuracy"), Call("last")


@dataclass(frozen=True)
class Claim:
    """One claimed number.

    place: its file and line.

    Statements of the paper:

    claimed: the number; empty if a quality is claimed.
    of: what it is made of: "mean of 10", "max of 5", "single", "computed" or "copied". "(not said)" after it marks a
        usual statistic that is assumed, because the paper gives none.
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
    where: a selection of the planned runs: "field = number" or "target_epsilon = claimed", by a field of their config,
        or SEARCH_CHOICE, by a search on held-out images.
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
    claimed: Printed = _UNNAMED
    unit: str = ""
    of: str = ""
    source: str = ""
    network: str = ""
    reading: str = ""
    note: str = ""
    at_epsilon: Printed = _UNNAMED
    at_delta: Printed = _UNNAMED
    sweeps: tuple[str, ...] = ()
    pairs: tuple[tuple[str, ...], ...] = ()
    number: Call = _ACCURACY
    at: Call = _LAST
    where: str = ""
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

    def __post_init__(self) -> None:
        """Give the texts of a file the types that they have here."""
        for name in ("claimed", "at_epsilon", "at_delta", "number", "at"):
            kind = Call if name in ("number", "at") else Printed
            object.__setattr__(self, name, kind(getattr(self, name)))

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
        stated = _RUNS.fullmatch(self.of)
        return int(stated[1]) if stated else 1

    @property
    def is_best(self) -> bool:
        """True if the claimed number is a best of runs, of a search or of a sweep."""
        return self.of.startswith(("max ", "best "))

    @property
    def copied(self) -> bool:
        """True if the paper only repeats another paper's number."""
        return self.of == "copied"

    @property
    def selection(self) -> tuple[str, float] | None:
        """The field, and the value in it, of the planned runs that count; None if all do, or if a search chooses."""
        field, _, value = self.where.partition(" = ")
        return (field, self.bound if value == "claimed" else float(value)) if value else None

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
        if self.claimed and self.is_best:
            what = self.of.replace("max ", "best ", 1).replace(" (not said)", ", not said")
            return f"{self.claimed} ({what})"
        unnumbered = {"above_other": "higher", "below_other": "lower", "none": "–"}
        return self.claimed or unnumbered.get(self.direction, "in words")

    @property
    def epsilon(self) -> tuple[float, bool] | None:
        """The claimed epsilon, and True if epsilon is claimed to be less; None if none is claimed.

        A quantity `epsilon` or `epsilon_...` is one itself, unless more is claimed to be needed (">6").
        """
        printed = self.claimed if self.quantity.startswith("epsilon") else self.at_epsilon
        number = printed.number
        return None if number is None or printed.startswith(">") else (number, printed.startswith("<"))

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
        return (self.paper, self.item, self.dataset, self.method, self.quantity, self.at_epsilon)
