"""Checks that hold for the items and claims of every paper and study."""

from __future__ import annotations

import pytest

from runner.config import REPOSITORY
from runner.report.papers import every_paper, every_study, known, load, papers_and_studies

EVERY = pytest.mark.parametrize("name", known())


@EVERY
def test_sweeps_on_disk_are_those_of_the_items(name: str) -> None:
    paper = load(name)
    on_disk = {f"{name}/{path.stem}" for path in (REPOSITORY / "sweeps" / name).glob("*.yaml")}
    assert {sweep for item in paper.items for sweep in item.sweeps if sweep.startswith(f"{name}/")} == on_disk
    assert load(name.replace("_", "-")) is paper


@EVERY
def test_every_claim_has_an_item(name: str) -> None:
    paper = load(name)
    assert all(paper.item(claim.item) for claim in paper.claims)


def test_every_folder_with_claims_is_a_paper_or_a_study() -> None:
    folders = {path.parent.name for path in (REPOSITORY / "runner" / "papers").glob("*/claims.yaml")}
    both = papers_and_studies()
    assert set(known()) == {paper.name for paper in both} == folders
    assert len({paper.place for paper in both}) == len(both) == len([*every_paper(), *every_study()])
    with pytest.raises(ValueError, match=", ".join(known())):
        load("lost_paper")
