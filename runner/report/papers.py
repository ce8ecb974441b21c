"""The papers: their items (tables, figures, statements of the text), what became of them, and their claims.

runner/papers/<paper>/paper.yaml has the fields of `Paper` and of its `items`, by their names. Sweeps may omit the
paper's folder. `draw` and `table` name a function in a module next to the file, such as `figures.figure_3`. The table
`{network: [SWEEP, EXPERIMENT]}` has the layers of an experiment's network.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from string import Formatter
from typing import Any, TypeAlias, TypeVar

from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass

from runner.claims import measure
from runner.claims.claim import Claim
from runner.claims.evidence import Evidence, Runs
from runner.claims.measure import Computed, Formula, formulas_in
from runner.claims.reading import experiments_of, read_claims
from runner.claims.verdicts import ON_EPSILON, WORDS, ClaimRow
from runner.config import PACKAGE, PAPER, REPOSITORY
from runner.config.checkout import scan
from runner.config.yaml_file import Entry, read_yaml
from runner.records.jobs import Job, sweep_jobs
from runner.records.schema import first_of
from runner.report.formats import Table
from runner.report.tables import network_table
from runner.terminal import nearest

Draw: TypeAlias = Callable[[Evidence], Any]  # a matplotlib figure, or None: too few runs for one
Tabulate: TypeAlias = Callable[[Evidence, Sequence[ClaimRow]], Table]
Part = TypeVar("Part")
_STRICT = ConfigDict(extra="forbid")
_LISTS = ("sweeps", "experiments", "also", "fields", "notes", "remarks", "studies", "charted")  # of one text or several


@dataclass(frozen=True, config=_STRICT)
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
    readme: bool = False
    further: "tuple[Statement, ...]" = ()

    def __post_init__(self) -> None:
        _check_numbers([self.text], self.numbers)


def _check_numbers(texts: Sequence[str], numbers: Mapping[str, Mapping[str, str]]) -> None:
    """Raise a ValueError if a text lacks one of its numbers, or if no claim has a number's field or word."""
    for name in (part[1] for text in texts for part in Formatter().parse(text) if part[1] is not None):
        if name not in numbers:
            raise ValueError(f"no number {name!r}: choose from {', '.join(numbers)}")
    for fields in numbers.values():
        for kind, words in (("verdict", WORDS), ("guarantee", ON_EPSILON)):
            for word in filter(None, fields.get(kind, "").split(", ")):
                if word not in words:
                    raise ValueError(f"no {kind} {word!r}: choose from {', '.join(words)}")
        names = {*Claim.__dataclass_fields__, "verdict", "guarantee"}
        if not fields.keys() & {"study", "leaderboard"} and (wrong := sorted(fields.keys() - names)):
            raise ValueError(f"a claim has no field {wrong[0]!r}. {nearest(wrong[0], names)}")


@dataclass(frozen=True, config=_STRICT)
class Item:
    """One table, figure or statement of a paper.

    name: as in claims.yaml, and the name of its folder under results/<paper>/.
    sweeps: the sweeps that it needs, "tempered_sigmoid/fig_3"; its claims name further ones.
    also: sweeps of other items that its table or figure reads, too, without needing their runs.
    fields: config fields to show in addition to the swept ones ("activation.scale").
    draw: makes its figure. It is called only if a run of its own sweeps is recorded, or if it has none.
    table: makes its table from the item's judged claims.
    notes: sentences below its table, after those that the table has.
    finding: what it shows here, in a sentence.
    """

    name: str
    title: str
    sweeps: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    draw: Draw | None = None
    table: Tabulate | None = None
    notes: tuple[str, ...] = ()
    finding: Statement | None = None


@dataclass(frozen=True, config=_STRICT)
class Summary:
    """A row of the front page: a claim of a paper, and what became of it.

    claims, measured, sound: texts with numbers, as in a `Statement`: the claim, what was measured, and the sound ε.
    numbers: as in a `Statement`. The word is that of the claim named `x`, if there is one.
    """

    claims: str
    measured: str
    sound: str
    numbers: Mapping[str, Mapping[str, str]]

    def __post_init__(self) -> None:
        _check_numbers([self.claims, self.measured, self.sound], self.numbers)


