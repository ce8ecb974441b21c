"""What a paper is to this project: items (tables, figures, statements of the text) and ways to measure its claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, TypeAlias

from runner.claims import charges
from runner.claims.claim import Claim
from runner.claims.evidence import Evidence
from runner.claims.measure import Formula, formulas_in
from runner.claims.reading import read_claims
from runner.claims.rows import ClaimRow
from runner.report.files import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw: TypeAlias = Callable[[Evidence], "Figure | None"]  # None: too few runs for a figure to show anything
Tabulate: TypeAlias = Callable[[Evidence, Sequence[ClaimRow]], Table]


@dataclass(frozen=True)
class Item:
    """One table, figure or statement of a paper.

    name: as in claims.yaml, and the name of its folder under results/<paper>/.
    sweeps: the sweeps that it needs, "tempered_sigmoid/fig_3"; empty where it is computed without runs.
    also: sweeps whose runs its figure shows beside those, where they are recorded, and that other items list.
    fields: config fields to show beside what the sweeps vary ("activation.scale").
    draw: its figure, called only where at least one of its runs is recorded, or where it is computed; None where those
        are too few to show anything.
    table: its table, called with the item's judged claims.
    data: what a computed figure shows, as a table for programs (figure.csv).
    """

    name: str
    title: str
    sweeps: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    draw: Draw | None = None
    table: Tabulate | None = None
    data: Callable[[], Table] | None = None


@dataclass(frozen=True)
class Finding:
    """What a claim's outcome means, in words.

    claim: fields of the claim, so many that there is one such claim.
    says: by its verdict, or by what its epsilon is (guaranteed, refuted, ...), a part of a sentence; {claimed},
        {measured}, {difference} and {sound} stand for the row's numbers. Under any other outcome nothing is said.
    """

    claim: Mapping[str, str]
    says: Mapping[str, str]


@dataclass(frozen=True)
class Paper:
    """A paper: its name (as in sweeps/<name>), its title, its items with the headline first; its place among the papers
    on the pages (the smallest first); what a reader of its numbers has to know, in sentences without numbers, {results}
    for the path of the results folder; and what was found.

    study: whether it is a question of this project's own, whose rows nobody claims: it is in no count of claims.
    """

    name: str
    title: str
    items: tuple[Item, ...]
    place: int
    remarks: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    study: bool = False

    @cached_property
    def formulas(self) -> dict[str, Formula]:
        """The functions that its claims may name: those in the modules of its package, and what every paper has."""
        package = import_module(f"runner.papers.{self.name}")
        own = [import_module(f"{package.__name__}.{module.name}") for module in iter_modules(package.__path__)]
        return {name: found for module in (charges, *own) for name, found in formulas_in(module).items()}

    @cached_property
    def claims(self) -> list[Claim]:
        """Its claims, in the order of their file.

        Raises:
            ValueError: one cannot be read; the message has the line.
        """
        return read_claims(self.name, [item.name for item in self.items], self.formulas)

    def item(self, name: str) -> Item:
        """The item of this name. Raises ValueError, listing those there are."""
        for item in self.items:
            if item.name == name:
                return item
        raise ValueError(f"Unknown item {name!r}: choose from {', '.join(item.name for item in self.items)}.")
