"""The dashboard of the present records: a page that opens without a network, and a picture of its charts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from runner.claims.blocks import DATASETS
from runner.claims.evidence import collect
from runner.claims.runs import PlannedRun
from runner.records.files import upper_bound
from runner.report.dashboard.definition import AXIS_TITLES, SECTIONS, TABLE, Panel
from runner.report.items import Paper
from runner.report.served import served
from runner.report.titles import title_of
from runner.search import pareto

Row = dict[str, Any]
ByItem = Mapping[str, Sequence[PlannedRun]]

_WIDTH, _HEIGHT, _COLUMNS = 330, 230, 3  # of a panel in pixels, and panels in a row


def recorded(of: Paper) -> dict[str, list[PlannedRun]]:
    """Read the recorded runs of each charted item that has any.

    Raises:
        ValueError: a record is damaged.
    """
    found = {}
    for name in of.charted:
        item = of.item(name)
        evidence = of.evidence_of(item, collect((*of.needs(item), *item.also)))
        runs = {run.job.run_id: run for each in evidence.sweeps.values() for run in each if run.record is not None}
        if runs:
            found[name] = list(runs.values())
    return found


def label(run: PlannedRun) -> str:
    """Name the setting of a run: its data set and title."""
    return f"{run.job.config.dataset.name}: {title_of(run.job)}"


def chart(of: Paper, runs: ByItem) -> Any:
    """Make one Altair chart of every section of every item and data set."""
    import altair as alt

    alt.data_transformers.disable_max_rows()
    blocks = []
    for item, every in runs.items():
        for dataset in DATASETS:
            some = [run for run in every if run.field("dataset.name") == dataset]
            for section, panels in SECTIONS.items():
                drawn = [each for panel in panels if (each := _drawn(panel, some)) is not None]
                if drawn:
                    title = alt.TitleParams(f"{item}, {dataset}: {section}", fontSize=15, anchor="start")
                    block = alt.concat(*drawn, columns=_COLUMNS).properties(title=title)
                    blocks.append(block.resolve_scale(color="shared", shape="shared"))
    title = alt.TitleParams(of.title, fontSize=20, anchor="start", offset=12)
    return alt.vconcat(*blocks).resolve_scale(color="independent", shape="independent").properties(title=title)


def _drawn(panel: Panel, runs: Sequence[PlannedRun]) -> Any | None:
    """Make a panel, or None if no run has a number to draw."""
    import altair as alt

    rows = [row for row in _rows(panel, runs) if math.isfinite(row["x"]) and math.isfinite(row["y"])]
    if not rows:
        return None
    base = alt.Chart(alt.InlineData(rows)).encode(
        x=alt.X("x:Q", title=AXIS_TITLES[panel.x], scale=alt.Scale(domain=_around([row["x"] for row in rows]))),
        y=alt.Y("y:Q", title=panel.y.replace("_", " "), scale=alt.Scale(zero=False)),
        color=alt.Color(
            "setting:N", title=None, legend=alt.Legend(orient="bottom", columns=2, labelLimit=420, symbolLimit=0)
        ),
        tooltip=["setting:N", "seed:N", "x:Q", "y:Q", "run:N"],
    )
    if panel.kind == "curve":
        drawn = base.mark_line(strokeWidth=1.2, opacity=0.75).encode(detail="run:N")
    else:
        front = alt.Chart(alt.InlineData(frontier(rows))).encode(x="x:Q", y="y:Q")
        drawn = front.mark_line(interpolate="step-after", color="#888", strokeDash=[4, 3]) + base.mark_point(
            size=45, filled=True, opacity=0.8
        )
    return drawn.properties(width=_WIDTH, height=_HEIGHT, title=panel.title)


def _around(values: Sequence[float]) -> list[float]:
    """Return limits a little outside the values, wide enough that equal values stay close."""
    low, high = min(values), max(values)
    space = max(0.05 * (high - low), 0.04 * high)
    return [max(0.0, low - space), high + space]


def _rows(panel: Panel, runs: Iterable[PlannedRun]) -> Iterator[Row]:
    for run in runs:
        assert run.record is not None
        who: Row = {"run": run.job.run_id, "setting": label(run), "seed": run.seed}
        history, ended = run.record["history"], _ended(run)
        if panel.kind == "pareto" and panel.y in ended:
            yield who | {"x": upper_bound(ended[panel.x]), "y": upper_bound(ended[panel.y])}
        elif panel.kind == "curve" and panel.y in history and panel.x in history:
            for x, y in zip(history[panel.x], history[panel.y], strict=True):
                yield who | {"x": upper_bound(x), "y": upper_bound(y)}


def _ended(run: PlannedRun) -> Row:
    assert run.record is not None
    final: Row = run.record["final"]
    return final


def frontier(rows: Sequence[Row]) -> list[Row]:
    """Return the Pareto front: points with the largest y at or below their x. The last is repeated at the largest x."""
    found = pareto(([row["x"]], [row["y"]]) for row in rows)
    last = max(row["x"] for row in rows), found[-1][1]
    return [{"x": x, "y": y} for x, y in (*found, last)]


def page(of: Paper, runs: ByItem, results: Any) -> str:
    """Make the page of charts and the table of runs, which loads no other file."""
    from itables.javascript import generate_init_offline_itables_html
    from itables.utils import find_package_file

    text: str = chart(of, runs).to_html(inline=True, json_kwds={"cls": _InScript})
    header, rows = table(runs, results)
    shown = f"<h2>Runs</h2>{_searchable(header, rows)}"
    head, end_of_head, rest = text.partition("</head>")
    body, end_of_body, after = rest.rpartition("</body>")  # the last one, because inlined scripts contain others
    code = generate_init_offline_itables_html(find_package_file("html/dt_bundle.js"))
    return f"{head}{code}{end_of_head}{body}{shown}{end_of_body}{after}"


class _InScript(json.JSONEncoder):
    """JSON for a script element, which no text in it can end."""

    def encode(self, o: Any) -> str:
        return super().encode(o).replace("<", r"\u003c")


def table(runs: ByItem, results: Any) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table of runs, with their final metrics and claims."""
    rows = []
    for item, some in runs.items():
        for run in some:
            ended, claims = _ended(run), served(results, run.job.sweep, run.job.experiment)
            known = {"claims": "; ".join(claims), "verdicts": ", ".join(dict.fromkeys(claims.values()))}
            cells = [str(known.get(name, ended.get(name, ""))).replace("None", "none") for name in TABLE]
            rows.append([item, label(run), str(run.seed), run.job.run_id, *cells])
    return ["item", "experiment", "seed", "run", *TABLE], rows


def _searchable(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Make a table to sort and to search, with filters by item and experiment; all cells are text."""
    import pandas as pd
    from itables import to_html_datatable
    from markupsafe import escape

    filters = [0, 1]
    escaped = [[str(escape(cell)) for cell in row] for row in rows]
    shown: str = to_html_datatable(
        pd.DataFrame(escaped, columns=[str(escape(name)) for name in header]),
        connected=False,
        allow_html=True,
        showIndex=False,
        display_logo_when_loading=False,
        maxBytes=0,
        lengthMenu=[10, 25, 100],
        layout={"top1": "searchPanes"},
        searchPanes={"layout": "columns-2", "columns": filters, "initCollapsed": True, "controls": False},
        columnDefs=[{"searchPanes": {"show": True}, "targets": filters}],
    )
    return shown
