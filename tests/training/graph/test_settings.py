"""A fixed sequence of calls measures what steps call by call measure, in every setting with code of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from runner.build.prepare import prepare
from runner.config import ConfigError
from runner.data.datasets import Split
from runner.gradients import Objective
from runner.training.loop import Trained, train
from runner.training.run import Run
from tests.small import LIPSCHITZ, NETWORK

TEMPERED = "activation=tempered_sigmoid"
LOSING = "loss=losing_less"


def prepared(smoke: Callable, *overrides: str, side: int) -> Run:
    config = smoke("epochs=2", "noise_multiplier=0.7", "batch_size=20", *overrides)
    config.dataset.train_examples, config.dataset.shape = 100, [1, side, side]
    return prepare(config)


def data_of(examples: int, side: int) -> tuple[Split, Split]:
    torch.manual_seed(5)
    split = Split(torch.randn(examples, 1, side, side, dtype=torch.float64), torch.arange(examples) % 10)
    return split, Split(split.images[:50], split.targets[:50])


def both_ways(
    run: Run, data: tuple[Split, Split], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Trained], list[Objective]]:
    """Return the measurements and the objective of a run, in float64: call by call, and as a graph takes steps."""
    initial, objectives = Run.new_objective, list[Objective]()

    def double_precision(self: Run) -> Objective:
        objectives.append(initial(self).double())
        return objectives[-1]

    monkeypatch.setattr(Run, "new_objective", double_precision)
    trained = []
    for step in ("eager", "graph"):
        run.config.runtime.step = step
        trained.append(train(run, data, lambda row: None))
        assert trained[-1].step == step
    first, second = (torch.cat([p.detach().flatten() for p in objective.parameters()]) for objective in objectives)
    assert (second - first).norm() <= 1e-10 * first.norm()
    for name, values in trained[0].history.items():
        assert trained[1].history[name] == pytest.approx(values, rel=1e-9), name
    assert trained[0].examples == trained[1].examples
    return trained, objectives


CASES = {
    "momentum, activation": (TEMPERED, "optimizer.momentum=0.9"),
    "normalised by group": ("normalization=group_norm", "normalization.groups=1"),
    "per layer, in slices": ("clipping=per_layer", "runtime.physical_batch=7"),
    "automatic, shuffled": ("clipping=automatic", "sampling=shuffled"),
    "adam, a loss that changes with the epoch": ("optimizer=adam", LOSING, "optimizer.lr=0.01", "loss.beta=3"),
    "not private, in slices": (
        "runtime.physical_batch=7", "clipping=none", "noise_multiplier=0", "optimizer.lr=0.1",
    ),
    "private statistics, batches that are empty": ("normalization=private_statistics", "batch_size=2"),
    "banded noise": ("mechanism=banded",),
    "a kernel with gaps": ("architecture._target_=tests.failing.dilated",),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_graph_is_as_single_calls(smoke, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    network = () if "tests.failing" in str(CASES[case]) else NETWORK
    norm = () if "clipping=none" in CASES[case] else ("clipping.norm=0.3",)
    run = prepared(smoke, *network, *norm, "optimizer.lr=0.5", *CASES[case], side=20)
    both_ways(run, data_of(100, 20), monkeypatch)


COURSES = {
    "falling": ("loss=sharp_cross_entropy_falling", "loss.course.epochs=2", "loss.course.last=0.1"),
    "after a private count": (
        "loss=sharp_cross_entropy_quantile", "loss.course.rate=0.5", "loss.gradient_bound=1.2",
        "loss.course.quantile=0.2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", COURSES)
def test_bounds_on_the_loss_that_move(smoke, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """The unit of what is released moves, and the padding of a batch is not counted."""
    private = ("clipping=lipschitz", "constraint=spectral", "runtime.physical_batch=7")
    run = prepared(smoke, *LIPSCHITZ, *private, *COURSES[case], side=8)
    images, targets = data_of(100, 8)[0].images.renorm(2, 0, 1.0), data_of(100, 8)[0].targets
    _, objectives = both_ways(run, (Split(images, targets), Split(images, targets)), monkeypatch)
    eager, graph = (objective.loss.course.share.item() for objective in objectives)
    assert graph == pytest.approx(eager, rel=1e-9)
    assert eager < 0.999, "no bound has moved"


@pytest.mark.parametrize(
    ("kind", "its_own"),
    [
        ("DrawsBins", "DrawsBins overrides `batches`"),
        ("ClipsLess", "ClipsLess overrides `applied`"),
        ("Telescopes", "Telescopes overrides `release`"),
        ("TwoLevels", "Scheduled overrides `at`"),
    ],
)
def test_a_mechanism_that_does_a_step_its_own_way_is_refused(smoke, kind: str, its_own: str) -> None:
    """A fixed sequence of calls does it as DP-SGD's own mechanism: it would release more than is charged."""
    users = (f"+mechanism._target_=tests.choosing.{kind}", "+mechanism._partial_=true", *NETWORK)
    with pytest.raises(ConfigError, match=its_own):
        prepare(smoke(*users, "runtime.step=graph"))
