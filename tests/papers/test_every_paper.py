"""Checks that hold for the items and claims of every paper."""

from __future__ import annotations

import pytest

from runner.config import REPOSITORY
from runner.report.papers import every_paper, known, load

EVERY = pytest.mark.parametrize("name", known())


@EVERY
def test_sweeps_on_disk_are_those_of_the_items(name: str) -> None:
    paper = load(name)
    on_disk = {f"{name}/{path.stem}" for path in (REPOSITORY / "sweeps" / name).glob("*.yaml")}
    assert {sweep for item in paper.items for sweep in item.sweeps if sweep.startswith(f"{name}/")} == on_disk
    assert load(name.replace("_", "-")) is paper


@EVERY
def test_every_claim_can_be_read_and_every_formula_is_claimed(name: str) -> None:
    """Each claim names existing items, formulas, sweeps and experiments, and differs from the others."""
    paper = load(name)
    assert all(paper.item(claim.item) for claim in paper.claims)
    assert len({(*c.identity, c.reading) for c in paper.claims}) == len(paper.claims) > 0
    assert set(paper.formulas) - {"charged_epsilon"} <= {claim.reader[0] for claim in paper.claims}


def test_every_folder_with_claims_is_a_paper() -> None:
    folders = {path.parent.name for path in (REPOSITORY / "runner" / "papers").glob("*/claims.yaml")}
    papers = every_paper()
    assert set(known()) == {paper.name for paper in papers} == folders
    assert len({paper.place for paper in papers}) == len(papers)
    with pytest.raises(ValueError, match=", ".join(known())):
        load("lost_paper")
