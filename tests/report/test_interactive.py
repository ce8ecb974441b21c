"""The page that needs no network: what is in it, and what a real browser makes of it."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from markupsafe import Markup

from runner.claims.runs import PlannedRun
from runner.config import REPOSITORY
from runner.records.files import read_record, record_path
from runner.report import interactive
from runner.report.files import write_csv
from runner.report.interactive import inline, label, page, runs_of, searchable_table
from runner.report.leaderboard.tables import COLUMNS
from runner.terminal import Line

pytest.importorskip("altair")
pytest.importorskip("itables")
pytest.importorskip("vl_convert")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

# Chooses a verdict among the filters of the claims, clicks a line of the chart, and reports the result.
DRIVER = """
<script>
const wrong = [], pause = ms => new Promise(done => setTimeout(done, ms));
addEventListener("error", event => wrong.push(event.message));
addEventListener("unhandledrejection", event => wrong.push(String(event.reason)));
setTimeout(async () => {
  const claims = document.querySelector("#claims").nextElementSibling;
  const shown = () => claims.querySelector(".dt-info").textContent;
  const before = shown();
  const panes = [...claims.querySelectorAll(".dtsp-searchPane td")];
  panes.find(cell => cell.textContent.startsWith("not reproduced")).click();
  await pause(1500);
  const verdicts = [...new Set([...claims.querySelectorAll("table.dataTable > tbody > tr")]
    .filter(row => row.cells.length > 9).map(row => row.cells[8].textContent))];
  const after = shown(), lines = document.querySelectorAll("#chart path[aria-roledescription='line mark']");
  lines[0].dispatchEvent(new MouseEvent("click", {bubbles: true}));
  await pause(500);
  const run = {open: document.querySelector("#run").open, title: document.querySelector("#run-title").textContent,
    command: document.querySelector("#run-command").textContent,
    epochs: document.querySelectorAll("#run-history tbody tr").length};
  const said = {before, after, verdicts, lines: lines.length, run, wrong};
  document.body.replaceChildren(Object.assign(document.createElement("pre"), {textContent: JSON.stringify(said)}));
}, 3000);
</script>
</body>
"""


@pytest.fixture(scope="module")
def runs() -> list[PlannedRun]:
    """Read two recorded runs of a figure."""
    from runner.records.jobs import sweep_jobs

    first = [job for job in sweep_jobs("tempered_sigmoid/fig_3") if job.config.seed == 0]
    listed = [job for job in first if "/mnist_" in job.experiment]
    return [PlannedRun(job, read_record(record_path(REPOSITORY / "results", job.run_id))) for job in listed]


@pytest.fixture(scope="module")
def written(runs: list[PlannedRun], tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interactive, "planned_runs", lambda: runs)
        path = tmp_path_factory.mktemp("page") / "report.html"
        path.write_text(page(REPOSITORY / "results", Line()), encoding="utf-8")
    return path


def test_a_runs_page_has_its_ledger_and_its_command(runs: list[PlannedRun]) -> None:
    tanh = next(run for run in runs if run.name == "mnist_tanh")
    shown = runs_of([tanh], Line())[tanh.job.run_id]
    assert shown["title"] == "MNIST: DP-SGD, tanh, seed 0" == f"{label(tanh)}, seed 0"
    assert any("released: 13,338 sums over batches" in text for text in shown["released"])
    assert shown["command"] == (
        "python -m runner sweeps=tempered_sigmoid/fig_3 experiment=tempered_sigmoid/mnist_tanh seed=0"
    )
    assert shown["history"]["test_accuracy"][-1] == tanh.final("test_accuracy")


def test_text_and_cells_are_escaped_unless_they_are_markup() -> None:
    assert str(inline("**a < b** at *c*, [x](y)")) == "<strong>a &lt; b</strong> at <em>c</em>, x"
    evil = "<img src=x onerror=alert(1)>"
    table = str(searchable_table(["a", evil], [[evil, Markup('<a href="#b">c</a>')]], ["a"]))
    assert "<img" not in table
    assert "&lt;img" in table
    assert json.dumps('<a href="#b">c</a>')[1:-1] in table or '<a href="#b">c</a>' in table


def test_a_leaderboard_row_is_text(tmp_path: Path) -> None:
    """In all columns of a file of results."""
    write_csv(tmp_path / "leaderboard" / "leaderboard.csv", COLUMNS, [dict.fromkeys(COLUMNS, "<img>")])
    (row,) = interactive._board(tmp_path)
    assert not any(isinstance(cell, Markup) for cell in row)
    assert row[-1] == "<img>"


@pytest.mark.slow
def test_the_page_is_one_file_and_names_no_other(written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    assert len(text) < 15e6
    loaded = re.findall(r"""<(?:script|link|img|iframe)[^>]*\b(?:src|href)=["'](?!data:|\$)([^"']+)""", text)
    assert loaded == []


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_a_browser_filters_and_clicks_without_an_error(written: Path, tmp_path: Path) -> None:
    copy = tmp_path / "driven.html"
    text = written.read_text(encoding="utf-8")
    assert text.count("</body>\n</html>") == 1
    copy.write_text(text.replace("</body>\n</html>", DRIVER + "</html>"), encoding="utf-8")
    assert CHROMIUM is not None
    browser = subprocess.run(
        [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=30000", "--dump-dom",
         "--enable-logging=stderr", f"--user-data-dir={tmp_path}/profile", copy.as_uri()],
        capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert "CONSOLE" not in browser.stderr, [line for line in browser.stderr.splitlines() if "CONSOLE" in line]
    found = re.search(r"<pre>(.*?)</pre>", browser.stdout, re.DOTALL)
    assert found, browser.stdout[-500:]
    said = json.loads(html.unescape(found[1]))
    assert said["wrong"] == []
    assert said["verdicts"] == ["not reproduced"]
    assert said["before"] != said["after"]
    assert said["lines"] == 2
    assert said["run"]["open"]
    assert said["run"]["title"].startswith("mnist_")
    assert said["run"]["command"].startswith(
        "python -m runner sweeps=tempered_sigmoid/fig_3 experiment=tempered_sigmoid/mnist_"
    )
    assert said["run"]["epochs"] == 57
