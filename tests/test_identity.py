"""Run ids and records: what names a run, and that nothing written is lost."""

from __future__ import annotations

import json
import math
import multiprocessing
from pathlib import Path

import pytest

from runner.identity import hashed_config, identify, recorded_config
from runner.records import claim, dumps, read_record, record_path, results_folder, rounded, write_record


def test_golden_id(composed) -> None:
    """Committed records are found by this hash: when it changes, they are orphans."""
    assert identify(composed("experiment=tempered_sigmoid/mnist_tanh"))[0] == "980b4b8454bd"


def test_runtime_and_tracking_are_no_part_of_a_run(composed) -> None:
    plain = identify(composed())
    changed = composed(
        "runtime.threads=3", "runtime.engine=opacus", "tracking=disabled", "runtime.data_root=/elsewhere"
    )
    assert identify(changed) == plain


def test_everything_else_is(composed) -> None:
    run, setting = identify(composed())
    assert identify(composed("seed=1")) != (run, setting)
    assert identify(composed("seed=1"))[1] == setting
    for override in ("optimizer.lr=0.3", "delta=1e-6", "accountant=pld", "diagnostics=[gradient_norms]", "scale=smoke"):
        other_run, other_setting = identify(composed(override))
        assert other_run != run
        assert other_setting != setting


def test_numbers_are_compared_by_value(composed) -> None:
    assert identify(composed("optimizer.lr=1")) == identify(composed("optimizer.lr=1.0"))


def test_absent_fields_do_not_count(composed) -> None:
    """A field that a later version adds with a null default leaves old ids alone."""
    config = composed()
    assert "target_epsilon" in config
    assert "target_epsilon" not in hashed_config(config)


def test_records_say_nothing_of_the_machine_in_their_config(composed) -> None:
    assert not {"runtime", "tracking"} & set(recorded_config(composed()))


def test_smoke_results_are_kept_apart(composed, tmp_path: Path) -> None:
    assert results_folder(composed()) == tmp_path / "results"
    assert results_folder(composed("scale=smoke")) == tmp_path / "results" / "smoke"


def record_of(run_config, **changes) -> dict:
    run_id, setting_id = identify(run_config)
    history = {"epoch": [1, 2], "epsilon": [1.5, 2.0], "test_accuracy": [90.0, 98.123456]}
    final = {"epoch": 2, "epsilon": 2.0, "test_accuracy": 98.123456}
    record = {
        "run_id": run_id,
        "setting_id": setting_id,
        "status": "finished",
        "config": recorded_config(run_config),
        "history": history,
        "final": final,
        "diagnostics": {},
        "provenance": {},
    }
    return record | changes


def test_records_round_trip_with_five_digits(composed, tmp_path: Path) -> None:
    record = record_of(composed("optimizer.lr=0.123456789"))
    record["diagnostics"] = {"loss": math.nan, "bound": math.inf}
    path = record_path(tmp_path, record["run_id"])
    assert write_record(path, record)
    read = read_record(path)
    assert read["final"]["test_accuracy"] == 98.123
    assert read["config"]["optimizer"]["lr"] == 0.123456789, "the id is the hash of the config as it is"
    assert math.isnan(float(read["diagnostics"]["loss"]))
    assert float(read["diagnostics"]["bound"]) == math.inf
    assert json.loads(dumps(read)) == read


def test_epsilons_and_the_noise_that_they_take_are_rounded_up() -> None:
    """An upper bound must stay one: 2.9300397 is no more 2.93, nor is noise of 1.34812 noise of 1.3481."""
    found = rounded({"epsilon_sound": 2.9300397, "epsilon": [1.000001, math.inf], "loss": 1.000001})
    assert found == {"epsilon_sound": 2.9301, "epsilon": [1.0001, "inf"], "loss": 1.0}
    assert rounded({"noise_multiplier": 1.34812}) == {"noise_multiplier": 1.3482}
    assert rounded({"noise_multiplier": 1.23}) == {"noise_multiplier": 1.23}


def test_a_record_is_never_overwritten(composed, tmp_path: Path) -> None:
    record = record_of(composed())
    path = record_path(tmp_path, record["run_id"])
    assert write_record(path, record)
    assert not write_record(path, record | {"status": "diverged"})
    assert read_record(path)["status"] == "finished"
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"run_id": "other"}', "{}"])
def test_a_damaged_record_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "abc.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"abc\.json is not a whole record"):
        read_record(path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"status": "failed"}, "status"),
        ({"setting_id": "0" * 12}, "ids"),
        ({"config": {"dataset": "CIFAR10"}}, "ids"),
        ({"history": {"epoch": [1], "epsilon": [1.0, 2.0], "test_accuracy": [98.123]}}, "equal lengths"),
        ({"history": {"epoch": [], "epsilon": [], "test_accuracy": []}}, "no epoch"),
        ({"final": {"epoch": 2, "epsilon": 2.0, "test_accuracy": 99.0}}, "final metrics"),
    ],
)
def test_a_record_that_is_not_the_run_it_is_filed_under_is_refused(composed, tmp_path, changes, said) -> None:
    record = record_of(composed(), **changes)
    path = record_path(tmp_path, record["run_id"])
    write_record(path, record)
    with pytest.raises(ValueError, match=said):
        read_record(path)


def test_a_record_of_another_run_under_this_name_is_refused(composed, tmp_path: Path) -> None:
    other = record_of(composed("seed=1"))
    mine = identify(composed())[0]
    path = record_path(tmp_path, mine)
    write_record(path, other | {"run_id": mine})
    with pytest.raises(ValueError, match="ids"):
        read_record(path)


def _try_to_claim(root: Path, answers) -> None:
    with claim(root, "abc") as claimed:
        answers.put(claimed)


def test_a_run_is_claimed_by_one_process(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    with claim(tmp_path, "abc") as mine:
        assert mine
        other = context.Process(target=_try_to_claim, args=(tmp_path, answers))
        other.start()
        other.join()
        assert answers.get() is False
    again = context.Process(target=_try_to_claim, args=(tmp_path, answers))
    again.start()
    again.join()
    assert answers.get() is True
