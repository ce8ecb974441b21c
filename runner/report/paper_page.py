"""The page of a paper: what it claims, what was measured, what failed and why, then each of its tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runner.claims.runs import PAPER_SCALE
from runner.claims.verdicts import CONFIRMED, OPEN, WORDS, ClaimRow, capitalised, count_guarantees, count_words, counted
from runner.records.files import find_record, read_record
from runner.records.jobs import Job
from runner.records.store import leaves
from runner.report import run_figure, verdict_figures
from runner.report.claim_rows import cells_of
from runner.report.files import Table, enumerated, markdown
from runner.report.item_page import epsilon_text, marked_verdict, words_text
from runner.report.items import Item, Paper
from runner.report.leaderboard.methods import METHODS, anchor
from runner.report.papers import study_pages
from runner.report.statements import Sources, stated, summary_rows
from runner.report.tables import SETTING, setting_cells, setting_text
from runner.runs.durations import Total, committed, total_of

_MOST, _TOTAL = 5, 24  # claims in the section of the headline, and about as many on the page
_MOST_SETTINGS = 8
_HEADER = ("claim", "paper", "here (what it is)", "ε paper → sound", "verdict")
_METHOD = ("architecture", "activation", "loss", "clipping", "optimizer", "screening")  # groups whose class is named


def page(
    paper: Paper,
    rows: Sequence[ClaimRow],
    jobs: Sequence[Job],
    sources: Sources,
    *,
    mark: str = "",
    scale: str = PAPER_SCALE,
) -> str:
    """Write the page of a paper, which stands in its folder of results.

    Args:
        rows: all of its judged claims.
        jobs: the runs of its headline, which show its settings.
        sources: the results folder, and where its findings take their numbers from.
        mark: a text that marks runs of another scale than the paper's.
        scale: that of the runs. What was found is stated for the paper's alone.
    """
    findings = scale == PAPER_SCALE
    cited = f"*{paper.citation}*{f' ([paper]({paper.link}))' if paper.link else ''}\n" if paper.citation else ""
    parts = [f"# {paper.title}\n{mark}", cited]
    if paper.idea:
        parts.append(f"**The idea**: {paper.idea}.\n")
    if findings and (statement := stated(paper.name, paper.statement, sources)):
        parts.append(f"{statement}\n")
    if findings and paper.summaries:
        lines = summary_rows(paper, sources)
        parts.append(markdown(Table(("it claims", "measured here", "at a sound ε of", "verdict", "runs"), lines)))
    parts += [
        _score(rows),
        _time(paper, sources.folder) if findings else "",
        _settings(paper, jobs, sources.folder),
        _failed(rows),
    ]
    share = max(1, (_TOTAL - _MOST) // max(1, len({row.claim.item for row in counted(rows)}) - 1))
    claimed = {row.claim.item for row in rows}
    plain = [item for item in paper.items if item.draw is None and item.name not in claimed]
    for item in (item for item in paper.items if item not in plain):
        most = _MOST if item is paper.items[0] else min(_MOST, share)
        parts.append(_section(paper, item, rows, sources, most, scale))
    if plain:
        links = " · ".join(f"[{item.title.partition(':')[0]}]({item.name}/README.md)" for item in plain)
        parts.append(f"## Tables without claims\n\n{links}\n")
    if paper.remarks:
        parts.append("## What to know\n\n" + "".join(f"- {remark.format(results='../')}\n" for remark in paper.remarks))
    folder = sources.folder / paper.name
    if (folder / verdict_figures.DISTANCES).exists():
        alternative = f"{verdict_figures.TITLE} {capitalised(words_text(rows))}"
        parts.append(f"## Distances\n\n![{alternative}]({verdict_figures.DISTANCES}/figure.svg)\n")
    if (folder / run_figure.FOLDER / "figure.svg").exists():
        parts.append(run_figure.SECTION)
    studies = [study for study in study_pages(sources.folder) if study.name in paper.studies] if findings else []
    if studies:
        links = "".join(f"- [{study.title}](../studies/{study.name}/README.md)\n" for study in studies)
        parts.append(f"## Studies that ask further\n\n{links}")
    return "\n".join(filter(None, parts))


def _score(rows: Sequence[ClaimRow]) -> str:
    """Count the claims by their words, and the claimed epsilons by theirs."""
    words, epsilons = count_words(rows), count_guarantees(rows)
    formulas = sum(row.computed for row in counted(rows) if row.verdict)
    numbers = enumerated([f"{words[word]} *{word}*" for word in WORDS])
    follow = f"; {formulas} of them follow{'s' * (formulas == 1)} from formulas" if formulas else ""
    text = f"**Score.** Of {sum(words.values())} claims, {numbers}{follow}. "
    if epsilons:
        counts = enumerated([f"{count} *{word}*" for word, count in epsilons.items()])
        text += f"Of {sum(epsilons.values())} claimed ε, {counts}. "
    return text + "[What the words mean](../README.md#what-the-words-mean).\n"


def _time(paper: Paper, folder: Path) -> str:
    """Say how long all runs of a paper take from nothing, and those that no record in `folder` has yet."""
    jobs = [job for item in paper.items for job in paper.planned(item)]
    total = total_of(jobs, committed(folder), lambda job: find_record(folder, job.run_id).exists())
    return time_text(total) if jobs else ""


def time_text(total: Total) -> str:
    """Write the numbers of a total in a sentence."""
    unknown = f", without {total.unknown} of unknown time" if total.unknown else ""
    verb, hours = "is" if total.left == 1 else "are", _about(total.seconds_left)
    left = f"{total.left:,} {verb} left, {hours}" if total.left else "none is left"
    return (
        f"**Time.** From nothing, its {total.runs:,} runs take {_about(total.seconds)} core-hours{unknown}; {left}.\n"
    )


def _about(seconds: float) -> str:
    """Round hours to two digits."""
    hours = float(f"{seconds / 3600:.2g}")
    return f"about {hours:,.0f}" if hours >= 10 else f"about {hours:g}"


def _failed(rows: Sequence[ClaimRow]) -> str:
    """Write the table of claims that fail or differ, or whose epsilon is refuted, each with its cause."""
    lines = []
    for row in counted(rows):
        if row.bad:
            cells = cells_of(row)
            claim = f"[{row.claim.item}]({row.claim.item}/README.md): {cells.what}"
            lines.append([claim, cells.claimed, cells.measured_of, marked_verdict(row), row.claim.cause or "–"])
    if not lines:
        return ""
    table = markdown(Table(("claim", "paper", "here (what it is)", "verdict", "why"), lines))
    return f"## What fails or differs, and why\n\n{table}"


def _section(paper: Paper, item: Item, rows: Sequence[ClaimRow], sources: Sources, most: int, scale: str) -> str:
    """Write the section of a table or figure: its finding, its picture, `most` claims, and where the others are."""
    judged = [row for row in rows if row.claim.item == item.name]
    finding = stated(paper.name, paper.findings.get(item.name), sources) if scale == PAPER_SCALE else ""
    heading = item.title.partition(":")[0] if finding else item.title  # the finding has the second half
    parts = [f"## {heading}\n"]
    shown = _foremost(paper, judged, most)
    if finding or len(counted(judged)) > len(shown):
        words = words_text(judged)
        parts.append(f"**{finding}**\n" if finding else f"{words[0].upper()}{words[1:]}.\n")
    if (sources.folder / paper.name / item.name / "figure.svg").exists():
        parts.append(f"![{finding or item.title}]({item.name}/figure.svg)\n")
    if shown:
        lines = []
        for row in shown:
            cells = cells_of(row)
            lines.append([cells.what, cells.claimed, cells.measured_of, epsilon_text(row), marked_verdict(row)])
        columns = [place for place in range(len(_HEADER)) if any(line[place] != "–" for line in lines)]
        texts = [[line[place] for place in columns] for line in lines]
        parts.append(markdown(Table([_HEADER[place] for place in columns], texts)))
    more = len(judged) - len(shown)
    link = f"{more} more row{'s' * (more > 1)}, notes and data" if more else "Notes and data"
    runs = _runs(paper, item, sources.folder, scale, judged)
    parts.append(f"[{link}]({item.name}/README.md){f' · {runs}' if runs else ''}\n")
    return "\n".join(parts)


def _runs(paper: Paper, item: Item, folder: Path, scale: str, rows: Sequence[ClaimRow]) -> str:
    """Say how many of an item's runs are recorded, and why there is no figure if there could be one; "" for all."""
    place = folder / paper.name / item.name
    planned = paper.planned(item, scale) if place.exists() else []
    recorded = [job for job in planned if find_record(folder, job.run_id).exists()]
    if not recorded:
        computed = not paper.needs(item) and (not rows or any(row.measured is not None for row in rows))
        return "computed without runs" if computed else "not run"
    text = f"{len(recorded)} of {len(planned)} runs" if len(recorded) < len(planned) else ""
    if item.draw and not (place / "figure.svg").exists():
        settings, with_run = ({job.setting_id for job in jobs} for jobs in (planned, recorded))
        text += f", no figure, because {len(settings - with_run)} of {len(settings)} settings have no run"
    return text.removeprefix(", ")


