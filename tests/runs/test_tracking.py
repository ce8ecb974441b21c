"""W&B: an offline run, read back with W&B's own tool."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.config import REPOSITORY, ConfigError
from runner.records.files import read_record
from runner.records.identity import identify
from runner.runs import tracking
from runner.runs.execute import execute
from tests.conftest import quietly, record_of


def _inspect(folder: Path, *options: str) -> str:
    command = [sys.executable, "-m", "wandb", "leet", "inspect", *options, folder]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    return shown.stdout


def _in_wandb(tmp_path: Path, run_id: str) -> Path:
    """Return the folder of an offline run."""
    (folder,) = (tmp_path / "tracking/wandb").glob(f"offline-run-*-{run_id}")
    return folder


def _of(records: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [record[kind] for record in records if record["type"] == kind]


def test_an_offline_run_says_what_the_record_says(composed, tmp_path: Path) -> None:
    config = composed(
        "scale=smoke", "scale.epochs=2", "tracking.group=paper/item", "tracking.job_type=row", "tracking.tags=[mine]"
    )
    assert execute(config, quietly) == "finished"
    assert execute(composed(*SMALL, "seed=1"), quietly) == "finished", "in one process, and another run"
    run_id, setting_id = identify(config)
    record = record_of(config)
    folder = _in_wandb(tmp_path, run_id)
    records = [json.loads(line) for line in _inspect(folder, "--json").splitlines()]
    (run,) = _of(records, "run")
    text = json.dumps(run)
    for expected in (run_id, "paper/item", "row", "mine", f"setting:{setting_id}", "scale:smoke", "dp-repro-bench"):
        assert expected in text
    assert str(tmp_path) not in text, "nothing of this machine's folders is sent"

    rows = [each["item"] for each in _of(records, "history")]
    assert [row["epoch"] for row in rows] == [1, 2]
    for name in ("epsilon", "epsilon_sound", "test_accuracy", "train_loss"):
        assert [row[name] for row in rows] == pytest.approx(record["history"][name], rel=1e-4)
    summary = _inspect(folder, "--summary")
    assert "finished" in summary
    assert "best_test_accuracy" in summary


DIAGNOSTICS: dict[str, Any] = {
    "hessian": {"epoch": [0, 1], "eigenvalue": [2.0, math.inf], "residual": [0.1, 0.2]},
    "layer_norms": {"epoch": [0, 1], "weights": {"0": [1.0, 2.0]}, "pre_activations": {"0": [3.0, 4.0]}},
    "gradient_norms": {"step": [0, 10], "mean": [1.0, 2.0]},
    "gradient_histogram": {"epoch": [1], "counts": [[5, 7]], "mean": [0.6]},
    "norm_histograms": {
        "epoch": [0, 1],
        "inputs": {"largest": 4.0, "counts": [1, 3]},
        "gradients": [{"largest": 2.0, "counts": [2, 2]}, {"largest": 3.0, "counts": [0, 4]}],
    },
    "per_class_accuracy": [[50.0, 60.0], [70.0, 80.0]],
    "confusion": {"epoch": [2], "counts": [[[3, 1], [0, 4]]]},
}


_LOGGED: list[tuple[Path, list[dict[str, Any]]]] = []


@pytest.fixture
def logged(composed, tmp_path: Path) -> tuple[Path, list[dict[str, Any]]]:
    """The folder and the records of a run that measured a little of everything: made once."""
    if _LOGGED:
        return _LOGGED[0]
    config, folder = composed("scale=smoke", "seed=1"), tmp_path
    path = folder / "record.json"
    path.write_text('{"run_id": "0123456789ab"}')
    final = {"epoch": 2, "test_accuracy": 91.0, "epsilon": 0.900001, "epsilon_sound": 0.7, "epsilon_spent": 0.5}
    record = {"run_id": path.stem, "setting_id": "s", "final": final, "diagnostics": DIAGNOSTICS}
    with tracking.tracked(config, "0123456789ab", "ba9876543210") as (log, end):
        log({"epoch": 1, "epsilon": 0.900001, "epsilon_sound": math.inf, "test_accuracy": 90.0})
        end(record, path)
    (written,) = (folder / "tracking" / "wandb").glob("offline-run-*")
    _LOGGED.append((written, [json.loads(line) for line in _inspect(written, "--json").splitlines()]))
    return _LOGGED[0]


def test_each_epsilon_and_the_epoch_can_be_plotted_against(logged: tuple[Path, list[dict[str, Any]]]) -> None:
    metrics = _of(logged[1], "metric")
    axes = [each["name"] for each in metrics if "step_metric" not in each and "/" not in each["name"]]
    assert axes == ["epsilon", "epsilon_sound", "epsilon_spent", "epoch"]
    assert [each["step_metric"] for each in metrics if each.get("glob_name") == "*"] == ["epsilon"]
    row = _of(logged[1], "history")[0]["item"]
    assert "epsilon_sound" not in row, "no axis has a place for infinity"
    assert row["epsilon"] == 0.90001, "rounded up to five digits, as the record has it"


def test_diagnostics_are_logged_as_what_they_are(logged: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, records = logged
    rows = [each["item"] for each in _of(records, "history")]
    against = {each["name"]: each.get("step_metric") for each in _of(records, "metric") if "name" in each}
    values = [row["hessian/eigenvalue"] for row in rows if "hessian/eigenvalue" in row]
    assert values == [2.0], "infinity is left out"
    assert [row["gradient_norms/step"] for row in rows if "gradient_norms/mean" in row] == [0, 10]
    assert against["gradient_norms/mean"] == "gradient_norms/step"
    assert against["layer_norms/weights/0"] == "layer_norms/epoch"
    (histogram,) = (row for row in rows if "gradient_histogram/counts._type" in row)
    assert histogram["gradient_histogram/counts.values"] == [5, 7]
    assert histogram["gradient_histogram/counts.bins"] == [0, 0.5, 1]
    edges = [row["norm_histograms/gradients.bins"] for row in rows if "norm_histograms/gradients.bins" in row]
    assert edges == [[0, 1, 2], [0, 1.5, 3]]
    (confusion,) = (row for row in rows if "confusion/counts._type" in row)
    assert confusion["confusion/counts._type"] == "image-file"
    assert (folder / "files" / confusion["confusion/counts.path"]).read_bytes().startswith(b"\x89PNG")
    table = json.loads((folder / "files" / confusion["confusion/counts_table.path"]).read_text())
    assert table["data"] == [[0, 0, 3], [0, 1, 1], [1, 0, 0], [1, 1, 4]]
    (classes,) = (row for row in rows if "per_class_accuracy.path" in row)
    table = json.loads((folder / "files" / classes["per_class_accuracy.path"]).read_text())
    assert table["data"] == [[1, 0, 50], [1, 1, 60], [2, 0, 70], [2, 1, 80]]


def test_the_record_is_an_artifact(logged) -> None:
    _, records = logged
    artifacts = {each["type"]: each for each in _of(records, "artifact")}
    assert "record.json" in json.dumps(artifacts["record"])
    summary: dict[str, Any] = {}
    for each in _of(records, "summary"):
        summary |= each["update"]
    assert (summary["test_accuracy"], summary["epsilon"]) == (91, 0.90001)
    assert (summary["epsilon_sound"], summary["epsilon_spent"]) == (0.7, 0.5)


def test_a_multirun_that_is_stopped_says_so_in_one_sentence(tmp_path: Path) -> None:
    """Runs with wandb, whose run prints a traceback when it is left by an exception.

    Under make a signal to the whole group comes twice, the second time from make, at once.
    """
    folders = [f"runtime.results_root={tmp_path}", f"tracking.directory={tmp_path / 'tracking'}"]
    several = ["hydra.mode=MULTIRUN", f"hydra.sweep.dir={tmp_path / 'hydra'}"]
    command = [sys.executable, "-m", "runner", "scale=smoke", "scale.epochs=1000", "seed=0,1", *several, *folders]
    running = subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    while not (line := running.stderr.readline()).startswith("epoch"):
        assert line, "it ended"
    for _ in range(2):
        running.send_signal(signal.SIGTERM)
        time.sleep(0.1)
    lines = [line for line in running.stderr.read().splitlines() if not line.startswith("epoch")]
    assert lines == [
        "runner: Stopped. What is recorded stays; the same command goes on from there, and starts the run that was "
        "under way again."
    ]
    assert running.wait() == 130
    assert not list(tmp_path.glob("smoke/runs/*.json"))


def test_disabled_writes_nothing(smoke, tmp_path: Path) -> None:
    assert execute(smoke("scale.epochs=1"), quietly) == "finished"
    assert not (tmp_path / "tracking").exists()


class Fake:
    """In the place of wandb: notes metrics and rows. A call in `fails` raises, and one in `hangs` never ends."""

    Settings = dict

    def __init__(
        self, folder: Path, fails: Sequence[str] = (), hangs: Sequence[str] = (), logs_in: bool = True
    ) -> None:
        self.fails, self.hangs, self.logs_in = fails, hangs, logs_in
        self.dir = f"{folder}/run-2026-abc/files"
        self.rows: list[dict[str, Any]] = []
        self.axes: dict[str, Any] = {}
        self.killed = 0
        self.summary = SimpleNamespace(update=self.log)
        self.sdk = SimpleNamespace(wandb_setup=SimpleNamespace(singleton=self._kill))
        self.finish, self.log_artifact = (self._call(name) for name in ("finish", "log_artifact"))
        self.Artifact = lambda *_, **__: SimpleNamespace(add_file=lambda *_, **__: None)

    def _kill(self) -> None:
        self.killed += 1
        raise AssertionError

    def _call(self, name: str, answer: Any = None) -> Callable[..., Any]:
        def called(*_: Any, **__: Any) -> Any:
            if name in self.hangs:
                threading.Event().wait()
            if name in self.fails:
                raise ConnectionResetError(f"Connection lost in {name}")
            return answer

        return called

    def login(self, prompt: bool) -> bool:
        return self._call("login", self.logs_in)()

    def init(self, **_: Any) -> Fake:
        return self._call("init", self)()

    def define_metric(self, name: str, step_metric: str | None = None, **_: Any) -> None:
        self.axes[name] = step_metric

    def log(self, values: dict[str, Any]) -> None:
        self._call("log")()
        self.rows.append(values)

    def teardown(self) -> None:
        """End."""


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Fake]]:
    """`fake(hangs=["finish"])`: W&B from now on, which is given up after an instant without an answer."""

    def make(**options: Any) -> Fake:
        wandb = Fake(tmp_path, **options)
        monkeypatch.setattr(tracking, "_wandb", lambda: wandb)
        monkeypatch.setattr(tracking, "_PATIENCE", 0.3)
        return wandb

    yield make
    tracking._REACHED.clear()
    assert not tracking._RUNS


SMALL = ("scale=smoke", "scale.epochs=2", "diagnostics=[]", "architecture.units=4", "architecture.filters=[2,2]")


def test_a_run_without_privacy_is_plotted_by_epoch(composed, fake) -> None:
    wandb = fake()
    assert execute(composed(*SMALL, "noise_multiplier=0", "clipping=none"), quietly) == "finished"
    assert wandb.axes["*"] == "epoch"
    assert "epsilon" not in wandb.axes
    assert not any(name.startswith("epsilon") for row in wandb.rows if "epoch" in row for name in row)


@pytest.mark.parametrize(
    ("mode", "call"), [("online", "init"), *(("offline", call) for call in ("init", "log", "log_artifact", "finish"))]
)
def test_no_call_of_wandbs_holds_up_a_run(composed, fake, capsys, mode: str, call: str) -> None:
    """It is recorded, and its accuracy is said, before W&B is waited for."""
    wandb, config = fake(hangs=[call]), composed(*SMALL, f"tracking={mode}")
    said, epochs = list[float](), list[float]()
    tracking._REACHED.set()

    def on_record(path: Path) -> None:
        said.append(read_record(path)["final"]["test_accuracy"])

    assert execute(config, lambda row, run: epochs.append(time.monotonic()), on_record=on_record) == "finished"
    assert time.monotonic() - epochs[-1] < 10
    assert len(said) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tracking:")]
    assert "no answer in 0.3 seconds" in lines[0]
    assert len(lines) == 1 + (call == "init" and mode == "online"), "then it is tried offline"
    assert wandb.killed == len(lines)


def test_who_stops_a_run_that_waits_for_wandb_is_told_that_it_is_recorded(composed, fake, monkeypatch) -> None:
    fake(hangs=["finish"])
    monkeypatch.setattr(tracking, "_PATIENCE", 30.0)
    config = composed(*SMALL)
    began, ended = [], threading.Event()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in what it starts by "&"

    def press() -> None:
        while not ended.wait(1.0):  # once more if the first was lost to a finalizer, which raises nothing
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    def on_record(path: Path) -> None:
        threading.Thread(target=press, daemon=True).start()
        began.append(time.monotonic())

    with pytest.raises(KeyboardInterrupt) as stopped:
        execute(config, quietly, on_record=on_record)
    ended.set()
    signal.signal(signal.SIGINT, before)
    assert stopped.value.__notes__ == ["finds the run that was under way recorded"]
    assert time.monotonic() - began[0] < 5
    assert execute(config, quietly) == "skipped"


@pytest.mark.parametrize("fails", [["init"], ["log", "finish"]])
def test_a_run_goes_on_where_wandb_does_not(composed, fake, capsys, fails: list[str]) -> None:
    """Its process killed, or the disk full: a line, once, and the record is what it is without W&B."""
    fake(fails=fails)
    config = composed(*SMALL)
    assert execute(config, quietly) == "finished"
    assert record_of(config)["history"]["epoch"] == [1, 2]
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tracking:")]
    assert f"Connection lost in {fails[0]}" in line


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"logs_in": False}, "wandb login"),
        ({"hangs": ["login"]}, r"no answer in 0\.3 seconds"),
        ({"hangs": ["init"]}, r"no answer in 0\.3 seconds"),
    ],
)
def test_what_cannot_begin_online_is_refused_before_work(composed, fake, options: Any, said: str) -> None:
    fake(**options)
    with pytest.raises(ConfigError, match=said):
        execute(composed(*SMALL, "tracking=online"), quietly)


def test_without_wandb_an_offline_run_goes_on_and_online_is_refused(composed, monkeypatch, capsys) -> None:
    monkeypatch.setattr(tracking, "_wandb", lambda: None)
    assert execute(composed(*SMALL), quietly) == "finished"
    assert "wandb is not installed" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="tracking=online"):
        execute(composed("tracking=online"), quietly)
