"""Statements on papers and studies: they have the numbers of their tables, and hold under their verdicts."""

import json
from csv import DictReader
from dataclasses import replace

import pytest

from runner.claims.verdicts import ClaimRow
from runner.config import RESULTS
from runner.config.yaml_file import read_yaml
from runner.report import pages, papers, statements
from runner.report.claim_rows import rows_of
from runner.report.pages import write_report
from runner.report.papers import Statement, every_paper, load, statement_of, study_pages
from runner.report.statements import Sources, claim_number, findings_list, headline_of, stated
from tests.claims.made_up import claim, entry
from tests.tracked import committed_sources, tracked, tracked_papers

CLAIM = claim(item="fig-1", dataset="MNIST", claimed="98", unit="%", at_epsilon="3")
ROW = ClaimRow(
    CLAIM, "paper", "open", "guaranteed", measured=97.5, mean=97.5, std=0.25, n=3, n_planned=5, difference=-0.5,
    interval_low=-1.1, interval_high=0.1, epsilon=3.0, epsilon_sound=2.36,
)  # fmt: skip


def number(part: str, row: ClaimRow = ROW) -> str:
    return format(claim_number(row), part)


def test_a_number_is_its_rows_and_rounded():
    assert [number(part) for part in ("", "gain", "interval", "claimed", "runs")] == [
        "97.5", "−0.50", "[−1.1, +0.10]", "98", "3",
    ]  # fmt: skip
    assert number("sound") == "2.36", "a bound is rounded up"
    assert number("sound", replace(ROW, epsilon_sound=2033.21)) == "2034"
    assert [number("least", replace(ROW, epsilon_least=least)) for least in (0.08881, 6.2351)] == ["0.088", "6.2"]
    assert number("least", replace(ROW, measured=2.599, at_least=True)) == "2.5", "a measured bound is rounded down"
    with pytest.raises(ValueError, match="sound"):
        number("sound", replace(ROW, epsilon_sound=None))


def test_a_statement_holds_by_the_verdict_of_its_first_claim(tmp_path, monkeypatch):
    other = replace(ROW, verdict="holds", measured=90.0)
    monkeypatch.setattr(statements, "rows_of", lambda folder, paper: [ROW, other])
    for verdict, sentence in (("open", "97.5"), ("holds", "")):  # the second reading is no substitute for the first
        statement = Statement("{x}", {"x": {"item": "fig-1", "verdict": verdict}})
        assert stated("lipschitz", statement, Sources(tmp_path)) == sentence
    with pytest.raises(ValueError, match="no verdict 'reproduced': choose from holds, not contradicted"):
        Statement("{x}", {"x": {"item": "fig-1", "verdict": "holds, reproduced"}})


def test_a_further_sentence_waits_for_its_own_number(tmp_path, monkeypatch):
    other = {"item": "fig-2", "dataset": "MNIST"}
    statement = Statement("{x}.", {"x": {"item": "fig-1"}}, further=(Statement("More: {y:gain}.", {"y": other}),))
    for measured, sentence in ((None, "97.5."), (96.0, "97.5. More: −0.50.")):
        late = replace(ROW, claim=replace(CLAIM, item="fig-2"), measured=measured)
        monkeypatch.setattr(statements, "rows_of", lambda folder, paper, late=late: [ROW, late])
        assert stated("lipschitz", statement, Sources(tmp_path)) == sentence
    monkeypatch.setattr(statements, "rows_of", lambda folder, paper: [late])
    assert stated("lipschitz", statement, Sources(tmp_path)) == "", "it adds to a statement, and is none"


def test_no_statement_is_made_of_smoke_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "stated", lambda *_: pytest.fail("stated"))
    (tmp_path / every_paper()[0].name).mkdir()
    write_report("smoke", Sources(tmp_path))


def test_the_readme_lists_every_finding_and_claim_with_its_words():
    """Numbers are those of committed tables; an ε that is not guaranteed is said to be so."""
    pages = [page for page in (*every_paper(), *study_pages(RESULTS)) if page.statement and page.statement.readme]
    assert findings_list(every_paper(), committed_sources()).count("\n") == len(pages) >= 6
    shown = statements.summary_table(every_paper(), committed_sources()).splitlines()[2:]
    assert len(shown) == sum(len(paper.summaries) for paper in every_paper())
    (line,) = [line for line in shown if "98.35%" in line]
    assert line.endswith("| 98.35%, MNIST, ε = 3 | 98.3% | 9.32, not 3 | accuracy: holds; ε: not guaranteed |")


def test_a_number_that_was_not_measured_is_not_shown(tmp_path):
    shown = statements.summary_table(every_paper(), Sources(tmp_path)).splitlines()[2:]
    assert all(" | not run | – | " in line for line in shown)


def test_committed_tables_support_findings_of_studies_and_items():
    """A finding that this refuses contradicts its tables: write what they say."""
    assert headline_of("It is **better**.") == headline_of("**It is") == headline_of("") == ""
    names, sources = {path.stem for path in tracked("studies/*.yaml")}, committed_sources()
    for study in (study for study in study_pages(RESULTS) if study.name in names):
        assert headline_of(stated(study.name, study.statement, sources)), f"studies/{study.name}.yaml: finding"
    for paper in map(load, tracked_papers()):
        items = [item for item in paper.items if item.finding]
        assert [item.name for item in items if not stated(paper.name, item.finding, sources)] == [], paper.name


