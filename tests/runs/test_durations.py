"""Estimates of durations, by records of the same setting, else of the same shapes, network and batch, else unknown."""

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from runner.cli import reproduce
from runner.records.identity import plain
from runner.report.pages import time_text
from runner.runs.durations import Durations, like, plan_of_papers, plan_text, seconds_of_epoch, total_of

CONFIG = {
    "dataset": {"_target_": "runner.data.datasets.ImageDataset", "name": "MNIST", "shape": [1, 28, 28]},
    "features": {"_target_": "runner.data.features.Pixels"},
    "architecture": {"_target_": "runner.networks.architectures.Cnn", "width": 16},
    "batch_size": 256,
}
LIKE = like(CONFIG)
OTHER = {**CONFIG, "batch_size": 512}  # of which there is no record


def record(seconds: float, epochs: int = 10, setting: str = "a", by: str = "processor_seconds", **changes: Any) -> Any:
    status = changes.pop("status", "finished")
    provenance = {"threads": 1, "step": "eager", "device": "AMD EPYC", "wall_seconds": 1e6, by: seconds, **changes}
    history = {"epoch": list(range(epochs))}
    return {"setting_id": setting, "status": status, "config": CONFIG, "history": history, "provenance": provenance}


def lasting(epochs: int, config: Any = CONFIG) -> Any:
    return {**config, "epochs": epochs}


def test_the_same_setting_tells_a_run_and_runs_like_it_an_epoch() -> None:
    times = Durations([record(100), record(300), record(900), record(50, 5, "b")])
    assert times.seconds("a", lasting(10)) == 300, "the median"
    assert times.seconds("a", lasting(99, OTHER)) == 300, "a budget may end them all before their last epoch"
    assert times.seconds("c", lasting(4)) == pytest.approx(4 * 20), "the median of 10, 30, 90 and 10 an epoch"
    assert times.seconds("d", lasting(4, OTHER)) is None
    timed = Durations([record(100)], timed={LIKE: 1.0, like(OTHER): 2.0})
    assert timed.seconds("c", lasting(4, OTHER)) == 8
    assert timed.seconds("d", lasting(4)) == 40, "a record counts more than a step that was timed"


def test_timed_steps_make_the_seconds_of_an_epoch(smoke: Any) -> None:
    """A run of eight times the batch size and an eighth of the steps has as many examples in an epoch."""
    few, many = (seconds_of_epoch(smoke(f"batch_size={size}", "scale.batch_size=null")) for size in (32, 256))
    assert 0 < many < few, "larger batches are faster"


def test_a_clock_tells_only_where_no_processor_does() -> None:
    old = [record(7000, by="wall_seconds", setting=name) for name in "abc"]
    assert Durations(old).seconds("d", lasting(10)) == 7000
    newer = Durations([*old, record(1000, setting="d")])
    assert (newer.seconds("e", lasting(10)), newer.seconds("a", lasting(10))) == (1000, 7000)


@pytest.mark.parametrize(
    "other",
    [
        *(record(1, **changes) for changes in (
            {"threads": 2}, {"step": "graph"}, {"resumed_after": [3]}, {"status": "diverged"},
            {"wall_seconds": None, "processor_seconds": None},
        )),
        None, {"status": "finished"}, {**record(1), "history": {"epoch": []}},
    ],
)  # fmt: skip
def test_durations_ignore_other_computations_and_damaged_records(other: Any) -> None:
    assert Durations([other]).seconds("a", lasting(10)) is None
    assert Durations([other, record(100), other]).seconds("a", lasting(10)) == 100


def test_a_gpu_is_told_by_its_own_records() -> None:
    of_gpu = {"by": "wall_seconds", "device": "H100"}
    records = [record(100), *(record(3.0, step=step, **of_gpu) for step in ("graph", "eager"))]  # type: ignore[arg-type]
    assert Durations(records).seconds("a", lasting(10)) == 100
    assert Durations(records, "H100").seconds("a", lasting(10)) == 3
    assert Durations(records, "H200").seconds("a", lasting(10)) is None


def test_what_makes_runs_alike() -> None:
    same: dict[str, Any] = copy.deepcopy(CONFIG)
    same["dataset"]["name"], same["seed"] = "FashionMNIST", 3
    same["architecture"]["_target_"] = "runner.elsewhere.Cnn"
    assert like(same) == LIKE
    for group, name, value in (("dataset", "shape", [3, 32, 32]), ("architecture", "width", 32)):
        other = copy.deepcopy(CONFIG)
        other[group][name] = value  # type: ignore[index]
        assert like(other) != LIKE
    assert like({**CONFIG, "batch_size": 512}) != LIKE
    assert like({**CONFIG, "activation": {"_target_": "torch.nn.ReLU"}}) == LIKE
    assert like({**CONFIG, "activation": {"_target_": "mine.Slow"}}) != LIKE


def test_a_job_and_its_record_are_alike(smoke) -> None:
    from runner.records.identity import recorded_config

    config = smoke("architecture=scatternet_mnist", "features=scatternet")
    assert like(plain(config)) == like(recorded_config(config))


def test_a_plan_counts_runs_of_unknown_time() -> None:
    first, second, third = (SimpleNamespace(run_id=name) for name in "xyz")
    text = plan_text({"one": [first, second], "two": [second, third], "none": []}, {"x", "y"}, {"x": 7200.0}, 2)  # type: ignore[list-item, dict-item]
    rows = {row[:7].strip(): row[7:].split() for row in text.splitlines()[1:4]}
    assert rows == {
        "one": ["2", "0", "2", "1", "1h00m"],
        "two": ["2", "1", "1", "1", "unknown"],
        "in all": ["3", "1", "2", "1", "1h00m"],
    }


def test_a_paper_takes_its_runs_once_from_nothing() -> None:
    jobs = [
        SimpleNamespace(run_id=i, setting_id=s, values={**CONFIG, "epochs": 4}) for i, s in ("xa", "ya", "xa", "zb")
    ]
    times = Durations([record(7200.0, setting="a")])
    total = total_of(jobs, times, lambda job: job.run_id == "x")  # type: ignore[arg-type]
    assert total == (3, 2, 2 * 7200.0 + 4 * 720.0, 7200.0 + 4 * 720.0, 0)
    sentence = "From nothing, its 3 runs take about 4.8 core-hours; 2 are left, about 2.8."
    assert time_text(total) == f"**Time.** {sentence}\n"
    assert plan_of_papers({"one": total}).splitlines()[1].split() == ["one", "3", "1", "2", "0", "4.8h", "2.8h"]


def test_unknown_runs_come_last_and_cheap_evidence_first() -> None:
    jobs = [SimpleNamespace(run_id=f"{name}{seed}", experiment=name) for name in "uab" for seed in range(2)]
    seconds = {"a0": 30.0, "a1": 30.0, "b0": 20.0, "b1": 20.0}
    ordered = reproduce.ordered({"item": jobs}, jobs[:], seconds)  # type: ignore[dict-item, arg-type]
    assert [job.run_id for job in ordered] == ["b0", "a0", "b1", "a1", "u0", "u1"]


def test_a_plan_of_what_is_left(tmp_path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr("runner.runs.durations.RESULTS", tmp_path / "none")  # thousands of records
    arguments = ["tempered-sigmoid", "--scale", "smoke", "--items", "text-std", "--plan", "--jobs", "1"]
    assert reproduce.main([*arguments, f"runtime.results_root={tmp_path}"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("text-std "))
    assert row.split()[1:5] == ["12", "0", "12", "0"]  # none is unknown, because a step of each kind is timed
    assert not list(tmp_path.iterdir())
