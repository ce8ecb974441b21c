"""Every diagnostic against numbers taken another way, on runs whose weights stay where they are (learning rate 0)."""

import math
from typing import Any

import pytest
import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from runner.build.prepare import prepare
from runner.data.datasets import Split
from runner.gradients import Objective
from runner.mechanism.normal import generator
from runner.networks.losses import LosingLess
from runner.training import diagnostics as package
from runner.training.diagnostics import Diagnostics
from runner.training.diagnostics.gradients import TopEigenvalue
from runner.training.loop import Trained, load, train
from runner.training.run import Run
from tests.references import flat, per_example

OURS = "experiment=losing_less/mnist_ours"


def small(config: DictConfig, examples: int = 240) -> tuple[Run, tuple[Split, ...]]:
    """A run of a third of the bundled images or fewer, and its data."""
    training, test = load(prepare(config))
    config.dataset.train_examples = examples
    return prepare(config), (Split(training.images[:examples], training.targets[:examples]), test)


def trained(smoke, *overrides: str) -> tuple[Run, tuple[Split, ...], Trained]:
    run, data = small(smoke(*overrides))
    return run, data, train(run, data, lambda row: None)


def first_epoch(run: Run, training: Split) -> list[Tensor]:
    """Every batch's per-example gradients at the first weights, [batch, numbers], in float64."""
    objective = run.new_objective()
    objective.start_epoch(0)
    batches = run.mechanism.batches(generator(run.config.seed, "sampling", run.device))
    return [torch.stack([*map(flat, per_example(objective, training.images[i], training.targets[i]))]) for i in batches]


