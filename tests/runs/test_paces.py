"""Paces by records: which are believed, which runs are alike, and how machines compare."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from runner.config import REPOSITORY
from runner.runs.paces import START_SECONDS, UNTOLD, Paces, likenesses, read

RECORD = json.loads((REPOSITORY / "results" / "runs" / "180425e2e241.json").read_text())
EPOCHS = len(RECORD["history"]["epoch"])
YARDSTICK = 0.01


def record(
    pace: float, setting: str = "a", provenance: dict[str, Any] | None = None, clock: bool = False, **config: Any
) -> dict[str, Any]:
    """A record of a run whose epochs took so many seconds of the processor, or on the clock, on a machine like this."""
    made = copy.deepcopy(RECORD)
    made["setting_id"], made["config"] = setting, made["config"] | config
    alone = {"threads": 1, "lockstep": 1, "step": "eager", "device": "this", "yardstick_seconds": YARDSTICK}
    seconds = START_SECONDS + EPOCHS * pace
    told = {"wall_seconds": seconds} if clock else {"wall_seconds": 9 * seconds, "processor_seconds": seconds}
    made["provenance"] = alone | told | (provenance or {})
    return made


def pace_of(missing: dict[str, Any], *records: dict[str, Any]) -> float | None:
    pace = Paces(records, YARDSTICK).of(likenesses(missing["setting_id"], missing["config"]))
    return pace and pytest.approx(pace.seconds)


def test_only_processor_time_is_believed() -> None:
    """A machine that was busy all along makes all its records agree on too long a time."""
    busy = [record(pace, clock=True) for pace in (4.0, 4.1, 4.2)]
    assert pace_of(record(0), *busy) is None
    assert pace_of(record(0), record(3.0), record(2.8), record(3.4), *busy) == 3.0


def test_the_closest_likeness_that_is_believed_counts() -> None:
    same, like = [record(2.0)] * 2, [record(4.0, "b", noise_multiplier=9.0)] * 2
    network = [record(6.0, "c", optimizer={"_target_": "elsewhere.Other"})] * 2
    assert pace_of(record(0), *same, *like, *network) == 2.0
    assert pace_of(record(0, "x"), *like, *network) == 4.0
    assert pace_of(record(0, "x"), *network) == 6.0
    assert Paces(network, YARDSTICK).of(likenesses("x", RECORD["config"])).by == "the same network"


@pytest.mark.parametrize(
    "other",
    [
        {"batch_size": 64},
        {"diagnostics": ["hessian"]},
        {"screening": {"_target_": "a.Annealing", "images": "test"}},
        {"clipping": {"_target_": "a.Other"}},
        {"loss": {"_target_": "a.Other"}},
        {"diagnostics": ["gradient_norms"], "diagnostics_every": 1},
        {"architecture": {"_target_": "a.Other"}},
    ],
)
def test_what_costs_another_time_is_not_alike(other: dict[str, Any]) -> None:
    assert pace_of(record(0, "x", **other), record(2.0), record(2.0)) is None


def test_data_sets_of_one_shape_are_alike() -> None:
    other = record(0, "x", dataset=RECORD["config"]["dataset"] | {"name": "FashionMNIST"})
    assert pace_of(other, record(2.0), record(2.0)) == 2.0


def test_the_yardsticks_of_both_machines_carry_a_time_over() -> None:
    slow = record(4.0, provenance={"yardstick_seconds": 2 * YARDSTICK})
    assert pace_of(record(0), slow, slow) == 2.0


@pytest.mark.parametrize("other", [{"threads": 4}, {"lockstep": 8}, {"step": "graph"}, {"resumed_after": [3]}])
def test_what_is_not_of_one_core_from_start_to_end_tells_nothing(other: dict[str, Any]) -> None:
    assert pace_of(record(0), *[record(2.0, provenance=other)] * 2) is None


def test_scatter_is_each_settings_own_pace_over_what_the_others_say() -> None:
    """Five of twenty settings take 1.4 times as long as the others: more than the tenth that is left out on each side,
    which one of twenty is not."""

    def settings(slow: int, count: int) -> Paces:
        paces = [2.8] * slow + [2.0] * (count - slow)
        return Paces([record(pace, str(n)) for n, pace in enumerate(paces) for _ in range(2)], YARDSTICK)

    assert settings(5, 20).scatter == pytest.approx((1.0, 1.4))
    assert settings(1, 20).scatter == pytest.approx((1.0, 1.0))
    assert settings(1, 5).scatter == UNTOLD, "too few"


def test_a_setting_that_a_budget_ends_takes_the_epochs_that_it_took() -> None:
    paces = Paces([record(2.0), record(2.0)], YARDSTICK)
    assert paces.epochs("a") == EPOCHS
    assert paces.epochs("b") is None


def test_damaged_files_tell_nothing(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / f"{RECORD['run_id']}.json").write_text(json.dumps(RECORD))
    for name, text in {"a": "{", "b": "[]", "c": '{"run_id": "d"}', "e": "1"}.items():
        (runs / f"{name}.json").write_text(text)
    assert [one["run_id"] for one in read([tmp_path, tmp_path / "none"])] == [RECORD["run_id"]]
