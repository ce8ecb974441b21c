"""W&B: an offline run, read back with W&B's own tool."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.config import REPOSITORY, ConfigError
from runner.runs import tracking
from runner.runs.execute import execute
from runner.runs.identity import identify
from runner.runs.records import read_record, record_path, results_folder
from runner.training.prepare import prepare


def _inspect(folder: Path, *options: str) -> str:
    wandb = Path(sys.executable).with_name("wandb")
    shown = subprocess.run([wandb, "leet", "inspect", *options, folder], capture_output=True, text=True, check=True)
    return shown.stdout


@pytest.mark.slow
def test_an_offline_run_says_what_the_record_says(composed, tmp_path: Path) -> None:
    config = composed(
        "scale=smoke", "scale.epochs=2", "tracking.group=paper/item", "tracking.job_type=row", "tracking.tags=[mine]"
    )
    assert execute(config, lambda row, run: None) == "finished"
    run_id, setting_id = identify(config)
    record = read_record(record_path(results_folder(config), run_id))
    (folder,) = (tmp_path / "tracking/wandb").glob(f"offline-run-*-{run_id}")

    records = [json.loads(line) for line in _inspect(folder, "--json").splitlines()]
    (run,) = [r for r in records if r["type"] == "run"]
    text = json.dumps(run)
    for expected in (run_id, "paper/item", "row", "mine", f"setting:{setting_id}", "scale:smoke", "dp-repro-bench"):
        assert expected in text
    assert str(tmp_path) not in text, "nothing of this machine's folders is sent"

    rows = [r["history"]["item"] for r in records if r["type"] == "history"]
    assert [row["epoch"] for row in rows] == [1, 2]
    for name in ("epsilon", "epsilon_sound", "test_accuracy", "train_loss"):
        assert [row[name] for row in rows] == pytest.approx(record["history"][name], rel=1e-4)
    assert '"epsilon"' in json.dumps([r for r in records if r["type"] == "metric"]), "curves are against epsilon"

    summary = _inspect(folder, "--summary")
    assert "finished" in summary
    assert "best_test_accuracy" in summary


@pytest.mark.slow
def test_a_run_without_privacy_is_plotted_by_epoch(composed, tmp_path: Path) -> None:
    config = composed("scale=smoke", "scale.epochs=2", "noise_multiplier=0", "clipping=none")
    assert execute(config, lambda row, run: None) == "finished"
    run_id, _ = identify(config)
    (folder,) = (tmp_path / "tracking/wandb").glob(f"offline-run-*-{run_id}")
    text = _inspect(folder, "--json")
    records = [json.loads(line) for line in text.splitlines()]
    metrics = json.dumps([r for r in records if r["type"] == "metric"])
    assert '"epoch"' in metrics
    assert '"epsilon"' not in metrics
    assert "Infinity" not in text
    rows = [r["history"]["item"] for r in records if r["type"] == "history"]
    assert [row["epoch"] for row in rows] == [1, 2]
    assert not any("epsilon" in row for row in rows)
    assert f"MNIST seed 0 {run_id[:6]}" in text


def test_two_runs_in_one_process_are_two_runs(composed, tmp_path: Path) -> None:
    for seed in (0, 1):
        execute(composed("scale=smoke", "scale.epochs=1", f"seed={seed}"), lambda row, run: None)
    assert len(list((tmp_path / "tracking/wandb").glob("offline-run-*"))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_says_so_in_one_sentence(tmp_path: Path, number: signal.Signals) -> None:
    """Runs with wandb, whose run prints a traceback when it is left by an exception."""
    folders = [f"runtime.results_root={tmp_path}", f"tracking.directory={tmp_path / 'tracking'}"]
    command = [sys.executable, "-m", "runner", "scale=smoke", "scale.epochs=1000", *folders]
    running = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # a shell ignores SIGINT in what it starts by "&"
    )
    assert running.stderr is not None
    while not (line := running.stderr.readline()).startswith("epoch"):
        assert line, "it ended"
    running.send_signal(number)
    said = [line for line in running.stderr.read().splitlines() if not line.startswith("epoch")]
    assert said == ["runner: Stopped. The same command starts this run over."]
    assert running.wait() == 130
    assert not list(tmp_path.glob("smoke/runs/*.json"))


def test_each_step_of_a_run_alone_is_told(smoke) -> None:
    """And of a run that is recorded, a wrong device is refused all the same."""
    told: list[tuple[int, int]] = []
    config = smoke("scale.epochs=2", "runtime.device=cpu")
    execute(config, lambda row, run: None, on_step=lambda epoch, step, run: told.append((epoch, step)))
    steps = prepare(config).mechanism.steps_per_epoch
    assert told == [(epoch, step) for epoch in (1, 2) for step in range(1, steps + 1)]
    config.runtime.device = "tpu"
    with pytest.raises(ConfigError, match=r"runtime\.device"):
        execute(config, lambda row, run: None)


def test_disabled_writes_nothing(smoke, tmp_path: Path) -> None:
    assert execute(smoke("scale.epochs=1"), lambda row, run: None) == "finished"
    assert not (tmp_path / "tracking").exists()


def test_without_wandb_offline_goes_on_and_online_is_refused(composed, monkeypatch, capsys) -> None:
    monkeypatch.setattr(tracking, "_wandb", lambda: None)
    assert execute(composed("scale=smoke", "scale.epochs=1"), lambda row, run: None) == "finished"
    assert "wandb is not installed" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="tracking=online"):
        execute(composed("tracking=online"), lambda row, run: None)


class Failing:
    """In the place of wandb: what is called fails, from the start or once epochs are sent."""

    def __init__(self, *, start: bool) -> None:
        self._start, self.summary = start, SimpleNamespace(update=self.log)
        self.Settings = dict

    def login(self, prompt: bool) -> bool:
        return False

    def init(self, **_: Any) -> Failing:
        if self._start:
            raise OSError("no space left on device")
        return self

    def define_metric(self, *_: Any, **__: Any) -> None:
        """Work."""

    def log(self, values: dict[str, Any]) -> None:
        raise ConnectionResetError("Connection lost")

    def finish(self, **_: Any) -> None:
        raise ConnectionResetError("Connection lost")


@pytest.mark.parametrize(("start", "said"), [(True, "no space left"), (False, "Connection lost")])
def test_a_run_goes_on_where_wandb_does_not(composed, monkeypatch, capsys, start: bool, said: str) -> None:
    """Its process killed, or the disk full: a line, once, and the record is what it is without W&B."""
    monkeypatch.setattr(tracking, "_wandb", lambda: Failing(start=start))
    config = composed("scale=smoke", "scale.epochs=2")
    assert execute(config, lambda row, run: None) == "finished"
    record = read_record(record_path(results_folder(config), identify(config)[0]))
    assert record["history"]["epoch"] == [1, 2]
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tracking:")]
    assert len(lines) == 1
    assert said in lines[0]


def test_online_without_a_login_is_refused_before_work(composed, monkeypatch) -> None:
    monkeypatch.setattr(tracking, "_wandb", lambda: Failing(start=True))
    with pytest.raises(ConfigError, match="wandb login"):
        execute(composed("scale=smoke", "tracking=online"), lambda row, run: None)


@pytest.mark.slow
def test_the_package_imports_without_what_it_uses_in_places() -> None:
    """wandb, matplotlib, pandas and scikit-learn are imported where they are used."""
    code = (
        "import sys; import runner.runs.execute, runner.runs.local, runner.runs.jobs; "
        "print([m for m in ('wandb', 'matplotlib', 'kymatio', 'sklearn') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
