"""Parts of a user: one example at a time, cut to their bounds, or named next to ε; else refused before work starts."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import Tensor, nn

from runner.build.prepare import check_own, prepare
from runner.clipping import Flat, gradient_sum
from runner.config import ConfigError, Sampling
from runner.data.datasets import ImageDataset
from runner.gradients import Objective
from runner.mechanism.dp_sgd import Mechanism, check_first_batch
from runner.records.identity import identify, resolved
from runner.records.verify import run_of
from runner.report.explain import released_text
from runner.runs.execute import execute
from runner.training.evaluate import evaluate
from runner.training.loop import Trained, final_metrics, load, train
from runner.training.run import Run
from runner.training.updates import UpdateRule, Updates
from runner.trust.engine import IsolatedEngine
from runner.trust.own_parts import OwnFeatures
from runner.trust.sources import check_sources, weight_files
from tests import coupling
from tests.conftest import quietly, record_of
from tests.references import distance

Compose = Callable[..., DictConfig]
HERE = "tests.trust.test_parts"
Make = Callable[..., DictConfig]
OF_ALL = ": trusted to hold no training examples and read none, and not to draw the noise again from the seed"


def moved(run: Run, count: int = 24) -> float:
    """By how much replacing one example of a batch moves the sum, in parts of the most that it may: twice the bound.

    The batch has the same size before and after, so the other examples draw the same random numbers.
    """
    objective = run.new_objective()
    objective.start_epoch(0)
    engine = run.engine(objective)
    data = load(run)[0]
    inputs, targets = data.images[:count].clone(), data.targets[:count]
    sums = []
    for first in (1.0, -3.0):
        inputs[0] = first
        torch.manual_seed(5)
        sums.append(gradient_sum(run.clipping, engine, inputs, targets, count).gradients)
    (group,) = run.mechanism.noise_groups
    return distance(*sums, group.parameters) / (2 * run.mechanism.most_moved(group))


def trained(run: Run) -> Trained:
    return train(run, load(run), lambda row: None)


@pytest.mark.parametrize("name", ["Centred", "Strided", "Branching", "WithDropout"])
def test_no_network_and_no_loss_moves_a_sum_beyond_the_bound(name: str, part_config: Make) -> None:
    """All are taken one example at a time, and none of these honest mistakes is refused (more in test_mapped.py)."""
    run = prepare(part_config("loss" if name == "Centred" else "architecture", f"tests.coupling.{name}"))
    check_own(run)
    assert isinstance(run.engine(run.new_objective()), IsolatedEngine)
    assert moved(run) <= 1 + 1e-4
    assert run.rests_on == [f"{name}{OF_ALL}"]


class Cast(coupling.Plain):
    def __init__(self, **arguments: object) -> None:
        super().__init__(**arguments)  # type: ignore[arg-type]
        self.to(torch.bfloat16)


class Lazy(coupling.Plain):
    def __init__(self, **arguments: object) -> None:
        super().__init__(**arguments)  # type: ignore[arg-type]
        self.first = nn.LazyLinear(16)


class Scripted(coupling.Plain):
    def __init__(self, **arguments: object) -> None:
        super().__init__(**arguments)  # type: ignore[arg-type]
        self.first = torch.jit.script(self.first)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Scripted", r"architecture: network\.first\.\w+ of a copy is no parameter, as by torch\.jit\.script"),
        ("Cast", "has type torch.bfloat16: weights have to be float32 or float64"),
        ("Lazy", "gets its shape in the first pass"),
    ],
)
def test_what_no_noise_is_for_is_refused(name: str, message: str, part_config: Make) -> None:
    with pytest.raises(ConfigError, match=message):
        prepare(part_config("architecture", f"{HERE}.{name}"))


def test_no_diagnostic_shows_training_images_to_a_users_code(part_config: Make) -> None:
    with pytest.raises(ConfigError, match="diagnostics: hessian passes training images"):
        prepare(part_config("architecture", "tests.coupling.Plain", "diagnostics=[hessian]"))


class Whitening:
    """Features less the mean of the images that come first."""

    mean: Tensor | None = None

    def shape(self, image_shape: Sequence[int]) -> list[int]:
        return list(image_shape)

    def __call__(self, images: Tensor) -> Tensor:
        if self.mean is None:
            self.mean = images.mean(0)
        return images - self.mean


class Standardised(coupling.Plain):
    """Less the mean of the batch, which is one image's own mean if it has no other in its batch."""

    def rows(self, x: Tensor) -> Tensor:
        return x - (x.mean() if self.of_batch else x.mean(1, keepdim=True))

    of_batch = False


