"""The one-pass engine against float64 gradients taken one example at a time, with and without its C++ kernel."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Collection, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import runner.gradients.one_pass.engine as engine_module
from runner.clipping import Automatic, Flat, PerLayer, gradient_sum
from runner.gradients import GradientSum, IsolatedEngine, Objective, OnePassEngine
from runner.gradients.one_pass.choice import choose
from runner.gradients.one_pass.gram import gram
from runner.gradients.one_pass.kernel import usable
from runner.gradients.one_pass.linear import linear
from runner.gradients.one_pass.scratch import Scratch
from runner.gradients.one_pass.tape import NotRecordableError, output_gradients, recording
from runner.networks.activations import TemperedSigmoid
from runner.networks.architectures import all_convolutional, scatternet_cnn, scatternet_small_cnn, small_cnn, vgg_cnn
from runner.networks.geometry import Geometry

NORM = 0.7


@pytest.fixture
def path(kernels: str) -> str:
    """Runs each test with and without what is compiled."""
    return kernels


def per_example(objective: nn.Module, inputs: Tensor, targets: Tensor) -> list[dict[str, Tensor]]:
    """Every example's float64 gradients, of the parameters that it has any of: one autograd call an example."""
    exact = copy.deepcopy(objective).double()
    parameters = dict(exact.named_parameters())
    examples = []
    for x, y in zip(inputs.double(), targets, strict=True):
        found = torch.autograd.grad(exact(x[None], y[None]).sum(), list(parameters.values()), allow_unused=True)
        examples.append({n: g for n, g in zip(parameters, found, strict=True) if g is not None})
    return examples


def summed(
    objective: nn.Module, examples: list[dict[str, Tensor]], groups: Sequence[Sequence[str]], bound: float = NORM
) -> tuple[dict[str, Tensor], Tensor]:
    """Float64 sum of the gradients of `per_example`, clipped to `bound` in every group, and norms [batch]."""
    total = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in objective.named_parameters()}
    norms = []
    for gradients in examples:
        squares = [sum(float(gradients[n].square().sum()) for n in group if n in gradients) for group in groups]
        norms.append(math.sqrt(sum(squares)))
        for group, square in zip(groups, squares, strict=True):
            for name in group:
                if name in gradients:
                    total[name] += min(1.0, bound / math.sqrt(square) if square else 1.0) * gradients[name]
    return total, torch.tensor(norms, dtype=torch.float64)


def clip(norms: Tensor) -> Tensor:
    return (NORM / norms).clamp(max=1.0)


