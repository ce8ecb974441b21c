"""`python -m runner report`: one page of all results that needs no network, results/report.html.

The page has the findings, the leaderboard, every claim with filters, and the curves of every item. For each run it has
config, history, ledger in words and the command that repeats it. It is made from the records and the last aggregation;
only the ledgers are computed anew. It needs the extra `report`.

Exit codes: 0 written, 2 bad input (a damaged record, the extra is not installed) with one sentence, 130 stopped.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.claims.runs import PlannedRun
from runner.config import REPOSITORY
from runner.records.verify import run_of
from runner.report.claim_rows import rows_of
from runner.report.explain import released_text, trained_text
from runner.report.files import read_csv, write_text
from runner.report.leaderboard.entries import planned_runs
from runner.report.markdown import CLAIMED_EPSILON, chosen_cells
from runner.report.own import result_text
from runner.report.papers import Paper, every_paper, papers_and_studies
from runner.report.statements import stated
from runner.report.titles import title_of
from runner.terminal import Line, Parser

TEMPLATE = Path(__file__).with_suffix(".html")
WRITTEN = "report.html"
_CURVES = ("epoch", "test_accuracy", "test_loss", "epsilon", "epsilon_sound")
_BOARD = ("dataset", "sound ε at most", "title", "mean (%)", "± std", "n", "of", "settings", "run made for it")
_COLUMNS = {  # headings, and the cells of a claim below them
    **{"data set": "dataset", "claim": "method", "claimed": "claimed", "at ε": "at", "measured": "measured_of"},
    **{"difference [95%]": "difference", "verdict": "verdict", "ε of the run": "epsilon", "sound ε": "sound"},
    CLAIMED_EPSILON: "guarantee",
}


def page(results: Path, line: Line) -> str:
    """Make the page, as text.

    Raises:
        ValueError: a record is damaged, or another version has aggregated the results.
        ImportError: a library of the extra is not installed.
    """
    import jinja2

    papers = every_paper()
    line.show("report: records ...")
    recorded = {run.job.run_id: run for run in planned_runs() if run.record is not None}
    templates = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return templates.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        findings=[
            {"paper": paper.name.replace("_", "-"), "found": inline(found)}
            for paper in papers_and_studies()
            if (found := stated(paper, results))
        ],
        tables_head=tables_head(),
        board=searchable_table(_BOARD, _board(results), ["dataset", "sound ε at most"]),
        claims=searchable_table(*_claims(results, papers), ["paper", "data set", "verdict", CLAIMED_EPSILON]),
        vega=_script(_vega()),
        chart=_script(json.dumps(_chart())),
        items=_script(json.dumps(items_of(results, papers_and_studies(), recorded))),
        runs=_script(json.dumps(runs_of(list(recorded.values()), line))),
    )


def inline(text: str) -> Any:
    """Convert Markdown's emphasis to HTML, and its links, which point into the repository, to their text.

    >>> str(inline("**a < b**, [fig-3](results/x.png)"))
    '<strong>a &lt; b</strong>, fig-3'
    """
    from markupsafe import Markup

    escaped = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", html.escape(text))
    return Markup(re.sub(r"\*([^*]+)\*", r"<em>\1</em>", re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", escaped)))


def _script(text: str) -> Any:
    """Escape JavaScript for a script element, so that it neither ends the element nor begins a comment."""
    from markupsafe import Markup

    return Markup(re.sub("</(?=script)", r"<\\/", text, flags=re.IGNORECASE).replace("<!--", r"<\!--"))


def _vega() -> str:
    import vl_convert

    bundle: Callable[..., str] = vl_convert.javascript_bundle  # whose stub asks for more than it needs
    return bundle()


def _chart() -> dict[str, Any]:
    """Specify a chart of accuracy against epsilon, without data: a line for each run, a colour for each setting."""
    import altair as alt

    base = alt.Chart(alt.NamedData("curves")).encode(
        x=alt.X("x:Q", title="ε"),
        y=alt.Y("accuracy:Q", title="test accuracy (%)", scale=alt.Scale(zero=False)),
        color=alt.Color("setting:N", title=None, legend=alt.Legend(orient="bottom", columns=2, labelLimit=400)),
        strokeDash=alt.StrokeDash("setting:N", title=None),
        detail="run:N",
        tooltip=["setting:N", "seed:N", "epoch:Q", "accuracy:Q", "epsilon:Q", "sound:Q", "run:N"],
    )
    lines, points = base.mark_line(strokeWidth=1.5), base.mark_point(size=60, opacity=0, filled=True)
    chart: dict[str, Any] = (lines + points).properties(width="container", height=420).interactive().to_dict()
    return chart


def tables_head() -> Any:
    """Return DataTables itself, once for all tables."""
    from itables.javascript import generate_init_offline_itables_html
    from itables.utils import UNPKG_DT_BUNDLE_URL, find_package_file
    from markupsafe import Markup

    assert UNPKG_DT_BUNDLE_URL
    return Markup(generate_init_offline_itables_html(find_package_file("html/dt_bundle.js")))


def searchable_table(header: Sequence[str], rows: Sequence[Sequence[str]], filters: Sequence[str]) -> Any:
    """Make a table to sort and search, with filters by the values of some columns.

    Cells are escaped unless they are `markupsafe.Markup`.
    """
    import pandas as pd
    from itables import to_html_datatable
    from markupsafe import Markup, escape

    at = [list(header).index(name) for name in filters]
    escaped = [[str(escape(cell)) for cell in row] for row in rows]
    return Markup(
        to_html_datatable(
            pd.DataFrame(escaped, columns=[str(escape(name)) for name in header]),
            connected=False,
            allow_html=True,
            showIndex=False,
            display_logo_when_loading=False,
            maxBytes=0,
            lengthMenu=[10, 25, 100],
            layout={"top1": "searchPanes"},
            searchPanes={"layout": f"columns-{len(at)}", "columns": at, "initCollapsed": True, "controls": False},
            columnDefs=[{"searchPanes": {"show": True}, "targets": at}],
        )
    )


def _board(results: Path) -> list[list[str]]:
    rows = []
    for row in read_csv(results / "leaderboard" / "leaderboard.csv"):
        settings = "of held-out images" if row["held_out"] == "yes" else "chosen otherwise"
        if row["chosen_by_test_images"] == "yes":
            settings = "test images chose updates"
        numbers = [row[name] for name in ("dataset", "sound_epsilon_at_most", "title", "mean", "std", "n", "planned")]
        rows.append([*numbers, settings, row["made_for_it"]])
    return rows


def _claims(results: Path, papers: Sequence[Paper]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of all claims."""
    from markupsafe import Markup

    rows = []
    for paper in papers:
        judged = rows_of(results, paper)
        for row, cells in zip(judged, chosen_cells(judged, _COLUMNS), strict=True):
            item = row.claim.item
            link = Markup('<a href="#item={}">{}</a>').format(f"{paper.name}/{item}", item)
            cells[list(_COLUMNS).index("verdict")] = row.verdict  # the bare word, to filter by
            rows.append([paper.name.replace("_", "-"), link, *cells, row.explanation])
    return ["paper", "item", *_COLUMNS, "note"], rows


