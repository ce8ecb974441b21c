"""Items of papers and studies in words, for a terminal, and what the words of a command name."""

import difflib
import json
from pathlib import Path

from runner.claims.verdicts import ClaimRow
from runner.config import options_of
from runner.records.store import record_files, record_of
from runner.report import listing
from runner.report.claim_rows import cells_of, rows_of
from runner.report.formats import Table, aligned, elsewhere, enumerated
from runner.report.papers import Item, Paper, every_paper, load, paper_names
from runner.terminal import command, nearest


def find_run(results: Path, beginning: str) -> Path:
    """Find the record whose id, or else whose setting's id, has this beginning.

    Raises:
        ValueError: there is none, or more than one.
    """
    records, setting = record_files(results), f'"setting_id": "{beginning}'.encode()
    paths = [path for path in records if path.stem.startswith(beginning)]
    paths = paths or [path for path in records if setting in path.read_bytes()]
    if not paths:
        raise ValueError(f"No record in {results} begins with {beginning}.")
    if len(paths) > 1:
        some = ", ".join(path.stem for path in paths[:3])
        raise ValueError(f"{len(paths)} records begin with {beginning}, or their setting does: choose from {some} ...")
    return paths[0]


def find_item(what: str) -> tuple[Paper, Item]:
    """Find a paper and its item by their names, "tempered_sigmoid/fig-3".

    Raises:
        ValueError: there is no such item; the message lists the nearest ones, or all.
    """
    name, _, item = what.partition("/")
    name = name.replace("-", "_")
    if name in paper_names():
        paper = load(name)
        items, item = {candidate.name: candidate for candidate in paper.items}, item.lower().replace("_", "-")
        if item in items:
            return paper, items[item]
        near = [f"{name}/{match}" for match in difflib.get_close_matches(item, items) or items]
        problem = f"no item {item!r}" if item else "several items"
        raise ValueError(f"{name} has {problem}. Did you mean {enumerated(near, 'or')}?")
    near = [f"{paper.name}/{what}" for paper in every_paper() if what in [entry.name for entry in paper.items]]
    if near:
        raise ValueError(f"{what} of which paper? Did you mean {enumerated(near, 'or')}?")
    hint = nearest(name, [f"{paper}/ITEM" for paper in paper_names()])
    raise ValueError(f"{what} is not the beginning of a run's id, PAPER/ITEM or studies/NAME. {hint}")


def claim_text(row: ClaimRow) -> str:
    """Format a claim, its measurement, the difference, the verdict and the privacy cost."""
    cells = cells_of(row)
    at_epsilon = f" at ε {cells.at_epsilon}" if cells.at_epsilon != "–" else ""
    text = f"{cells.what}: claimed {cells.claimed}{at_epsilon}"
    if row.measured is None:
        return f"{text}; {cells.verdict}"
    difference = f", difference {cells.difference}" if cells.difference != "–" else ""
    costs = [f"ε {cells.epsilon}, sound {cells.sound}"] if cells.epsilon != "–" else []
    costs += [f"claimed ε {row.guarantee}"] if row.guarantee else []
    parts = (f"{text}, measured {cells.measured_of}{difference}", cells.verdict, ": ".join(costs))
    return "; ".join(filter(None, parts))


def item_text(results: Path, paper: Paper, item: Item) -> str:
    """Explain an item of a paper: its claims with their verdicts, and the runs behind them."""
    folder = results / paper.name / item.name
    lines = [f"{paper.title}: {item.title}", ""]
    lines += [claim_text(row) for row in rows_of(results, paper, [item.name])] or ["No claim of it is checked."]
    records = [record_of(results, job.run_id) for job in (paper.planned(item) if folder.exists() else ())]
    if any(records):
        lines += ["", listing.records_text([record for record in records if record])]
    verb, root = "aggregate", elsewhere(results)
    if paper.needs(item):
        verb = "reproduce"
        root = [f"runtime.results_root={json.dumps(path, ensure_ascii=False)}" for path in root[1:]]
    repeated = command(verb, paper.name, "--items", item.name, *root)
    return "\n".join([*lines, "", f"Every number: {folder}", f"Made by: {repeated}"])


def study_text(results: Path, name: str) -> str:
    """Explain a study by its page: the answers, the table of its arms, and the command that makes it.

    Raises:
        ValueError: it has no page.
    """
    place = results / "studies" / name
    if not (place / "README.md").exists():
        for scale in options_of("scale"):
            if (shrunk := results / scale / "studies" / name / "README.md").exists():
                raise ValueError(f"Study '{name}' ran at the scale {scale} alone, which is no result: see {shrunk}.")
        pages = sorted(page.parent.name for page in place.parent.glob("*/README.md"))
        raise ValueError(f"No study '{name}' has a page in {place.parent}. Choose from {', '.join(pages) or 'none'}.")
    page = (place / "README.md").read_text(encoding="utf-8")
    lines = [line for line in page.partition("\n## ")[0].splitlines() if not line.startswith("![")]
    table = page.partition("\n## The arms\n\n")[2].partition("\n\n")[0].splitlines()
    header, _, *arms = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in table if line[:1] == "|")
    (again,) = (line.removeprefix("$ ") for line in page.splitlines() if line.startswith("$ "))
    return "\n".join([*lines, "", aligned(Table(header, arms)), "", f"Every number: {place}", f"Made by: {again}"])
