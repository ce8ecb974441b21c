"""What plans keep: found again while nothing has changed, and never where anything has, or it is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.runs import kept, listed
from runner.runs.listed import listed_jobs


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of three files, whose content counts whenever it is asked for."""
    files = {"runner/a.py": "1", "conf/b.yaml": "x: ${oc.env:PLACE,there}", "sweeps/p/c.yaml": "y: 2"}
    for name, text in files.items():
        path = tmp_path / "checkout" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(kept, "REPOSITORY", tmp_path / "checkout")
    monkeypatch.setattr(kept, "fingerprint", kept.fingerprint.__wrapped__)
    return tmp_path / "checkout"


def test_what_is_kept_is_found_under_its_key_alone(checkout: Path) -> None:
    kept.keep("one", b"content")
    assert kept.recalled("one") == b"content"
    assert kept.recalled("two") is None


@pytest.mark.parametrize("name", ["runner/a.py", "conf/b.yaml", "sweeps/p/c.yaml"])
def test_another_content_of_any_file_is_another_place(checkout: Path, name: str) -> None:
    kept.keep("one", b"content")
    before = (checkout / name).read_text()
    (checkout / name).write_text(before + " ")
    assert kept.recalled("one") is None
    (checkout / name).write_text(before)
    assert kept.recalled("one") == b"content"


def test_a_new_file_and_what_configs_read_of_the_environment_count(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.keep("one", b"content")
    monkeypatch.setenv("PLACE", "here")
    assert kept.recalled("one") is None
    monkeypatch.delenv("PLACE")
    assert kept.recalled("one") == b"content"
    (checkout / "conf" / "new.yaml").write_text("")
    assert kept.recalled("one") is None


def test_what_is_damaged_or_open_to_others_is_not_read(checkout: Path) -> None:
    kept.keep("one", b"content")
    path = kept._path("one")
    whole = path.read_bytes()
    path.write_bytes(b"other" + whole[5:])
    assert kept.recalled("one") is None
    path.write_bytes(whole)
    path.chmod(0o666)
    assert kept.recalled("one") is None


def test_few_checkouts_are_kept(checkout: Path) -> None:
    for number in range(7):
        (checkout / "runner" / "a.py").write_text(str(number))
        kept.keep("one", b"content")
    assert len(list(kept._path("one").parent.parent.iterdir())) == 4
    assert kept.recalled("one") == b"content"


def test_runs_are_listed_once_and_come_out_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, extra = "tempered_sigmoid/fig_4", ("scale=smoke",)
    listed._listed.cache_clear()
    first = listed_jobs(extra, sweep)
    listed._listed.cache_clear()
    monkeypatch.setattr(listed, "sweep_jobs", lambda *_: pytest.fail("composed again"))
    again = listed_jobs(extra, sweep)
    listed._listed.cache_clear()
    assert [(job.run_id, job.label, job.config) for job in again] == [(j.run_id, j.label, j.config) for j in first]
    assert again[0].config.runtime.engine is first[0].config.runtime.engine
