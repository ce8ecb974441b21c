"""W&B: runs read back with W&B's own tool, and runs and workspaces sent to a server of the test's own."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import DictConfig

from checks.wandb_server import Server, serving
from runner.claims.claim import DATASETS
from runner.cli.dashboard import COLUMNS, main
from runner.config import REPOSITORY, ConfigError
from runner.records.disk import read_record
from runner.records.identity import identify
from runner.report.papers import load
from runner.runs.execute import execute
from runner.tracking import writer as tracking
from tests.conftest import quietly, record_of
from tests.small import FEW_STEPS

SMALL = ("scale=smoke", "diagnostics=[]", *FEW_STEPS)


@pytest.fixture(autouse=True)
def _tracking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE")  # runs of these tests are tracked


def _records(folder: Path) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", folder]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in shown.splitlines()]


def _folder(tmp_path: Path, run_id: str) -> Path:
    """Return the folder of an offline run."""
    (folder,) = (tmp_path / "tracking/wandb").glob(f"offline-run-*-{run_id}")
    return folder


def _of(records: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [record[kind] for record in records if record["type"] == kind]


def _summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: value for record in _of(records, "summary") for name, value in record["update"].items()}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server of W&B's kind, with a login to it."""
    with serving() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        yield server
    tracking.check_login.cache_clear()


def test_an_offline_run_says_what_the_record_says(composed, tmp_path: Path) -> None:
    config = composed(
        *SMALL, "tracking.group=paper/item", "tracking.job_type=row", "tracking.tags=[mine]",
        "tracking.command='python -m runner experiment=row activation=tanh seed=0 runtime.device=cpu'",
        "save_model=true",
    )  # fmt: skip
    assert execute(config, quietly) == "finished"
    run_id, setting_id = identify(config)
    record = record_of(config)
    records = _records(_folder(tmp_path, run_id))
    (run,) = _of(records, "run")
    text = json.dumps(run)
    for expected in (run_id, "paper/item", "row", "mine", f"setting:{setting_id}", "scale:smoke", "dp-repro-bench"):
        assert expected in text
    assert f"row activation=tanh seed 0 {run_id[:6]}" in text
    assert {record["type"] for record in _of(records, "artifact")} == {"record", "model"}
    assert str(tmp_path) not in text, "nothing of this machine's folders is sent"

    rows = [record["item"] for record in _of(records, "history")]
    assert [row["epoch"] for row in rows if "epoch" in row] == [1, 2]
    for name in ("epsilon", "epsilon_sound", "test_accuracy", "train_loss"):
        assert [row[name] for row in rows if name in row] == pytest.approx(record["history"][name])
    assert _summary(records)["best_test_accuracy"] == record["final"]["best_test_accuracy"]


