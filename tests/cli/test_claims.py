"""The table of judged claims, filtered by their words."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from runner.cli.claims import main
from runner.config import REPOSITORY
from runner.report.files import read_csv, write_csv


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three claims of two papers and another reading of one, in the columns of the committed files."""
    common = dict.fromkeys(read_csv(REPOSITORY / "results/lipschitz/table-1/claims.csv")[0], "")
    common |= {"dataset": "MNIST", "quantity": "test_accuracy", "at_least": "no", "computed": "no"}
    common |= {"unit": "%", "number": "test_accuracy", "scale": "paper", "counted": "yes"}
    ran = {"claimed": "98.1", "measured": "97.9", "mean": "97.9", "std": "0.11", "n": "4", "n_planned": "10"}
    ran |= {"epsilon": "2.928", "epsilon_sound": "2.31401", "verdict": "not contradicted", "guarantee": "guaranteed"}
    ran |= {"measured_is": "mean of 4"}
    bug = {"claimed": "98.7", "at_epsilon": "0.07", "measured": "98.6", "mean": "98.6", "n": "1", "n_planned": "10"}
    bug |= {"epsilon": "0.07", "epsilon_sound": "2033.41", "verdict": "fails", "guarantee": "refuted"}
    bug |= {"measured_is": "one run"}
    absent = {"method": "ReLU", "claimed": "60", "verdict": "open", "n": "0"}
    reading = {"method": "as printed", "verdict": "fails", "counted": "no, another reading", "n": "0"}
    for paper, item, rows in (
        ("one_paper", "fig-3", [{"method": "tanh", "reading": "searched", "at_epsilon": "2.93", **ran}, absent]),
        ("other", "table-1", [{"method": "bug", **bug}, reading]),
    ):
        lines = [{**common, "paper": paper, "item": item, **row} for row in rows]
        write_csv(tmp_path / paper / item / "claims.csv", list(common), lines)
    return tmp_path


def test_a_row_has_claim_measurement_runs_and_both_epsilons(folder: Path, capsys) -> None:
    assert main(["--results", str(folder)]) == 0
    header, tanh, relu, bug, count, uncounted = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in (header, tanh, relu, bug)]
    epsilons = ["claimed ε", "sound ε", "the claimed ε is"]
    assert cells[0] == ["place", "claim", "paper's number", "here", "verdict", *epsilons]
    claim = ["one_paper/fig-3", "MNIST, tanh (searched)", "98.1", "97.90 ± 0.11 (mean of 4, 4 of 10 planned)"]
    assert cells[1] == [*claim, "not contradicted", "2.93", "2.315", "guaranteed"]
    assert cells[2] == ["one_paper/fig-3", "MNIST, ReLU", "60", "–", "open (not run)", "–", "–", "–"]
    assert cells[3][3:] == ["98.60 (one run, 1 of 10 planned)", "fails", "0.07", "2034", "refuted"]
    assert count == ["3 of 3 claims."]
    assert uncounted == ["Of other readings or for context, and so not counted: 1. `--all` shows such rows, too."]


@pytest.mark.parametrize(
    ("asked", "methods"),
    [
        (["--guarantee", "refuted"], ["bug"]),
        (["--verdict", "fails,not-contradicted"], ["tanh", "bug"]),
        (["--verdict", "fails", "--all"], ["bug", "as printed"]),
        (["--verdict", "open", "--paper", "one-paper"], ["ReLU"]),
        (["--verdict", "differs"], []),
        (["--paper", "other", "--item", "fig-3"], []),
    ],
)
def test_filters_all_have_to_hold_and_csv_has_every_column(
    folder: Path, capsys, asked: list[str], methods: list[str]
) -> None:
    assert main([*asked, "--csv", "--results", str(folder)]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["method"] for row in rows] == methods
    assert all(row in read_csv(folder / row["paper"] / row["item"] / "claims.csv") for row in rows)


def test_a_word_that_no_claim_has_is_refused_with_those_like_it(folder: Path, refusal) -> None:
    sentence = refusal(main, ["--guarantee", "refutted", "--results", str(folder)])
    assert sentence == "claims: No claim has the guarantee 'refutted'. Did you mean refuted?"
    assert "Choose from one_paper, other" in refusal(main, ["--paper", "x", "--results", str(folder)])
    assert "has no aggregated claims" in refusal(main, ["--results", str(folder / "none")])
