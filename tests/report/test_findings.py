"""Findings in words: for the outcome that they belong to, with the row's own numbers."""

from __future__ import annotations

from dataclasses import replace

from runner.claims.rows import ClaimRow
from runner.config import REPOSITORY
from runner.report.claim_rows import rows_of
from runner.report.findings import findings_table, sentence, tally
from runner.report.items import Finding
from runner.report.pages import counted_once, write_report
from runner.report.papers import every_paper, every_study, papers_and_studies
from runner.report.statements import findings_list, stated
from tests.claims.made_up import claim

CLAIM = claim(item="fig-1", dataset="MNIST", claimed="98", unit="%", at_epsilon="3")
ROW = ClaimRow(
    CLAIM, "paper", "too few runs", "guaranteed", measured=97.5, mean=97.5, std=0.25, n=3, n_planned=5, difference=-0.5,
    interval_low=-1.1, interval_high=0.1, epsilon=3.0, epsilon_sound=2.36,
)  # fmt: skip


def test_a_sentence_has_the_numbers_of_its_row():
    finding = Finding(
        {"item": "fig-1", "dataset": "MNIST"},
        {"too few runs": "{measured} for {claimed}, {difference}, {interval}, {sound}"},
    )
    assert sentence(finding, [ROW]) == "97.50 ± 0.25% (3 of 5) for 98%, −0.50 [−1.10, +0.10], [−1.10, +0.10], 2.36"


def test_a_finding_is_stated_for_its_verdict_or_else_for_its_epsilon_or_not_at_all():
    finding = Finding({"item": "fig-1"}, {"not reproduced": "it is not there", "not guaranteed": "it gains"})
    assert sentence(finding, [ROW]) == ""
    row = replace(ROW, guarantee="not guaranteed")
    assert sentence(finding, [row]) == "it gains"
    assert sentence(finding, [replace(row, verdict="not reproduced")]) == "it is not there"
    assert sentence(Finding({"item": "fig-2"}, {"too few runs": "no gain is seen"}), [ROW]) == ""


def test_a_tally_leads_with_two_counts_and_keeps_formulas_apart():
    words = ["reproduced"] * 2 + ["exceeds", "consistent", "differs", "not reproduced", "too few runs", "not run"]
    rows = [replace(ROW, verdict=word) for word in words]
    said = "4 consistent or better, 2 of them reproduced; 1 differs; 1 not reproduced; 1 too few runs; 1 not run"
    assert tally(rows) == f"{said}; of 8 claimed ε 8 are guaranteed"
    formulas = [replace(ROW, verdict=word, computed=True) for word in ("holds", "holds", "fails")]
    broken = [replace(ROW, verdict="reproduced", guarantee="refuted")]
    counted = tally([*rows, *formulas, *broken])
    assert counted.startswith("5 consistent or better, 3 of them reproduced; ")
    assert counted.endswith("; 1 not run; by formula 2 hold and 1 fail; of 12 claimed ε 11 are guaranteed")


def test_every_paper_has_a_statement_with_the_numbers_of_the_committed_tables():
    listed = findings_list(papers_and_studies(), REPOSITORY / "results")
    assert listed.count("\n") == len(papers_and_studies())
    assert (
        "The paper charges accepted updates alone and claims ε = 3 on MNIST. Its theorem allows a rule for which"
        in listed
    )
    assert "at a sound ε of at most 2034" in listed


def test_a_statement_is_not_made_without_its_numbers(tmp_path):
    (paper, *_) = every_paper()
    assert stated(paper, tmp_path) == ""


def test_every_finding_is_of_one_claim():
    results = REPOSITORY / "results"
    for paper in papers_and_studies():
        rows = rows_of(results, paper)
        for finding in paper.findings:
            wanted = finding.claim.items()
            matching = [row.claim for row in rows if all(getattr(row.claim, name) == value for name, value in wanted)]
            assert len({one.identity for one in matching}) == 1, (paper.name, finding.claim)
        assert paper.findings, paper.name


def test_every_paper_and_study_has_a_row_and_nobody_claims_the_numbers_of_a_study():
    table = findings_table(papers_and_studies(), REPOSITORY / "results")
    count = len(every_paper())
    papers, together, studies = table.rows[:count], table.rows[count], table.rows[count + 1 :]
    names = [paper.name.replace("_", "-") for paper in papers_and_studies()]
    assert [row[0] for row in (*papers, *studies)] == names
    assert {row[2] for row in studies} == {"nobody claims them"}
    assert not any("nobody" in row[2] for row in papers)
    assert together[0] == "**all of them**"


def test_all_papers_together_are_told_by_how_much_is_measured_and_where_the_rest_is(tmp_path):
    """Without a record nothing is measured."""
    papers = every_paper()
    rows = [row for paper in papers for row in rows_of(tmp_path, paper)]
    row = findings_table(papers, tmp_path).rows[-1]
    claims = len(counted_once(rows))  # readings are no claims of their own
    assert row[1].startswith(f"of {claims} claims 0 are measured or computed; ")
    assert f"0 too few runs; {claims} not run" in row[2]


def test_a_study_has_pages_of_its_own_and_is_in_no_count(tmp_path):
    (study, *_) = every_study()
    (tmp_path / study.name).mkdir()
    write_report(tmp_path, "paper")
    text, own = ((tmp_path / name).read_text() for name in ("README.md", f"{study.name}/README.md"))
    counts, _, sections = text.partition(f"\n## {every_paper()[0].title}\n")
    assert f"| {every_paper()[0].name} |" in counts
    assert study.name not in counts
    assert f"\n## {study.title}\n" in sections
    assert study not in every_paper()
    assert "| measured | here (runs) | sound ε | interval [95%] |" in own
    assert "| verdict |" not in own


def test_a_row_links_what_its_first_finding_is_of_and_the_headline():
    table = findings_table(papers_and_studies(), REPOSITORY / "results")
    links = {row[0]: row[3] for row in table.rows}
    assert links["tempered-sigmoid"].startswith(
        "[table-3](results/tempered_sigmoid/table-3/table.md), [fig-3](results/tempered_sigmoid/fig-3/figure.svg), ["
    )
    assert links["losing-less"].startswith("[fig-3](results/losing_less/fig-3/figure.svg), [every claim](")
