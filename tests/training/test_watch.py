"""Measurements of single steps: what they are, and that training is the same with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from runner.training.loop import Trained, load, training
from runner.training.prepare import prepare
from runner.training.watch import Watch

SMALL = ("scale.epochs=2", "batch_size=400", "scale.batch_size=400", "sampling=shuffled", "runtime.device=cpu")
Trains = Callable[..., tuple[Trained, list[dict[str, float]]]]


@pytest.fixture
def trains(smoke: Callable[..., Any]) -> Trains:
    """`trains(1, "optimizer.lr=0.5")`: train and measure every step; returns the result and the rows."""

    def train(every: int | None, *overrides: str) -> tuple[Trained, list[dict[str, float]]]:
        run, rows = prepare(smoke(*SMALL, *overrides)), list[dict[str, float]]()
        watch = Watch(every, rows.append) if every else None
        (trained,) = training([run], load(run), watch=watch)([lambda row: None])
        return trained, rows

    return train


def test_every_kth_step_is_measured_and_training_is_the_same(trains: Trains) -> None:
    """Shuffled batches of one size: the mean of the steps' losses is the epoch's."""
    (alone, none), (watched, rows), (_, every_other) = (trains(every) for every in (None, 1, 2))
    assert none == []
    assert watched.history == alone.history
    steps = [int(steps) for steps in watched.history["steps"]]
    assert [row["step"] for row in rows] == list(range(1, steps[-1] + 1))
    assert every_other == rows[1::2]
    losses = [row["train_loss"] for row in rows]
    assert sum(losses[: steps[0]]) / steps[0] == pytest.approx(watched.history["train_loss"][0], rel=1e-5)
    assert sum(losses[steps[0] :]) / (steps[1] - steps[0]) == pytest.approx(watched.history["train_loss"][1], rel=1e-5)


def test_the_step_size_grows_with_the_learning_rate_and_the_share_falls_with_the_bound(trains: Trains) -> None:
    plain = ("optimizer.momentum=0", "scale.epochs=1")
    (slow, *_), (fast, *_) = (trains(1, *plain, f"optimizer.lr={rate}")[1] for rate in (0.1, 0.2))
    assert fast["step_size"] == pytest.approx(2 * slow["step_size"], rel=1e-4)
    shares = [trains(1, *plain, f"clipping.norm={norm}")[1][0]["clipped_share"] for norm in (1e-6, 1.0, 1e6)]
    assert shares[0] == 1
    assert 0 <= shares[1] <= 1
    assert shares[2] == 0


def test_without_norms_there_is_no_share(trains: Trains) -> None:
    _, rows = trains(1, "noise_multiplier=0", "clipping=none", "scale.epochs=1")
    assert rows
    assert all(row.keys() == {"step", "train_loss", "step_size"} for row in rows)
