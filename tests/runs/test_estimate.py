"""What a plan says: which runs are timed together, and that hours are added once."""

from __future__ import annotations

import time
from itertools import count

import pytest

from runner.reproduce import plan_text
from runner.runs import estimate
from runner.runs.estimate import alike, crowding, estimated_seconds
from runner.training.prepare import prepare

BASE = ("architecture=tempered_sigmoid_mnist",)
SAME = ("seed=3", "clipping.norm=0.2", "optimizer.lr=0.5", "noise_multiplier=2", "delta=1e-6")
OTHER = ("epochs=3", "batch_size=512", "architecture.units=16", "optimizer=adam", "screening=annealing")


@pytest.mark.parametrize("override", SAME)
def test_runs_that_differ_in_numbers_are_timed_once(composed, override: str) -> None:
    assert alike(composed(*BASE, override)) == alike(composed(*BASE))


@pytest.mark.parametrize("override", [*OTHER, "loss=losing_less", "dataset=fashion_mnist", "diagnostics=[hessian]"])
def test_runs_that_cost_another_time_are_timed_themselves(composed, override: str) -> None:
    assert alike(composed(*BASE, override)) != alike(composed(*BASE))


@pytest.mark.parametrize("override", ["noise_multiplier=2", "max_epsilon=1", "delta=1e-6"])
def test_where_a_budget_ends_runs_its_numbers_count(composed, override: str) -> None:
    budget = (*BASE, "max_epsilon=2.93")
    assert alike(composed(*budget, override)) != alike(composed(*budget))
    assert alike(composed(*budget, "seed=3")) == alike(composed(*budget))


def test_a_run_of_two_items_counts_once_in_all(jobs) -> None:
    tanh, relu = jobs("fig_3", "mnist_tanh")[:2], jobs("fig_3", "mnist_relu")[:1]
    hour = {job.run_id: 3600.0 for job in (tanh[1], *relu)}  # the first is recorded
    said = plan_text({"fig-3": [*tanh, *relu], "table-3": tanh}, hour, workers=2, crowded=3.0).splitlines()
    assert [line.split()[-5:] for line in said[1:4]] == [
        ["3", "1", "2", "1.00", "3.00"],
        ["2", "1", "1", "0.50", "1.50"],
        ["3", "1", "2", "1.00", "3.00"],
    ]


def test_crowding_is_time_over_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds on the clock for each second of work, until a moment's work is done."""
    seconds = count(step=0.1)
    monkeypatch.setattr(estimate.time, "process_time", lambda: next(seconds))
    monkeypatch.setattr(estimate.time, "perf_counter", lambda: 2 * next(seconds))
    assert crowding() == pytest.approx(2 * 0.5 / 0.3)  # 0.1 of each clock goes by between two looks


def test_waiting_for_the_processor_is_not_counted(smoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that sleeps for a second, as if others had the processor, takes no longer."""
    config = smoke("epochs=1")
    monkeypatch.setattr(estimate, "_measured", {})
    monkeypatch.setattr(estimate, "gradient_sum", lambda *_: time.sleep(0.3))
    assert estimated_seconds(config, prepare(config)) < 3.0 + 0.3