DIAGNOSTICS: dict[str, Any] = {
    "hessian": {"epoch": [0, 1], "eigenvalue": [2.0, "inf"], "residual": [0.1, 0.2]},
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


def _tracked(config: DictConfig, folder: Path, diagnostics: dict[str, Any]) -> None:
    """Write a made-up record of a run to W&B."""
    history = {
        "epoch": [1],
        "epsilon": [0.900001],
        "epsilon_sound": ["inf"],
        "test_accuracy": [90.0],
        "test_loss": ["nan"],
    }
    final = {"epoch": 2, "test_accuracy": 91.0, "epsilon": 0.9, "epsilon_sound": 0.7, "epsilon_spent": 0.5}
    record = {"run_id": "0123456789ab", "setting_id": "s", "history": history, "final": final}
    (folder / "record.json").write_text(json.dumps(record | {"diagnostics": diagnostics}))
    tracking.track(config, "0123456789ab", "ba9876543210", folder / "record.json")


_LOGGED: list[tuple[Path, list[dict[str, Any]]]] = []


@pytest.fixture
def logged(composed, tmp_path: Path) -> tuple[Path, list[dict[str, Any]]]:
    """The folder and the records of the made-up run: made once."""
    if not _LOGGED:
        _tracked(composed("scale=smoke", "seed=1"), tmp_path, DIAGNOSTICS)
        folder = _folder(tmp_path, "0123456789ab")
        _LOGGED.append((folder, _records(folder)))
    return _LOGGED[0]


def test_curves_can_be_against_epsilons_and_epoch(logged) -> None:
    metrics = _of(logged[1], "metric")
    axes = [record["name"] for record in metrics if "step_metric" not in record and "/" not in record["name"]]
    assert axes == ["epsilon", "epsilon_sound", "epsilon_spent", "epoch"]
    assert [record["step_metric"] for record in metrics if record.get("glob_name") == "*"] == ["epsilon"]
    assert "epsilon_sound" not in _of(logged[1], "history")[0]["item"], "no axis has a place for infinity"


def test_diagnostics_are_logged_as_what_they_are(logged) -> None:
    folder, records = logged
    rows = [record["item"] for record in _of(records, "history")]
    against = {record["name"]: record.get("step_metric") for record in _of(records, "metric") if "name" in record}
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
    artifacts = {record["type"]: record for record in _of(records, "artifact")}
    assert "record.json" in json.dumps(artifacts["record"])
    summary = _summary(records)
    assert (summary["test_accuracy"], summary["epsilon"]) == (91, 0.90001), "rounded up, as in a record"
    assert (summary["epsilon_sound"], summary["epsilon_spent"]) == (0.7, 0.5)


def test_a_run_without_privacy_is_plotted_by_epoch(composed) -> None:
    begun = tracking._begin(composed(*SMALL, "noise_multiplier=0", "clipping=none"), "0123456789ab", "ba9876543210")
    assert begun["axes"] == ("epoch",)


def test_an_online_run_is_sent_whole(composed, server: Server) -> None:
    config = composed(*SMALL, "tracking=online")
    assert execute(config, quietly) == "finished"
    run = server.runs[identify(config)[0]]
    assert [row["epoch"] for row in run["history"].values() if "epoch" in row] == [1, 2]
    assert run["summary"]["best_epoch"] == record_of(config)["final"]["best_epoch"]
    assert (run["artifacts"], run["exit_code"]) == (["record"], 0)


def test_make_wandb_sync_sends_each_offline_run_once(composed, server: Server, tmp_path: Path) -> None:
    """Even after one that was killed while it was written, whose file ends early."""
    _tracked(composed(*SMALL), tmp_path, DIAGNOSTICS)
    os.mkfifo(endless := tmp_path / "endless.json")
    begin = tracking._begin(composed(*SMALL, "seed=2"), "ba9876543210", "0123456789ab") | {"record": str(endless)}
    command = [sys.executable, "-m", "runner.tracking.writer"]
    killed = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=tracking._environment())
    assert killed.stdin is not None
    with killed.stdin as stdin:
        stdin.write(json.dumps(begin))
    deadline = time.monotonic() + 60
    while not list((tmp_path / "tracking").rglob("run-ba9876543210.wandb")) and time.monotonic() < deadline:
        time.sleep(0.1)
    killed.kill()
    killed.wait()
    make = ["make", "-n", "--no-print-directory", "wandb-sync"]  # also where `make` runs the tests
    shown = subprocess.run(make, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    _, *words = shown.stdout.splitlines()[-1].split()
    for _ in range(2):
        subprocess.run([sys.executable, *words], cwd=tmp_path / "tracking", check=True, capture_output=True)
    ((name, run),) = server.runs.items()
    assert (name, run["begun"]) == ("0123456789ab", 1)
    assert [row["epoch"] for row in run["history"].values() if "epoch" in row] == [1]
    assert {"record", "run_table"} <= set(run["artifacts"])


# What W&B does in its process, in the place of the package, and what a line then names. `init` returns a run.
FAULTS = {
    "not installed": ("raise ImportError", "wandb is not installed"),
    "full disk": ("raise OSError(28, 'No space left on device')", "No space left on device"),
    "killed": ("import os; os.kill(os.getpid(), 15)", "SIGTERM"),
    "log fails": ("def log(self, row): raise ConnectionResetError('Connection lost')", "Connection lost"),
    "finish fails": ("def finish(self, exit_code): raise TimeoutError('No answer')", "No answer"),
}
RUN = """
from types import SimpleNamespace
Settings = dict
class Run:
    dir, summary = "x/offline-run/files", {}
    def define_metric(self, *_, **__): pass
    def log(self, row): pass
    def log_artifact(self, artifact): pass
"""
REST = """
def init(**_):
    return Run()
def Artifact(*_, **__):
    return SimpleNamespace(add_file=lambda *_, **__: None)
"""


@pytest.fixture
def fake_wandb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """`fake_wandb(program)`: what other processes import as wandb."""
    (tmp_path / "packages").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    yield (tmp_path / "packages/wandb.py").write_text
    tracking.check_login.cache_clear()


def _line(capfd: pytest.CaptureFixture[str]) -> str:
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("tracking:")]
    return line


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_wandb_is_one_line(composed, fake_wandb, tmp_path: Path, capfd, fault: str) -> None:
    program, reason = FAULTS[fault]
    fake_wandb(f"{RUN}    {program}{REST}" if program.startswith("def") else program)
    _tracked(composed(*SMALL), tmp_path, {})
    assert reason in _line(capfd)


