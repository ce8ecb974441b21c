"""The pages of results: the index results/README.md, a page for each paper, and an item's claims for a terminal.

The page of a paper says what it claims, what was measured, what failed and why, then each of its tables and figures.
All are made from the claims.csv files in the results folder, so that a page agrees with the files it links to.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.claims import verdicts
from runner.claims.claim import ANOTHER_READING
from runner.claims.evidence import PAPER_SCALE
from runner.claims.verdicts import CONFIRMED, OPEN, WORDS, ClaimRow, capitalised, count_words, counted
from runner.records.disk import find_record, read_record
from runner.records.jobs import Job, sweep_jobs
from runner.records.store import leaves
from runner.report import figures
from runner.report.claim_rows import (
    CLAIMED_EPSILON,
    cells_of,
    chosen_cells,
    epsilon_text,
    marked_verdict,
    null_text,
    rows_of,
    words_text,
    wrong_epsilon,
)
from runner.report.formats import Table, aligned, enumerated, markdown, write_text
from runner.report.leaderboard.methods import METHODS, anchor
from runner.report.papers import Item, Paper, every_paper, load, study_pages
from runner.report.statements import Sources, findings_list, headline_of, noise_text, stated, summary_rows
from runner.report.tables import SETTING, setting_cells, setting_text
from runner.runs.durations import Total, committed, total_of, unplanned_text

_SMOKE = """
> **{scale}: NOT A REPRODUCTION.** These runs are shrunk to minutes on scikit-learn's handwritten
> digits, enlarged to each data set's shape. They show that
> everything works, and nothing about the papers: only what is computed without runs is judged.
"""

_NO_EPSILON = "number holds or is not contradicted, ε refuted or not guaranteed"
_COLUMNS = {  # headings in a terminal, and the cells below them
    **{"what": "what", "claimed": "claimed", "at ε": "at_epsilon", "measured": "measured_of"},
    **{"difference [95%]": "difference", "verdict": "verdict", "ε of the run": "epsilon", "sound ε": "sound"},
    CLAIMED_EPSILON: "guarantee",
}
_LINKS = {  # links to other folders of results, if they exist
    "leaderboard": "[The leaderboard](leaderboard/README.md) compares all methods at the same sound ε.",
    "audit": "[The audit](audit/README.md) attacks what is implemented.",
    "studies": "[The studies](#studies) compare combinations and additions at the same sound ε.",
}
_MOST, _TOTAL = 5, 24  # claims in the section of the headline, and about as many on the page
_MOST_SETTINGS = 8
_HEADER = ("claim", "paper", "here (what it is)", "ε paper → sound", "verdict")
_METHOD = ("architecture", "activation", "loss", "clipping", "optimizer", "screening")  # groups whose class is named


def write_report(scale: str, sources: Sources) -> list[Path]:
    """Write README.md into the results folder of a scale, an index, and a page of claims into each paper's folder."""
    papers, folder = every_paper(), sources.folder
    by_paper = {paper.name: rows_of(folder, paper) for paper in papers}
    full_scale = scale == PAPER_SCALE
    mark = "" if full_scale else _SMOKE.format(scale=scale.upper())
    aggregated = [paper for paper in papers if (folder / paper.name).exists()]
    lines = []
    for paper in aggregated:
        citation = f" ([{paper.citation}]({paper.link}))" if paper.citation and paper.link else ""
        idea = f": {paper.idea}" if paper.idea else ""
        lines.append(f"- [{paper.title}]({paper.name}/README.md){citation}{idea}\n")
    findings = findings_list(papers, sources) if full_scale else ""
    noise = noise_text(folder, scale, by_paper, "../docs/privacy.md#known-limits")
    compared, studies = "Arms compared at the same sound ε. These are no claims.", _studies(sources, scale)
    template = (Path(__file__).parent / "index.md").read_text(encoding="utf-8")
    text = template.format(
        title="Results" if full_scale else f"Results of {scale} runs",
        mark=mark,
        papers="".join(lines),
        links="".join(f"\n{line}\n" for name, line in _LINKS.items() if (folder / name).exists()),
        findings=f"\n## Findings\n\n{findings}" if findings else "",
        totals=totals({name.replace("_", "-"): rows for name, rows in by_paper.items()}),
        noise=f"\n{noise}" if noise else "",
        failing=_failing(by_paper),
        studies=f"\n## Studies\n\n{compared}\n\n{markdown(studies)}" if studies.rows else "",
        rules=markdown(Table(("word", "if"), [[rule.word, rule.text] for rule in verdicts.RULES])),
    )
    written = figures.write_verdicts(folder, by_paper, "" if full_scale else scale)
    for paper in aggregated:
        jobs = sweep_jobs(paper.items[0].sweeps[0], (f"scale={scale}",)) if paper.items[0].sweeps else ()
        page = paper_page(paper, by_paper[paper.name], jobs, sources, mark=mark, scale=scale)
        page += "\nThis page is generated by `python -m runner aggregate`.\n"
        written.append(write_text(folder / paper.name / "README.md", page))
    return [write_text(folder / "README.md", text), *written]


