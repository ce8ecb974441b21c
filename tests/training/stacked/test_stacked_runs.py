"""Runs trained together measure what each measures alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from runner.config import ConfigError
from runner.data.datasets import Split
from runner.gradients import Objective
from runner.training.loop import Trained, train, training
from runner.training.prepare import prepare
from runner.training.run import Run
from runner.training.stacked import NotStackableError
from tests.small import NETWORK

TEMPERED = "activation=tempered_sigmoid"
LOSING = "loss=losing_less"


def runs_of(smoke: Callable, variants: list[tuple[str, ...]], *common: str, examples: int, side: int) -> list[Run]:
    runs = []
    for variant in variants:
        norm = () if "clipping=none" in common else ("clipping.norm=0.3",)
        config = smoke("epochs=2", "noise_multiplier=0.7", *norm, "optimizer.lr=0.5", *common, *variant)
        config.dataset.train_examples, config.dataset.shape = examples, [1, side, side]
        runs.append(prepare(config))
    return runs


def data_of(examples: int, side: int, dtype: torch.dtype = torch.float64) -> tuple[Split, Split]:
    torch.manual_seed(5)
    split = Split(torch.randn(examples, 1, side, side, dtype=dtype), torch.arange(examples) % 10)
    return split, Split(split.images[:50], split.targets[:50])


def alone_and_together(runs: list[Run], data: tuple[Split, Split]) -> tuple[list[Trained], list[Trained], float]:
    """Return the measurements of each run both ways, in float64, and the largest relative difference of weights."""
    initial = Run.new_objective
    made: list[Objective] = []

    def in_float64(run: Run) -> Objective:
        made.append(initial(run).double())
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "new_objective", in_float64)
        alone = [train(run, data, lambda row: None) for run in runs]
        rows: list[list[dict[str, float]]] = [[] for _ in runs]
        together = training(runs, data)([each.append for each in rows])
    for trained, seen in zip(together, rows, strict=True):
        assert {name: [row[name] for row in seen] for name in trained.history} == trained.history
    weights = [torch.cat([p.detach().flatten() for p in objective.parameters()]) for objective in made]
    ours, theirs = weights[len(runs) :], weights[: len(runs)]
    return alone, together, max(((a - b).norm() / b.norm()).item() for a, b in zip(ours, theirs, strict=True))


CASES = {
    "seed, learning rate, momentum, activation": (
        (TEMPERED, "optimizer.momentum=0.9"),
        [("seed=0",), ("seed=1", "optimizer.lr=0.2"), ("activation.scale=1.5", "optimizer.momentum=0")],
    ),
    "noise, clipping norm": ((), [("noise_multiplier=0.3",), ("clipping.norm=0.1",), ("noise_multiplier=0",)]),
    "per layer, in slices": (
        ("clipping=per_layer", "runtime.physical_batch=7"),
        [("clipping.norm=0.1",), ("clipping.norm=0.5", "seed=1")],
    ),
    "automatic, shuffled": (
        ("clipping=automatic", "sampling=shuffled"),
        [("clipping.norm=0.1",), ("clipping.stability=0.1", "seed=1")],
    ),
    "adam, a loss that changes with the epoch": (
        ("optimizer=adam", LOSING),
        [("optimizer.lr=0.01", "loss.threshold_epoch=0.5"), ("optimizer.lr=0.02", "loss.beta=3", "seed=4")],
    ),
    "not private, in slices": (
        ("runtime.physical_batch=7", "clipping=none", "noise_multiplier=0", "optimizer.lr=0.1"),
        [("seed=0",), ("seed=1",)],
    ),
    "statistics of their own, batches that are empty": (
        ("normalization=private_statistics", "batch_size=2"),
        [("seed=0",), ("seed=1", "optimizer.lr=0.2")],
    ),
    "banded noise": (("mechanism=banded",), [("seed=0",), ("seed=1", "noise_multiplier=0.3"), ("noise_multiplier=0",)]),
}


@pytest.mark.parametrize("case", CASES)
def test_together_is_as_alone(smoke, case: str) -> None:
    common, variants = CASES[case]
    runs = runs_of(smoke, variants, "batch_size=20", *NETWORK, *common, examples=100, side=20)
    alone, together, difference = alone_and_together(runs, data_of(100, 20))
    assert difference < 1e-10
    for one, other in zip(alone, together, strict=True):
        assert one.step == "eager"
        assert (one.status, one.examples) == (other.status, other.examples)
        for name, values in one.history.items():
            assert other.history[name] == pytest.approx(values, rel=1e-9), name
    assert {trained.lockstep for trained in together} == {len(runs)}
    assert len({tuple(trained.history["test_loss"]) for trained in together}) == len(runs), "they do differ"


COURSES = {
    "falling": (
        ("loss=sharp_cross_entropy_falling", "loss.course.epochs=2"),
        [("loss.course.last=0.1",), ("loss.course.last=0.5", "seed=1")],
    ),
    "after a private count": (
        ("loss=sharp_cross_entropy_quantile", "loss.course.rate=0.5", "loss.gradient_bound=1.2"),
        [("loss.course.quantile=0.2",), ("loss.course.quantile=0.05", "loss.course.budget=0.2", "seed=1")],
    ),
}


@pytest.mark.parametrize("case", COURSES)
def test_bounds_on_the_loss_that_move_in_each_run_by_itself(smoke, case: str) -> None:
    """Lipschitz networks: the unit of what is released is each run's own, and so is the count, padding left out."""
    common = ("architecture=lipschitz_mlp", "architecture.units=[6]", "activation=group_sort", "features=bounded")
    private = ("clipping=lipschitz", "constraint=spectral", "runtime.physical_batch=7")
    loss, variants = COURSES[case]
    runs, shares = [], []
    for variant in variants:
        config = smoke(*common, *private, *loss, *variant, "epochs=2", "batch_size=20", "noise_multiplier=0.7")
        config.dataset.train_examples, config.dataset.shape = 100, [1, 8, 8]
        runs.append(prepare(config))
    images, targets = data_of(100, 8)[0].images.renorm(2, 0, 1.0), data_of(100, 8)[0].targets
    made = Run.new_objective

    def kept(run: Run) -> Objective:
        shares.append(made(run))
        return shares[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "new_objective", kept)
        alone, together, difference = alone_and_together(runs, (Split(images, targets), Split(images, targets)))
    assert difference < 1e-10
    moved = [objective.loss.course.share.item() for objective in shares]
    assert moved[len(runs) :] == pytest.approx(moved[: len(runs)], rel=1e-9)
    assert max(moved) < 0.999, "no bound has moved"
    assert {trained.lockstep for trained in together} == {len(runs)}
    assert len({tuple(trained.history["test_loss"]) for trained in alone}) == len(runs)


