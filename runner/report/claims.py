"""The claims of a paper: sweeps/<paper>/claims.csv, one row a claimed number."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from pathlib import Path

from runner.config import REPOSITORY
from runner.report.files import read_csv

THRESHOLDS = ("above", "below")  # directions of claims that a level is passed, by whatever number of runs
ORDERS = ("above_other", "below_other")  # and that one setting is above another
DIRECTIONS = ("higher", "lower", "match", *THRESHOLDS, *ORDERS, "none")
_RUNS = re.compile(r"(?:mean of |max of |)(\d+)(?: runs)?(?: \(not said\))?")


@dataclass(frozen=True)
class Claim:
    """One row, as text. The columns up to `note` are what the paper says; the others say how it is checked.

    sweep, experiment: whose records count (several experiments separated by a space, the claim's own first);
        empty where a number is computed.
    measure: the name of the function that measures it (see `runner.report.measures`).
    target: the number to compare with where claimed_value is not one.
    tolerance: the largest difference that still counts as reproduced.
    direction: higher or lower (is better); match (neither is); above or below (the target, strictly); above_other or
        below_other (the value that the second experiment has); none, where it is shown beside the claims and not
        judged.
    ours: what of the setting the paper leaves open and this project chose; empty where that is nothing.
    comment: why this tolerance, this direction, these runs.
    """

    paper: str
    item: str
    dataset: str
    architecture: str
    method: str
    quantity: str
    privacy_epsilon: str
    privacy_delta: str
    claimed_value: str
    unit: str
    aggregation: str
    source: str
    sound_accounting: str
    note: str
    sweep: str
    experiment: str
    measure: str
    target: str
    tolerance: str
    direction: str
    ours: str
    comment: str

    @property
    def experiments(self) -> list[str]:
        return self.experiment.split()

    @property
    def searches(self) -> list[str]:
        """The sweeps that search for the settings of this one's: those named like it with `_search`.

        The runs at what a search chose may be a sweep of their own: `table_4_chosen` has the searches of `table_4`.
        """
        paper, _, name = self.sweep.removesuffix("_chosen").partition("/")
        found = (REPOSITORY / "sweeps" / paper).glob(f"{name}_search*.yaml") if name else ()
        return sorted(f"{paper}/{path.stem}" for path in found)

    @property
    def runs(self) -> int:
        """Of how many runs the claimed number is the mean or the best: 1 where it is of one, or does not say.

        "(not said)" behind a number: it is taken for the paper's usual one, and `ours` names that.
        """
        found = _RUNS.fullmatch(self.aggregation)
        return int(found[1]) if found else 1

    @property
    def copied(self) -> bool:
        """Whether the paper only repeats another paper's number."""
        return self.aggregation == "copied"

    @property
    def aim(self) -> float | None:
        """What the measured value is compared with; None where the claim has no number."""
        text = self.target or self.claimed_value.lstrip("<>~")
        return float(text) if text else None

    @property
    def epsilon(self) -> tuple[float, bool] | None:
        """The claimed epsilon, and whether it is claimed to be undercut; None where none is claimed.

        A quantity `epsilon` or `epsilon_...` is one, unless what is claimed is that more is needed (">6").
        """
        text = self.claimed_value if self.quantity.startswith("epsilon") else self.privacy_epsilon
        return (float(text.lstrip("<")), text.startswith("<")) if text and not text.startswith(">") else None

    @property
    def delta(self) -> float | None:
        """The claimed delta; None where none above 0 is claimed."""
        return float(self.privacy_delta or 0) or None


CLAIM_COLUMNS = tuple(field.name for field in fields(Claim))


def claims_path(paper: str) -> Path:
    """Where a paper's claims are."""
    return REPOSITORY / "sweeps" / paper / "claims.csv"


def read_claims(path: Path) -> list[Claim]:
    """Read and check the claims of a paper.

    Raises:
        ValueError: with the file and line, where a column is missing or a number or direction is not one.
    """
    claims = []
    for line, row in enumerate(read_csv(path), start=2):
        try:
            claim = Claim(**row)
            numbers = (claim.aim, float(claim.tolerance or 0), claim.delta, *(claim.epsilon or ())[:1])
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}, line {line}: {error}.") from error
        if any(n is not None and math.isnan(n) for n in numbers) or claim.direction not in DIRECTIONS:
            raise ValueError(f"{path}, line {line}: a number is NaN, or direction is none of {', '.join(DIRECTIONS)}.")
        claims.append(claim)
    return claims