class StandardisedByBatch(Standardised):
    of_batch = True


def test_what_is_evaluated_is_what_was_trained(part_config: Make) -> None:
    """Both networks are the same function of one image. Evaluated by batches, the second would be another one."""
    computed = []
    for name in ("Standardised", "StandardisedByBatch"):
        run = prepare(part_config("architecture", f"{HERE}.{name}", "screening=annealing", "batch_size=240"))
        computed.append(trained(run).history)
    for column in ("test_loss", "test_accuracy", "screening_loss", "steps"):
        assert computed[0][column] == pytest.approx(computed[1][column], rel=1e-5), column
    of_run = run.new_objective()
    by_batch = Objective(of_run.network, of_run.loss)
    alone, other = (evaluate(evaluated, load(run)[1], 10).loss for evaluated in (of_run, by_batch))
    assert abs(alone - other) > 1e-4 * alone


class States(Whitening):
    largest_norm = 1.0

    def __call__(self, images: Tensor) -> Tensor:
        return 50 * images


def test_features_of_an_image_depend_on_no_other() -> None:
    torch.manual_seed(0)
    images = torch.rand(6, 1, 4, 4)
    features = OwnFeatures(Whitening())
    converted = features(images)
    assert torch.equal(features(images.flip(0)).flip(0), converted)
    assert torch.equal(torch.cat([features(image) for image in images.split(1)]), converted)


def test_features_that_state_a_norm_are_cut_to_it() -> None:
    images = torch.rand(6, 1, 4, 4)
    images[2] = torch.inf
    norms = OwnFeatures(States())(images).flatten(1).norm(dim=1)
    assert norms.max() <= 1
    assert norms[2] == 0
    assert norms[0] == pytest.approx(1.0, abs=1e-5)


class NoUpdates(UpdateRule):
    takes_back = True


class NoRule:
    takes_back = False


class MakesUpdates(UpdateRule):
    def updates(self, run, objective, aside) -> Updates:
        return super().updates(run, objective, aside)


def test_a_graph_replays_no_update_rule_of_a_user(part_config: Make) -> None:
    """It makes the updates itself, so the rule would be left out."""
    config = part_config("screening", f"{HERE}.MakesUpdates")
    prepare(config)
    config.runtime.step = "graph"
    with pytest.raises(ConfigError, match="the update rule MakesUpdates makes the updates"):
        prepare(config)


class Fewer(MakesUpdates):
    def most_steps(self, planned: int, paid_for: int | None) -> int:
        return 2


class Thin(UpdateRule):
    def updates(self, run, objective, aside) -> Any:
        return object()


ANSWERS: dict[str, dict[str, Any]] = {
    "cost": {"epsilon_sound": 0.1},
    "list": {"share": [1.0]},
    "numbers": {"share": torch.tensor(0.5), "kept": np.float32(2)},
}


@dataclass(frozen=True)
class Columns(UpdateRule):
    """Adds columns to the history."""

    answer: str

    def updates(self, run, objective, aside) -> Updates:
        updates = Updates(run.optimizer(objective))
        updates.columns = lambda reported: ANSWERS[self.answer]  # type: ignore[method-assign]
        return updates


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("NoUpdates", {}, "NoUpdates is no UpdateRule that defines `updates"),
        ("NoRule", {}, "NoRule is no UpdateRule that defines `updates"),
        ("Fewer", {}, "more steps than the 2 of its rule's most_steps"),
        ("Thin", {}, "`Updates`, not object"),
        ("Columns", {"answer": "cost"}, "'epsilon_sound', which every history has"),
        ("Columns", {"answer": "list"}, "has to return a number by name"),
    ],
)
def test_a_rule_is_held_to_what_it_states(name: str, arguments: Any, message: str, part_config: Make) -> None:
    with pytest.raises(ConfigError, match=message):
        trained(prepare(part_config("screening", f"{HERE}.{name}", **arguments)))


