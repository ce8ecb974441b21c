"""The one-pass engine against float64 gradients taken one example at a time, with and without its C++ kernel."""

import copy
import math
from collections.abc import Callable, Collection
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import runner.gradients.one_pass as engine_module
from runner.clipping import Flat, gradient_sum
from runner.gradients import ENGINES, MappedEngine, Objective, OnePassEngine, unknown
from runner.gradients.interface import KNOWN
from runner.gradients.one_pass import NotRecordableError, output_gradients, recording
from runner.gradients.terms import METHODS, choose, linear, usable
from runner.networks.architectures import all_convolutional, small_cnn
from runner.networks.geometry import Geometry, geometry
from runner.networks.lipschitz import layers
from runner.networks.wide_resnet import Branches
from tests.failing import ScaledByItsWeight
from tests.references import clipped_sum, distance, error, norm, per_example

NORM = 0.7


def clip(norms: Tensor) -> Tensor:
    return (NORM / norms).clamp(max=1.0)


def assert_exact(objective: Objective, inputs: Tensor, targets: Tensor, tolerance: float) -> None:
    """One group, and a group a parameter: sums and norms equal the reference."""
    names = [name for name, _ in objective.named_parameters()]
    engine = OnePassEngine(objective)
    examples = per_example(objective, inputs, targets)
    norms = torch.tensor([norm(gradient) for gradient in examples], dtype=torch.float64)
    for groups in ([names], [[name] for name in names]):
        computed = engine.clipped_sum(inputs, targets, groups, clip)
        assert engine._fallback is None
        assert error(computed.gradients, clipped_sum(examples, NORM, groups)) < tolerance
        assert computed.norms is not None
        torch.testing.assert_close(computed.norms.double(), norms, rtol=tolerance, atol=1e-30)
    assert all(p.requires_grad for p in objective.parameters())


def spread(classes: int = 10) -> nn.Module:
    """Cross entropy with a scale for each class: a zero gradient, and examples on both sides of any bound."""
    weights = torch.logspace(-2, 1, classes)
    weights[0] = 0
    return nn.CrossEntropyLoss(weights, reduction="none")


def test_float64_is_exact_to_rounding() -> None:
    torch.manual_seed(0)
    objective = Objective(small_cnn([1, 28, 28], 10, nn.Tanh, [16, 32], 32, 3), spread()).double()
    assert_exact(objective, torch.randn(3, 1, 28, 28, dtype=torch.float64), torch.tensor([1, 5, 9]), 1e-12)


# Channels, size of the images, and the window: strides, paddings, dilations, images that are not square.
CONVOLUTIONS: list[tuple[tuple[int, int], tuple[int, int], dict[str, Any]]] = [
    ((3, 5), (11, 9), {"kernel_size": 1}),
    ((3, 36), (11, 9), {"kernel_size": 1, "stride": 2, "padding": 1, "bias": False}),
    ((3, 36), (11, 9), {"kernel_size": 3, "padding": 1, "bias": False}),
    ((3, 5), (11, 9), {"kernel_size": 3, "stride": 2, "padding": 1}),
    ((3, 36), (11, 9), {"kernel_size": 5, "stride": 3, "padding": 3}),
    ((3, 5), (11, 9), {"kernel_size": 8, "stride": 2, "padding": 3}),
    ((3, 36), (11, 9), {"kernel_size": 8, "stride": 3, "padding": 2, "bias": False}),
    ((3, 5), (8, 11), {"kernel_size": (3, 5), "stride": (2, 1), "padding": (0, 2)}),
    ((3, 36), (7, 12), {"kernel_size": (5, 2), "stride": (1, 3), "padding": (3, 1), "bias": False}),
    ((3, 5), (1, 10), {"kernel_size": (1, 4), "padding": (0, 3)}),
    ((3, 36), (9, 12), {"kernel_size": 3, "dilation": (2, 3), "stride": (2, 2), "padding": (2, 3)}),
    ((3, 5), (6, 6), {"kernel_size": 3, "padding": "same"}),
    ((3, 36), (2, 2), {"kernel_size": 1, "stride": 2}),
    ((1, 6), (11, 8), {"kernel_size": 3, "padding": 1}),  # long and short windows
    ((70, 6), (11, 8), {"kernel_size": 4, "stride": 2, "padding": 1}),
    ((70, 6), (11, 8), {"kernel_size": 5, "stride": 3, "padding": 1}),
]
# What the kernel for windows of 3 x 3 takes: tiles whole and cut off, and channels beyond whole vectors
SQUARE = [
    ((channels_in, channels_out), size, {"kernel_size": 3, "padding": padding})
    for channels_in, channels_out, size, padding in [
        (16, 17, (1, 1), 1), (17, 16, (2, 2), 1), (243, 17, (3, 2), 1), (35, 48, (5, 3), 1), (16, 243, (7, 5), 0),
        (19, 16, (17, 7), 1), (16, 16, (3, 4), 2),
    ]
]  # fmt: skip
CASES = [(method, *case) for method in ("kernel", "instantiate") for case in CONVOLUTIONS]
CASES += [("winograd", *case) for case in SQUARE]