def totals(by_paper: Mapping[str, Sequence[ClaimRow]]) -> str:
    """Write the tables of counts, of the numbers and of the claimed ε: a row for each paper and one for all.

    The claims by a formula are in brackets. A note says how many rows do not count, and the other readings' words.
    """
    numbers, epsilons = [], []
    everything = [row for rows in by_paper.values() for row in rows]
    for name, rows in {**by_paper, "**all**": everything}.items():
        words, formulas = count_words(rows), count_words([row for row in rows if row.computed])
        cells = [f"{words[w]} ({formulas[w]} by formula)" if formulas[w] else str(words[w]) for w in WORDS]
        numbers.append([name, *cells, str(len(counted(rows)))])
        guarantees, wrong = Counter(row.guarantee for row in counted(rows)), sum(map(wrong_epsilon, counted(rows)))
        epsilons.append([name, *(str(guarantees[word]) for word in verdicts.ON_EPSILON), str(wrong)])
    tables = [Table(("paper", *WORDS, "all"), numbers)]
    tables.append(Table(("paper, claimed ε", *verdicts.ON_EPSILON, _NO_EPSILON), epsilons))
    readings = [row for row in everything if row.claim.counted == ANOTHER_READING]
    words = Counter(row.verdict for row in readings)
    counts = ", ".join(f"{words[word]} *{word}*" for word in WORDS if words[word])
    context = sum(row.claim.contextual for row in everything)
    parts = [f"{len(readings)} of other readings" + (f" ({counts})" if counts else "")] * bool(readings)
    parts += [f"{context} for context"] * bool(context)
    uncounted = f"Rows that are shown, but not counted: {enumerated(parts)}." if parts else ""
    note = (
        "A claim is a number or a statement of a paper, and each counts once. If it has several readings, the first "
        f"counts. {uncounted} `python -m runner claims --verdict fails` lists the claims with a word, "
        "and `--all` adds the rows that do not count."
    )
    return "\n".join(map(markdown, tables)) + f"\n{note}\n"


def _failing(by_paper: Mapping[str, Sequence[ClaimRow]]) -> str:
    """Write a table of the claims that fail or differ, or whose ε is refuted, the worst words first."""
    bad = [(name, row) for name, rows in by_paper.items() for row in counted(rows) if row.bad]
    ranks = {verdicts.FAILS: 1, verdicts.DIFFERS: 2}
    bad.sort(key=lambda pair: 0 if pair[1].guarantee == verdicts.REFUTED else ranks[pair[1].verdict])
    lines = []
    for name, row in bad:
        cells, refuted = cells_of(row), f", ε {verdicts.REFUTED}" if row.guarantee == verdicts.REFUTED else ""
        place = f"[{name.replace('_', '-')}, {row.claim.item}]({name}/{row.claim.item}/README.md)"
        texts = (cells.what, cells.claimed, cells.measured_of, f"{cells.verdict}{refuted}", row.claim.cause or "–")
        lines.append([place, *texts])
    table = markdown(Table(("where", "claim", "paper", "here (what it is)", "verdict", "why"), lines))
    return f"\n## Claims that fail or differ, or whose ε is refuted\n\n{table}" if lines else ""


def _studies(sources: Sources, scale: str) -> Table:
    """List the studies with their answers, the numbers of their recorded runs, and their files."""
    rows = []
    for study in study_pages(sources.folder):
        place = sources.folder / "studies" / study.name
        runs = len({row["run_id"] for row in sources.runs(study.name)})
        names = ("figure.svg", "table.csv", "effects.csv", "chosen.csv", "runs.csv")
        files = (name for name in names if (place / name).exists())
        links = " ".join(f"[{Path(name).stem}](studies/{study.name}/{name})" for name in files)
        answer = headline_of(stated(study.name, study.statement, sources)) if scale == PAPER_SCALE else ""
        rows.append([f"[{study.title}](studies/{study.name}/README.md)", answer, runs, links])
    return Table(("study", "answer", "runs", "files"), rows)