def test_columns_of_a_rule_are_numbers_of_its_own(part_config: Make) -> None:
    history = trained(prepare(part_config("screening", f"{HERE}.Columns", answer="numbers"))).history
    assert json.loads(json.dumps(history))["share"] == [0.5]


class Ends(Updates):
    finished = True


class EndsAtOnce(UpdateRule):
    def updates(self, run, objective, aside) -> Updates:
        return Ends(run.optimizer(objective))


def test_an_early_end_by_rule_guarantees_the_cost_of_all_steps(part_config: Make) -> None:
    """The rule may have seen data when it decided."""
    run = prepare(part_config("screening", f"{HERE}.EndsAtOnce"))
    ended = trained(run)
    final = final_metrics(run, ended)
    assert ended.history["steps"] == [1]
    assert final["max_tries"] == run.most_steps > 1
    assert final["epsilon_sound"] == run.epsilon_at_most_steps > final["epsilon_spent"]


class Leaves(torch.optim.SGD):
    def step(self, closure: Any = None) -> None:
        if len(self.param_groups[0]["params"]) > 1:  # not of the trial before training
            sys.exit()


def test_a_part_that_ends_the_process_fails_the_run(part_config: Make, tmp_path: Path) -> None:
    config = part_config("optimizer", f"{HERE}.Leaves", lr=0.1, _partial_=True)
    with pytest.raises(RuntimeError, match=r"ends the process by sys\.exit"):
        execute(resolved(config), quietly)
    (path,) = tmp_path.rglob("failed/*.json")
    assert "sys.exit" in json.loads(path.read_text())["error"]


class Own(ImageDataset):
    pass


class OwnAccountant:
    def epsilon(self, releases: object, delta: float) -> float:
        return 1.0


def test_what_is_believed_is_named_beside_epsilon(part_config: Make, smoke: Compose) -> None:
    shape = {"name": "MNIST", "shape": [1, 28, 28], "classes": 10, "train_examples": 1438, "test_examples": 359}
    config = part_config("dataset", f"{HERE}.Own", **shape, bundled=True)
    with open_dict(config):
        config.accountant = OmegaConf.create({"_target_": f"{HERE}.OwnAccountant"})
        config.max_epsilon = None
    assert prepare(config).rests_on == [
        "the data set Own: each of its images is believed to be one example, and none both trained on and tested",
        "the accountant OwnAccountant: its ε is believed",
        f"OwnAccountant{OF_ALL}",
    ]


def test_a_run_of_an_own_network_and_clipping_is_recorded(part_config: Make) -> None:
    config = part_config("architecture", "tests.coupling.WithDropout", "scale.batch_size=500")
    with open_dict(config):
        config.clipping = OmegaConf.create({"_target_": "tests.trust.test_clipping.Huber", "norm": 0.1})
    config = resolved(config)  # with the sources of these classes
    assert execute(config, quietly) == "finished"
    record = record_of(config)
    assert record["provenance"]["engine"] == "one_pass"
    assert record["provenance"]["epsilon_rests_on"] == [f"WithDropout, Huber{OF_ALL}"]
    assert f"ε rests on WithDropout, Huber{OF_ALL}" in released_text(record, run_of(record["config"]))
    assert record["final"]["epsilon_sound"] > 0


