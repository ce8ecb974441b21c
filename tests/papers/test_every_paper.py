"""Checks that hold for the items and claims of every paper."""

import sys
from pathlib import Path

import pytest

from runner import papers as package
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("PAPER = Paper(", r": '\(' was never closed \(__init__.py, line 2\)\."),
        ("\nimport not_there", ", line 3: No module named 'not_there'."),
        ("PAPR = 1", ": expected a PAPER of the name 'lost'"),
        ("PAPER = Paper('lots', 'Title', (), place=1)", ": expected a PAPER of the name 'lost'"),
        ("ITEM = Item('table-1', 'Table', sweeps='lost/table_1')", ", line 2: Item: sweeps: Input should be a valid"),
        ("ITEM = Item('table-1', 'Table', draw=3)", ", line 2: Item: draw: Input should be callable"),
        ("PAPER = Paper('lost', 'Title', (), place=1, charted=('x',))", "Paper: charted: no item 'x'"),
        ("PAPER = Paper('lost', 'Title', (Item('x', ''), Item('x', '')), place=1)", "two items have the name 'x'"),
    ],
)
def test_wrong_files_of_a_paper_are_refused_in_a_sentence(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runner" / "papers" / "lost" / "__init__.py"
    path.parent.mkdir(parents=True)
    path.write_text(f"from runner.report.items import Item, Paper\n{text}\n")
    monkeypatch.setattr(package, "__path__", [str(path.parent.parent)])
    monkeypatch.setattr(papers, "paper_names", lambda: ["lost"])
    monkeypatch.setitem(sys.modules, "runner.papers.lost", None)
    del sys.modules["runner.papers.lost"]
    with pytest.raises(ValueError, match=f"^runner/papers/lost/__init__.py.*{message}"):
        load("lost")
