"""Statements on the papers: they have the numbers of their claims, and hold under their verdicts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.claims.rows import ClaimRow
from runner.config import REPOSITORY
from runner.report import pages, statements
from runner.report.claim_rows import rows_of
from runner.report.items import Statement
from runner.report.pages import write_report
from runner.report.papers import every_paper, every_study, load, papers_and_studies
from runner.report.statements import Number, findings_list, stated
from tests.claims.made_up import claim

CLAIM = claim(item="fig-1", dataset="MNIST", claimed="98", unit="%", at_epsilon="3")
ROW = ClaimRow(
    CLAIM, "paper", "too few runs", "guaranteed", measured=97.5, mean=97.5, std=0.25, n=3, n_planned=5, difference=-0.5,
    interval_low=-1.1, interval_high=0.1, epsilon=3.0, epsilon_sound=2.36,
)  # fmt: skip


def number(part: str, row: ClaimRow = ROW) -> str:
    return format(Number(row), part)


def test_a_number_is_its_rows_and_rounded():
    assert [number(part) for part in ("", "gain", "interval", "claimed", "runs")] == [
        "97.5", "−0.50", "[−1.1, +0.10]", "98", "3",
    ]  # fmt: skip
    assert number("sound") == "2.36", "a bound is rounded up"
    assert number("sound", replace(ROW, epsilon_sound=2033.21)) == "2034"
    with pytest.raises(ValueError, match="no 'sound'"):
        number("sound", replace(ROW, epsilon_sound=None))


def test_a_statement_takes_the_first_claim_that_its_fields_name_and_holds_under_its_verdicts(tmp_path, monkeypatch):
    other = replace(ROW, verdict="reproduced", measured=90.0)
    monkeypatch.setattr(statements, "rows_of", lambda folder, paper: [ROW, other])
    paper = replace(every_paper()[0], statement=Statement("{x}", {"x": {"item": "fig-1", "verdict": "too few runs"}}))
    assert stated(paper, tmp_path) == "97.5"
    wrong = replace(paper, statement=Statement("{x}", {"x": {"item": "fig-1", "verdict": "reproduced"}}))
    assert stated(wrong, tmp_path) == "", "the second reading is no substitute for the first"


def test_no_statement_is_made_of_smoke_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "stated", lambda *_: pytest.fail("stated"))
    (tmp_path / every_paper()[0].name).mkdir()
    write_report(tmp_path, "smoke")


def test_every_paper_with_a_statement_is_listed_with_the_numbers_of_the_committed_tables():
    listed = findings_list(papers_and_studies(), REPOSITORY / "results")
    assert listed.count("\n") == len([paper for paper in papers_and_studies() if paper.statement]) >= 6
    assert "claims ε = 3 on MNIST. Its theorem allows acceptance rules for which ε is at least 6.2." in listed
    assert "only an ε of 2034 is proven." in listed


def test_a_statement_is_not_made_without_its_numbers(tmp_path):
    (paper, *_) = every_paper()
    assert stated(paper, tmp_path) == ""


def test_every_statement_names_one_claim_for_each_number():
    for paper in papers_and_studies():
        for fields in paper.statement.numbers.values() if paper.statement else ():
            rows = rows_of(REPOSITORY / "results", load(fields.get("paper", paper.name)))
            named = {name: value for name, value in fields.items() if name not in ("verdict", "guarantee")}
            matching = [row.claim for row in rows if all(getattr(row.claim, n) == v for n, v in named.items())]
            assert len({one.identity for one in matching}) == 1, (paper.name, fields)


def test_a_study_has_pages_of_its_own_and_is_in_no_count(tmp_path):
    (study, *_) = every_study()
    (tmp_path / study.name).mkdir()
    write_report(tmp_path, "paper")
    text, own = ((tmp_path / name).read_text() for name in ("README.md", f"{study.name}/README.md"))
    counts, _, sections = text.partition(f"\n## {every_paper()[0].title}\n")
    assert f"| {every_paper()[0].name} |" in counts
    assert f"| {study.name} |" not in counts
    assert f"\n## {study.title}\n" in sections
    assert study not in every_paper()
    assert "| measured | here (runs) | sound ε | interval [95%] |" in own
    assert "| verdict |" not in own
