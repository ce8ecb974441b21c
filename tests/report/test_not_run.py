"""The cost of claims that have not run: the runs that they lack, each once, and hours by records of similar runs."""

from __future__ import annotations

import json

import pytest

from runner.claims.evidence import collect
from runner.claims.measured import Measured
from runner.claims.verdicts import judge
from runner.records.files import read_record, write_record
from runner.report.files import read_csv
from runner.report.not_run import FILE, Cost, costs, write_not_run
from runner.report.papers import load

PAPER = load("tempered_sigmoid")
CLAIMS = [
    claim
    for claim in PAPER.claims
    if claim.item == "fig-3"
    and claim.dataset == "MNIST"
    and claim.method in ("DP-SGD, tanh, same settings as ReLU", "tanh above ReLU")
]


@pytest.fixture
def written(tmp_path, fabricate, jobs):
    """Two claims, about tanh and about tanh above ReLU. One run of tanh is recorded, of 600 seconds."""
    path = fabricate(jobs("fig_3", "mnist_tanh")[0], [97.0] * 60)
    record = read_record(path)
    record["provenance"] |= {"wall_seconds": 600.0, "threads": 1}
    write_record(path, record, replace=True)
    judged = [judge(claim, Measured(), "paper") for claim in CLAIMS]
    evidence = collect({claim.sweep for claim in CLAIMS}, results_root=tmp_path)
    return write_not_run(tmp_path / PAPER.name, judged, evidence)


def test_runs_that_several_claims_lack_are_listed_once(written) -> None:
    rows = read_csv(written)
    tanh, relu = (f"{PAPER.name}/mnist_{name}" for name in ("tanh", "relu"))
    assert [claim.experiments for claim in CLAIMS] == [[tanh], [tanh, relu]]
    counts = {name: [row["claims"] for row in rows if row["experiment"] == name] for name in (tanh, relu)}
    assert counts == {tanh: ["2"] * 9, relu: ["1"] * 10}, "nine seeds of tanh and ten of ReLU have no record"
    assert len({row["run_id"] for row in rows}) == 19


def test_hours_are_by_the_records_that_the_items_show(written, tmp_path) -> None:
    """Nine runs of the recorded setting, of 600 seconds each; ten of the same network, which ReLU leaves alike."""
    assert costs(tmp_path, [PAPER])[""] == Cost(19, 0, 19), "a record that no item shows is nobody's"
    run_id = next((tmp_path / "runs").glob("*.json")).stem
    table = tmp_path / PAPER.name / "fig-3" / "runs.csv"
    table.parent.mkdir()
    table.write_text(f"run_id\n{run_id}\n")
    found = costs(tmp_path, [PAPER])
    assert found[""] == found[PAPER.name]
    assert (found[""].runs, found[""].unknown) == (19, 0)
    assert found[""].hours == pytest.approx(19 * 600 / 3600)
    assert json.loads((tmp_path / "runs" / f"{run_id}.json").read_text())["config"]["epochs"] == 60


def test_a_search_that_has_not_run_is_lacking_too(tmp_path) -> None:
    claim = next(c for c in PAPER.claims if c.item == "table-3" and c.experiment.endswith("mnist_relu"))
    evidence = collect([claim.sweep, *claim.searches], results_root=tmp_path)
    path = write_not_run(tmp_path, [judge(claim, Measured(), "paper")], evidence)
    assert path.name == FILE
    by_sweep = [row["sweep"] for row in read_csv(path)]
    assert by_sweep.count(claim.sweep) == 10
    assert by_sweep.count(claim.searches[0]) == len(by_sweep) - 10 > 0
