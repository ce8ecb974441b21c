"""Offline runs are sent once, a run that was done again as one: to a server of the test's own, by W&B's own client."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from checks.wandb_server import serving
from runner.config import REPOSITORY
from runner.data.files import locked
from runner.runs import offline
from runner.runs.offline import Attempt, attempts, under_way
from runner.runs.tracking import mark_of, tracked


@pytest.fixture
def written(composed, tmp_path: Path) -> Path:
    """A folder with run `b` written twice, the first time stopped after one of two epochs, and run `a` once."""
    config = composed("scale=smoke")
    for run_id, epochs, stops in (("b", 1, True), ("b", 2, False), ("a", 1, False)):
        with suppress(StopIteration), tracked(config, run_id, "setting") as (log, _):
            (last,) = (each for each in attempts(tmp_path / "tracking/wandb") if not each.sent and under_way(each))
            assert last.run_id == run_id
            for epoch in range(1, epochs + 1):
                log({"epoch": epoch})
            if stops:
                raise StopIteration
        assert not under_way(last)
        time.sleep(1)  # folders are called after the second
    return tmp_path / "tracking"


def attempt(folder: Path, started: str, run_id: str) -> Attempt:
    place = folder / f"offline-run-20260101_{started}-{run_id}"
    place.mkdir(parents=True)
    (place / f"run-{run_id}.wandb").touch()
    return Attempt(f"20260101_{started}", run_id, place)


def test_without_a_login_it_says_what_is_needed(tmp_path, monkeypatch, refusal, capsys) -> None:
    assert offline.main(["--folder", str(tmp_path)]) == 0
    assert "no offline runs" in capsys.readouterr().out
    attempt(tmp_path / "wandb", "000000", "abc")
    monkeypatch.setattr("wandb.login", lambda prompt: False)
    assert refusal(offline.main, ["--folder", str(tmp_path)]) == (
        "offline: make wandb-sync needs a W&B login: run `wandb login`, or set WANDB_API_KEY."
    )


def test_every_run_is_sent_once_and_whole_and_a_damaged_file_keeps_back_no_other(written: Path) -> None:
    attempt(written / "wandb", "000000", "c").file.write_bytes(b"no file of W&B's" * 9)
    command = [sys.executable, "-m", "runner", "wandb-sync", "--folder", str(written)]
    with serving() as server, locked(attempt(written / "wandb", "000000", "d").folder):
        environment = os.environ | {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": "0" * 40}
        ran = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True)
        assert (ran.returncode, ran.stdout.splitlines()[-1][:18]) == (1, "sent 2 of 5 files;")
        lines = [line.split(":")[0] for line in ran.stderr.splitlines() if not line.startswith("wandb:")]
        assert lines == ["not sent"]
        assert {name: run["begun"] for name, run in server.runs.items()} == {"a": 1, "b": 1}
        left = [each.run_id for each in attempts(written / "wandb") if not each.sent]
        assert left == ["c", "d"], "the next command sends nothing again, and d is under way"
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
    monkeypatch.setattr(offline, "_synced", lambda chosen, _: [mark_of(each.file).touch() for each in chosen] and "")
    assert attempts(tmp_path) == [bad, good]
    assert offline.send([bad, good]) == {bad: "run-bad.wandb is not a file"}
    assert (bad.sent, good.sent) == (False, True)


def test_an_attempt_that_keeps_wandb_from_ending_keeps_back_no_other(tmp_path, monkeypatch) -> None:
    bad, *good = (attempt(tmp_path, "000000", name) for name in ("bad", "one", "two"))

    def synced(chosen: list[Attempt], stderr: int | None) -> str | None:
        if bad in chosen:
            return None
        for each in chosen:
            mark_of(each.file).touch()
        return ""

    monkeypatch.setattr(offline, "_synced", synced)
    assert offline.send([bad, *good]) == {bad: "W&B does not answer"}
    assert all(each.sent for each in good)
