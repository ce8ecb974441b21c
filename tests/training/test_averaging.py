"""Averaged weights: against a weighted mean by hand, and under screening. In a graph: tests/cuda/test_options.py."""

import pytest
import torch

from runner.build.prepare import prepare
from runner.records.verify import verify
from runner.runs.execute import execute
from runner.training.averaging import averaged
from runner.training.diagnostics import Diagnostics
from runner.training.evaluate import evaluate
from runner.training.loop import CallByCall, load, train
from tests.conftest import quietly, record_of
from tests.references import flat
from tests.small import FEW_STEPS

EMA = ("averaging=ema", "averaging.decay=0.5", "optimizer.momentum=0.9")


def test_it_is_the_weighted_mean_of_the_weights_of_all_steps(smoke) -> None:
    run = prepare(smoke(*FEW_STEPS, *EMA))
    data = load(run)
    steps = CallByCall(run, data)
    objective = steps.objective
    weights = [flat(dict(objective.named_parameters())).detach()]
    none = Diagnostics(run, objective, data[0])
    for epoch in (1, 2):
        for _ in steps.epoch(epoch, 5 * (epoch - 1), none):
            weights.append(flat(dict(objective.named_parameters())).detach())
    decays = [min(0.5, (1 + t) / (10 + t)) for t in range(1, len(weights))]
    assert decays[6] < 0.5 == decays[8]  # both cases
    expected = weights[0]
    for decay, newest in zip(decays, weights[1:], strict=True):
        expected = decay * expected + (1 - decay) * newest
    average = flat(steps.average)
    torch.testing.assert_close(average, expected, rtol=1e-5, atol=1e-6)
    assert (average - weights[-1]).norm() > 100 * (average - expected).norm()


def test_accuracy_is_of_the_average_and_training_is_unchanged(smoke) -> None:
    runs = [prepare(smoke(*FEW_STEPS, *more)) for more in (EMA[2:], EMA)]
    data = load(runs[0])
    plain, averaged = (train(run, data, lambda row: None) for run in runs)
    assert averaged.history["test_accuracy_last"] == plain.history["test_accuracy"]
    assert averaged.history["test_loss_last"] == plain.history["test_loss"]
    assert averaged.history["test_loss"] != plain.history["test_loss"]
    again = evaluate(averaged.objective, data[1], 10)
    assert again.loss == pytest.approx(averaged.history["test_loss"][-1], rel=1e-5)


def test_only_accepted_updates_count(smoke, monkeypatch: pytest.MonkeyPatch) -> None:
    averages = []
    monkeypatch.setattr(
        "runner.training.loop.averaged", lambda *arguments: averages.append(averaged(*arguments)) or averages[-1]
    )
    run = prepare(
        smoke(*FEW_STEPS, *EMA, "screening=annealing", "screening.initial_temperature=5", "noise_multiplier=20")
    )
    trained = train(run, load(run), lambda row: None)
    assert 0 < averages[-1][0] == len(averages) == trained.history["accepted"][-1] < trained.history["tries"][-1]


def test_a_record_follows_from_its_config(smoke) -> None:
    """The columns of the last weights are expected with an average only."""
    config = smoke(*FEW_STEPS, *EMA, "screening=annealing", "augmentation=views")
    assert execute(config, quietly) == "finished"
    record = record_of(config)
    assert verify(record) == []
    del record["history"]["test_loss_last"]
    assert "has the columns" in verify(record)[0]
