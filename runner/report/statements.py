"""The findings: a few sentences for each paper and study, filled with numbers from its tables; README.md has most."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from runner.claims.claim import Claim
from runner.claims.evidence import PAPER_SCALE
from runner.claims.intervals import Interval
from runner.claims.verdicts import GUARANTEED, ClaimRow, capitalised, counted
from runner.config import REPOSITORY
from runner.mechanism.normal import DRAWN, PRECISION
from runner.records.disk import record_path
from runner.report.claim_rows import rows_of, signed, sound_bound_text, words_text
from runner.report.formats import Table, markdown, write_text
from runner.report.leaderboard.entries import Entry, standing
from runner.report.papers import Paper, Statement, every_paper, load, study_pages
from runner.terminal import number

_GUARDS = ("verdict", "guarantee")  # under which a statement holds
_BEGIN, _END = "<!-- results: written by `python -m runner aggregate` -->", "<!-- end of results -->"
_OLDER, _FORMULA = "float32", "formula"
_NOISE = {f'"noise": "{kind}"'.encode(): kind for kind in (DRAWN, PRECISION)}  # in a record
_LIMITS = "docs/privacy.md#known-limits"


@dataclass(frozen=True)
class Sources:
    """Where statements take their numbers from. What no statement names is not computed.

    folder: the results, whose judged claims are read.
    study: returns the rows of a study's arms and effects by its name, with the texts of its table.csv and effects.csv.
    runs: returns the rows of its runs.
    board: returns the entries of the leaderboard.
    """

    folder: Path
    study: Callable[[str], Sequence[Mapping[str, str]]] = lambda _: ()
    runs: Callable[[str], Sequence[Mapping[str, str]]] = lambda _: ()
    board: Callable[[], Sequence[Entry]] = lambda: ()

    @cached_property
    def claims(self) -> dict[str, list[ClaimRow]]:
        """The judged claims that were read, by paper."""
        return {}


class MissingError(ValueError):
    """A number lacks this part, such as the interval of a single run."""


@dataclass(frozen=True)
class Number:
    """A number in a text. The format chooses its part.

    {x} is the number, {x:size} its absolute value, {x:gain} the difference of two settings, and {x:interval} its 95%
    interval. {x:fine} has two decimals. Where a claim is compared with a number, {x:interval} is that of measured minus
    claimed. {x:sound} is the sound ε, {x:least} a lower bound on ε, {x:claimed} the claimed number, and {x:runs} the
    runs. Numbers have one decimal, those below one have two. A lower bound has two significant digits.
    """

    measured: float | None
    difference: float | None = None
    interval: Interval | None = None
    sound: float | None = None
    least: float | None = None
    claimed: str | None = None
    runs: str | None = None

    def __format__(self, part: str) -> str:
        if part not in PARTS:
            raise ValueError(f"a number has no part {part!r}")
        field, text = PARTS[part]
        value = getattr(self, field)
        if value is None:
            raise MissingError(part)
        return text(value)


def claim_number(row: ClaimRow) -> Number:
    """Return the number of a claim."""
    return Number(
        row.measured,
        row.difference,
        row.interval,
        row.epsilon_sound,
        row.measured if row.at_least else row.epsilon_least,
        row.claim.claimed,
        row.n_each or str(row.n),
    )


def _signed(value: float) -> str:
    return signed(value, "", 1 if abs(value) >= 1 else 2)


def _short(value: float) -> str:
    return _signed(value).removeprefix("+")


PARTS: dict[str, tuple[str, Callable[[Any], str]]] = {  # the field of each part, and its format
    "": ("measured", _short),
    "size": ("measured", lambda value: _short(abs(value))),
    "fine": ("measured", lambda value: signed(value, "", 2).removeprefix("+")),
    "gain": ("difference", _short),
    "interval": ("interval", lambda ends: f"[{_signed(ends.low)}, {_signed(ends.high)}]"),
    "sound": ("sound", sound_bound_text),
    "least": ("least", lambda value: number(value, places=max(0, 1 - math.floor(math.log10(value))), bound="lower")),
    "claimed": ("claimed", str),
    "runs": ("runs", str),
}


def stated(name: str, statement: Statement | None, sources: Sources) -> str:
    """Write the statement of the paper or study of this name.

    It is empty if there is none, a number is missing, or a verdict or the number of decided arms is another one. Its
    `further` sentences are left out for the same reasons, each by itself.
    """
    if statement is None:
        return ""
    if statement.decided is not None:
        answers = [row["answer"] for row in sources.study(name) if "arm" in row]
        if statement.decided != sum(answer in ("better", "worse") for answer in answers):
            return ""
    texts = _filled([statement.text], statement.numbers, name, sources)
    further = (stated(name, more, sources) for more in statement.further)
    return " ".join(filter(None, (*texts, *further))) if texts else ""


def headline_of(statement: str) -> str:
    """Return the bold sentences that a statement begins with, or ""."""
    parts = statement.split("**")
    return parts[1] if statement.startswith("**") and len(parts) > 2 else ""


def _filled(
    texts: Sequence[str], fields: Mapping[str, Mapping[str, str]], paper: str, sources: Sources
) -> list[str] | None:
    """Fill the numbers into texts; None as soon as there is one that cannot be stated."""
    numbers = {name: _number(values, paper, sources) for name, values in fields.items()}
    if None in numbers.values():
        return None
    try:
        return [text.format(**numbers) for text in texts]
    except MissingError:
        return None


def _number(fields: Mapping[str, str], paper: str, sources: Sources) -> Number | None:
    """Find the number that fields name; None if there is none, it was not measured, or it has another verdict."""
    if "study" in fields:
        return _study_number(fields, sources.study(fields["study"]))
    if "leaderboard" in fields:
        entry = standing(sources.board(), fields["dataset"], float(fields["epsilon"])).get(fields["leaderboard"])
        return None if entry is None else Number(entry.mean, runs=str(len(entry.accuracies)))
    paper = fields.get("paper", paper)
    if paper not in sources.claims:
        sources.claims[paper] = rows_of(sources.folder, load(paper))
    rows = sources.claims[paper]
    claim = {name: value for name, value in fields.items() if name not in _GUARDS}
    row = next((row for row in rows if row.claim.has(claim)), None)
    if row is None or row.measured is None:
        return None
    holds = all(getattr(row, name) in fields[name].split(", ") for name in _GUARDS if name in fields)
    return claim_number(row) if holds else None


def _study_number(fields: Mapping[str, str], rows: Sequence[Mapping[str, str]]) -> Number | None:
    """Return the number in the only row that fields name: of an arm its accuracy and its gain, or else an effect.

    None if there is no such row, or no number in it.

    Raises:
        ValueError: several rows have these fields.
    """
    values = {name: value for name, value in fields.items() if name != "study"}.items()
    matching = [row for row in rows if values <= row.items()]
    if len(matching) > 1:
        study = fields["study"]
        raise ValueError(f"{len(matching)} rows of {study} have {dict(values)}: a finding's number needs one.")
    if not matching or not (matching[0].get("effect") or matching[0].get("accuracy")):
        return None
    (row,) = matching
    interval = Interval(float(row["low"]), float(row["high"])) if row["low"] else None
    if "effect" in row:
        return Number(float(row["effect"]), interval=interval)
    return Number(float(row["accuracy"]), float(row["gain"]) if row["gain"] else None, interval, runs=row["seeds"])


def findings_list(papers: Sequence[Paper], sources: Sources) -> str:
    """Write the findings of papers and studies as a numbered list, papers first; links are from results/README.md."""
    studies = study_pages(sources.folder)
    pages = [(paper.name, paper.statement, paper.name, "every claim") for paper in papers]
    pages += [(study.name, study.statement, f"studies/{study.name}", "the study") for study in studies]
    lines: list[str] = []
    for name, statement, page, link in pages:
        if statement and statement.readme and (text := stated(name, statement, sources)):
            lines.append(f"{len(lines) + 1}. {text} ([{link}]({page}/README.md))\n")
    return "".join(lines)


def summary_table(papers: Sequence[Paper], sources: Sources) -> str:
    """Write the table of the README: what each paper claims, what was measured, at which sound ε, and the word."""
    rows = []
    for paper in papers:
        link = f"[{paper.short}](results/{paper.name}/README.md): {paper.idea}"
        for cells in summary_rows(paper, sources):
            rows.append([link, *cells[:-1]])
            link = ""
    return markdown(Table(("paper", "it claims", "measured here", "at a sound ε of", "verdict"), rows))


def summary_rows(paper: Paper, sources: Sources) -> list[list[str]]:
    """Return a paper's rows of that table, and of its own page, where the runs are the last column.

    The word and the runs are those of the claim `x`. The word has the one on its ε, unless that is guaranteed.
    """
    rows = []
    for summary in paper.summaries:
        columns = (summary.claims, summary.measured, summary.sound)
        texts = _filled(columns, summary.numbers, paper.name, sources)
        word = runs = "–"
        if "x" in summary.numbers:
            row = next(row for row in rows_of(sources.folder, paper) if row.claim.has(summary.numbers["x"]))
            word = str(row.verdict)
            if row.guarantee and row.guarantee != GUARANTEED:
                word = f"accuracy: {row.verdict}; ε: {row.guarantee}"
            word += "" if row.claim.counts else " (another reading, not counted)"
            runs = row.n_each or str(row.n) if row.measured is not None else "–"
        rows.append([*(texts or (summary.claims.replace("{x:claimed}", "–"), "not run", "–")), word, runs])
    return rows


def noise_text(folder: Path, scale: str, by_paper: Mapping[str, Sequence[ClaimRow]], limits: str) -> str:
    """Say of how many guaranteed claims the noise was drawn in float32, in a paragraph; "" if nothing is guaranteed.

    A guaranteed ε holds for exact Gaussian noise, but the runs' own was drawn in another way. The noise of a claim is
    the worst of the runs of its experiments: "float32", then "float64", then "float64, rounded once". A claim whose
    number is computed, or that has no run, rests on a formula.

    limits: the address of the known limits, from the page of the text.
    """
    counts: Counter[str] = Counter()
    for paper, rows in by_paper.items():
        for row in counted(rows):
            if row.guarantee == GUARANTEED:
                records = [] if row.computed else _records(folder, scale, paper, row.claim)
                kinds = {next((kind for key, kind in _NOISE.items() if key in record), _OLDER) for record in records}
                counts[next((kind for kind in (_OLDER, DRAWN, PRECISION) if kind in kinds), _FORMULA)] += 1
    if not counts:
        return ""
    return (
        f"An ε is **guaranteed** for exact Gaussian noise, but [computed noise is not exact]({limits}). Of the "
        f"{counts.total()} claims with a guaranteed ε, {counts[_OLDER]} rest on runs whose noise was drawn in float32, "
        f"so coarsely that for some examples δ is near 1. Their ε is what the method costs with exact noise, and no "
        f"guarantee for their weights. Noise drawn in {DRAWN} is behind "
        f"{counts[DRAWN] + counts[PRECISION]} of them, and a formula without runs behind {counts[_FORMULA]}.\n"
    )


def _records(folder: Path, scale: str, name: str, claim: Claim) -> list[bytes]:
    """Read the records of a claim's experiments among the runs of its item, if that is aggregated."""
    if not (folder / name / claim.item).exists():
        return []
    paper = load(name)
    jobs = paper.planned(paper.item(claim.item), scale)
    paths = [record_path(folder, job.run_id) for job in jobs if job.experiment in claim.experiments]
    return [path.read_bytes() for path in paths if path.exists()]


