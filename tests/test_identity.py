"""Run ids and records: what names a run, and that nothing written is lost."""

from __future__ import annotations

import json
import math
import multiprocessing
from pathlib import Path

import pytest

from runner.identity import hashed_config, identify, recorded_config
from runner.records import claim, dumps, read_record, record_path, results_folder, write_record


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


def test_records_round_trip_with_five_digits(tmp_path: Path) -> None:
    path = record_path(tmp_path, "abc")
    record = {
        "run_id": "abc",
        "final": {"epsilon": math.inf, "loss": math.nan, "accuracy": 98.123456},
        "history": {"a": [1, 2]},
    }
    assert write_record(path, record)
    read = read_record(path)
    assert float(read["final"]["epsilon"]) == math.inf
    assert math.isnan(float(read["final"]["loss"]))
    assert read["final"]["accuracy"] == 98.123
    assert read["history"] == {"a": [1, 2]}
    assert json.loads(dumps(read)) == read


def test_a_record_is_never_overwritten(tmp_path: Path) -> None:
    path = record_path(tmp_path, "abc")
    assert write_record(path, {"run_id": "abc", "final": 1})
    assert not write_record(path, {"run_id": "abc", "final": 2})
    assert read_record(path)["final"] == 1
    assert [p.name for p in path.parent.iterdir()] == ["abc.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"run_id": "other"}', "{}"])
def test_a_damaged_record_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "abc.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"abc\.json is not a whole record"):
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
