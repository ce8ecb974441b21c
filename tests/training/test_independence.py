"""Losses and networks that mix examples, in whatever way, are refused before anything is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig, OmegaConf, open_dict

from runner.clipping import gradient_sum
from runner.clipping.per_example import clip_factors
from runner.config import ConfigError
from runner.gradients import ENGINES, GradientSum, Objective
from runner.runs.execute import execute
from runner.training.independence import check_independence
from runner.training.prepare import Run, prepare
from runner.training.removal import check_one_removed
from runner.training.trials import stated_by_own_classes
from tests import coupling

PLAIN = torch.nn.CrossEntropyLoss(reduction="none")
Compose = Callable[..., DictConfig]


@pytest.fixture
def with_network(composed: Compose) -> Callable[..., DictConfig]:
    """`with_network("Folded")`: a config whose architecture is that class of tests/coupling.py."""

    def make(name: str, *overrides: str) -> DictConfig:
        config = composed("experiment=tempered_sigmoid/mnist_tanh", "clipping.norm=0.1", "batch_size=64", *overrides)
        config.tracking.mode = "disabled"
        with open_dict(config):
            config.architecture = OmegaConf.create({"_target_": f"tests.coupling.{name}"})
        return config

    return make


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", coupling.COUPLED)
def test_what_couples_examples_is_refused(engine: str, name: str, with_network: Callable[..., DictConfig]) -> None:
    run = prepare(with_network(name, f"runtime.engine={engine}"))
    state = torch.get_rng_state()
    with pytest.raises(ConfigError, match="others of its batch"):
        check_independence(run)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", coupling.WHILE_TRAINING)
def test_what_couples_in_training_mode_only_is_refused(name: str, with_network: Callable[..., DictConfig]) -> None:
    with pytest.raises(ConfigError, match="others of its batch"):
        check_independence(prepare(with_network(name)))


@pytest.mark.parametrize("name", coupling.REMEMBERING)
def test_what_keeps_something_of_earlier_batches_is_refused(name: str, with_network: Callable[..., DictConfig]) -> None:
    with pytest.raises(ConfigError, match="hang on examples of earlier batches"):
        check_independence(prepare(with_network(name)))


@pytest.mark.parametrize(
    ("name", "said"),
    [("LessTheMean", "LessTheMean makes of an image hang on the other"), ("OfSeveral", "OfSeveral fails")],
)
def test_features_that_are_a_statistic_are_refused(name: str, said: str, smoke: Compose) -> None:
    own = ("~features", f"+features._target_=tests.stating.{name}")
    with pytest.raises(ConfigError, match=said):
        check_independence(prepare(smoke(*own)))
    check_independence(prepare(smoke(*own, "noise_multiplier=0")))


def test_features_of_each_image_by_itself_are_not(smoke: Compose) -> None:
    run = prepare(smoke("~features", "+features._target_=tests.stating.Doubled"))
    check_independence(run)
    assert stated_by_own_classes(run) == [
        "features of an image by Doubled: that others' do not matter is tried on made-up ones"
    ]


def test_a_network_of_the_users_own_is_said_beside_epsilon(with_network: Callable[..., DictConfig]) -> None:
    assert stated_by_own_classes(prepare(with_network("Plain"))) == [
        "examples kept apart by Plain: tried on made-up examples at the first weights"
    ]


@pytest.mark.parametrize("name", coupling.SEPARATE)
def test_what_does_not_is_not(name: str, with_network: Callable[..., DictConfig]) -> None:
    state = torch.get_rng_state()
    check_independence(prepare(with_network(name)))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_loss_that_couples_is_refused(with_network: Callable[..., DictConfig]) -> None:
    with pytest.raises(ConfigError, match="the loss Centred or by the architecture"):
        check_independence(prepare(with_network("Plain", "loss._target_=tests.coupling.Centred", "~loss.reduction")))


@pytest.mark.parametrize(
    "experiment",
    [
        pytest.param("losing_less/cifar10_ours", marks=pytest.mark.slow),
        "losing_less/pfe_mnist_ours",
        "noise_screening/mnist_auto",
        "backprop_clipping/mnist_joint",
        "backprop_clipping/mnist_printed_replace_one",
        "backprop_clipping/mnist_corrected_1",
        "backprop_clipping/mnist_original_bug",
        "backprop_clipping/mnist_sgd",
    ],
)
def test_the_papers_own_do_not(experiment: str, smoke: Compose) -> None:
    check_independence(prepare(smoke(f"experiment={experiment}")))


@pytest.mark.parametrize("name", coupling.FOLDED)
class TestSeveralRowsAnExample:
    """A layer that sees an example as several rows, whose gradients are not examples' gradients."""

    def norms_and_moves(self, engine: str, name: str, count: int = 5) -> tuple[GradientSum, list[float]]:
        torch.manual_seed(0)
        objective = Objective(getattr(coupling, name)([1, 28, 28], 10, torch.nn.Tanh), PLAIN)
        inputs, targets = torch.rand(count, 1, 28, 28), torch.arange(count) % 10
        made, bound = ENGINES[engine](objective), 0.01
        groups = [[name for name, _ in objective.named_parameters()]]

        def total(kept: torch.Tensor) -> GradientSum:
            return made.clipped_sum(inputs[kept], targets[kept], groups, lambda norms: clip_factors(norms, bound))

        whole = total(torch.ones(count, dtype=torch.bool))
        moves = []
        for out in range(count):
            rest = total(torch.arange(count) != out)
            squares = [(whole.gradients[k] - rest.gradients[k]).square().sum() for k in whole.gradients]
            moves.append(float(torch.stack(squares).sum().sqrt()) / bound)
        return whole, moves

    @pytest.mark.parametrize("engine", ["one_pass", "vmap"])
    def test_is_clipped_as_one_example(self, engine: str, name: str) -> None:
        whole, moves = self.norms_and_moves(engine, name)
        assert whole.norms is not None
        assert whole.norms.shape == (5,)
        assert moves == pytest.approx([1.0] * 5, rel=1e-3)

    @pytest.mark.parametrize("count", [5, 28], ids=["five", "as many examples as rows"])
    def test_is_refused_by_opacus(self, name: str, count: int) -> None:
        with pytest.raises(NotImplementedError, match="28 gradients for 1 examples"):
            self.norms_and_moves("opacus", name, count)

    def test_is_refused_before_training_with_opacus(self, name: str, with_network: Callable[..., DictConfig]) -> None:
        with pytest.raises(ConfigError, match="28 gradients for 1 examples"):
            check_independence(prepare(with_network(name, "runtime.engine=opacus")))

    def test_trains_with_others(self, name: str, with_network: Callable[..., DictConfig]) -> None:
        check_independence(prepare(with_network(name)))