def _foremost(paper: Paper, rows: Sequence[ClaimRow], most: int) -> list[ClaimRow]:
    """Choose the claims that a reader sees first, in their order: those of the front page, then decided ones."""
    front_page = [summary.numbers["x"] for summary in paper.summaries if "x" in summary.numbers]

    def rank(row: ClaimRow) -> int:
        if any(row.claim.has(fields) for fields in front_page):
            return -1
        if row.bad:
            return 0
        return 1 if row.verdict in CONFIRMED else 2 if row.verdict == OPEN and row.measured is not None else 3

    chosen = {id(row) for row in sorted(counted(rows), key=rank)[:most]}
    return [row for row in rows if id(row) in chosen]


def _settings(paper: Paper, jobs: Sequence[Job], folder: Path) -> str:
    """Write the settings of the headline with their config files, the first ones of them, and the commands."""
    experiments = {job.experiment: job for job in reversed(jobs)}
    lines = []
    for name, job in list(reversed(experiments.items()))[:_MOST_SETTINGS]:
        config = leaves(job.values)
        classes = []
        linear = config.get("architecture") == "linear"  # it uses no activation
        for group in (group for group in _METHOD if config.get(group) and not (linear and group == "activation")):
            arguments = ", ".join(
                f"{field.partition('.')[2]} {setting_text(value)}"
                for field, value in config.items()
                if group in ("activation", "loss") and field.startswith(f"{group}.") and isinstance(value, (int, float))
            )
            classes.append(f"{config[group]}" + (f" ({arguments})" if arguments else ""))
        cells = setting_cells(job) | _epochs(job, folder)
        lines.append([f"[{name}](../../conf/experiment/{name}.yaml)", ", ".join(classes), *cells.values()])
    name, item = paper.name.replace("_", "-"), paper.items[0].name
    commands = (
        f"`make aggregate-{name} ITEMS={item}` draws it again from the records, `make reproduce-{name} ITEMS={item}` "
        f"trains what is missing, and `python -m runner claims --paper {name}` lists every claim.\n"
    )
    more = f" [More]({item}/settings.csv)." if len(experiments) > _MOST_SETTINGS else ""
    table = f"{markdown(Table(('config file', 'classes', *SETTING), lines))}\n" if lines else ""
    single = f"`python -m runner experiment=NAME` trains one of them.{more} " if lines else ""
    heading = paper.items[0].title.partition(":")[0]
    return f"## Settings of {heading}, and how to run it\n\n{table}{single}{commands}{_best_settings(paper)}"


def _epochs(job: Job, folder: Path) -> dict[str, str]:
    """Say after how many epochs a budget ended a recorded run early, or return {}."""
    path, planned = find_record(folder, job.run_id), int(job.field("epochs"))
    record = read_record(path) if job.field("max_epsilon") is not None and path.exists() else None
    if record is None or record["status"] != "finished" or record["final"]["epoch"] >= planned:
        return {}
    return {"epochs": f"{planned}, ended by its ε after {record['final']['epoch']:.0f}"}


def _best_settings(paper: Paper) -> str:
    """Link to the settings of the paper's method on the leaderboard, if it has one."""
    method = next((m for m in METHODS if m.get("paper") == paper.name), None)
    if method is None:
        return ""
    place = f"../leaderboard/settings.md#{anchor(method['name'])}"
    return f"\nTo use the method at a sound ε of 1 or 3, begin with [the settings that did best here]({place}).\n"