def after(convolution: nn.Conv2d, size: tuple[int, int]) -> tuple[Objective, Tensor, Tensor]:
    """A network that begins with this convolution, and five examples."""
    network = nn.Sequential(convolution, nn.Tanh(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.LazyLinear(10))
    inputs = torch.randn(5, convolution.in_channels, *size)
    network(inputs)
    return Objective(network, spread()), inputs, torch.tensor([0, 1, 5, 9, 9])


@pytest.mark.parametrize(("method", "channels", "size", "window"), CASES)
def test_every_method_on_odd_convolutions(
    method: str, channels: tuple[int, int], size: tuple[int, int], window: dict[str, Any], monkeypatch
) -> None:
    """Each method, forced on each geometry."""
    if method != "instantiate" and not usable(torch.zeros(1), Geometry(1, 1, (1, 1), (1, 1))):
        pytest.skip("no C++ compiler")
    torch.manual_seed(0)

    def forced(shape: Geometry, compiled: Collection[str]) -> str:
        assert method in (*compiled, "instantiate") or shape.kernel == (1, 1)
        return "linear" if choose(shape, compiled) == "linear" else method

    monkeypatch.setattr("runner.gradients.terms.choose", forced)
    assert_exact(*after(nn.Conv2d(*channels, **window), size), 1e-5)


def test_sums_by_several_threads_are_exact(kernels: str) -> None:
    torch.manual_seed(0)
    objective, inputs, targets = after(nn.Conv2d(17, 33, 3, padding=1), (9, 6))
    try:
        torch.set_num_threads(3)
        assert_exact(objective, inputs, targets, 1e-5)
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("method", ["kernel", "winograd", "instantiate"])
def test_the_norm_of_a_large_layer_counts_its_small_numbers(method: str) -> None:
    """Squares below the rounding of the first ones: a float32 sum of them all loses 3e-5 of the norm."""
    layer = nn.Conv2d(256, 512, 3, bias=False)
    a, g = torch.full((2, 3, 3, 256), 1.5e-4), torch.ones(2, 1, 1, 512)
    a[:, 0, 0, 0] = 1
    shape = geometry(layer, a.permute(0, 3, 1, 2), g.permute(0, 3, 1, 2))
    if method not in (*usable(a, shape), "instantiate"):
        pytest.skip("no C++ compiler")
    terms = METHODS[method](a, g, shape, False)
    factors = torch.tensor([1.0, 0])
    expected = terms.weighted_sum("weight", factors, factors == 0).double().norm().item()
    assert terms.squared("weight").double().sqrt().tolist() == pytest.approx([expected] * 2, rel=2e-6)
    assert expected == pytest.approx(math.sqrt(512 * (1 + (9 * 256 - 1) * 1.5e-4**2)), rel=2e-6)


@pytest.mark.parametrize("channels", [(17, 33), (3, 21)])
@pytest.mark.parametrize("padding", [0, 2])
def test_a_norm_is_that_of_the_numbers_that_are_summed(channels: tuple[int, int], padding: int) -> None:
    """To rounding, and an example with a NaN changes no bit of the others, whatever the number of threads."""
    size = (9, 6), (7 + 2 * padding, 4 + 2 * padding)
    shape = Geometry(*channels, *size, (3, 3), padding=(padding, padding))
    for method in usable(torch.zeros(1), shape):
        torch.manual_seed(0)
        a, g = torch.randn(3, 9, 6, channels[0]), torch.randn(3, *size[1], channels[1])
        terms = METHODS[method](a, g, shape, True)
        assert terms.formed is not None
        torch.testing.assert_close(terms.squares.double(), terms.formed.double().square().sum(1), rtol=2e-6, atol=0)
        a[1, 4, 3, 0] = torch.nan
        try:
            torch.set_num_threads(3)
            broken = METHODS[method](a, g, shape, True)
        finally:
            torch.set_num_threads(1)
        assert broken.formed is not None
        assert broken.squares[1].isnan()
        assert torch.equal(broken.formed[[0, 2]], terms.formed[[0, 2]])
        assert torch.equal(broken.squares[[0, 2]], terms.squares[[0, 2]])


@pytest.mark.parametrize("count", [64, 200])
def test_slices_of_many_examples(count: int, kernels: str, monkeypatch) -> None:
    """In one slice, and in slices of 64, the sum equals the isolated engine's."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(48, 5), nn.Tanh(), nn.Linear(5, 10))
    objective = Objective(network, spread())
    inputs, targets = torch.randn(count, 1, 6, 6), torch.arange(count) % 10
    expected = gradient_sum(Flat(NORM), MappedEngine(objective), inputs, targets, count)
    for per_slice in (count, 64):
        monkeypatch.setattr(engine_module, "examples_per_slice", lambda *_, per_slice=per_slice: per_slice)
        computed = gradient_sum(Flat(NORM), OnePassEngine(objective), inputs, targets, count)
        assert error(computed.gradients, expected.gradients) < 1e-5
        torch.testing.assert_close(computed.norms, expected.norms, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("network", "shape", "bad"),
    [
        (small_cnn([1, 28, 28], 10, nn.Tanh, [16, 32], 32, 3), [1, 28, 28], math.nan),
        (all_convolutional([3, 16, 16], 10, nn.Tanh, [32, 64, 128]), [3, 16, 16], math.inf),
    ],
    ids=["small_cnn", "all_convolutional"],
)
def test_a_broken_example_contributes_zero(network: nn.Module, shape: list[int], bad: float, kernels: str) -> None:
    torch.manual_seed(0)
    objective = Objective(network, spread())
    inputs, targets = torch.randn(6, *shape), torch.tensor([1, 2, 5, 6, 8, 9])
    names = [name for name, _ in objective.named_parameters()]
    finite = torch.tensor([0, 2, 3, 4])
    expected = OnePassEngine(objective).clipped_sum(inputs[finite], targets[finite], [names], clip)
    inputs[1, 0, 3, 3], inputs[5] = bad, bad
    computed = OnePassEngine(objective).clipped_sum(inputs, targets, [names], clip)
    assert error(computed.gradients, expected.gradients) < 1e-5
    assert computed.norms is not None
    assert torch.isfinite(computed.norms).tolist() == [True, False, True, True, True, False]


@pytest.mark.parametrize("shared", [nn.MaxPool2d(2, 1), nn.ReLU(inplace=True)], ids=lambda m: type(m).__name__)
def test_a_module_that_is_there_twice_counts_twice(shared: nn.Module, kernels: str) -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), shared, nn.MaxPool2d(2), nn.Conv2d(4, 4, 2), shared, nn.Flatten(), nn.LazyLinear(10)]
    network = nn.Sequential(*layers)
    inputs = torch.randn(5, 1, 9, 9)
    network(inputs)
    assert_exact(Objective(network, spread()), inputs, torch.tensor([0, 1, 5, 9, 9]), 1e-5)


def test_an_exchange_that_changes_the_function_is_noticed(capsys, monkeypatch) -> None:
    monkeypatch.setattr(engine_module, "faster", lambda objective: Objective(objective.network[:2], objective.loss))
    objective = Objective(nn.Sequential(nn.Flatten(), nn.Linear(4, 10), nn.Tanh()), spread())
    names = [name for name, _ in objective.named_parameters()]
    inputs, targets = torch.randn(3, 1, 2, 2), torch.tensor([1, 2, 3])
    computed = OnePassEngine(objective).clipped_sum(inputs, targets, [names], clip)
    assert "not those of its layers" in capsys.readouterr().err
    assert error(computed.gradients, clipped_sum(per_example(objective, inputs, targets), NORM)) < 1e-5


class CalledTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(8, 8), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layer(self.layer(x).tanh()).tanh())


class FoldsExamples(nn.Module):
    """Rows of the layer are not examples."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.reshape(-1, 4)).view(-1, 2, 10).sum(1)


FALLBACKS = {
    "LayerNorm": lambda: nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 10)),
    "in groups": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 2, 2)), nn.Conv2d(2, 4, 2, padding=1, groups=2), nn.Flatten(), nn.Linear(36, 10)
    ),
    "called twice": CalledTwice,
    "one row an example": FoldsExamples,
    "used outside its layer": lambda: ScaledByItsWeight(8, 10),
}


