"""`epsilon`: the cost of a script that stays where it is. `pareto`: one method at several sound ε."""

import re
from pathlib import Path

import pytest
from dp_accounting.gaussian_mechanism import get_epsilon_gaussian
from opacus.accountants import RDPAccountant
from opacus.accountants.utils import get_noise_multiplier

from runner.cli import epsilon, study
from runner.config import ConfigError
from runner.report.formats import read_csv
from tests.small import run_here

MNIST = ["--batch", "256", "--examples", "60000", "--steps", "14040"]


def column(shown: str, header: str) -> dict[str, str]:
    """Return a column of the printed table, by the accountant."""
    lines = [re.split(r"\s{2,}", line) for line in shown.splitlines()[1:]]
    place = lines[0].index(header)
    return {line[0]: line[place] for line in lines[1:]}


def test_costs_are_those_of_other_libraries(capsys) -> None:
    """256/60000 at 1.1 for 14,040 steps: RDP by Opacus' accountant; 2.38 is dp_accounting's PLD, rounded up."""
    assert epsilon.main([*MNIST, "--noise", "1.1", "--all"]) == 0
    costs = column(capsys.readouterr().out, "ε")
    opacus = RDPAccountant()
    opacus.history = [(1.1, 256 / 60000, 14_040)]
    assert float(costs["rdp"]) == pytest.approx(opacus.get_epsilon(1e-5), abs=1e-3)
    assert (costs["pld"], costs["prv"]) == ("2.38", "2.39")
    assert float(costs["gdp"]) < float(costs["pld"]), "an estimate may be too small, and is marked"


def test_a_target_gives_the_noise_that_opacus_finds(capsys, coarse: None) -> None:
    few = [*MNIST[:-1], "400"]  # steps
    assert epsilon.main([*few, "--target", "3"]) == 0
    shown = capsys.readouterr().out
    noise = column(shown, "noise multiplier")
    opacus = get_noise_multiplier(
        target_epsilon=3, target_delta=1e-5, sample_rate=256 / 60000, steps=400, accountant="rdp"
    )
    assert float(noise["rdp"]) == pytest.approx(opacus, abs=5e-3)
    assert column(shown, "sound ε")["pld"] == "3"
    assert set(column(shown, "it is").items()) >= {("pld", "a bound"), ("gdp", "an estimate")}


def test_shuffled_batches_are_charged_by_the_pass(capsys) -> None:
    """One pass is one Gaussian: at noise 2, three passes are a Gaussian of noise 2 / sqrt(3)."""
    assert (
        epsilon.main(["--batch", "10", "--examples", "1000", "--epochs", "3", "--sampling", "shuffled", "--noise", "2"])
        == 0
    )
    costs = column(capsys.readouterr().out, "ε, shuffled")
    assert float(costs["gdp"]) == pytest.approx(get_epsilon_gaussian(2 / 3**0.5, 1e-5), abs=1e-3)
    assert float(costs["gdp"]) <= float(costs["pld"]) <= 3.72


@pytest.mark.parametrize(
    "options", [["--batch", "256", "--examples", "60000", "--epochs", "60"], ["--rate", "0.00426", "--epochs", "60"]]
)
def test_the_last_batch_of_an_epoch_counts(options: list[str], capsys) -> None:
    """60,000 / 256 = 234.4, so a loader has 235 batches."""
    assert epsilon.main([*options, "--noise", "2"]) == 0
    assert capsys.readouterr().out.startswith("14,100 Poisson batches")


def test_a_method_is_trained_at_each_epsilon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], coarse: None
) -> None:
    monkeypatch.setattr(study, "EPSILONS", (3.0,))
    monkeypatch.setattr(study, "run_jobs", lambda _, work, line: run_here(work))
    command = ["--dataset", "mnist", "--method", "tanh", "--scale", "smoke", "--seeds", "1", "--jobs", "1"]
    command.append(f"runtime.results_root={tmp_path}")
    assert study.pareto(command) == 0
    folder = tmp_path / "smoke" / "pareto" / "mnist_tempered_sigmoid_tanh_2021"
    rows = read_csv(folder / "table.csv")
    assert [row["sound ε"] for row in rows] == ["3"]
    assert all(0.95 * float(row["sound ε"]) < float(row["reached"]) <= float(row["sound ε"]) for row in rows)
    assert (folder / "figure.svg").exists()
    assert "1 runs, 1 of them to be trained" in capsys.readouterr().err
    assert study.pareto(command) == 0
    assert "1 runs, 0 of them to be trained" in capsys.readouterr().err


def test_each_epsilon_has_its_own_setting() -> None:
    settings = [study._setting("MNIST", "Linear model on ScatterNet features (2021)", at, []) for at in (0.5, 3.0)]
    rates = [setting.config.optimizer.lr for setting in settings]
    assert [setting.config.target_epsilon for setting in settings] == [0.5, 3.0]
    assert rates[0] < rates[1]  # less noise allows a larger rate


def test_a_method_without_runs_is_refused() -> None:
    with pytest.raises(ConfigError, match="no runs on CIFAR-10"):
        study._setting("CIFAR10", "Banded noise, BandMF (2023)", 3.0, [])