def test_a_run_that_diverges_or_ends_leaves_the_others_alone(smoke) -> None:
    variants = [("seed=0",), ("activation=relu", "optimizer.lr=1e30", "noise_multiplier=0"), ("epochs=1",)]
    runs = runs_of(smoke, variants, "batch_size=20", *NETWORK, "activation=relu", examples=100, side=20)
    alone, together, _ = alone_and_together(runs, data_of(100, 20))
    assert [trained.status for trained in together] == [trained.status for trained in alone]
    assert [len(trained.history["epoch"]) for trained in together] == [len(t.history["epoch"]) for t in alone]
    assert together[0].history["test_loss"] == pytest.approx(alone[0].history["test_loss"], rel=1e-9)
    for run in (0, 2):
        ours, theirs = together[run].objective, alone[run].objective
        assert ours is not None
        assert theirs is not None
        for name, weights in theirs.state_dict().items():
            torch.testing.assert_close(ours.state_dict()[name], weights, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("variants", "said"),
    [
        ([(), ("activation=relu",)], "type"),
        ([(), ("batch_size=25",)], "batches"),
        ([("mechanism=banded", "mechanism.bands=2"), ("mechanism=banded", "mechanism.bands=3")], "noise"),
        ([(), ("architecture.units=6",)], "shapes"),
        ([(), ("optimizer=adam",)], "optimizers"),
        ([(), ("clipping=automatic",)], "clip"),
        ([("loss=focal",), ("loss=focal", "loss.gamma=3")], "vmap"),
    ],
)
def test_runs_that_differ_in_more_than_numbers_are_refused(smoke, variants, said: str) -> None:
    runs = runs_of(smoke, variants, *NETWORK, examples=100, side=20)
    with pytest.raises(NotStackableError, match=said):
        training(runs, data_of(100, 20, torch.float32))


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
    own = (f"+mechanism._target_=tests.choosing.{kind}", "+mechanism._partial_=true", *NETWORK)
    with pytest.raises(ConfigError, match=its_own):
        prepare(smoke(*own, "runtime.step=graph"))
    with pytest.raises(NotStackableError, match=its_own):
        training(runs_of(smoke, [(), ("seed=1",)], *own, examples=100, side=20), data_of(100, 20, torch.float32))