def write_readme(sources: Sources) -> Path:
    """Replace the text between the markers of the README by the table of papers and the studies' headlines.

    Raises:
        ValueError: the README lacks these two markers, in this order.
    """
    readme = REPOSITORY / "README.md"
    before, begin, remainder = readme.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = remainder.partition(_END)
    if not begin or not end:
        raise ValueError(f"{readme} has lost the markers of the list of findings.")
    papers = every_paper()
    by_paper = {paper.name: rows_of(sources.folder, paper) for paper in papers}
    noise = noise_text(sources.folder, PAPER_SCALE, by_paper, _LIMITS)
    headlines = "".join(
        f"- {headline_of(text)} ([study](results/studies/{study.name}/README.md))\n"
        for study in study_pages(sources.folder)
        if study.statement and study.statement.readme and (text := stated(study.name, study.statement, sources))
    )
    claims = words_text([row for rows in by_paper.values() for row in rows])
    findings = (
        f"{summary_table(papers, sources)}\nSquare brackets are 95% intervals of what was measured. A verdict also "
        f"counts the paper's own spread. {capitalised(claims)} ([what the words "
        f"mean](results/README.md#what-the-words-mean)): [which failed, and "
        f"why](results/README.md#claims-that-fail-or-differ-or-whose-ε-is-refuted). {noise}\n"
        f"At the same sound ε ([leaderboard](results/leaderboard/README.md), [all gains]"
        f"(results/leaderboard/matrix.md)):\n\n{headlines}"
    )
    return write_text(readme, f"{before}{_BEGIN}\n{findings}{_END}{after}")