def test_wandb_that_hangs_holds_no_run(composed, fake_wandb, capfd, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is recorded, and its accuracy is shown, before W&B is waited for."""
    fake_wandb("import time; time.sleep(40)")
    monkeypatch.setattr(tracking, "_PATIENCE", 3.0)
    config, shown = composed(*SMALL), list[float]()

    def show_recorded(path: Path) -> None:
        shown.append(read_record(path)["final"]["test_accuracy"])

    began = time.monotonic()
    assert execute(config, quietly, on_record=show_recorded) == "finished"
    assert time.monotonic() - began < 30
    assert shown == [record_of(config)["final"]["test_accuracy"]]
    assert "it has not ended after 3 seconds" in _line(capfd)


def test_ctrl_c_while_waiting_says_it_is_recorded(composed, fake_wandb, tmp_path: Path) -> None:
    """What writes for W&B goes on, as the same command would skip the run."""
    written = tmp_path / "written"
    fake_wandb(f"import pathlib, time; time.sleep(3); pathlib.Path({str(written)!r}).touch()")
    config, ended = composed(*SMALL), threading.Event()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in what it starts by "&"

    def press() -> None:
        while not ended.wait(1.0):  # once more if the first was lost to a finalizer, which raises nothing
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as stopped:
        execute(config, quietly, on_record=lambda path: threading.Thread(target=press, daemon=True).start())
    ended.set()
    signal.signal(signal.SIGINT, before)
    assert stopped.value.__notes__ == ["finds the run that was under way recorded"]
    assert not written.exists()
    deadline = time.monotonic() + 30
    while not written.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert written.exists()
    assert execute(config, quietly) == "skipped"


LOGIN = "def login(prompt):\n    "


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("raise ImportError('no wandb')", "no wandb"),
        (f"{LOGIN}return False", "`wandb login`"),
        (f"{LOGIN}raise ValueError('a wrong key')", "a wrong key"),
        (f"{LOGIN}import time; time.sleep(40)", "gives no answer in 3 seconds"),
    ],
)
def test_what_cannot_begin_online_is_refused(composed, fake_wandb, monkeypatch, program: str, reason: str) -> None:
    fake_wandb(program)
    if "3 seconds" in reason:
        monkeypatch.setattr(tracking, "_PATIENCE", 3.0)
    with pytest.raises(ConfigError, match=reason):
        execute(composed(*SMALL, "tracking=online"), quietly)


def test_a_multirun_that_is_stopped_says_so_in_a_line(tmp_path: Path) -> None:
    """Under make a signal to the whole group comes twice, the second time from make, at once."""
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


def test_a_sweep_of_wandb_starts_runs_of_this_package(composed, tmp_path: Path, monkeypatch) -> None:
    """The file in docs/hydra.md, as W&B's agent makes a command of it. The agent names run and sweep by environment."""
    from wandb.sdk.launch.sweeps.utils import create_sweep_command_args

    text = (REPOSITORY / "docs/hydra.md").read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    sweep = yaml.safe_load(text)
    chosen = {name: {"value": field.get("value", 0.25)} for name, field in sweep["parameters"].items()}
    words = {"${env}": ["/usr/bin/env"], "${program}": [sweep["program"]]}
    words["${args_no_hyphens}"] = create_sweep_command_args({"args": chosen})["args_no_hyphens"]
    command = [word for part in sweep["command"] for word in words.get(part, [part])]
    assert command[:4] == ["/usr/bin/env", "python", "-m", "runner"]
    monkeypatch.setenv("WANDB_RUN_ID", "byagent1")
    monkeypatch.setenv("WANDB_SWEEP_ID", "sweep123")
    config = composed(*command[4:], *SMALL, "tracking.mode=offline", f"tracking.directory={tmp_path}")
    _tracked(config, tmp_path, {})
    assert (config.optimizer.lr, config.sound_epsilon, config.evaluation.name) == (0.25, 3, "holdout")
    (folder,) = (tmp_path / "wandb").glob("offline-run-*-byagent1")  # what the agent waits for
    assert _summary(_records(folder))["test_accuracy"] == 91


def test_the_switch_of_wandb_turns_tracking_off(composed, tmp_path: Path, monkeypatch) -> None:
    """Online too: no login is asked for."""
    monkeypatch.setattr(tracking.subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started for W&B"))
    for mode, switch in (("online", "disabled"), ("disabled", "online")):
        monkeypatch.setenv("WANDB_MODE", switch)
        config = composed(*SMALL, f"tracking={mode}")
        tracking.check(config)
        _tracked(config, tmp_path, {})


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the workspaces that the command sends for one paper."""
    pytest.importorskip("wandb_workspaces")
    with serving() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        assert main(["tempered-sigmoid"]) == 0
    tracking.check_login.cache_clear()
    return server.views


def test_a_view_for_each_data_set_shows_its_papers_runs(views: list[dict[str, Any]]) -> None:
    """By setting. Smoke runs have the same groups and data sets, and are left out."""
    title = load("tempered_sigmoid").title
    assert [view["displayName"] for view in views] == [f"{title} ({name})" for name in DATASETS]
    assert {(view["entityName"], view["projectName"]) for view in views} == {("me", "dp-repro-bench")}

    section = json.loads(views[0]["spec"])["section"]
    bank = section["panelBankConfig"]["sections"]
    panels = {part["name"]: [panel["config"] for panel in part["panels"]] for part in bank if part["panels"]}
    points, curves = panels["Accuracy and its price"], panels["By epoch"]
    assert [(panel["xAxis"], panel["yAxis"], panel["showMaxYAxisLine"]) for panel in points] == [
        ("summary:epsilon", "summary:test_accuracy", True),
        ("summary:epsilon_sound", "summary:test_accuracy", True),
    ]
    assert [(panel["xAxis"], panel["metrics"]) for panel in curves] == [
        ("epsilon", ["test_accuracy"]),
        ("epsilon_sound", ["test_accuracy"]),
        ("epoch", ["test_loss"]),
    ]

    for view, dataset in zip(views, DATASETS, strict=True):
        (runset,) = json.loads(view["spec"])["section"]["runSets"]
        filters = {(part["key"]["section"], part["key"]["name"]): part for part in runset["filters"]["filters"]}
        assert {part["op"] for part in filters.values()} == {"IN"}
        groups = filters["run", "group"]["value"]
        assert "tempered_sigmoid/fig-3" in groups
        assert {group.partition("/")[0] for group in groups} == {"tempered_sigmoid"}
        assert filters["config", "dataset.value.name"]["value"] == [dataset]
        assert filters["config", "scale.value.name"]["value"] == ["paper"]
        assert [part["name"] for part in runset["grouping"]] == ["group", "jobType"]
        assert runset["runFeed"]["columnOrder"][-len(COLUMNS) :] == list(COLUMNS)


def test_without_a_login_two_lines_say_what_helps(monkeypatch, tmp_path, capsys) -> None:
    (tmp_path / "wandb.py").write_text("def login(prompt):\n    return False\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert main(["tempered-sigmoid"]) == 2
    login, without = capsys.readouterr().err.splitlines()
    assert "`wandb login`" in login
    assert "--host=URL" in login
    assert "`wandb leet run" in without


def test_without_the_extra_its_name_is_given(monkeypatch, refusal) -> None:
    monkeypatch.setattr("runner.cli.dashboard.check_login", lambda what: None)
    monkeypatch.setitem(sys.modules, "wandb_workspaces.workspaces", None)
    assert "pip install -e '.[dashboard]'" in refusal(main, ["tempered-sigmoid", "--entity", "me"])