class TestFirstBatch:
    """The one comparison of real numbers with the bounds."""

    mechanism = Mechanism(Sampling.poisson, 100, 10, 1.0, Flat(1.0).noise_groups(nn.Linear(2, 1)))

    def check(self, *sizes: float) -> None:
        """Sums of contributions of these norms, all in one direction, of two numbers in two parameters."""
        contributions = torch.tensor(sizes)[:, None].expand(-1, 2) / 2**0.5

        def sums(members: Tensor) -> dict[str, Tensor]:
            total = contributions[members].sum(0)
            return {"weight": total[:1].view(1, 1), "bias": total[1:]}

        check_first_batch(self.mechanism, sums, torch.tensor(sizes))

    def test_a_sum_that_moves_beyond_the_bound_is_noticed(self) -> None:
        self.check(0.5, 1.0, 0.9)
        with pytest.raises(RuntimeError, match="moves the sum of weight by 1"):
            self.check(0.5, 1.01, 0.9)

    def test_random_sums_are_not_compared(self) -> None:
        check_first_batch(self.mechanism, lambda members: {"weight": torch.randn(1, 1)}, torch.ones(3))

    @pytest.mark.parametrize("step", ["eager", "graph"])
    def test_a_clip_that_is_dropped_is_noticed(
        self, step: str, smoke: Compose, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = prepare(smoke("experiment=tempered_sigmoid/mnist_tanh", "clipping.norm=1e-3", f"runtime.step={step}"))
        data = load(run)
        monkeypatch.setattr(Flat, "factors", lambda self, norms: torch.ones_like(norms))
        with pytest.raises(RuntimeError, match="one example of the first batch moves the sum"):
            train(run, data, lambda row: None)


NETWORK = "tests.trust.test_parts.pretrained"


def pretrained(input_shape: list[int], classes: int, activation: Callable[[], nn.Module], weights: str) -> nn.Module:
    first = nn.Linear(784, 8)
    first.load_state_dict(torch.load(weights))
    return nn.Sequential(nn.Flatten(), first.requires_grad_(False), activation(), nn.Linear(8, classes))


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.save(nn.Linear(784, 8).state_dict(), tmp_path / "weights.pt")
    return tmp_path / "weights.pt"


def test_other_weights_are_another_run(weights: Path, part_config: Make) -> None:
    config = part_config("architecture", NETWORK, weights=str(weights))
    first = resolved(config)
    torch.save(nn.Linear(784, 8).state_dict(), weights)
    assert identify(resolved(config))[0] != identify(first)[0]
    with pytest.raises(ConfigError, match=r"The source of architecture\.weights is not what it was"):
        check_sources(first)


def test_frozen_weights_are_stated_beside_epsilon(weights: Path, part_config: Make) -> None:
    run = prepare(resolved(part_config("architecture", NETWORK, weights=str(weights))))
    assert run.rests_on[0] == "6,280 frozen parameters: taken as public"
    assert run.parameters == 90
    assert run.isolation is None  # the fast engine


def test_files_of_other_groups_and_texts_are_no_weights(weights: Path) -> None:
    content = DictConfig({"a": [str(weights), "no file", 3], "b": {"c": "x" * 5000}})
    assert list(weight_files(content, "features")) == ["features.a[0]"]


class Counted:
    """The mean of an image, with or without noise."""

    def __init__(self, noise: float = 0.0) -> None:
        self.noise = noise

    def shape(self, image_shape: list[int]) -> list[int]:
        return [1]

    def __call__(self, images: Tensor) -> Tensor:
        return images.mean((1, 2, 3))[:, None] + self.noise * torch.rand(len(images), 1)


def test_features_by_weights_are_computed_once_unless_random(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    images = torch.rand(600, 1, 4, 4)
    OwnFeatures(Counted(0.1), "key")(images)
    assert not list(tmp_path.rglob("*.own"))
    first = OwnFeatures(Counted(), "key")(images)
    later, lengths = OwnFeatures(Counted(), "key"), []
    compute = later.mapped
    later.mapped = lambda piece: lengths.append(len(piece)) or compute(piece)
    again = later(images)
    assert sum(lengths) == 8  # two times a few, to see whether they are random
    assert torch.equal(first, again)
    torch.testing.assert_close(first, images.mean((1, 2, 3))[:, None])
    assert len(list(tmp_path.rglob("*.own"))) == 1
    for other in (OwnFeatures(Counted(), "other key"), OwnFeatures(Counted(), "key")):
        other(images + 1)
    assert len(list(tmp_path.rglob("*.own"))) == 3


def test_features_of_other_weights_have_another_key(weights: Path, part_config: Make) -> None:
    def key(name: str, **arguments: str) -> str:
        config = part_config("features", f"{HERE}.{name}", **arguments)
        with open_dict(config):
            config.architecture = {"_target_": "runner.networks.architectures.linear"}
        features = prepare(resolved(config)).features
        assert isinstance(features, OwnFeatures)
        return features.key

    assert key("Counted") == "", "without weights they are not kept"
    first = key("Read", weights=str(weights))
    torch.save(nn.Linear(784, 8).state_dict(), weights)
    assert first
    assert key("Read", weights=str(weights)) != first


class Read(Counted):
    def __init__(self, weights: str) -> None:
        super().__init__()
        self.weights = weights
