"""The website: every page and link by one strict build, no request to a network, and what the two tables show."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from runner.config import REPOSITORY
from runner.report.claim_rows import cells_of, epsilon_text, rows_of, verdict_text
from runner.report.formats import read_csv
from runner.report.papers import every_paper
from tests.tracked import copy_tracked

pytest.importorskip("material")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the project's own pages, as a user's page in docs/ may lead nowhere."""
    checkout = tmp_path_factory.mktemp("checkout")
    code = ("checks", "conf", "runner", "studies", "sweeps", "tests")
    copy_tracked(checkout, "*", "docs/**/*", "results/*", "results/[!r]*/**/*", *(f"{name}/**/*" for name in code))
    script = checkout / "docs" / "site" / "hooks.py"  # the picture needs the runs of all sweeps: it is drawn below
    script.write_text(script.read_text().replace("content=front_png()", 'content=b"a picture"'))
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    environment = os.environ | {"SITE_URL": "https://example.org/", "REPOSITORY_URL": "https://example.org/code"}
    subprocess.run(command, cwd=checkout, env=environment, check=True, capture_output=True)
    return checkout / "site"


@pytest.fixture(scope="module")
def hooks() -> dict[str, Any]:
    return run_path(str(REPOSITORY / "docs" / "site" / "hooks.py"))


def test_every_paper_study_and_guide_is_a_page_in_the_menu(site: Path) -> None:
    home = (site / "index.html").read_text()
    sources = [*REPOSITORY.glob("results/*/README.md"), *REPOSITORY.glob("results/studies/*/README.md")]
    pages = [f"{path.parent.relative_to(REPOSITORY)}/index.html" for path in sources if "smoke" not in path.parts]
    assert len(pages) > 15
    assert [page for page in [*pages, "docs/running.html", "claims.html"] if f'href="{page}"' not in home] == []


def test_no_page_loads_anything_from_a_network(site: Path) -> None:
    loads = re.compile(r'<(?:script|img|iframe|link rel="stylesheet")[^>]*(?:src|href)="(?:https?:)?//[^"]*"')
    assert [path for path in site.rglob("*.html") if loads.search(path.read_text())] == []


def test_a_figure_opens_in_full_and_a_page_has_a_picture(site: Path, hooks: dict[str, Any]) -> None:
    page = (site / "results" / "losing_less" / "index.html").read_text()
    assert re.search(r'<a class="figure" href="fig-3/figure.svg"><img [^>]*src="fig-3/figure.svg"', page)
    assert (site / "results" / "losing_less" / "fig-3" / "figure.svg").is_file()
    assert re.search(r'og:image" content="https://example.org/results/front\.png"', page)
    assert (site / "results" / "front.png").read_bytes() == b"a picture"
    hooks["front_png"].__globals__["board_of"] = lambda _: ([], ())
    assert hooks["front_png"]().startswith(b"\x89PNG")
    assert 'og:description" content="The idea: ' in page


def test_a_file_of_any_kind_that_a_page_links_to_is_there(site: Path, hooks: dict[str, Any]) -> None:
    assert (site / "results" / "losing_less" / "fig-3" / "claims.csv").is_file()
    link = hooks["_FOLDER"].match("[settings](../conf/)")
    assert hooks["_folder"](link, "docs/x.md", "https://x.org/c/") == "[settings](https://x.org/c/tree/HEAD/conf)"
    assert hooks["_folder"](link, "docs/x.md", None) == "settings"


def test_the_claims_are_those_of_all_papers_as_pages_show_them(site: Path) -> None:
    judged = [row for paper in every_paper() for row in rows_of(REPOSITORY / "results", paper)]
    table = _rows(site / "claims.js")
    texts = [(cells_of(row), verdict_text(row), epsilon_text(row)) for row in judged]
    expected = [[cells.claimed, cells.measured_of, word, ε] for cells, word, ε in texts]
    assert [row["cells"][1:] for row in table["rows"]] == expected
    assert [row["filters"]["verdict"] for row in table["rows"]] == [row.verdict for row in judged]
    assert table["filters"]["verdict"] == ["holds", "not contradicted", "differs", "fails", "open"]
    assert table["usual"] == {"counted": "yes"}
    linked = {link for row in table["rows"] for link in row["links"].values()}
    assert [link for link in linked if not (site / link.partition("#")[0]).is_file()] == []


def test_the_leaderboard_has_all_rows_the_best_first(site: Path) -> None:
    table = _rows(site / "leaderboard.js")
    source = read_csv(REPOSITORY / "results" / "leaderboard" / "leaderboard.csv")
    means = [row["order"]["accuracy in % (runs)"] for row in table["rows"]]
    assert means == sorted((float(row["mean"]) for row in source), reverse=True)
    best = next(row for row in source if float(row["mean"]) == means[0])
    assert table["rows"][0]["cells"][2].startswith(f"{means[0]:.2f}")
    assert best["title"] in {row["cells"][0] for row in table["rows"] if row["cells"][2].startswith(f"{means[0]:.2f}")}


def _rows(path: Path) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(path.read_text().removeprefix("const ROWS = ").rstrip(";\n"))
    return table
