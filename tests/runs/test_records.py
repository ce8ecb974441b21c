"""Records: damaged and edited ones are found wherever they are read, set aside, and computed again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.config import REPOSITORY
from runner.runs import schema
from runner.runs.jobs import Job
from runner.runs.records import digest_of, read_record, record_path, recorded, set_aside, text_of
from runner.runs.verify import verify

Fabricate = Callable[..., Path]
Jobs = Callable[..., list[Job]]


@pytest.fixture
def path(fabricate: Fabricate, jobs: Jobs) -> Path:
    """A record of two epochs."""
    return fabricate(jobs("fig_3", "mnist_tanh")[0], [97.0, 98.0], epsilon=[2.0, 2.5], sound=[1.0, 2.0])


def edited(path: Path, change: Callable[[dict[str, Any]], None], *, signed: bool) -> Path:
    record = json.loads(path.read_text())
    change(record)
    if signed:
        record["digest"] = digest_of(record)
    path.write_text(text_of(record))
    return path


def test_a_record_carries_the_digest_of_the_rest(path: Path) -> None:
    record = read_record(path)
    assert record["digest"] == digest_of(record)
    assert record["digest"] != digest_of(record | {"status": "diverged"})


@pytest.mark.parametrize("name", ["epsilon", "epsilon_sound", "test_accuracy"])
def test_a_number_edited_by_hand_is_found(path: Path, name: str) -> None:
    def change(record: dict[str, Any]) -> None:
        record["history"][name][-1] = record["final"][name] = record["history"][name][-1] - 0.5

    with pytest.raises(ValueError, match=f"{path.name} is not a whole record: its digest"):
        read_record(edited(path, change, signed=False))


def _both(record: dict[str, Any], name: str, value: Any) -> None:
    record["history"][name][-1] = record["final"][name] = value


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda r: _both(r, "test_accuracy", 150.0), "history.test_accuracy.1: Input should be less than or equal to"),
        (lambda r: _both(r, "test_accuracy", None), "history.test_accuracy.1: Input should be a valid number"),
        (lambda r: _both(r, "test_accuracy", "nan"), "history.test_accuracy.1: Input should be a valid number"),
        (lambda r: _both(r, "epsilon_sound", 0.5), "its epsilon_sound falls from one epoch to the next"),
        (lambda r: _both(r, "epsilon", -1.0), "history.epsilon.1"),
        (lambda r: _both(r, "test_loss", "nan"), "its last loss is not a finite number"),
        (lambda r: r["history"]["steps"].pop(), "its history is not of equal lengths"),
        (lambda r: [values.pop() for values in r["history"].values()], "are not the last of its history"),
        (lambda r: [values.clear() for values in r["history"].values()], "history.epoch: List should have at least 1"),
        (lambda r: r["history"].update(epoch=[2, 3]), "its epochs are not 1, 2, 3"),
        (lambda r: r["final"].update(sampling_rate=1.5), "final.sampling_rate"),
        (lambda r: r.pop("provenance"), "provenance: Field required"),
        (lambda r: r.update(status="running"), "status: Input should be 'finished', 'diverged' or 'stopped'"),
        (lambda r: r["config"].update(seed=9), "its ids are not those of its config"),
        (lambda r: r["config"].update(epochs=1), "its ids are not those of its config"),
    ],
)
def test_what_cannot_be_is_refused_whatever_its_digest(path: Path, change: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match="is not a whole record") as refused:
        read_record(edited(path, change, signed=True))
    assert sentence in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b"\xff\xfe", b'{"run_id": "0'])
def test_a_broken_file_is_no_record_and_is_set_aside(path: Path, jobs: Jobs, content: bytes) -> None:
    config = jobs("fig_3", "mnist_tanh")[0].config
    config.runtime.results_root = str(path.parent.parent)
    assert recorded(config)
    assert set_aside(path) is None
    path.write_bytes(content)
    assert not recorded(config)
    assert set_aside(path) == path.with_suffix(".broken-1")
    assert path.with_suffix(".broken-1").read_bytes() == content
    assert not path.exists()
    path.write_bytes(content)
    assert set_aside(path) == path.with_suffix(".broken-2"), "nothing is written over"
    assert set_aside(path) is None


def test_the_published_schema_is_the_one_in_force() -> None:
    assert schema.PUBLISHED.read_text(encoding="utf-8") == schema.published()


def committed(name: str, value: object) -> dict[str, Any]:
    """The first committed record whose config has this value."""
    paths = sorted((REPOSITORY / "results" / "runs").glob("*.json"))
    records = (json.loads(path.read_text()) for path in paths)
    return next(r for r in records if r["config"].get(name) == value and r["config"]["dataset"]["name"] == "MNIST")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda r: None, None),
        (lambda r: _both(r, "epsilon_sound", r["final"]["epsilon_sound"] * 1.001), "epsilon_sound after epoch"),
        (lambda r: _both(r, "epsilon", r["final"]["epsilon"] * 1.001), "epsilon after epoch"),
        (lambda r: r["final"].update(best_test_accuracy=99.9), "best_test_accuracy is 99.9"),
        (lambda r: r["final"].update(best_epoch=77), "best_epoch is 77"),
        (lambda r: r["final"].update(epsilon_sound_at_max_tries=0.01), "max_tries is None"),
        (lambda r: r["final"].update(sampling_rate=0.01), "sampling_rate is 0.01"),
        (lambda r: r["final"].update(noise_multiplier=1.0), "noise_multiplier is 1.0"),
        (lambda r: _both(r, "steps", 17), "steps after epoch"),
        (lambda r: [values.pop() for values in r["history"].values()], "the last epoch is"),
    ],
)
def test_a_record_says_what_its_config_costs(change: Any, sentence: str | None) -> None:
    record = committed("batch_size", 256)
    change(record)
    found = verify(record)
    assert found == [] if sentence is None else any(sentence in each for each in found)


def test_a_screened_record_guarantees_what_its_config_does() -> None:
    paths = sorted((REPOSITORY / "results" / "runs").glob("*.json"))
    record = next(r for r in map(read_record, paths) if r["config"].get("screening"))
    assert verify(record) == []
    record["final"]["max_tries"] += 1
    assert any("max_tries" in each for each in verify(record))
    record["history"]["accepted"][0] = record["history"]["steps"][0] + 3
    assert "kept beyond the tries is 3, and should be 0" in verify(record)
    del record["final"]["max_tries"]
    assert any("max_tries is None" in each for each in verify(record))


@pytest.mark.parametrize("name", ["epsilon", "epsilon_sound"])
def test_epsilons_of_other_epochs_are_computed_again_when_asked_for(name: str) -> None:
    record = committed("batch_size", 256)
    assert verify(record, every_epoch=True) == []
    record["history"][name][1] *= 0.99
    assert verify(record) == []
    assert [each.split(" is ")[0] for each in verify(record, every_epoch=True)] == [f"{name} after epoch 2"]


def test_the_guarantee_of_a_run_that_ended_early_is_verified_where_it_is_written() -> None:
    """Records from before the guarantee was written do not have it, and are no less verified otherwise."""
    record = committed("batch_size", 256)
    record["status"] = "diverged"
    assert verify(record) == []
    record["final"] |= {"max_tries": record["final"]["steps"] + 1, "epsilon_sound_at_max_tries": 1.0}
    assert [each.split(" ")[0] for each in verify(record)] == ["max_tries", "epsilon_sound_at_max_tries"]


def test_every_file_of_the_records_is_one(jobs: Jobs) -> None:
    folder = REPOSITORY / "results"
    paths = [path for path in (folder / "runs").iterdir() if path.suffix == ".json"]
    assert len({read_record(path)["run_id"] for path in paths}) == len(paths) >= 252
    assert all(record_path(folder, path.stem) == path for path in paths)
