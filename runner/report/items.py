"""Papers: their items (tables, figures, statements of the text) and ways to measure their claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeAlias

from pydantic.dataclasses import dataclass

from runner.claims import formulas
from runner.claims.claim import Claim
from runner.claims.formulas import Computed, Formula, formulas_in
from runner.claims.reading import experiments_of, read_claims
from runner.claims.runs import Evidence, Runs
from runner.claims.verdicts import ON_EPSILON, WORDS, ClaimRow
from runner.config import PACKAGE, PAPER
from runner.config.yaml_file import Entry, read_yaml
from runner.records.jobs import Job, sweep_jobs
from runner.report.files import Table

Draw: TypeAlias = Callable[[Evidence], Any]  # a matplotlib figure, or None: too few runs for one
Tabulate: TypeAlias = Callable[[Evidence, Sequence[ClaimRow]], Table]


@dataclass(frozen=True)
class Statement:
    """The finding of a paper or study: a bold headline, then sentences with numbers.

    text: the sentences. {name} stands for a number, {name:gain} for a part of it (`runner.report.statements.Number`).
    numbers: by name, the fields of a claim, enough to identify it. `verdict` and `guarantee` may name several words,
        separated by commas: under any other, and if a claim was not measured, the statement is not made. With `study`,
        they are the fields of a row of its table.csv or effects.csv. With `leaderboard`, a method, they are its data
        set and its bound on ε: the number is the accuracy of the setting that stands there.
    decided: of a study, the number of arms that are better or worse. With another number the statement is not made.
    readme: it is in the README.
    further: sentences that are added while their own numbers exist, for example when planned runs are recorded.

    Raises:
        ValueError: a number names a word that no claim can have.
    """

    text: str
    numbers: Mapping[str, Mapping[str, str]]
    decided: int | None = None
    readme: bool = True
    further: tuple[Statement, ...] = ()

    def __post_init__(self) -> None:
        for fields in self.numbers.values():
            for kind, words in (("verdict", WORDS), ("guarantee", ON_EPSILON)):
                for word in filter(None, fields.get(kind, "").split(", ")):
                    if word not in words:
                        raise ValueError(f"no {kind} {word!r}: choose from {', '.join(words)}")


def statement_of(finding: Entry, common: Mapping[str, str]) -> Statement:
    """Return the finding in a file. Its numbers have the `common` fields, unless they name others."""
    content = finding.entries
    numbers = {name: dict(common) for name in (content["numbers"].entries if "numbers" in content else ())}
    for name, fields in numbers.items():
        for key, entry in content["numbers"].entries[name].entries.items():
            decimal = entry.number if "." in entry.text else None  # 3.0 is ε = 3
            fields[key] = entry.text if decimal is None else f"{decimal:g}"
    decided = content["decided"].whole if "decided" in content else None
    return Statement(content["text"].text, numbers, decided, bool("readme" in content and content["readme"].flag))


@dataclass(frozen=True)
class Item:
    """One table, figure or statement of a paper.

    name: as in claims.yaml, and the name of its folder under results/<paper>/.
    sweeps: the sweeps that it needs, "tempered_sigmoid/fig_3"; its claims name further ones.
    also: sweeps of other items that its table or figure reads, too, without needing their runs.
    fields: config fields to show in addition to the swept ones ("activation.scale").
    draw: makes its figure. It is called only if a run of its own sweeps is recorded, or if it has none.
    table: makes its table from the item's judged claims.
    """

    name: str
    title: str
    sweeps: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    draw: Draw | None = None
    table: Tabulate | None = None


@dataclass(frozen=True)
class Summary:
    """A row of the front page: a claim of a paper, and what became of it.

    claims, measured, sound: texts with numbers, as in a `Statement`: the claim, what was measured, and the sound ε.
    numbers: as in a `Statement`. The word is that of the claim named `x`, if there is one.
    """

    claims: str
    measured: str
    sound: str
    numbers: Mapping[str, Mapping[str, str]]


def names_of(items: str) -> list[str]:
    """Split the names of items at commas.

    >>> names_of("fig-3, Table_4")
    ['fig-3', 'table-4']
    """
    return [name.strip().lower().replace("_", "-") for name in items.split(",")]


@dataclass(frozen=True)
class Paper:
    """A paper.

    name: as in sweeps/<name>.
    items: its items, the headline first.
    place: its position among the papers on the pages, the smallest first.
    remarks: sentences without numbers that a reader has to know; {results} stands for the path of the results folder.
    statement: its finding.
    summaries: its rows in the README's table.
    idea: the proposal of the paper in a few words.
    citation, link: its authors, venue and year, and where it can be read.
    studies: the names of the studies that ask further.
    charted: the names of the items that `make dashboard` charts in W&B.

    Raises:
        ValueError: two items have the same name, or `charted` has another one.
    """

    name: str
    title: str
    items: tuple[Item, ...]
    place: int
    remarks: tuple[str, ...] = ()
    statement: Statement | None = None
    summaries: tuple[Summary, ...] = ()
    idea: str = ""
    citation: str = ""
    link: str = ""
    studies: tuple[str, ...] = ()
    charted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [item.name for item in self.items]
        for name in {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two items have the name {name!r}")
        for name in set(self.charted) - set(names):
            raise ValueError(f"charted: no item {name!r}: choose from {', '.join(names)}")

    @property
    def short(self) -> str:
        """The name as people write it: "Losing less"."""
        return self.name.replace("_", " ").capitalize()

    @cached_property
    def formulas(self) -> dict[str, Formula]:
        """The functions that its claims may name: its package's own, and the common ones."""
        package = import_module(f"runner.papers.{self.name}")
        modules = [import_module(f"{package.__name__}.{module.name}") for module in iter_modules(package.__path__)]
        return {name: formula for module in (formulas, *modules) for name, formula in formulas_in(module).items()}

    @cached_property
    def claims(self) -> list[Claim]:
        """Its claims, in the order of their file.

        Raises:
            ValueError: one cannot be read; the message has the line.
        """
        return read_claims(self.name, [item.name for item in self.items], self.formulas)

    @cached_property
    def findings(self) -> dict[str, Statement]:
        """What its items show here, by their names, from its file findings.yaml."""
        path = PACKAGE / "papers" / self.name / "findings.yaml"
        entries = read_yaml(path).entries if path.exists() else {}
        return {name: statement_of(entry, {"item": name}) for name, entry in entries.items()}

    def needs(self, item: Item) -> dict[str, set[str]]:
        """Return the runs of an item: its sweeps and its claims', each with its experiments.

        A claim measures an experiment by the first of its sweeps that has it. The dictionary is empty if the item is
        computed without runs.
        """
        needed = {sweep: set(experiments_of(sweep) or ()) for sweep in item.sweeps}
        for claim in self.claims:
            if claim.item == item.name and not isinstance(self.formulas.get(claim.number.name), Computed):
                for name in claim.experiments:
                    sweep = next(sweep for sweep in claim.sweeps if name in (experiments_of(sweep) or ()))
                    needed.setdefault(sweep, set()).add(name)
        return needed

    def planned(self, item: Item, scale: str = PAPER) -> list[Job]:
        """List the runs that an item shows, in the order of its sweeps; a run in two sweeps counts with the first."""
        jobs = []
        for sweep, names in self.needs(item).items():
            jobs += [job for job in sweep_jobs(sweep, (f"scale={scale}",)) if job.experiment in names]
        return list({job.run_id: job for job in reversed(jobs)}.values())[::-1]

    def evidence_of(self, item: Item, evidence: Evidence) -> Evidence:
        """Return the part of the evidence that an item shows: the runs that it needs, and the sweeps of `also`."""
        runs = {sweep: evidence.sweeps[sweep] for sweep in item.also}
        for sweep, names in self.needs(item).items():
            runs[sweep] = Runs(run for run in evidence.sweeps[sweep] if run.job.experiment in names)
        return Evidence(evidence.scale, runs, evidence.folder)

    def item(self, name: str) -> Item:
        """Return the item of this name.

        Raises:
            ValueError: there is no such item; the message lists all.
        """
        items = {item.name: item for item in self.items}
        if name not in items:
            raise ValueError(f"Unknown item {name!r}: choose from {', '.join(items)}.")
        return items[name]
