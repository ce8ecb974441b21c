"""Canaries in small real runs: what the attacker reads is who joined, in every way of training, and faults show."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from checks.audit.canaries import ABSENT, Attack, CanaryLoss, Outcome, Plant, carry_out, exact
from checks.audit.trained import FAULTS, Bounds
from runner.config import register
from runner.training.graph import GraphStep
from tests.small import NETWORK

FEW = ("scale=smoke", "batch_size=100", "scale.batch_size=100", "epochs=3")
PLAIN = (*FEW, *NETWORK, "noise_multiplier=0.7")
SMALL = Attack("", 300, overrides=(*PLAIN, "optimizer.momentum=0.9"))
WAYS = {
    "call by call": SMALL,
    "graph": replace(SMALL, way="graph"),
    "resumed": replace(SMALL, way="resumed"),
    "groups": replace(SMALL, canaries=40, overrides=(*SMALL.overrides, "clipping=per_layer")),
    "by the gradient": replace(SMALL, overrides=(*PLAIN, "optimizer=adam")),
    "isolated engine": Attack("", 300, real=True, overrides=(*FEW, "architecture=linear")),
}


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    register()
    draw = GraphStep._draw
    yield
    GraphStep._draw = draw  # type: ignore[method-assign]


@pytest.mark.parametrize("way", WAYS)
def test_without_much_noise_all_that_joined_are_seen(way: str) -> None:
    """With little noise a score is positive exactly if the canary was in a batch: with q = 0.07, most are in 42."""
    attack = replace(WAYS[way], overrides=(*WAYS[way].overrides, "noise_multiplier=0.05"))
    outcome = carry_out(attack)
    assert outcome.steps == 42
    seen = outcome.scores > 0
    assert not seen[~outcome.joined].any()
    assert seen[outcome.joined].mean() > 0.85


@pytest.mark.parametrize("way", ["graph", "isolated engine"])
def test_scores_are_distributed_as_exact_ones(way: str) -> None:
    attack = replace(WAYS[way], overrides=(*WAYS[way].overrides, "noise_multiplier=1.5"))
    mechanism, outcome = attack.prepared().mechanism, carry_out(attack)
    same = exact(20_000, mechanism.sampling_rate, 1.5, outcome.steps, outcome.share, 1)
    for joined in (False, True):
        got, expected = outcome.scores[outcome.joined == joined], same.scores[same.joined == joined]
        assert abs(got.mean() - expected.mean()) < 4 * expected.std() / np.sqrt(len(got))
        assert got.std() == pytest.approx(expected.std(), rel=0.25)


@cache
def of_small() -> Outcome:
    return carry_out(SMALL)


def test_a_resumed_run_shows_what_a_whole_one_does() -> None:
    assert np.array_equal(carry_out(WAYS["resumed"]).scores, of_small().scores)


def accused(attack: Attack, outcome: Outcome) -> bool:
    run = attack.prepared()
    return Bounds(run.mechanism.charges(run.most_steps).actual, 1e-5, 0.01).accused(outcome, 60)


@pytest.mark.parametrize(("name", "attack", "plant"), FAULTS, ids=[name for name, _, _ in FAULTS])
def test_a_fault_in_what_trains_is_found(name: str, attack: Attack, plant: Plant) -> None:
    noise = ("noise_multiplier=3",) if attack.way == "graph" else ()  # else there is too much to show by 300 canaries
    attack = replace(SMALL, way=attack.way, overrides=(*SMALL.overrides, *noise))
    assert accused(attack, carry_out(attack, plant))


def test_a_run_without_a_fault_is_not_accused() -> None:
    assert not accused(SMALL, of_small())


def test_too_many_canaries_are_refused() -> None:
    with pytest.raises(ValueError, match="No noise group has 5000 coordinates"):
        carry_out(replace(SMALL, canaries=5000))


def test_an_absent_canary_has_no_gradient() -> None:
    logits = torch.randn(3, 10, requires_grad=True)
    losses = CanaryLoss()(logits, torch.tensor([ABSENT, 14, 2]))
    losses.sum().backward()
    assert logits.grad is not None
    assert not logits.grad[0].any()
    assert logits.grad[1].tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    assert losses[2] == torch.nn.functional.cross_entropy(logits[2:], torch.tensor([2]))