def test_histogram_and_cosine_match_per_example_gradients(smoke) -> None:
    asked = "diagnostics=[gradient_histogram,gradient_cosine]"
    config = smoke(OURS, asked, "optimizer.lr=0", "epochs=1", "clipping.norm=2", "diagnostics_every=1000")
    run, data = small(config, 480)  # each is differentiated by itself
    few, done = data[0], train(run, data, lambda row: None)
    batches = first_epoch(run, few)
    norms = torch.cat([rows.norm(dim=1) for rows in batches])
    computed = done.diagnostics["gradient_histogram"]
    assert computed["epoch"] == [1]
    assert sum(computed["counts"][0]) == len(norms) == done.examples
    edges = torch.cat([torch.arange(0, 100.5, 0.5), torch.tensor([float("inf")])]).double()
    expected = torch.histogram(norms.cpu(), edges).hist.long().tolist()
    moved = sum(abs(a - b) for a, b in zip(computed["counts"][0], expected, strict=True))
    assert moved <= 2  # one norm may lie on the other side of an edge in float32
    assert computed["mean"][0] == pytest.approx(norms.mean().item(), rel=1e-5)
    assert computed["median"][0] == pytest.approx(norms.median().item(), rel=1e-3)
    assert computed["p90"][0] == pytest.approx(norms.quantile(0.9).item(), rel=1e-2)
    cosines = []
    for rows in batches:
        clipped = (rows * (2 / rows.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0)
        cosines.append(torch.nn.functional.cosine_similarity(clipped, rows.sum(0), dim=0).item())
    assert done.diagnostics["gradient_cosine"]["step"] == list(range(len(batches)))
    assert done.diagnostics["gradient_cosine"]["cosine"] == pytest.approx(cosines, abs=1e-5)
    assert min(cosines) < 0.9999, "clipping turned nothing: the test could not tell clipped from raw"


def test_layer_norms_are_those_of_weights_and_pre_activations(smoke) -> None:
    run, data, done = trained(smoke, OURS, "diagnostics=[layer_norms]", "optimizer.lr=0", "epochs=2")
    computed = done.diagnostics["layer_norms"]
    x = data[0].images
    weights, outputs = [], []
    for layer in run.new_objective().network:
        x = layer(x)
        if isinstance(layer, nn.Conv2d | nn.Linear):
            weights.append(layer.weight.detach().square().sum().sqrt().item())
            outputs.append(x.detach().flatten(1).square().sum(1).sqrt().mean().item())
    assert computed["epoch"] == [0, 1, 2]
    assert len(weights) == len(computed["weights"]) == len(computed["pre_activations"]) == 4
    for column, expected in (("weights", weights), ("pre_activations", outputs)):
        for values, value in zip(computed[column].values(), expected, strict=True):
            assert values == pytest.approx([value] * 3, rel=1e-4)


def test_the_confusion_matrix_has_true_classes_as_rows(smoke) -> None:
    run, (training, _), done = trained(
        smoke, OURS, "diagnostics=[confusion]", "optimizer.lr=0", "confusion_epochs=[1]", "epochs=3"
    )
    computed = done.diagnostics["confusion"]
    predicted = run.new_objective().network(training.images).argmax(1)
    expected = [[0] * 10 for _ in range(10)]
    for true, guess in zip(training.targets.tolist(), predicted.tolist(), strict=True):
        expected[true][guess] += 1
    assert computed["epoch"] == [1, 3]
    assert computed["counts"] == [expected, expected]
    assert expected != [list(column) for column in zip(*expected, strict=True)]


def test_diagnostics_do_not_change_training(smoke, monkeypatch) -> None:
    monkeypatch.setattr(package, "FIXED", 32)
    asked_for = "diagnostics=[gradient_norms,activation_norms,per_class_accuracy,layer_norms,gradient_histogram,"
    asked_for += "gradient_cosine,confusion,hessian]"
    histories = [trained(smoke, OURS, asked, "epochs=1")[2].history for asked in (asked_for, "diagnostics=[]")]
    assert histories[0] == histories[1]


@pytest.mark.parametrize("first", [nn.Identity(), nn.SiLU(inplace=True)])
def test_the_top_eigenvalue_matches_the_whole_hessian(first: nn.Module) -> None:
    """Also if its first layer changes its inputs, which are passed many times."""
    torch.manual_seed(0)
    network = nn.Sequential(first, nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    objective: Any = Objective(network, LosingLess(1, 2, 3)).double()
    objective.start_epoch(2)
    x, y = torch.randn(600, 4, dtype=torch.float64), torch.randint(3, (600,))  # more than a slice
    names = [name for name, _ in objective.named_parameters()]
    shapes = [p.shape for p in objective.parameters()]

    def mean_loss(flat: Tensor) -> Tensor:
        parts = flat.split([s.numel() for s in shapes])
        parts_by_name = {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
        return torch.func.functional_call(objective, parts_by_name, (x.clone(), y)).mean()

    flat = torch.cat([p.detach().flatten() for p in objective.parameters()])
    eigenvalues = torch.linalg.eigvalsh(torch.autograd.functional.hessian(mean_loss, flat))
    expected = max(eigenvalues.tolist(), key=abs)
    value, residual = TopEigenvalue(objective, x, y, torch.Generator().manual_seed(1))()
    assert value == pytest.approx(expected, rel=1e-3)
    assert residual < 0.01 * abs(value)


def test_an_eigenvector_that_is_overtaken_is_left() -> None:
    """f(w) = (20 w0^2 + c w1^2) / 2: the top eigenvalue is 20, then c, whose sign is kept."""

    class Quadratic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.second = nn.Parameter(torch.ones(2)), 10.0

        def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            value = (20 * self.w[0] ** 2 + self.second * self.w[1] ** 2) / 2
            return value.expand(len(targets))

    quadratic = Quadratic()
    top = TopEigenvalue(quadratic, torch.zeros(3, 1), torch.zeros(3), torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    assert top()[0] == pytest.approx(20, rel=0.01)
    quadratic.second = -28.0
    assert top()[0] == pytest.approx(-28, rel=0.01)


def test_norm_histograms_reach_the_largest_input_and_gradient(smoke) -> None:
    """A linear network has a known gradient: p - e_t, times the image."""
    config = ("architecture=lipschitz_mlp", "architecture.units=[]", "diagnostics=[norm_histograms]", "epochs=1")
    run, (training, _), done = trained(
        smoke, *config, "features=bounded", "features.make=clip", "features.largest_norm=3"
    )
    computed = done.diagnostics["norm_histograms"]
    inputs = training.images.flatten(1)
    with torch.no_grad():
        slopes = run.new_objective().network(training.images).softmax(1) - nn.functional.one_hot(training.targets, 10)
    assert computed["epoch"] == [0, 1]
    for histogram, norms in (
        (computed["inputs"], inputs.norm(dim=1)),
        (computed["gradients"][0], inputs.norm(dim=1) * slopes.norm(dim=1)),
    ):
        assert histogram["largest"] == pytest.approx(norms.max().item(), rel=1e-5)
        expected = torch.histc(norms, 50, 0, norms.max().item())
        assert (torch.tensor(histogram["counts"]) - expected).abs().sum() <= 4, "at the edges rounding decides"
        assert sum(histogram["counts"]) == len(norms)


def shorten(vectors: Tensor, bound: float) -> Tensor:
    """Each vector [n, numbers], at most as long as the bound."""
    return vectors * (bound / vectors.norm(dim=1, keepdim=True)).clamp(max=1)


def test_layer_gradients_show_what_clipping_moves(smoke) -> None:
    """In a network of two linear layers, clipping inside the layers is an outer product of two clipped vectors."""
    mlp = ("architecture=lipschitz_mlp", "architecture.units=[8]", "activation=tanh", "features=pixels", "epochs=1")
    asked = ("diagnostics=[layer_gradients]", "clipping=backprop", "clipping.input_bound=2")
    run, (training, _) = small(smoke(*mlp, *asked, "mechanism=joint", "clipping.upstream_bound=0.1"))
    objective = run.new_objective()
    first, last = (layer for layer in objective.network.modules() if isinstance(layer, nn.Linear))
    first.weight.data.mul_(10)  # tanh is flat for an image as it is, and steep for a clipped one
    measured = Diagnostics(run, objective, training)
    measured.start()
    values = measured.values["layer_gradients"]

    images, targets = training.images[:256].double(), training.targets[:256]
    squares = []  # of an example's contribution, then of its gradient, by layer
    for a, b in ((2.0, 0.1), (1e9, 1e9)):
        x = shorten(images.flatten(1), a)
        h = (x @ first.weight.double().T).tanh()
        z = shorten(h, a)
        u = shorten((z @ last.weight.double().T).softmax(1) - nn.functional.one_hot(targets, 10), b)
        back = u @ last.weight.double()
        along = (back * h).sum(1, keepdim=True) * h / h.square().sum(1, keepdim=True)
        back = torch.where(h.norm(dim=1, keepdim=True) > a, (back - along) * a / h.norm(dim=1, keepdim=True), back)
        v = shorten(back * (1 - h.square()), b)
        outer = [(w.norm(dim=1) * i.norm(dim=1)).square() for w, i in ((v, x), (u, z))]
        squares.append(torch.stack(outer, 1).detach())
    contribution, gradient = squares
    for kind, square in (("clipped", contribution), ("ordinary", gradient)):
        assert [c[0] for c in values[kind].values()] == pytest.approx(square.sqrt().mean(0).tolist(), rel=1e-4)
    share = [square / square.sum(1, keepdim=True) for square in squares]
    assert values["moved"] == [pytest.approx(((share[0] - share[1]).abs().sum(1) / 2).mean().item(), rel=1e-3)]
    assert values["moved"][0] > 0.1
    assert values["total"] == [pytest.approx(gradient.sum(1).sqrt().mean().item(), rel=1e-4)]

    flat, (training, _) = small(smoke(*mlp, "diagnostics=[layer_gradients]", "clipping.norm=0.01"))
    measured = Diagnostics(flat, flat.new_objective(), training)
    measured.start()
    values = measured.values["layer_gradients"]
    assert values["moved"] == [pytest.approx(0, abs=1e-5)], "clipping after backpropagation only scales"
    assert math.hypot(*(column[0] for column in values["clipped"].values())) == pytest.approx(0.01, rel=0.02)