@pytest.mark.parametrize("reason", FALLBACKS)
def test_what_it_does_not_cover_is_given_to_another(reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    objective = Objective(FALLBACKS[reason](), spread())
    inputs, targets = torch.randn(4, 8), torch.tensor([1, 5, 6, 9])
    names = [name for name, _ in objective.named_parameters()]
    original = copy.deepcopy(objective)
    engine = OnePassEngine(objective)
    computed = engine.clipped_sum(inputs, targets, [names], clip)
    assert error(computed.gradients, clipped_sum(per_example(original, inputs, targets), NORM)) < 1e-5
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert reason in printed


@pytest.mark.parametrize(("answers", "falls_back"), [("01111", False), ("0101", True)])
def test_a_slope_that_rounding_chooses_changes_no_engine(answers: str, falls_back: bool, monkeypatch) -> None:
    """As of max-pooling at nearly equal numbers: then autograd has to agree at all of three examples nearby."""
    compared = []

    def is_gradient(_: Objective, example: Tensor, *others: Any) -> bool:
        compared.append(example)
        return answers[len(compared) - 1] == "1"

    monkeypatch.setattr("runner.gradients.terms.is_gradient", is_gradient)
    objective, inputs = Objective(nn.Linear(8, 10), spread()), torch.randn(4, 8)
    engine = OnePassEngine(objective)
    engine.clipped_sum(inputs, torch.tensor([1, 5, 6, 9]), [["network.weight", "network.bias"]], clip)
    assert (engine._fallback is not None) == falls_back
    assert torch.equal(compared[0], inputs[:1])
    assert falls_back or torch.equal(compared[4], inputs[1:2])
    for near in compared[1:3]:
        assert 1e-4 < error({"": near}, {"": inputs[:1]}) < 1e-2


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


def test_the_cheapest_method_is_chosen_by_the_geometry() -> None:
    both = ("kernel", "winograd")
    large, small = (Geometry(32, 32, (size, size), (size, size), (3, 3), padding=(1, 1)) for size in (32, 4))
    chosen = [choose(large, ()), choose(large, ("kernel",)), choose(large, both), choose(small, both)]
    assert chosen == ["instantiate", "kernel", "winograd", "kernel"]
    assert choose(Geometry(2048, 128, (1, 1), (1, 1)), ()) == "linear"


def test_what_draws_at_random_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    """Norms belong to the drawn numbers, so every example is clipped all the same."""
    torch.manual_seed(0)
    objective = Objective(nn.Sequential(nn.Linear(8, 64), nn.Dropout(), nn.Linear(64, 10)), spread())
    names = [name for name, _ in objective.named_parameters()]
    computed = OnePassEngine(objective).clipped_sum(torch.randn(4, 8), torch.tensor([1, 5, 6, 9]), [names], clip)
    assert computed.norms is not None
    assert computed.norms.shape == (4,)
    assert "by itself" in capsys.readouterr().err


PLAIN = nn.CrossEntropyLoss(reduction="none")
OF_IMAGES: dict[type[nn.Module], Callable[[], nn.Module]] = {
    nn.MaxPool2d: lambda: nn.MaxPool2d(2, 1),
    nn.AvgPool2d: lambda: nn.AvgPool2d(2),
    nn.AdaptiveAvgPool2d: lambda: nn.AdaptiveAvgPool2d(2),
    nn.GroupNorm: lambda: nn.GroupNorm(2, 4),
    nn.Conv2d: lambda: nn.Conv2d(4, 4, 3, padding=1),
    nn.Linear: lambda: nn.Linear(6, 6),
    nn.Threshold: lambda: nn.Threshold(0.1, 0.0),
    nn.Sequential: lambda: nn.Sequential(nn.Tanh()),
    nn.Flatten: lambda: nn.Sequential(nn.Flatten(2), nn.Tanh()),
    nn.Dropout: lambda: nn.Dropout(0.0),  # random numbers would not be the same in two batches
}


@pytest.mark.parametrize("kind", sorted(KNOWN - {nn.CrossEntropyLoss}, key=lambda kind: kind.__name__))
def test_every_known_type_keeps_examples_apart(kind: type[nn.Module]) -> None:
    """The sums of a batch are as the isolated engine's, and removing an example moves them by C."""
    torch.manual_seed(0)
    before = nn.Sequential(nn.Conv2d(1, 4, 3), OF_IMAGES.get(kind, kind)())
    last = nn.Linear(before(torch.zeros(1, 1, 8, 8)).numel(), 3)
    objective = Objective(nn.Sequential(before, nn.Flatten(), last), PLAIN)
    assert unknown(objective) is None
    engine = ENGINES["one_pass"](objective)
    assert isinstance(engine, OnePassEngine)
    inputs, targets = 3 * torch.randn(5, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1])
    total_of_all = gradient_sum(Flat(0.01), engine, inputs, targets, 8).gradients
    isolated = gradient_sum(Flat(0.01), MappedEngine(objective), inputs, targets, 8).gradients
    for name, total in total_of_all.items():
        torch.testing.assert_close(total, isolated[name], rtol=1e-3, atol=1e-7)
    without_first = gradient_sum(Flat(0.01), engine, inputs[1:], targets[1:], 8).gradients
    assert distance(total_of_all, without_first) == pytest.approx(0.01, rel=1e-3)


