"""Learning rates by step: against the formulas, and in the steps that runs take."""

from __future__ import annotations

import math

import pytest
import torch

from runner.build.prepare import prepare
from runner.training.loop import load, train
from runner.training.updates.schedule import ByStep, Schedule
from tests.small import FEW_STEPS

STEPS, FULL = 12, 0.5


def rates(**arguments) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=FULL)
    schedule = Schedule(ByStep(optimizer, STEPS, **arguments))
    computed = []
    for _ in range(STEPS):
        schedule.start_epoch()  # changes nothing
        schedule.start_step()
        computed.append(optimizer.param_groups[0]["lr"])
    return computed


@pytest.mark.parametrize("decay", ["cosine", "linear"])
@pytest.mark.parametrize("warmup", [0, 1, 4, STEPS - 1])
@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_rates_are_those_of_the_formulas(decay: str, warmup: int, share: float) -> None:
    expected = [FULL * (t + 1) / (warmup + 1) for t in range(warmup)]
    for t in range(warmup, STEPS):
        u = (t - warmup) / max(1, STEPS - 1 - warmup)
        shares = {"linear": 1 - (1 - share) * u, "cosine": share + (1 - share) * (1 + math.cos(math.pi * u)) / 2}
        expected.append(FULL * shares[decay])
    assert rates(warmup_steps=warmup, decay=decay, last_share=share) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_graph_takes_the_same_rates(smoke, optimizer: str) -> None:
    """A rate that stays, or one that is a step late, moves the weights by far more."""
    schedule = "schedule=cosine_by_step", "schedule.warmup_steps=4", f"optimizer={optimizer}", "optimizer.lr=0.05"
    ends = []
    for step in ("eager", "graph"):
        run = prepare(smoke(*FEW_STEPS, *schedule, f"runtime.step={step}"))
        trained = train(run, load(run), lambda row: None)
        assert trained.step == step
        ends.append(torch.cat([p.detach().flatten() for p in trained.objective.parameters()]))
    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-5)


def test_the_last_step_of_a_run_has_the_last_rate(smoke) -> None:
    run = prepare(smoke(*FEW_STEPS, "schedule=linear_by_step", "schedule.last_share=0.25", "optimizer.lr=1"))
    optimizer = run.optimizer(run.new_objective())
    schedule = run.schedule(optimizer)
    for _ in range(run.epochs * run.mechanism.steps_per_epoch):
        schedule.start_step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.25)
