"""The website without a browser: links, titles, tables, escaped texts, and the folder that it is written to."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from os.path import normpath
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import pytest

from runner.config import REPOSITORY
from runner.report.cells import cells_of, verdict_text
from runner.report.claim_rows import rows_of
from runner.report.files import write_csv
from runner.report.leaderboard.tables import COLUMNS
from runner.report.paper_page import epsilon_text
from runner.report.papers import every_paper
from runner.report.site import command, pages
from runner.report.site.tables import FilterTable, Row, leaderboard_table
from runner.report.site.text import render
from tests.tracked import copy_tracked, tracked

pytest.importorskip("itables")
pytest.importorskip("jinja2")
pytest.importorskip("markdown_it")
EVIL = "<img src=x onerror=alert(1)>'\""


class Page(HTMLParser):
    """The parts of a page that the tests look at; `rows` has the cells of each table row as text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.tags: set[str] = set()
        self.title = ""
        self.rows: list[list[str]] = []
        self.filters: list[dict[str, str]] = []
        self._in = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = dict(attrs)
        self._in = tag
        self.tags.add(tag)
        self.ids.add(of.get("id") or "")
        if tag == "a" and of.get("href"):
            self.links.append(str(of["href"]))
        self.loaded += [str(of[name]) for name in ("src", "href") if of.get(name) and tag != "a"]
        if tag == "tr":
            self.rows.append([])
            if of.get("data-filters"):
                self.filters.append(json.loads(str(of["data-filters"])))
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self._in == "title":
            self.title += data.strip()
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data.strip()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pages.Content]:
    """The site of the project's own pages, as a user's page in docs/ may lead nowhere."""
    folder = tmp_path_factory.mktemp("checkout")
    code = ("checks", "conf", "runner", "studies", "sweeps", "tests")
    copy_tracked(folder, "*", "docs/*", "results/*", "results/[!r]*/**/*", *(f"{name}/**/*" for name in code))
    return pages.site(folder)


@pytest.fixture(scope="module")
def read(site: dict[str, pages.Content]) -> dict[str, Page]:
    return {path: Page(text) for path, text in site.items() if path.endswith(".html") and isinstance(text, str)}


def test_every_relative_link_leads_to_a_file_of_the_site_and_to_a_part_of_it(site, read) -> None:
    dead = []
    for path, page in read.items():
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "data"):
                continue
            target = normpath(PurePosixPath(path).parent / unquote(parts.path)) if parts.path else path
            part = unquote(parts.fragment)
            if target not in site or (part and "=" not in part and part not in read[target].ids):
                dead.append(f"{path}: {link}")
    assert dead == []
    assert all(isinstance(of, str) or of.is_file() for of in site.values())


def test_no_page_loads_anything_from_a_network(read: dict[str, Page]) -> None:
    loaded = {urlsplit(address).scheme for page in read.values() for address in page.loaded}
    assert loaded == {"", "data"}


def test_the_claims_are_those_of_all_papers_as_the_pages_show_them(read: dict[str, Page]) -> None:
    judged = [row for paper in every_paper() for row in rows_of(REPOSITORY / "results", paper)]
    header, *rows = read["claims.html"].rows
    assert header == ["claim", "claimed (paper)", "here (what it is)", "verdict", "ε (paper → sound)", "more"]
    shown = [(cells_of(row), verdict_text(row), epsilon_text(row)) for row in judged]
    assert [row[1:5] for row in rows] == [[of.claimed, of.measured_of, word, ε] for of, word, ε in shown]
    assert [of["verdict"] for of in read["claims.html"].filters] == [row.verdict for row in judged]


def test_only_counted_claims_are_shown_at_first_and_words_have_an_order(site: dict[str, pages.Content]) -> None:
    text = str(site["claims.html"])
    chosen, *options = re.findall(r"<option( selected)?>([^<]*)</option>", text.partition('name="counted"')[2])[:3]
    assert chosen == (" selected", "yes")
    assert options == [("", "no, another reading"), ("", "no, for context")]
    words = re.findall(r"<option>([^<]*)</option>", text.partition('name="verdict"')[2].partition("</select>")[0])
    assert words == ["holds", "not contradicted", "differs", "fails", "open"]