@dataclass(frozen=True, config=_STRICT)
class Unplanned:
    """Runs that no plan lists, because they would decide no claim, or take longer than anybody waits.

    sweeps: as those of an item. experiments: of these sweeps; without any, all of them.
    reason: a sentence with the number that shows it.
    """

    sweeps: tuple[str, ...]
    reason: str
    experiments: tuple[str, ...] = ()

    def has(self, job: Job) -> bool:
        """Return True if a job is one of these runs."""
        return job.sweep in self.sweeps and (not self.experiments or job.experiment in self.experiments)


def names_of(items: str) -> list[str]:
    """Split the names of items at commas.

    >>> names_of("fig-3, Table_4")
    ['fig-3', 'table-4']
    """
    return [name.strip().lower().replace("_", "-") for name in items.split(",")]


@dataclass(frozen=True, config=_STRICT)
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
    unplanned: runs of its items that are left out of plans until somebody names the item. Those recorded count.

    Raises:
        ValueError: `charted` has a name that no item has.
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
    unplanned: tuple[Unplanned, ...] = ()

    def __post_init__(self) -> None:
        names = [item.name for item in self.items]
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
        return {name: formula for module in (measure, *modules) for name, formula in formulas_in(module).items()}

    @cached_property
    def claims(self) -> list[Claim]:
        """Its claims, in the order of their file.

        Raises:
            ValueError: one cannot be read; the message has the line.
        """
        return read_claims(self.name, [item.name for item in self.items], self.formulas)

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

    def split(
        self, jobs: Mapping[str, Sequence[Job]], done: Callable[[Job], bool]
    ) -> tuple[dict[str, list[Job]], dict[str, list[Job]]]:
        """Split the jobs of items, by name, into those to plan, and those that are left out, by the reason.

        A run is left out if it is `unplanned` in every item that has it, and is not done.
        """
        reasons = {
            (item, job.run_id): entry.reason
            for item, planned in jobs.items()
            for job in planned
            if (entry := next((entry for entry in self.unplanned if entry.has(job)), None)) and not done(job)
        }
        kept = {item: [job for job in planned if (item, job.run_id) not in reasons] for item, planned in jobs.items()}
        ids = {job.run_id for planned in kept.values() for job in planned}
        left_out: dict[str, dict[str, Job]] = {}
        for item, job in ((item, job) for item, planned in jobs.items() for job in planned):
            if job.run_id not in ids:
                left_out.setdefault(reasons[item, job.run_id], {})[job.run_id] = job
        return kept, {reason: list(runs.values()) for reason, runs in left_out.items()}

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


def _made(kind: type[Part], entry: Entry, **values: Any) -> Part:
    """Make a part of a paper from an entry and some of its values in other types. A mistake is named with its line."""
    fields = {
        name: [text.plain for text in field.listed] if name in _LISTS else field.plain
        for name, field in entry.entries.items()
    }
    try:
        return kind(**fields | values)
    except ValidationError as error:
        name = str(next(iter(error.errors(include_url=False)[0]["loc"]), ""))
        if field := entry.entries.get(name):
            raise field.wrong(first_of(error).removeprefix(f"{name}: ")) from error
        raise entry.wrong(first_of(error)) from error