def items_of(results: Path, papers: Sequence[Paper], recorded: Mapping[str, PlannedRun]) -> dict[str, Any]:
    """Return the title of each item with runs, and the ids and labels of its recorded runs."""
    found: dict[str, Any] = {}
    for paper in papers:
        for item in paper.items:
            path = results / paper.name / item.name / "runs.csv"
            rows = [row for row in read_csv(path) if row["run_id"] in recorded] if path.exists() else []
            if rows:
                runs = [[row["run_id"], label(recorded[row["run_id"]])] for row in rows]
                found[f"{paper.name}/{item.name}"] = {"title": f"{paper.name}: {item.title}", "runs": runs}
    return found


def label(run: PlannedRun) -> str:
    """Name the setting of a run: its data set and title."""
    return f"{run.job.config.dataset.name}: {title_of(run.job)}"


def runs_of(runs: Sequence[PlannedRun], line: Line) -> dict[str, Any]:
    """Return the content of each run's own page, by run id. Runs of one setting share its description."""
    found: dict[str, Any] = {}
    said: dict[str, tuple[list[str], list[str]]] = {}
    for number, run in enumerate(runs, 1):
        record = run.record
        assert record is not None
        setting = f"{record['setting_id']}-{record['final']['steps']}-{record['final'].get('accepted')}"
        if setting not in said:
            line.show(f"report: run {number} of {len(runs)} ...")
            prepared = run_of(record["config"])
            said[setting] = trained_text(record, prepared), released_text(record, prepared)
        trained, released = said[setting]
        found[record["run_id"]] = {
            "title": f"{label(run)}, seed {run.seed}",
            "result": result_text(record),
            "trained": trained,
            "released": released,
            "command": run.field("tracking.command"),
            "config": record["config"],
            "history": {name: record["history"][name] for name in _CURVES},
            "revision": record["provenance"].get("git_revision"),
        }
    line.clear()
    return found


def main(arguments: Sequence[str]) -> int:
    """Write the page.

    Returns:
        The exit code.
    """
    parser = Parser(prog="python -m runner report", description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=REPOSITORY / "results" / WRITTEN)
    chosen = parser.parse_args(arguments)
    written = write_text(chosen.output, page(REPOSITORY / "results", Line()))
    print(f"{written}: {written.stat().st_size / 1e6:.1f} MB")
    return 0