@pytest.mark.parametrize("numbers", ["losses", "norms"])
def test_an_engine_that_counts_rows_is_caught_in_the_sum(numbers: str, with_network: Callable[..., DictConfig]) -> None:
    run = prepare(with_network("Plain"))

    class ByRows:
        """A strategy, or an engine below it, that says one number too many."""

        def sum_contributions(self, engine: object, inputs: torch.Tensor, targets: torch.Tensor) -> GradientSum:
            counts = {"losses": len(targets), "norms": len(targets)} | {numbers: len(targets) + 1}
            return GradientSum({}, torch.zeros(counts["losses"]), torch.zeros(counts["norms"]))

    with pytest.raises(ValueError, match="for each of 8 examples"):
        gradient_sum(
            ByRows(), ENGINES["vmap"](run.new_objective()), torch.zeros(8, 1, 28, 28), torch.zeros(8).long(), 4
        )  # type: ignore[arg-type]


def test_a_strategy_that_states_too_little_is_refused(with_network: Callable[..., DictConfig]) -> None:
    """One that clips to ten times what it says."""
    config = with_network("Plain", "clipping._target_=tests.coupling.StatesATenth")
    with pytest.raises(ConfigError, match=r"contributes 0\.1 to .*, but the sensitivity stated is 0\.01"):
        check_independence(prepare(config))


def test_the_guard_finds_a_network_that_changes_its_ways(with_network: Callable[..., DictConfig]) -> None:
    run = prepare(with_network("Plain"))
    torch.manual_seed(0)
    engine = ENGINES["vmap"](run.new_objective())
    inputs, targets = torch.rand(6, 1, 28, 28), torch.arange(6)
    check_one_removed(run, engine, inputs, targets, 5)
    late = ENGINES["one_pass"](Objective(coupling.SortedRows([1, 28, 28], 10, torch.nn.Tanh), PLAIN))
    with pytest.raises(ValueError, match="one example"):
        check_one_removed(run, late, inputs.sort(dim=0, descending=True).values, targets, 5)


@pytest.mark.parametrize("every", [1, 3])
def test_a_guarded_run_is_the_same_run(every: int, smoke: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard draws nothing and leaves nothing behind; it looks at one step in `every`."""
    from runner.training import loop as loop

    looked: list[int] = []
    check = check_one_removed
    monkeypatch.setattr(loop, "check_one_removed", lambda *args: (looked.append(1), check(*args)))
    histories = []
    for guard in ("null", str(every)):
        small = ("architecture.filters=[3,4]", "architecture.units=5", "epochs=1")
        run = prepare(smoke("experiment=tempered_sigmoid/mnist_tanh", f"runtime.guard_every={guard}", *small))
        histories.append(loop.train(run, loop.load(run), lambda row: None).history)
    assert histories[0] == histories[1]
    assert len(looked) == -(-histories[0]["steps"][-1] // every)


def test_the_guard_needs_sums_that_repeat(with_network: Callable[..., DictConfig]) -> None:
    with pytest.raises(ConfigError, match="guard_every compares sums, but the network draws random numbers"):
        check_independence(prepare(with_network("WithDropout", "runtime.guard_every=5")))


def test_a_run_is_refused_before_data_is_read(composed: Compose, tmp_path: Path, monkeypatch) -> None:
    config = composed("experiment=losing_less/mnist_ours", f"runtime.data_root={tmp_path / 'no data'}")
    config.tracking.mode = "disabled"
    network = coupling.Plain([1, 28, 28], 10, torch.nn.Tanh)
    monkeypatch.setattr(Run, "new_objective", lambda self: Objective(network, coupling.Centred()))
    with pytest.raises(ConfigError, match="others of its batch"):
        execute(config, lambda row, run: None)
    assert not list(tmp_path.rglob("*.json"))