def _numbers(statement: Entry, common: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the numbers of a statement by name, each with its fields and those in `common`."""
    numbers: dict[str, dict[str, str]] = {}
    for name, number in (statement.entries["numbers"].entries if "numbers" in statement.entries else {}).items():
        numbers[name] = dict(common)
        for field, entry in number.entries.items():
            if not entry.text:
                raise entry.wrong(f"expected a text, got {entry.shown}")
            decimal = entry.number if "." in entry.text else None  # 3.0 is ε = 3
            numbers[name][field] = entry.text if decimal is None else f"{decimal:g}"
    return numbers


def statement_of(finding: Entry, common: Mapping[str, str]) -> Statement:
    """Return the finding in a file. Its numbers have the `common` fields, unless they name others.

    Raises:
        ConfigError: a field is missing or wrong, or a number names a word that no claim can have.
    """
    content = finding.entries
    further = tuple(statement_of(more, common) for more in (content["further"].listed if "further" in content else ()))
    return _made(Statement, finding, numbers=_numbers(finding, common), further=further)


def _item(paper: str, name: str, entry: Entry) -> Item:
    content, values = entry.entries, dict[str, Any]()
    values |= {key: _paths(paper, content[key]) for key in ("sweeps", "also") if key in content}
    values |= {key: _function(paper, content[key]) for key in ("draw", "table") if key in content}
    if "finding" in content:
        values["finding"] = statement_of(content["finding"], {"item": name})
    return _made(Item, entry, name=name, **values)


def _unplanned(paper: str, entry: Entry) -> Unplanned:
    sweeps = _paths(paper, entry.entries["sweeps"]) if "sweeps" in entry.entries else []
    made = _made(Unplanned, entry, sweeps=sweeps)
    if missing := [sweep for sweep in sweeps if experiments_of(sweep) is None]:
        raise entry.wrong(f"there is no sweep {missing[0]}")
    experiments = {name for sweep in sweeps for name in experiments_of(sweep) or ()}
    for name in {*made.experiments} - experiments:
        raise entry.wrong(f"its sweeps have no experiment {name!r}. {nearest(name, experiments)}")
    return made


def _paths(paper: str, entry: Entry) -> list[str]:
    for name in entry.listed:
        if not name.text:
            raise name.wrong(f"expected the name of a sweep, got {name.shown}")
    return [name.text if "/" in name.text else f"{paper}/{name.text}" for name in entry.listed]


def _function(paper: str, entry: Entry) -> Any:
    """Return the function that an entry names by a module of the paper, or the table of a network."""
    if network := entry.inside(("network",)):
        if len(names := _paths(paper, network)) != 2:
            raise network.wrong("expected a sweep and an experiment")
        return partial(network_table, names[0], names[1])
    module, _, name = entry.text.rpartition(".")
    if not module:
        raise entry.wrong("expected a function of a module: figures.curve")
    try:
        return getattr(import_module(f"runner.papers.{paper}.{module}"), name)
    except Exception as error:  # any error of a paper's files
        raise entry.wrong(f"{entry.text}: {error}") from error


@cache
def _read(name: str) -> Paper:
    file = read_yaml(PACKAGE / "papers" / name / "paper.yaml")
    content, values = file.entries, dict[str, Any]()
    if "items" not in content:
        raise file.wrong("the paper has no items")
    values["items"] = tuple(_item(name, key, e) for key, e in content["items"].entries.items())
    if "statement" in content:
        values["statement"] = statement_of(content["statement"], {})
    if "summaries" in content:
        summaries = content["summaries"].listed
        values["summaries"] = tuple(_made(Summary, summary, numbers=_numbers(summary, {})) for summary in summaries)
    if "unplanned" in content:
        values["unplanned"] = tuple(_unplanned(name, entry) for entry in content["unplanned"].listed)
    return _made(Paper, file, name=name, **values)


def paper_names() -> list[str]:
    """List the names of papers, in order: the folders in runner/papers."""
    return [path.parent.name for path in scan(PACKAGE / "papers", "*/paper.yaml")]


def load(name: str) -> Paper:
    """Return the paper of this name (`tempered_sigmoid`, or with a dash for the underscore).

    Raises:
        ValueError: there is no such paper; the message lists all. Or its files are wrong.
    """
    paper = name.replace("-", "_")
    if paper not in paper_names():
        raise ValueError(f"Unknown paper {name!r}. {nearest(paper, paper_names())}")
    return _read(paper)


def claims_of(name: str, **fields: str) -> list[Claim]:
    """Return the claims of a paper that have these values in these fields."""
    return [claim for claim in load(name).claims if claim.has(fields)]


def every_paper() -> list[Paper]:
    """List all papers, in the order of the pages: by `Paper.place`, then by name."""
    return sorted(map(load, paper_names()), key=lambda paper: (paper.place, paper.name))


@dataclass(frozen=True)
class StudyPage:
    """A study with a page in results/studies/<name>, and its finding."""

    name: str
    title: str
    statement: Statement | None


def study_files() -> list[Path]:
    """List the files of this project's studies."""
    return scan(REPOSITORY / "studies", "*.yaml")


def study_pages(results: Path) -> list[StudyPage]:
    """List this project's studies that have a page in a results folder."""
    pages = []
    for path in study_files():
        if (results / "studies" / path.stem / "README.md").exists():
            content = read_yaml(path).entries
            title = content["title"].text if "title" in content else path.stem
            statement = statement_of(content["finding"], {"study": path.stem}) if "finding" in content else None
            pages.append(StudyPage(path.stem, title, statement))
    return pages
