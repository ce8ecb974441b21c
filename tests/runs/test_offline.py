"""Offline runs are sent once, a run that was done again as one: to a server of the test's own, by W&B's own client."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from checks.wandb_server import serving
from runner.config import REPOSITORY
from runner.runs import offline
from runner.runs.offline import Attempt, attempts, due

# Writes run `b` twice, the first time stopped after one of two epochs, and run `a` once.
WRITER = """
import sys
import time
import wandb
for name, epochs, code in (("b", 1, 1), ("b", 2, 0), ("a", 1, 0)):
    settings = wandb.Settings(silent=True, console="off", disable_git=True, x_disable_stats=True)
    run = wandb.init(mode="offline", project="sent", dir=sys.argv[1], id=name, settings=settings)
    for epoch in range(1, epochs + 1):
        run.log({"epoch": epoch})
    run.finish(exit_code=code)
    time.sleep(1)  # folders are called after the second
"""


@pytest.fixture(scope="module")
def written_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    subprocess.run([sys.executable, "-c", WRITER, folder], check=True, capture_output=True)
    return folder


@pytest.fixture
def written(written_once: Path, tmp_path: Path) -> Path:
    """A folder of the test's own with the runs of WRITER."""
    return Path(shutil.copytree(written_once, tmp_path / "written", symlinks=True))


def attempt(folder: Path, started: str, run_id: str, *, sent: bool = False) -> Attempt:
    place = folder / f"offline-run-20260101_{started}-{run_id}"
    place.mkdir(parents=True)
    (place / f"run-{run_id}.wandb").touch()
    found = Attempt(f"20260101_{started}", run_id, place)
    if sent:
        found.mark_as_sent()
    return found


@pytest.mark.parametrize(
    ("codes", "sent", "chosen"),
    [
        ([0], [False], 0),
        ([None], [False], 0),
        ([1, 0], [False, False], 1),
        ([0, 1], [False, False], 0),
        ([0, None], [True, False], None),
        ([1, 0], [True, False], 1),
        ([1, None], [False, False], 1),
        ([0, 0], [True, True], None),
    ],
)
def test_the_last_that_ended_well_is_due(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    codes: list[int | None],
    sent: list[bool],
    chosen: int | None,
) -> None:
    tries = [attempt(tmp_path, f"00000{n}", "abc", sent=each) for n, each in enumerate(sent)]
    monkeypatch.setattr(Attempt, "exit_code", property(lambda self: codes[tries.index(self)]))
    assert attempts(tmp_path) == {"abc": tries}
    assert due(tries) == (None if chosen is None else tries[chosen])


def test_what_is_still_written_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attempt, "exit_code", None)
    found = attempt(tmp_path, "000000", "abc")
    assert found.going_on
    os.utime(found.file, (0, 0))
    assert not found.going_on, "it was killed"


def test_without_a_login_it_says_what_is_needed(tmp_path, monkeypatch, refusal, capsys) -> None:
    assert offline.main(["--folder", str(tmp_path)]) == 0
    assert "no offline runs" in capsys.readouterr().out
    attempt(tmp_path / "wandb", "000000", "abc")
    monkeypatch.setattr("wandb.login", lambda prompt: False)
    assert refusal(offline.main, ["--folder", str(tmp_path)]) == (
        "offline: make wandb-sync needs a W&B login: run `wandb login`, or set WANDB_API_KEY."
    )


def test_every_run_is_sent_once_and_whole_and_a_damaged_file_keeps_back_no_other(written: Path) -> None:
    """The file of another run is sent, and so is a later attempt of the same run."""
    for run_id in ("a", "c"):
        damaged = attempt(written / "wandb", "000000", run_id)
        damaged.file.write_bytes(b"no file of W&B's" * 9)
        os.utime(damaged.file, (0, 0))
    command = [sys.executable, "-m", "runner", "wandb-sync", "--folder", str(written)]
    with serving() as server:
        environment = os.environ | {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": "0" * 40}
        ran = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True)
        assert (ran.returncode, ran.stdout.splitlines()[-1][:18]) == (1, "sent 2 of 3 runs; ")
        lines = [line.split(":")[0] for line in ran.stderr.splitlines() if not line.startswith("wandb:")]
        assert lines == ["damaged", "not sent"]
        assert {name: run["begun"] for name, run in server.runs.items()} == {"a": 1, "b": 1}
        left = {run_id for run_id, tries in attempts(written / "wandb").items() if due(tries) is not None}
        assert left == {"c"}, "the next command sends nothing again"
        assert [row["epoch"] for row in server.runs["b"]["history"].values()] == [1, 2]
        assert server.runs["b"]["summary"]["epoch"] == 2


def test_nothing_more_is_sent_where_wandb_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def hangs(command: list[str], timeout: float, **_: object) -> None:
        calls.append(timeout)
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", hangs)
    found = [attempt(tmp_path, "000000", f"{number:02}") for number in range(60)]
    assert offline.send(found) == dict.fromkeys(found, "W&B does not answer")
    assert len(calls) == 3
    assert calls[0] < 600


@pytest.mark.parametrize(
    "make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to(path)], ids=["pipe", "folder", "link"]
)
def test_what_is_no_file_is_named_and_the_others_are_sent(tmp_path, monkeypatch, make) -> None:
    """W&B would wait for a pipe, and then no other attempt would be sent."""
    bad, good = attempt(tmp_path, "000000", "bad"), attempt(tmp_path, "000001", "good")
    bad.file.unlink()
    make(bad.file)
    monkeypatch.setattr(offline, "_synced", lambda chosen, stderr: [each.mark_as_sent() for each in chosen] and "")
    tries = attempts(tmp_path)
    assert set(tries) == {"bad", "good"}
    assert not bad.going_on
    assert offline.send([tries["bad"][0], tries["good"][0]]) == {bad: "run-bad.wandb is not a file"}
    assert (bad.sent, good.sent) == (False, True)


def test_an_attempt_that_keeps_wandb_from_ending_keeps_back_no_other(tmp_path, monkeypatch) -> None:
    bad, *good = (attempt(tmp_path, "000000", name) for name in ("bad", "one", "two"))

    def synced(chosen: list[Attempt], stderr: int | None) -> str | None:
        if bad in chosen:
            return None
        for each in chosen:
            each.mark_as_sent()
        return ""

    monkeypatch.setattr(offline, "_synced", synced)
    assert offline.send([bad, *good]) == {bad: "W&B does not answer"}
    assert all(each.sent for each in good)
