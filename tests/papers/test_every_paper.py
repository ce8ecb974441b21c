"""Checks that hold for the items and claims of every paper."""

from pathlib import Path

import pytest

from runner.report import papers
from runner.report.papers import every_paper, load
from tests.tracked import tracked, tracked_papers

EVERY = pytest.mark.parametrize("name", tracked_papers())


@EVERY
def test_sweeps_on_disk_are_those_of_the_items(name: str) -> None:
    paper = load(name)
    on_disk = {f"{name}/{path.stem}" for path in tracked(f"sweeps/{name}/*.yaml")}
    assert {sweep for item in paper.items for sweep in item.sweeps if sweep.startswith(f"{name}/")} == on_disk
    assert load(name.replace("_", "-")) is paper


@EVERY
def test_every_claim_can_be_read_and_every_formula_is_claimed(name: str) -> None:
    """Each claim names existing items, formulas, sweeps and experiments, and differs from the others."""
    paper = load(name)
    assert all(paper.item(claim.item) for claim in paper.claims)
    assert len({(*c.identity, c.reading) for c in paper.claims}) == len(paper.claims) > 0
    assert set(paper.formulas) - {"charged_epsilon"} <= {claim.number.name for claim in paper.claims}


def test_every_folder_with_claims_is_a_paper() -> None:
    folders = {path.parent.name for path in tracked("runner/papers/*/claims.yaml")}
    papers = [paper for paper in every_paper() if paper.name in folders]
    assert {paper.name for paper in papers} == folders == set(tracked_papers())
    assert len({paper.place for paper in papers}) == len(papers)
    with pytest.raises(ValueError, match=r"^Unknown paper 'lost_paper'\. Choose from|Did you mean"):
        load("lost_paper")


PAPER = "title: Title\nplace: 1\nitems:\n  table-1:\n    title: Table\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title: [", r", line \d: no valid YAML"),
        ("place: 1", ": the paper has no items"),
        (f"{PAPER}remarks: [A. B., C: D]", ", line 6: remarks: remarks.1: Input should be a valid string"),
        (f"{PAPER}charted: x", ": charted: no item 'x': choose from table-1"),
        (f"{PAPER}    field: seed", ", line 6: items.table-1.field: Unexpected keyword argument"),
        (f"{PAPER}    sweeps:", ", line 6: items.table-1.sweeps: expected the name of a sweep, got nothing"),
        (f"{PAPER}    draw: figures.curve", ", line 6: items.table-1.draw: figures.curve: No module named"),
        (f"{PAPER}    draw: curve", ", line 6: items.table-1.draw: expected a function of a module: figures.curve"),
        (f"{PAPER}    table: {{network: [table_1]}}", ", line 6: items.table-1.table.network: expected a sweep"),
        (f"{PAPER}    finding: {{text: 'Better.', numbers: {{x: {{verdict: true}}}}}}", "no verdict 'true'"),
        (f"{PAPER}    finding: {{text: '{{x}}', numbers: {{x: {{verdict: [a]}}}}}}", r"expected a text, got \[a\]"),
        (f"{PAPER}    finding: {{text: '{{y}}', numbers: {{x: {{}}}}}}", "no number 'y': choose from x"),
        (f"{PAPER}    finding: {{text: '', numbers: {{x: {{datset: a}}}}}}", "no field 'datset'. Did you mean dataset"),
    ],
)
def test_wrong_files_of_a_paper_are_refused_in_a_sentence(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "papers" / "lost" / "paper.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    monkeypatch.setattr(papers, "PACKAGE", tmp_path)
    papers._read.cache_clear()
    with pytest.raises(ValueError, match=f"^{path}.*{message}"):
        load("lost")
