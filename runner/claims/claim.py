"""A claim of a paper, and how it is checked."""

from __future__ import annotations

import re
from dataclasses import dataclass

from runner.config import REPOSITORY
from runner.config.checkout import scan

THRESHOLDS = ("above", "below")  # directions of claims that a level is passed
ORDERS = ("above_other", "below_other")  # directions of claims that one setting is above another
DIRECTIONS = ("higher", "lower", "match", *THRESHOLDS, *ORDERS, "none")
STATISTICS = ("mean", "best", "geometric", "largest")  # of one number per run
OVER_VALUES = ("best_value", "lowest", "spread", "correlation")  # of mean accuracies by the values of a field
COMPARISONS = ("value", "difference", "ratio", "order")
COUNTED, ANOTHER_READING, FOR_CONTEXT = "yes", "no, another reading", "no, for context"
_RUNS = re.compile(r"(?:mean of |max of |)(\d+)(?: runs)?(?: \(not said\))?")
_CALL = re.compile(r"(\w+)(?:\(([^()]*)\))?")


@dataclass(frozen=True)
class Claim:
    """One claimed number.

    place: its file and line.

    Statements of the paper:

    claimed: the number as printed: "98.1", ">5", "~1"; empty if a quality is claimed.
    of: the statistic: "mean of 10", "max of 5", "single", "computed", "copied". "(not said)" after it marks a usual
        statistic that is assumed, because the paper gives none.
    source: the place in the paper.
    at_epsilon, at_delta: the claimed privacy, "2.93", "<3" or "inf"; empty if the paper names none.
    reading: the interpretation that is taken here, if the paper allows several. Claims that otherwise agree in all that
        the paper says are one claim. Only the first of them in the file is counted.
    counted: COUNTED, or the reason why not: it is another reading of a claim, or shown for context.

    The way to check it:

    sweeps, pairs: the records that count. A pair is an experiment, or two that are compared. All pairs have to hold.
        An experiment's runs come from the first sweep that has it.
    number: a reader of one run (`runner.claims.readers`), or a function of the paper, with an argument in brackets.
    at: the epoch of each run (`runner.claims.epochs`).
    where: a selection of the planned runs: "field = number", "target_epsilon = claimed" or "search_choice".
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
    claimed: str = ""
    unit: str = ""
    of: str = ""
    source: str = ""
    network: str = ""
    reading: str = ""
    note: str = ""
    at_epsilon: str = ""
    at_delta: str = ""
    sweeps: tuple[str, ...] = ()
    pairs: tuple[tuple[str, ...], ...] = ()
    number: str = "test_accuracy"
    at: str = "last"
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
        found = scan(REPOSITORY / "sweeps" / paper, f"{name}_search*.yaml") if name else ()
        return [f"{paper}/{path.stem}" for path in found if path.stem.isidentifier()]

    @property
    def runs(self) -> int:
        """The number of runs behind the claimed mean or best; 1 if the paper names none."""
        found = _RUNS.fullmatch(self.of)
        return int(found[1]) if found else 1

    @property
    def copied(self) -> bool:
        """True if the paper only repeats another paper's number."""
        return self.of == "copied"

    @property
    def for_context(self) -> bool:
        """True if the number is shown and never judged, with runs or without."""
        return self.direction == "none" or self.copied

    @property
    def aim(self) -> float | None:
        """The number to compare with; None if the claim has none."""
        if self.level is not None:
            return self.level
        text = self.claimed.lstrip("<>~")
        return float(text) if text else None

    @property
    def of_best(self) -> bool:
        """True if the claimed number is a best: of runs, of a search, of a sweep."""
        return self.of.startswith(("max ", "best "))

    @property
    def stated(self) -> str:
        """The claimed number for a table, or what the paper says without a number. A best says so."""
        if self.claimed and self.of_best:
            what = self.of.replace("max ", "best ", 1).replace(" (not said)", ", not said")
            return f"{self.claimed} ({what})"
        unnumbered = {"above_other": "higher", "below_other": "lower", "none": "–"}
        return self.claimed or unnumbered.get(self.direction, "in words")

    @property
    def epsilon(self) -> tuple[float, bool] | None:
        """The claimed epsilon, and True if epsilon is claimed to be less; None if none is claimed.

        A quantity `epsilon` or `epsilon_...` is one itself, unless more is claimed to be needed (">6").
        """
        text = self.claimed if self.quantity.startswith("epsilon") else self.at_epsilon
        return (float(text.lstrip("<")), text.startswith("<")) if text and not text.startswith(">") else None

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
        return float(self.at_delta or 0) or None

    def exceeded_by(self, delta: float | None) -> bool:
        """Return True if a delta is above the claimed one, or unknown."""
        return self.delta is not None and (delta is None or delta > self.delta)

    @property
    def identity(self) -> tuple[str, ...]:
        """The fields that all readings of one claim have in common."""
        return (self.paper, self.item, self.dataset, self.method, self.quantity, self.at_epsilon)

    @property
    def reader(self) -> tuple[str, str]:
        """The name of the reader or function that `number` names, and its argument, "" if it has none."""
        return called(self.number)


def called(text: str) -> tuple[str, str]:
    """Split `config(optimizer.lr)` into a name and an argument, "" if it has none.

    Raises:
        ValueError: it is no such text.
    """
    found = _CALL.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is not a name or a name with an argument, as in config(optimizer.lr)")
    return found[1], found[2] or ""