def test_every_statement_names_one_claim_for_each_number():
    for paper in map(load, tracked_papers()):
        statements_made = (paper.statement, *paper.statement.further) if paper.statement else ()
        numbers = [fields for statement in statements_made for fields in statement.numbers.values()]
        of_claims = [fields for fields in numbers if not {"study", "leaderboard"} & fields.keys()]
        for fields in of_claims:
            rows = rows_of(RESULTS, load(fields.get("paper", paper.name)))
            values = {name: value for name, value in fields.items() if name not in ("verdict", "guarantee")}
            matching = [row.claim for row in rows if row.claim.has(values)]
            assert len({match.identity for match in matching}) == 1, (paper.name, fields)


def test_a_study_states_numbers_of_its_own_tables_and_of_others(tmp_path):
    """A gain of an arm, an effect of another study; nothing if a row is missing or was not run."""
    arms = "epsilon,arm,accuracy,seeds,gain,low,high\n1,new,97.5,5,0.449,-0.1,1.2\n1,not run,,,,,"
    effects = "dataset,parts,effect,low,high\nMNIST,a × b,-5.66,,\nMNIST,not run,,,"
    rows = {name: list(DictReader(text.splitlines())) for name, text in (("mine", arms), ("other", effects))}
    arm, effect = {"study": "mine", "arm": "new"}, {"study": "other", "parts": "a × b"}

    def said(text: str, **numbers: dict[str, str]) -> str:
        return stated("mine", Statement(text, numbers), Sources(tmp_path, rows.__getitem__))

    assert said("{x}: {x:gain} {x:interval}, {x:runs} seeds", x=arm) == "97.5: 0.45 [−0.10, +1.2], 5 seeds"
    assert said("{x:gain} and {y:size}", x=arm, y=effect) == "0.45 and 5.7"
    by_number = finding(tmp_path, {"text": "{x}", "numbers": {"x": {"arm": "new", "epsilon": 1.0}}})
    assert stated("mine", by_number, Sources(tmp_path, rows.__getitem__)) == "97.5"
    assert said("{x}", x={**arm, "epsilon": "2"}) == ""
    assert said("{x}", x={**arm, "arm": "not run"}) == ""
    with pytest.raises(ValueError, match="2 rows"):
        said("{x}", x={"study": "mine", "epsilon": "1"})


def finding(folder, content):
    (folder / "finding.yaml").write_text(json.dumps(content))  # which is YAML, too
    return statement_of(read_yaml(folder / "finding.yaml"), {"study": "mine"})


def test_a_finding_is_made_only_while_its_table_says_so(tmp_path):
    def said(*answers: str, **keys: int) -> str:
        numbers = {"accuracy": "98", "seeds": "5", "gain": "1", "low": "0", "high": "2"}
        rows = [{"arm": name, **numbers, "answer": answer} for name, answer in zip("abc", answers, strict=False)]
        statement = {"text": "{x:gain}", "numbers": {"x": {"arm": "a", "answer": "better"}}, **keys}
        return stated("mine", finding(tmp_path, statement), Sources(tmp_path, lambda _: rows))

    assert said("better", "worse") == said("better", "worse", decided=2) == "1.0"
    assert said("not decided after correction", "worse") == ""
    assert said("better", "worse", decided=1) == said("better", "not decided", decided=2) == ""


def test_a_statement_has_the_accuracy_from_the_leaderboard(tmp_path):
    """Searched settings come before better ones that were not, and those that test images chose come last."""
    board = [entry("plain", 99, True, True), entry("plain", 98, False, False), entry("plain", 95, True, False)]
    board += [entry("plain", 97, True, False, "replace-one"), entry("plain", 96, True, False)]

    def said(method: str) -> str:
        fields = {"leaderboard": method, "dataset": "MNIST", "epsilon": "3"}
        sources = Sources(tmp_path, board=lambda: board)
        return stated("lipschitz", Statement("{x}, {x:runs} runs", {"x": fields}), sources)

    assert (said("plain"), said("other")) == ("96.0, 5 runs", "")


def test_a_study_is_on_the_index_and_in_no_count(tmp_path, monkeypatch):
    monkeypatch.setattr(papers, "study_files", lambda: [tmp_path / "mine.yaml"])
    (tmp_path / "mine.yaml").write_text('title: Is mine better?\nfinding: {text: "**Yes.** No number."}\n')
    write_report("paper", Sources(tmp_path))
    assert "Studies" not in (tmp_path / "README.md").read_text()
    (tmp_path / "studies" / "mine").mkdir(parents=True)
    (tmp_path / "studies" / "mine" / "README.md").write_text("# Is mine better?\n")
    (tmp_path / "studies" / "mine" / "runs.csv").touch()
    write_report("paper", Sources(tmp_path, runs=lambda _: [{"run_id": run_id} for run_id in "aab"]))
    counts, _, sections = (tmp_path / "README.md").read_text().partition("\n## Studies\n")
    assert "[Is mine better?](studies/mine/README.md) | Yes. | 2 | [runs](studies/mine/runs.csv) |" in sections
    assert "mine" not in counts