def test_no_text_of_a_row_is_markup() -> None:
    row = Row(EVIL, EVIL, {EVIL: EVIL}, {}, {EVIL: EVIL}, {EVIL: EVIL}, {EVIL: "index.html"})
    text = pages._page(pages._templates(), {"": [pages.Link(EVIL, "index.html")]}, "claims.html", "claims.html", EVIL,
                       table=FilterTable(EVIL, [row]))  # fmt: skip
    page = Page(text)
    assert "img" not in page.tags
    assert page.filters == [{EVIL: EVIL}]
    assert page.title == f"{EVIL} – dp-repro-bench"


def test_markdown_keeps_folds_and_shows_other_html_as_text(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a b.md").write_text("# A")
    source = (
        f"# About {EVIL}\n\n<details><summary>2 rows</summary>\n\n| a |\n| --- |\n| [b](<docs/a b.md#a>) |\n\n"
        "</details>\n\n<script>alert(1)</script>\n\n[folder](conf/) [out](https://example.org) [here](#about)\n\n"
        "## A\n\n## A\n"
    )
    text = render(source, "README.md", tmp_path, "https://example.org/blob/main/")
    page = Page(text.html)
    assert {"details", "summary", "table"} <= page.tags
    assert not {"script", "img"} & page.tags
    assert page.links == ["docs/a%20b.html#a", "https://example.org/blob/main/conf", "https://example.org", "#about"]
    assert (text.title, text.links, text.anchors[1:]) == (f"About {EVIL}", ["docs/a b.md"], ["a", "a-1"])
    assert "conf" not in "".join(Page(render(source, "README.md", tmp_path).html).links)
    for dead in ("nothing.md", "../outside.md", "docs/../../x"):
        with pytest.raises(ValueError, match=r"README\.md links to"):
            render(f"[x]({dead})", "README.md", tmp_path)


def test_a_run_has_the_text_of_explain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "run_sections", lambda path, _: {"run": [f"{path.stem} at 98%"], "It released": [EVIL]})
    monkeypatch.setattr(pages, "_read", lambda *_: ({}, []))
    run = tracked("results/runs/*.json")[0].stem
    made = pages.site(REPOSITORY, [run])
    text, claims = made[f"runs/{run}.html"], made["claims.html"]
    assert isinstance(text, str)
    assert isinstance(claims, str)
    assert f"{run} at 98%" in text
    assert "&lt;img src=x" in text
    assert "img" not in Page(text).tags
    assert f"runs/{run}.html" in Page(claims).links


def test_only_a_folder_that_it_made_is_replaced(tmp_path: Path, refusal) -> None:
    folder = tmp_path / "site"
    command.write(folder, {"index.html": "old", "docs/old.html": "old"})
    command.write(folder, {"index.html": "new"})
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"index.html": "new", command._MARK: ""}
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("mine")
    for place in (mine, mine / "thesis.tex"):
        assert "is no site that this command wrote" in refusal(command.main, ["--output", str(place)])
    assert (mine / "thesis.tex").read_text() == "mine"
    assert "No record" in refusal(command.main, ["--output", str(tmp_path / "new"), "--runs", "000000000000"])
    assert not (tmp_path / "new").exists()


def test_a_row_of_the_leaderboard_has_its_number_its_runs_and_its_epsilon(tmp_path: Path) -> None:
    row = dict.fromkeys(COLUMNS, "no") | {"dataset": "CIFAR10", "title": EVIL, "mean": 61.6, "std": 0.5, "n": 3}
    row |= {"sound_epsilon_at_most": 3.0, "sound_epsilon": 2.98123, "low": 60.36, "high": 62.84}
    (entry,) = leaderboard_table(write_csv(tmp_path / "leaderboard.csv", COLUMNS, [row])).rows
    assert (entry.name, entry.under) == (EVIL, "CIFAR-10")
    assert list(entry.cells.values()) == ["3", "61.60 ± 0.50 (3)", "[60.36, 62.84]", "2.982"]
