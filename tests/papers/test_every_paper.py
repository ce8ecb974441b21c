"""Checks that hold for the items and claims of every paper and study."""

from __future__ import annotations

import pytest

from runner.claims.evidence import Evidence, collect
from runner.config import REPOSITORY
from runner.records.jobs import sweep_jobs
from runner.report.papers import every_paper, every_study, known, load, papers_and_studies

EVERY = pytest.mark.parametrize("name", known())


@EVERY
def test_sweeps_on_disk_are_those_of_the_items(name: str) -> None:
    paper = load(name)
    on_disk = {f"{name}/{path.stem}" for path in (REPOSITORY / "sweeps" / name).glob("*.yaml")}
    assert {sweep for item in paper.items for sweep in item.sweeps if sweep.startswith(f"{name}/")} == on_disk
    assert load(name.replace("_", "-")) is paper


@pytest.mark.slow
@EVERY
def test_every_claim_has_an_item_and_planned_runs(name: str) -> None:
    paper = load(name)
    experiments = {s: {job.experiment for job in sweep_jobs(s)} for c in paper.claims for s in c.sweeps}
    for claim in paper.claims:
        assert paper.item(claim.item)
        assert set(claim.experiments) <= set[str]().union(*(experiments[sweep] for sweep in claim.sweeps))
    assert (REPOSITORY / "runner" / "papers" / name / "dashboard.yaml").exists()


@pytest.mark.slow
@EVERY
def test_every_item_is_drawn_and_tabled_without_a_run(name: str, tmp_path) -> None:
    for item in load(name).items:
        evidence = collect((*item.sweeps, *item.also), "paper", tmp_path) if item.sweeps else Evidence("paper", {})
        if item.draw is not None:
            drawn = item.draw(evidence)
            assert drawn is None or drawn.axes
        if item.table is not None:
            table = item.table(evidence, ())
            assert table.rows or table.notes


def test_every_folder_with_claims_is_a_paper_or_a_study() -> None:
    folders = {path.parent.name for path in (REPOSITORY / "runner" / "papers").glob("*/claims.yaml")}
    both = papers_and_studies()
    assert set(known()) == {paper.name for paper in both} == folders
    assert len({paper.place for paper in both}) == len(both) == len([*every_paper(), *every_study()])
    with pytest.raises(ValueError, match=", ".join(known())):
        load("lost_paper")