class OwnTanh(nn.Tanh):
    pass


def changed(module: nn.Module, name: str, value: object) -> nn.Module:
    """Return the module with an attribute set."""
    setattr(module, name, value)
    return module


def hooked(kind: str) -> nn.Module:
    module = nn.Conv2d(4, 4, 1)
    if kind == "weight":
        module.weight.register_hook(lambda g: g)
    else:
        getattr(module, f"register_{kind}_hook")(lambda *args: None)
    return module


def centred(x: Tensor) -> Tensor:
    return x - x.mean(0)


UNKNOWN: dict[str, Callable[[], nn.Module]] = {
    "a subclass": OwnTanh,
    "its own forward": lambda: changed(nn.Tanh(), "forward", centred),
    "a forward hook": lambda: hooked("forward"),
    "a forward pre-hook": lambda: hooked("forward_pre"),
    "a backward hook": lambda: hooked("full_backward"),
    "a hook on a weight": lambda: hooked("weight"),
    "a parametrisation": lambda: nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 1)),
    "batch normalisation": lambda: nn.BatchNorm2d(4),
    "examples joined": lambda: nn.Sequential(nn.Flatten(0), nn.Identity()),
    "a graph": lambda: torch.fx.symbolic_trace(nn.Sequential(nn.Tanh())),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_is_not_exactly_known_is_mapped(case: str) -> None:
    objective = Objective(nn.Sequential(nn.Conv2d(1, 4, 3), UNKNOWN[case](), nn.Flatten(), nn.LazyLinear(3)), PLAIN)
    assert unknown(objective)
    if "joined" not in case:
        objective(torch.zeros(2, 1, 8, 8), torch.zeros(2).long())  # gives the last layer its shape
    assert isinstance(ENGINES["one_pass"](objective), MappedEngine)


def test_what_changes_all_modules_makes_them_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    objective = Objective(nn.Sequential(nn.Flatten(), nn.Tanh()), PLAIN)
    hook = nn.modules.module.register_module_forward_hook(lambda module, inputs, output: centred(output))
    assert unknown(objective)
    hook.remove()
    assert unknown(objective) is None
    monkeypatch.setattr(nn.Tanh, "forward", lambda self, x: centred(x))
    assert unknown(objective)


@pytest.mark.parametrize("mixing", [layers.Residual(nn.Flatten()), Branches(nn.Flatten(), nn.Identity())])
def test_branches_of_different_shapes_are_refused(mixing: nn.Module) -> None:
    """[batch, 1, n] + [batch, n] would be [batch, batch, n], in which examples are mixed."""
    with pytest.raises(ValueError, match="shapes have to"):
        mixing(torch.zeros(2, 1, 64))