def error(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Relative L2 error over all parameters."""
    difference = sum(float((found[name].double() - expected[name]).square().sum()) for name in expected)
    return math.sqrt(difference / sum(float(e.square().sum()) for e in expected.values()))


def assert_exact(objective: Objective, inputs: Tensor, targets: Tensor, tolerance: float) -> GradientSum:
    """One group, and a group a parameter: sums and norms equal the reference."""
    names = [name for name, _ in objective.named_parameters()]
    engine = OnePassEngine(objective)
    found = engine.clipped_sum(inputs, targets, [names], clip)
    assert engine._fallback is None
    examples = per_example(objective, inputs, targets)
    for groups in ([names], [[name] for name in names]):
        expected, norms = summed(objective, examples, groups)
        found = engine.clipped_sum(inputs, targets, groups, clip)
        assert error(found.gradients, expected) < tolerance
        assert found.norms is not None
        torch.testing.assert_close(found.norms.double(), norms, rtol=tolerance, atol=1e-30)
    assert all(p.requires_grad for p in objective.parameters())
    return found


def steady(objective: nn.Module, inputs: Tensor, targets: Tensor, keep: int) -> Tensor:
    """Indices of the first `keep` examples whose float64 gradient is continuous where it is taken.

    A maximum decided, or a ReLU switched, by less than a float32 rounding error has another gradient in float32, in
    any engine. Such examples move by more than the perturbation when the weights move by 3e-6 of their size.
    """
    exact, kept = copy.deepcopy(objective).double(), []
    moved = [copy.deepcopy(exact) for _ in range(3)]
    for copied in moved:
        for p in copied.parameters():
            p.data *= 1 + 3e-6 * torch.randn_like(p)

    def gradient(model: nn.Module, i: int) -> Tensor:
        loss = model(inputs[i : i + 1].double(), targets[i : i + 1]).sum()
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])

    for i in range(len(targets)):
        here = gradient(exact, i)
        if all((gradient(model, i) - here).norm() <= 2e-5 * here.norm() for model in moved):
            kept.append(i)
        if len(kept) == keep:
            return torch.tensor(kept)
    raise AssertionError("hardly any example has a steady gradient")


def spread(classes: int = 10) -> nn.Module:
    """Cross entropy with a scale for each class: a zero gradient, and examples on both sides of any bound."""
    weights = torch.logspace(-2, 1, classes)
    weights[0] = 0
    return nn.CrossEntropyLoss(weights, reduction="none")


ARCHITECTURES = {
    "small_cnn": (lambda act: small_cnn([1, 28, 28], 10, act, [16, 32], 32, 3), (1, 28, 28)),
    "vgg_cnn": (lambda act: vgg_cnn([3, 32, 32], 10, act, [32, 64, 128], 128), (3, 32, 32)),
    "scatternet_small_cnn": (lambda act: scatternet_small_cnn([81, 7, 7], 10, act, [16, 32], 32, False), (81, 7, 7)),
    "scatternet_cnn": (lambda act: scatternet_cnn([243, 8, 8], 10, act, [[64, 64], [64]], True), (243, 8, 8)),
    "all_convolutional": (lambda act: all_convolutional([3, 32, 32], 10, act, [32, 64, 128, 256]), (3, 32, 32)),
}
ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "tempered_sigmoid": lambda: TemperedSigmoid(1.5, 3.0, 0.6)}


EACH = list(zip(ARCHITECTURES, [*ACTIVATIONS, "relu", "tanh"], strict=True))


@pytest.mark.parametrize(("architecture", "activation"), EACH)
def test_architectures_of_the_papers(architecture: str, activation: str, path: str) -> None:
    torch.manual_seed(0)
    build, shape = ARCHITECTURES[architecture]
    objective = Objective(build(ACTIVATIONS[activation]), spread())
    inputs, targets = torch.randn(20, *shape), torch.tensor([0, 1, 9, 9, 9]).repeat(4)
    inputs[10:] *= 3
    chosen = steady(objective, inputs, targets, keep=7)
    inputs, targets = inputs[chosen], targets[chosen]
    found = assert_exact(objective, inputs, targets, 1e-5)
    assert found.norms is not None
    assert found.norms.min() == 0
    assert any(0 < norm < NORM for norm in found.norms)
    assert found.norms.max() > NORM


def test_float64_is_exact_to_rounding() -> None:
    torch.manual_seed(0)
    build, shape = ARCHITECTURES["small_cnn"]
    objective = Objective(build(nn.Tanh), spread()).double()
    assert_exact(objective, torch.randn(3, *shape, dtype=torch.float64), torch.tensor([1, 5, 9]), 1e-12)


CONVOLUTIONS: list[tuple[dict[str, object], tuple[int, int]]] = [
    ({"kernel_size": k, "stride": s, "padding": p, "bias": bias}, (11, 9))
    for k, s, p, bias in [
        (1, 1, 0, True), (1, 2, 1, False), (2, 2, 0, False), (3, 1, 1, False), (3, 2, 1, True), (5, 3, 3, True),
        (8, 2, 3, True), (8, 3, 2, False),
    ]
]  # fmt: skip
CONVOLUTIONS += [
    ({"kernel_size": (3, 5), "stride": (2, 1), "padding": (0, 2)}, (8, 11)),
    ({"kernel_size": (5, 2), "stride": (1, 3), "padding": (3, 1), "bias": False}, (7, 12)),
    ({"kernel_size": (1, 4), "stride": 1, "padding": (0, 3)}, (1, 10)),
    ({"kernel_size": 3, "dilation": (2, 3), "stride": (2, 2), "padding": (2, 3)}, (9, 12)),
    ({"kernel_size": 3, "padding": "same"}, (6, 6)),
    ({"kernel_size": 3, "groups": 3, "padding": 1}, (8, 8)),
]


@pytest.mark.parametrize("method", ["kernel", "instantiate", "gram"])
@pytest.mark.parametrize("number", range(len(CONVOLUTIONS)))
def test_every_method_on_odd_convolutions(number: int, method: str, monkeypatch) -> None:
    """Each method, forced on each geometry: strides, paddings, dilations, odd channels, images that are not square."""
    if method == "kernel" and not usable(torch.zeros(1), Geometry(1, 1, (1, 1), (1, 1))):
        pytest.skip("no C++ compiler")
    torch.manual_seed(0)
    arguments, size = CONVOLUTIONS[number]
    channels = (3, 36 if number % 2 else 5)
    grouped = arguments.get("groups", 1) > 1
    convolution = nn.Conv2d(channels[0], channels[1] + grouped * (-channels[1] % 3), **arguments)
    network = nn.Sequential(convolution, nn.Tanh(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.LazyLinear(10))
    inputs, targets = torch.randn(5, channels[0], *size), torch.tensor([0, 1, 5, 9, 9])
    network(inputs)

    def forced(shape: Geometry, compiled: Collection[str], formed: bool) -> str:
        chosen = choose(shape, compiled, formed=formed)
        return chosen if chosen in ("outer", "one_by_one") else method

    monkeypatch.setattr("runner.gradients.one_pass.engine.choose", forced)
    assert_exact(Objective(network, spread()), inputs, targets, 1e-5)


@pytest.mark.parametrize("channels", [1, 70])
def test_wide_rows_and_strides_by_kernel_rows(channels: int, path: str) -> None:
    """Windows longer than `_SHORT_ROW`: rows sorted by their phase modulo the stride, odd heights."""
    torch.manual_seed(0)
    for stride, kernel in ((1, 3), (2, 4), (3, 5)):
        network = nn.Sequential(
            nn.Conv2d(channels, 6, kernel, stride, padding=1), nn.Tanh(), nn.Flatten(), nn.LazyLinear(10)
        )
        inputs = torch.randn(3, channels, 11, 8)
        network(inputs)
        assert_exact(Objective(network, spread()), inputs, torch.tensor([1, 5, 9]), 1e-5)


def test_linear_layers_on_sequences() -> None:
    """[batch, tokens, channels], as in a mixer: a gradient is a sum over tokens."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 7), nn.Flatten(), nn.Linear(35, 10))
    assert_exact(Objective(network, spread()), torch.randn(4, 5, 6), torch.tensor([0, 1, 5, 9]), 1e-5)


@pytest.mark.parametrize("batch", [1, 2, 3, 37])
@pytest.mark.parametrize("strategy", [Flat(NORM), PerLayer(NORM), Automatic(NORM)], ids=lambda s: type(s).__name__)
def test_batches_of_any_size_and_pieces_of_them(batch: int, strategy, monkeypatch) -> None:
    """Logical batches in physical ones, and slices inside these: the same sum, losses and norms, in order."""
    torch.manual_seed(0)
    objective = Objective(small_cnn([1, 28, 28], 10, nn.Tanh, [4, 5], 6, 3), spread()).double()
    inputs, targets = torch.randn(batch, 1, 28, 28, dtype=torch.float64), torch.arange(9, 9 + batch) % 10
    engine = OnePassEngine(objective)
    whole = gradient_sum(strategy, engine, inputs, targets, physical_batch=1000)
    for physical, sliced in ((1, 1), (5, 2), (1000, 3)):
        monkeypatch.setattr(engine_module, "examples_per_slice", lambda *_, sliced=sliced: sliced)
        pieces = gradient_sum(strategy, engine, inputs, targets, physical)
        assert error(pieces.gradients, whole.gradients) < 1e-13
        torch.testing.assert_close(pieces.losses, whole.losses)
        torch.testing.assert_close(pieces.norms, whole.norms)


@pytest.mark.parametrize("count", [63, 64, 65, 200])
def test_slices_of_many_examples(count: int, path: str, monkeypatch) -> None:
    """In one slice, and in slices of 64, the sum equals the isolated engine's."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(48, 5), nn.Tanh(), nn.Linear(5, 10))
    objective = Objective(network, spread())
    inputs, targets = torch.randn(count, 1, 6, 6), torch.arange(count) % 10
    expected = gradient_sum(Flat(NORM), IsolatedEngine(objective), inputs, targets, count)
    for per_slice in (count, 64):
        monkeypatch.setattr(engine_module, "examples_per_slice", lambda *_, per_slice=per_slice: per_slice)
        found = gradient_sum(Flat(NORM), OnePassEngine(objective), inputs, targets, count)
        assert error(found.gradients, expected.gradients) < 1e-5
        torch.testing.assert_close(found.norms, expected.norms, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("activation", ["relu", "tempered_sigmoid"])
def test_ties_in_max_pooling(activation: str, path: str) -> None:
    """Constant and two-valued images: most windows tie, before and after the activation."""
    torch.manual_seed(0)
    objective = Objective(small_cnn([1, 28, 28], 10, ACTIVATIONS[activation], [4, 5], 6, 3), spread())
    inputs = torch.cat([torch.zeros(2, 1, 28, 28), torch.ones(2, 1, 28, 28), torch.randint(2, (4, 1, 28, 28)).float()])
    assert_exact(objective, inputs, torch.tensor([1, 9, 1, 9, 5, 6, 8, 9]), 1e-5)


@pytest.mark.parametrize(("architecture", "bad"), [("small_cnn", math.nan), ("all_convolutional", math.inf)])
def test_a_broken_example_contributes_zero(architecture: str, bad: float, path: str) -> None:
    torch.manual_seed(0)
    build, shape = ARCHITECTURES[architecture]
    objective = Objective(build(nn.Tanh), spread())
    inputs, targets = torch.randn(6, *shape), torch.tensor([1, 2, 5, 6, 8, 9])
    names = [name for name, _ in objective.named_parameters()]
    kept = torch.tensor([0, 2, 3, 4])
    expected = OnePassEngine(objective).clipped_sum(inputs[kept], targets[kept], [names], clip)
    inputs[1, 0, 3, 3], inputs[5] = bad, bad
    found = OnePassEngine(objective).clipped_sum(inputs, targets, [names], clip)
    assert error(found.gradients, expected.gradients) < 1e-5
    assert found.norms is not None
    assert torch.isfinite(found.norms).tolist() == [True, False, True, True, True, False]


class PreActivations(nn.Module):
    """A network that is its own objective: a loss on logits, on a hidden pre-activation, and with a layer in it."""

    views = 1

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4 * 36, 10)
        self.score, self.unused = nn.Linear(10, 1), nn.Linear(3, 3)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        before = self.first(inputs)
        logits = self.second(before.tanh().flatten(1))
        weights = targets.to(inputs) / 10
        hidden = before.flatten(1).square().mean(1)
        return weights * (F.cross_entropy(logits, targets, reduction="none") + hidden + self.score(logits)[:, 0])


@pytest.mark.parametrize("shared", [nn.MaxPool2d(2, 1), nn.ReLU(inplace=True)], ids=lambda m: type(m).__name__)
def test_a_module_that_is_there_twice_counts_twice(shared: nn.Module, path: str) -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), shared, nn.MaxPool2d(2), nn.Conv2d(4, 4, 2), shared, nn.Flatten(), nn.LazyLinear(10)]
    network = nn.Sequential(*layers)
    inputs = torch.randn(5, 1, 9, 9)
    network(inputs)
    assert_exact(Objective(network, spread()), inputs, torch.tensor([0, 1, 5, 9, 9]), 1e-5)


class Walked(nn.Module):
    """Takes its chain apart: what comes after its tanh is an output, and its pool is used again."""

    def __init__(self) -> None:
        super().__init__()
        parts = {"conv": nn.Conv2d(1, 4, 3), "act": nn.Tanh(), "pool": nn.MaxPool2d(2)}
        self.body, self.last = nn.Sequential(OrderedDict(parts)), nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        tapped = x.new_zeros(len(x), 4)
        for part in self.body:
            x = part(x)
            if isinstance(part, nn.Tanh):
                tapped = x.mean(dim=(2, 3))
        return self.last(tapped + self.body.pool(x).flatten(2).sum(2))


def test_a_module_that_takes_its_chain_apart(path: str) -> None:
    torch.manual_seed(0)
    assert_exact(Objective(Walked(), spread()), torch.randn(5, 1, 9, 9), torch.tensor([0, 1, 5, 9, 9]), 1e-5)


def test_an_exchange_that_changes_the_function_is_noticed(capsys, monkeypatch) -> None:
    monkeypatch.setattr(engine_module, "faster", lambda objective: Objective(objective.network[:2], objective.loss))
    objective = Objective(nn.Sequential(nn.Flatten(), nn.Linear(4, 10), nn.Tanh()), spread())
    names = [name for name, _ in objective.named_parameters()]
    inputs, targets = torch.randn(3, 1, 2, 2), torch.tensor([1, 2, 3])
    found = OnePassEngine(objective).clipped_sum(inputs, targets, [names], clip)
    assert "not those of its layers" in capsys.readouterr().err
    assert error(found.gradients, summed(objective, per_example(objective, inputs, targets), [names])[0]) < 1e-5


def test_one_pixel_of_a_strided_pointwise_convolution() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 4, 1, stride=2), nn.Flatten(), nn.Linear(4, 10))
    assert_exact(Objective(network, spread()), torch.randn(4, 1, 2, 2), torch.tensor([1, 5, 6, 9]), 1e-5)


def test_losses_that_read_pre_activations_and_own_layers(path: str) -> None:
    torch.manual_seed(0)
    assert_exact(PreActivations(), torch.randn(5, 1, 6, 6), torch.tensor([0, 1, 5, 9, 9]), 1e-5)  # type: ignore[arg-type]


class CalledTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(8, 8), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layer(self.layer(x).tanh()).tanh())


class Penalised(nn.Module):
    """The loss reads a weight directly: its gradient does not pass through the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.layer.weight.square().sum()


class FoldsExamples(nn.Module):
    """Rows of the layer are not examples."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.reshape(-1, 4)).view(-1, 2, 10).sum(1)


FALLBACKS = {
    "LayerNorm": lambda: nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 10)),
    "called twice": CalledTwice,
    "one row an example": FoldsExamples,
    "used outside its layer": Penalised,
}


@pytest.mark.parametrize("reason", FALLBACKS)
def test_what_it_does_not_cover_is_given_to_another(reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    objective = Objective(FALLBACKS[reason](), spread())
    inputs, targets = torch.randn(4, 8), torch.tensor([1, 5, 6, 9])
    names = [name for name, _ in objective.named_parameters()]
    original = copy.deepcopy(objective)
    engine = OnePassEngine(objective)
    found = engine.clipped_sum(inputs, targets, [names], clip)
    expected, _ = summed(original, per_example(original, inputs, targets), [names])
    assert error(found.gradients, expected) < 1e-5
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert reason in printed


def test_outputs_changed_in_place_are_noticed() -> None:
    layer = nn.Linear(8, 10)
    with recording({"layer": layer}) as tape:
        first = torch.randn(3, 8, requires_grad=True)
        losses = layer(first).mul_(2).sum(1)
        with pytest.raises(NotRecordableError, match="in place"):
            output_gradients(tape, losses)
    assert all(p.requires_grad for p in layer.parameters())
    assert not layer._forward_hooks


@pytest.mark.parametrize("swapped", [False, True])
def test_a_huge_row_times_a_row_whose_squares_vanish_is_clipped(swapped: bool) -> None:
    """The gradient of one example has norm 1e-6, from rows of 1e17 and 1e-23."""
    a, g = torch.zeros(2, 64), torch.zeros(2, 64)
    a[:, 0], g[:, 0] = 1e17, 1e-23
    terms = linear(g, a, has_bias=False) if swapped else linear(a, g, has_bias=False)
    torch.testing.assert_close(terms.squares.sqrt(), torch.full((2,), 1e-6), rtol=1e-5, atol=0)


def test_gram_refuses_terms_that_cancel() -> None:
    """Output gradients of mean zero on a constant image: the gradient is tiny beside its terms, all rounding error."""
    torch.manual_seed(0)
    shape = Geometry(4, 3, (8, 8), (8, 8))
    a, g = torch.ones(2, 8, 8, 4), torch.randn(2, 8, 8, 3)
    assert gram(a, g, shape, True, Scratch()) is not None
    g[1] = 1e6 * (g[1] - g[1].mean((0, 1)))
    assert gram(a, g, shape, True, Scratch()) is None
    for of_a, of_g in ((1e-23, 1e18), (1.0, 1e-14)):
        tiny = of_a * torch.randn(2, 8, 8, 4), of_g * torch.randn(2, 8, 8, 3)
        assert gram(*tiny, shape, True, Scratch()) is None
    assert gram(a, torch.zeros(2, 8, 8, 3), shape, True, Scratch()) is not None, "nothing vanishes that is nothing"
    objective = Objective(nn.Sequential(nn.Conv2d(4, 3, 1), nn.Flatten()), nn.Identity())
    assert OnePassEngine(objective)._fallback is None


def test_the_cheapest_method_is_chosen_by_the_geometry() -> None:
    both = ("kernel", "winograd")
    for channels_in, channels_out, size, compiled, method in (
        (32, 32, 32, (), "instantiate"),
        (32, 32, 32, ("kernel",), "kernel"),
        (32, 32, 32, both, "winograd"),
        (243, 64, 8, both, "winograd"),
        (64, 64, 4, both, "kernel"),
        (128, 256, 4, (), "gram"),
        (128, 256, 4, both, "kernel"),
    ):
        shape = Geometry(channels_in, channels_out, (size, size), (size, size), (3, 3), padding=(1, 1))
        assert choose(shape, compiled) == method
    assert choose(shape, (), formed=True) == "instantiate"
    assert choose(Geometry(512, 512, (1, 8), (1, 8)), both) == "gram"
    assert choose(Geometry(2048, 128, (1, 1), (1, 1)), ()) == "outer"
    assert choose(Geometry(8, 8, (4, 4), (4, 4), (3, 3), padding=(1, 1), groups=2), ()) == "one_by_one"


def test_what_draws_at_random_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    """Norms belong to the drawn numbers, so every example is clipped all the same."""
    torch.manual_seed(0)
    objective = Objective(nn.Sequential(nn.Linear(8, 64), nn.Dropout(), nn.Linear(64, 10)), spread())
    names = [name for name, _ in objective.named_parameters()]
    found = OnePassEngine(objective).clipped_sum(torch.randn(4, 8), torch.tensor([1, 5, 6, 9]), [names], clip)
    assert found.norms is not None
    assert found.norms.shape == (4,)
    assert "by itself" in capsys.readouterr().err