def headline(paper: str, scale: str, folder: Path, items: Sequence[str] | None = None) -> str:
    """Format the claims of a paper's first item, or of the items named, as aligned columns for a terminal.

    Raises:
        ValueError: unknown paper or item.
    """
    loaded = load(paper)
    rows = rows_of(folder, loaded, items or [loaded.items[0].name])
    cells = zip(rows, chosen_cells(rows, _COLUMNS), strict=True)
    text = aligned(Table(("item", *_COLUMNS), [[row.claim.item, *texts] for row, texts in cells]))
    return text if scale == PAPER_SCALE else f"{scale.upper()}: not a reproduction\n{text}"


def paper_page(
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
    if (folder / figures.DISTANCES).exists():
        alternative = f"{figures.DISTANCES_TITLE} {capitalised(words_text(rows))}"
        parts.append(f"## Distances\n\n![{alternative}]({figures.DISTANCES}/figure.svg)\n")
    if (folder / figures.PRICE / "figure.svg").exists():
        parts.append(figures.PRICE_SECTION)
    studies = [study for study in study_pages(sources.folder) if study.name in paper.studies] if findings else []
    if studies:
        links = "".join(f"- [{study.title}](../studies/{study.name}/README.md)\n" for study in studies)
        parts.append(f"## Studies that ask further\n\n{links}")
    return "\n".join(filter(None, parts))


def _score(rows: Sequence[ClaimRow]) -> str:
    words, epsilons = count_words(rows), Counter(row.guarantee for row in counted(rows) if row.guarantee)
    formulas = sum(row.computed for row in counted(rows) if row.verdict)
    numbers = enumerated([f"{words[word]} *{word}*" for word in WORDS])
    follow = f"; {formulas} of them follow{'s' * (formulas == 1)} from formulas" if formulas else ""
    nulls = f", {nulls}" if (nulls := null_text(rows)) else ""
    text = f"**Score.** Of {sum(words.values())} claims, {numbers}{nulls}{follow}. "
    if epsilons:
        counts = enumerated([f"{count} *{word}*" for word, count in epsilons.items()])
        text += f"Of {sum(epsilons.values())} claimed ε, {counts}. "
    return text + "[What the words mean](../README.md#what-the-words-mean).\n"


def _time(paper: Paper, folder: Path) -> str:
    """Say how long all runs of a paper take from nothing, and those that no record in `folder` has yet."""
    times = committed(folder)

    def done(job: Job) -> bool:
        return find_record(folder, job.run_id).exists()

    planned, left_out = paper.split({item.name: paper.planned(item) for item in paper.items}, done)
    jobs = [job for runs in planned.values() for job in runs]
    notes = "".join(f"- {unplanned_text(runs, times)}: {reason}\n" for reason, runs in left_out.items())
    return "\n".join(filter(None, (time_text(total_of(jobs, times, done)) if jobs else "", notes)))


def time_text(total: Total) -> str:
    """Write the numbers of a total in a sentence."""
    unknown = f", without {total.unknown} of unknown time" if total.unknown else ""
    verb, hours = "is" if total.left == 1 else "are", _about(total.seconds_left)
    left = f"{total.left:,} {verb} left, {hours}" if total.left else "none is left"
    return (
        f"**Time.** From nothing, its {total.runs:,} runs take {_about(total.seconds)} core-hours{unknown}; {left}.\n"
    )


def _about(seconds: float) -> str:
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
    finding = stated(paper.name, item.finding, sources) if scale == PAPER_SCALE else ""
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
    method = next((anchor(m["name"]) for m in METHODS if m.get("paper") == paper.name), None)
    best = f"[the settings that did best here](../leaderboard/settings.md#{method})"
    link = f"\nTo use the method at a sound ε of 1 or 3, begin with {best}.\n" if method else ""
    return f"## Settings of {heading}, and how to run it\n\n{table}{single}{commands}{link}"


def _epochs(job: Job, folder: Path) -> dict[str, str]:
    """Say after how many epochs a budget ended a recorded run early, or return {}."""
    path, planned = find_record(folder, job.run_id), int(job.field("epochs"))
    record = read_record(path) if job.field("max_epsilon") is not None and path.exists() else None
    if record is None or record["status"] != "finished" or record["final"]["epoch"] >= planned:
        return {}
    return {"epochs": f"{planned}, ended by its ε after {record['final']['epoch']:.0f}"}
