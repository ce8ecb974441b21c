"""Times of runs by the records of runs like them: which count, and which is closest."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from runner.config import REPOSITORY
from runner.runs.recorded_times import estimated, likenesses, seconds_by_likeness

RECORD = json.loads((REPOSITORY / "results" / "runs" / "180425e2e241.json").read_text())
ALONE = {"threads": 1, "lockstep": 1, "step": "eager"}


def record(seconds: float, setting: str = "a", provenance: dict[str, Any] | None = None, **config: Any) -> dict:
    made = copy.deepcopy(RECORD)
    made["setting_id"], made["config"] = setting, made["config"] | config
    made["provenance"] = {"wall_seconds": seconds, **ALONE, **(provenance or {})}
    return made


def seconds_of(likes: dict[str, Any], *records: dict) -> float | None:
    found = seconds_by_likeness(records)
    return estimated(likenesses(likes["setting_id"], likes["config"]), likes["config"]["epochs"], found)


def test_the_same_setting_counts_before_like_ones_and_those_before_the_same_network() -> None:
    """Median seconds an epoch of the closest likeness, times the epochs: 60 in all of these records."""
    network = record(6000, "c", batch_size=512)
    like = [record(seconds, "b", seed=seed) for seed, seconds in enumerate((540, 600, 660))]
    same = [record(300), record(360)]
    missing = record(0, "a", epochs=120)
    assert seconds_of(missing, network, *like, *same) == pytest.approx(2 * 330)
    assert seconds_of(missing, network, *like) == pytest.approx(2 * 600)
    assert seconds_of(missing, network) == pytest.approx(2 * 6000)


def test_numbers_change_no_likeness_and_classes_do() -> None:
    one = record(600, "b")
    numbers = record(0, noise_multiplier=2.0, seed=9, optimizer=RECORD["config"]["optimizer"] | {"lr": 2.0})
    other_loss = record(0, loss={"_target_": "elsewhere.CostlyLoss"})
    likeness = [likenesses("x", each["config"])[1] for each in (one, numbers, other_loss)]
    assert likeness[0] == likeness[1] != likeness[2]
    absent = record(0)
    absent["config"] |= {"constraint": {}, "screening": {}, "normalization": {}}
    assert likenesses("x", absent["config"]) == likenesses("x", one["config"]), "older records leave them out"


def test_another_data_set_is_like_none() -> None:
    missing = record(0, dataset=RECORD["config"]["dataset"] | {"name": "CIFAR10"})
    assert seconds_of(missing, record(600, "b")) is None


def test_where_a_budget_ends_a_run_others_that_it_ends_come_first() -> None:
    """Without one of them, all its epochs count."""
    budget, whole = record(300, "b", batch_size=512, max_epsilon=3.0), record(600, "c", batch_size=512)
    whole["config"]["max_epsilon"] = None
    missing = record(0, "d", max_epsilon=3.0)
    assert seconds_of(missing, budget, whole) == pytest.approx(300)
    assert seconds_of(missing, whole) == pytest.approx(600)


@pytest.mark.parametrize("other", [{"threads": 4}, {"lockstep": 8}, {"step": "graph"}, {"resumed_after": [3]}])
def test_what_is_not_of_one_core_from_start_to_end_does_not_count(other: dict[str, Any]) -> None:
    assert seconds_of(record(0), record(300, provenance=other)) is None
    assert seconds_of(record(0), record(300)) == pytest.approx(300)


def test_a_diverged_run_does_not_count() -> None:
    assert seconds_of(record(0), record(300) | {"status": "diverged"}) is None
