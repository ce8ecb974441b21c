"""`pareto`: one method at several sound ε, from the settings of the leaderboard."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.cli import pareto
from runner.config import ConfigError
from runner.report.files import read_csv


def test_a_method_is_trained_at_each_epsilon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pareto, "EPSILONS", (3.0,))
    command = ["--dataset", "mnist", "--method", "tanh", "--scale", "smoke", "--seeds", "1", "--jobs", "1"]
    assert pareto.main([*command, f"runtime.results_root={tmp_path}"]) == 0
    folder = tmp_path / "smoke" / "pareto" / "mnist_tempered_sigmoid_tanh_2021"
    rows = read_csv(folder / "table.csv")
    assert [row["sound ε"] for row in rows] == ["3"]
    assert all(0.95 * float(row["sound ε"]) < float(row["reached"]) <= float(row["sound ε"]) for row in rows)
    assert (folder / "figure.svg").exists()
    assert "1 runs, 1 of them to be trained" in capsys.readouterr().err
    assert pareto.main([*command, f"runtime.results_root={tmp_path}"]) == 0
    assert "1 runs, 0 of them to be trained" in capsys.readouterr().err


def test_each_epsilon_has_its_own_setting() -> None:
    settings = [pareto._setting("MNIST", "Linear model on ScatterNet features (2021)", at, []) for at in (0.5, 3.0)]
    rates = [setting.config.optimizer.lr for setting in settings]
    assert [setting.config.target_epsilon for setting in settings] == [0.5, 3.0]
    assert rates[0] < rates[1]  # less noise allows a larger rate


def test_a_method_without_runs_is_refused() -> None:
    with pytest.raises(ConfigError, match="no runs on CIFAR-10"):
        pareto._setting("CIFAR10", "Banded noise, BandMF (2023)", 3.0, [])
