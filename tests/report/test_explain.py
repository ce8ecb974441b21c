"""A run in words: its ledger, its cost, and a command that repeats it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from dp_accounting import GaussianDpEvent, NonPrivateDpEvent, PoissonSampledDpEvent

from runner.cli.commands import carry_out
from runner.cli.explain import main
from runner.config import REPOSITORY
from runner.records.files import read_record
from runner.records.identity import resolved
from runner.records.jobs import Job, composed
from runner.records.verify import run_of
from runner.report.claim_rows import rows_of
from runner.report.explain import (
    claim_text,
    command_text,
    cost_text,
    found,
    named,
    places_of,
    release_texts,
    released_text,
    run_text,
    served_text,
)

RUNS = REPOSITORY / "results" / "runs"


def test_a_record_has_the_command_that_repeats_it_and_an_older_one_that_of_its_sweep() -> None:
    record = read_record(RUNS / "180425e2e241.json")
    places = list(places_of(REPOSITORY / "results", record["run_id"]))
    (line,) = command_text(record, places)
    *command, folder = line.split()
    assert folder == "runtime.results_root=again"
    assert command[:3] == ["python", "-m", "runner"]
    assert command[3].startswith("sweeps=tempered_sigmoid/")
    assert Job.of("", {}, resolved(composed(command[3:]))).run_id == record["run_id"]
    record["provenance"]["command"] = "python -m runner seed=7"
    assert command_text(record, places) == ["python -m runner seed=7 runtime.results_root=again"]


def test_an_older_run_of_no_sweep_has_no_command() -> None:
    record = read_record(RUNS / "180425e2e241.json")
    (line,) = command_text(record, [])
    assert "older" in line


def test_releases_in_words() -> None:
    sampled = PoissonSampledDpEvent(0.01, GaussianDpEvent(1.1))
    assert release_texts(((sampled, 1200), (GaussianDpEvent(2.0), 1)), 1e-5) == [
        "1,200 sums over batches that each example joins with probability 0.01, "
        "with noise of 1.1 times what one example can move",
        "1 sums over all examples, or parts of them that share none, with noise of 2 times what one example can move",
    ]
    assert release_texts(((sampled, 1), (NonPrivateDpEvent(), 1)), 1e-5) == ["sums without noise: no privacy"]


def test_a_screened_run_released_more_than_is_charged_and_could_have_released_more_yet() -> None:
    """The most are its 921 epochs of 234 steps, below 11 tries for each kept update."""
    record = json.loads((RUNS / "e2a9456397d8.json").read_text())
    charged, released, most = [line for line in released_text(record, run_of(record["config"])) if "sums" in line]
    assert charged.startswith(f"charged by the paper: {record['final']['accepted']:,} sums")
    assert released.startswith(f"released: {record['final']['tries']:,} sums")
    assert most.startswith(f"could have been: {min(921 * 234, 11 * 19_582):,} sums")


def test_costs_by_every_accountant() -> None:
    """The classic accountant gives the recorded ε, the tight one the sound ε; a bound is rounded up."""
    record = json.loads((RUNS / "180425e2e241.json").read_text())
    rows = {line.split()[0]: line.split()[1:3] for line in cost_text(record, run_of(record["config"])).splitlines()[1:]}
    assert set(rows) == {"as", *(path.stem for path in (REPOSITORY / "conf" / "accountant").glob("*.yaml"))}
    assert rows["rdp_classic"] == ["2.929", "2.929"]
    assert rows["pld"] == ["2.315", "2.315"]


def test_whom_a_run_serves() -> None:
    places = list(places_of(REPOSITORY / "results", "180425e2e241"))
    assert ("tempered_sigmoid", "fig-3") in {(place.paper.name, place.item.name) for place in places}
    served = served_text(REPOSITORY / "results", places)
    assert any(line.startswith("claim of tempered_sigmoid/fig-3: MNIST, DP-SGD, tanh") for line in served)
    assert not any("DP-SGD, ReLU: claimed 96.6" in line for line in served), "another experiment's"


def test_a_run_of_ones_own_is_explained(fabricate, jobs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = fabricate(jobs("fig_3", "mnist_tanh")[0], [97.0, 98.0])
    text = run_text(path, tmp_path)
    assert "468 sums over batches" in text
    assert "its config says what it was" in text
    assert main([read_record(path)["run_id"][:6], "--results", str(tmp_path)]) == 0
    assert text in capsys.readouterr().out
    assert found(tmp_path, read_record(path)["setting_id"][:6]) == path


def test_what_cannot_be_explained_is_said_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for what, sentence in (
        ("0", "records begin with 0"),
        ("ffffffffffff", "No record in"),
        ("tempered_sigmoid/fig3", "no item 'fig3'. Did you mean tempered_sigmoid/fig-3,"),
        ("losing-less/zzz", "Did you mean losing_less/fig-3, losing_less/fig-1a,"),
        ("fig-14", "fig-14 of which paper? Did you mean losing_less/fig-14?"),
        ("tempered_sigmod/fig-3", "Did you mean tempered_sigmoid?"),
        ("nobody", "Papers are backprop_clipping,"),
    ):
        assert carry_out("explain", [what]) == 2
        assert sentence in capsys.readouterr().err
    with pytest.raises(ValueError, match="No record"):
        found(tmp_path, "0")


def test_a_study_is_explained_by_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert carry_out("explain", ["studies/corners"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("# Does the papers' progress add up on CIFAR-10?\n\n- **CIFAR10, ε = 3**: ")
    assert "\nCIFAR10  3        all four " in said
    assert said.endswith("\nMade by: python -m runner study studies/corners.yaml\n")
    assert carry_out("explain", ["studies/none"]) == 2
    assert "yet: python -m runner study studies/none.yaml" in capsys.readouterr().err


def test_of_an_order_the_lead_is_shown_with_its_interval_and_the_two_settings() -> None:
    """The first setting's mean alone would be no evidence for the order."""
    paper, item = named("tempered-sigmoid/fig-3")
    assert (paper.name, item.name) == ("tempered_sigmoid", "fig-3")
    rows = rows_of(REPOSITORY / "results", paper, [item.name])
    order = next(row for row in rows if row.claim.dataset == "MNIST" and row.claim.direction == "above_other")
    row = replace(order, measured=97.9, difference=1.6, n_each="3 + 3", n_planned=20)
    row = replace(row, interval_low=1.1, interval_high=2.1)
    said = claim_text(row)
    assert "difference +1.60 [+1.10, +2.10] (3 + 3 of 20), mnist_tanh (97.90) less mnist_relu (96.30);" in said
    several = claim_text(replace(row, claim=replace(row.claim, pairs=(("a/x", "a/y"), ("a/x", "a/z")))))
    assert "the one that supports it least among x, y, z" in several


def test_a_claims_number_has_its_runs_and_both_epsilons() -> None:
    paper, item = named("tempered_sigmoid/fig-3")
    row = rows_of(REPOSITORY / "results", paper, [item.name])[0]
    row = replace(row, measured=97.9, mean=97.9, std=0.06, n=3, n_each="", n_planned=10, epsilon=2.928)
    row = replace(row, epsilon_sound=2.314)
    assert "measured 97.90 ± 0.06 (3 of 10), difference" in claim_text(row)
    assert "ε 2.928, sound 2.314: claimed ε guaranteed" in claim_text(row)
    assert claim_text(replace(row, measured=None, verdict="not run")).endswith("claimed 98.0 at ε 2.93; not run")
