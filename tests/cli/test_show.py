"""Tables of a user's runs and of judged claims: their rows, columns, filters and order, and what they refuse."""

import copy
import csv
import io
import os
import re
from pathlib import Path

import pytest

from runner.cli.show import claims, main
from runner.config import REPOSITORY
from runner.records.jobs import Job
from runner.report.formats import read_csv, write_csv


@pytest.fixture
def folder(tmp_path: Path, fabricate, jobs) -> Path:
    """Two seeds of tanh, one of ReLU with another learning rate, in this order of time."""
    tanh, relu = (jobs("fig_3", name)[0] for name in ("mnist_tanh", "mnist_relu"))
    tanh_again, slow = copy.deepcopy(tanh.config), copy.deepcopy(relu.config)
    tanh_again.seed, slow.optimizer.lr, slow.loss = 7, 0.123456, {"_target_": "torch.nn.HuberLoss", "delta": 2.0}
    paths = [
        fabricate(tanh, [97.0]),
        fabricate(Job.of(tanh.sweep, tanh.overrides, tanh_again), [98.0], epsilon=2.95, sound=2.40001),
        fabricate(Job.of(relu.sweep, relu.overrides, slow), [96.0]),
    ]
    for age, path in enumerate(paths):
        os.utime(path, (age, age))
    return tmp_path


def _table(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, str]]:
    assert main(["--results", str(folder), *options]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    starts = [column.start() for column in re.finditer(r"(?<!\S)(?<!\S )\S", header)]
    rows = [header, *(line for line in lines if not line.startswith("The"))]
    cells = [[line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)] for line in rows]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[1:]]


def test_a_row_has_the_mean_over_seeds_and_the_largest_epsilons(folder: Path, capsys) -> None:
    """The standard deviation of 97 and 98 is 0.71, with n - 1 in the denominator. Fields that differ are columns.

    `loss.delta` follows from the class alone, and the seed is no part of a setting.
    """
    tanh, relu = _table(folder, capsys)
    assert list(tanh)[7:] == ["activation", "loss", "optimizer.lr"]
    assert (tanh["optimizer.lr"], relu["optimizer.lr"]) == ("0.25", "0.123456")
    assert (tanh["runs"], tanh["accuracy"], tanh["ε"], tanh["sound ε"]) == ("2", "97.50 ± 0.71%", "2.95", "2.401")
    assert (relu["runs"], relu["accuracy"]) == ("1", "96.00%")
    runs = _table(folder, capsys, "--runs", "--where", "activation=tanh")
    assert runs[-1]["run"] == tanh["run"]
    assert "seed" in runs[0]


def test_rows_are_chosen_and_ordered_by_any_column(folder: Path, capsys) -> None:
    def accuracies(*options: str) -> list[str]:
        return [row["accuracy"] for row in _table(folder, capsys, "--runs", *options)]

    assert accuracies() == ["97.00%", "98.00%", "96.00%"], "by time"
    assert accuracies("--sort", "optimizer.lr", "--reverse", "--last", "2")[-1] == "96.00%"
    assert accuracies("--where", "activation=TANH", "seed=7.0") == ["98.00%"]
    assert accuracies("--where", "activation=tanh", "--where", "target_epsilon=null") == ["97.00%", "98.00%"]


def test_csv_has_every_run_and_every_column(folder: Path, capsys) -> None:
    assert main(["--results", str(folder), "--csv", "--last", "1"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [float(row["test_accuracy"]) for row in rows] == [97, 98, 96]
    assert [row["seed"] for row in rows] == ["0", "7", "0"]
    assert [row["loss.delta"] for row in rows] == ["", "", "2"]
    assert rows[1]["epsilon_sound"] == "2.4001"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--sort", "acuracy"], "show: There is no column 'acuracy'. Did you mean accuracy"),
        (["--where", "activation=tahn"], "show: No run has activation=tahn. Did you mean Tanh?"),
        (["--where", "dataset=mnist"], "Did you mean dataset.name=mnist?"),
        (["--where", "seed"], "show: --where seed is no COLUMN=VALUE."),
        (["--last", "0"], "show: --last 0 is not 1 or more."),
        (["--results", "none/here"], "show: none/here is no folder."),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence_with_near_names(
    folder: Path, refusal, options: list[str], sentence: str
) -> None:
    assert sentence in refusal(main, ["--results", str(folder), *options])


@pytest.fixture
def claimed(tmp_path: Path) -> Path:
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


def test_a_row_has_claim_measurement_runs_and_both_epsilons(claimed: Path, capsys) -> None:
    assert claims(["--results", str(claimed)]) == 0
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
        (["--paper", "other", "--item", "fig-3"], []),
    ],
)
def test_filters_all_have_to_hold_and_csv_has_every_column(
    claimed: Path, capsys, asked: list[str], methods: list[str]
) -> None:
    assert claims([*asked, "--csv", "--results", str(claimed)]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["method"] for row in rows] == methods
    assert all(row in read_csv(claimed / row["paper"] / row["item"] / "claims.csv") for row in rows)


def test_a_word_that_no_claim_has_is_refused_with_those_like_it(claimed: Path, refusal) -> None:
    sentence = refusal(claims, ["--guarantee", "refutted", "--results", str(claimed)])
    assert sentence == "claims: No claim has the guarantee 'refutted'. Did you mean refuted?"
    assert "Choose from one_paper, other" in refusal(claims, ["--paper", "x", "--results", str(claimed)])
    assert "has no aggregated claims" in refusal(claims, ["--results", str(claimed / "none")])
