"""Bounds on gradients: never passed by any weights, input and label found, and reached where layers are linear."""

import math
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from runner.networks.lipschitz import Spectral, architectures, gradient_bounds, layers, losses
from runner.networks.lipschitz.architectures import _linear as linear
from runner.networks.objective import InputBound, Objective

KR = losses.KantorovichRubinstein()
CLASSES = 3


def network(name: str, bias: bool) -> nn.Sequential:
    """Build a small network. For "mixer", `bias` is with skips."""
    if name == "strided":  # windows that overlap in one direction alone, and a pooling that leaves a rim out
        layer = nn.Conv2d(1, 4, (3, 2), stride=(2, 2), padding=(1, 0), bias=bias)
        return nn.Sequential(layer, nn.AvgPool2d(2), layers.GroupSort2(), nn.Flatten(), nn.Linear(4, CLASSES, bias))
    build, *more = {
        "mlp": (architectures.lipschitz_mlp, [8, 6], bias),
        "mixer": (architectures.lipschitz_mixer, 2, 4, 4, 6, 1, bias),
        "cnn": (architectures.lipschitz_cnn, [2, 4], 6, 1, bias, True, bias),
        "vgg": (architectures.lipschitz_vgg, 2, 1, bias),
        "resnet": (architectures.lipschitz_resnet, 2, [1, 1], bias),
    }[name]
    return build(NETWORKS[name][0], CLASSES, layers.GroupSort2, *more)


NETWORKS = {  # the shape of an input, and the largest ratio to a bound that some tensor reaches at least
    "mlp": ((1, 2, 3), 0.99),
    "mixer": ((1, 4, 4), 0.99),
    "cnn": ((1, 8, 8), 0.25),
    "vgg": ((1, 8, 8), 0.1),
    "resnet": ((1, 8, 8), 0.1),
    "strided": ((1, 5, 6), 0.7),
}


def objective(network: nn.Module, shape: tuple[int, ...], loss: nn.Module = KR, norm: float = 1.5) -> Objective:
    return Objective(network, loss, InputBound(shape, norm), Spectral(bias_radius=0.5)).double()


class _SmoothPool(nn.Module):
    """An L2 pooling as autograd differentiates it, as often as one likes."""

    def __init__(self, size: int | None) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        if self.size is None:
            return x.square().sum((2, 3)).sqrt()
        return (nn.functional.avg_pool2d(x.square(), self.size) * self.size**2).sqrt()


def smooth_pools(module: nn.Module) -> nn.Module:
    """The module with its poolings exchanged."""
    if isinstance(module, layers.L2Pool2d):
        return _SmoothPool(module.kernel_size)
    if isinstance(module, layers.GlobalL2Pool):
        return _SmoothPool(None)
    for name, child in module.named_children():
        setattr(module, name, smooth_pools(child))
    return module


def largest_ratios(objective: Objective, bounds: Mapping[str, float], steps: int) -> dict[str, float]:
    """By parameter, the largest norm of its gradient over its bound that Adam finds in `steps` steps, in float64.

    What is ascended is free; what is tried is within the constraint: weights over their spectral norm where that is
    above 1, biases and the input likewise.
    """
    smooth_pools(objective.network)
    assert objective.inputs is not None
    assert objective.inputs.norm is not None
    names = list(bounds)
    ratios = dict.fromkeys(names, 0.0)
    for name in names:
        free = {key: p.detach().clone().requires_grad_() for key, p in objective.named_parameters()}
        example = torch.randn(1, *objective.inputs.shape, dtype=torch.float64, requires_grad=True)
        label = torch.randint(2, (1,))
        ascent = torch.optim.Adam([*free.values(), example], lr=0.1, maximize=True)
        for _ in range(steps):
            weights = {key: _within(p, objective.constraint.bias_radius) for key, p in free.items()}  # type: ignore[union-attr]
            inputs = example / example.norm() * objective.inputs.norm
            loss = functional_call(objective, weights, (inputs, label))
            gradients = torch.autograd.grad(loss.sum(), list(weights.values()), create_graph=True)
            for key, gradient in zip(weights, gradients, strict=True):
                ratios[key] = max(ratios[key], gradient.norm().item() / bounds[key])
            ascended = dict(zip(weights, gradients, strict=True))[name].norm()
            if not ascended.requires_grad:  # the gradient of the last bias depends on the loss alone
                break
            ascent.zero_grad()
            ascended.backward()
            ascent.step()
    return ratios


def _within(values: Tensor, radius: float) -> Tensor:
    if values.dim() == 1:
        return values * (radius / values.norm().clamp_min(1e-9)).clamp(max=1.0)
    return values / torch.linalg.matrix_norm(values.flatten(1), 2).clamp_min(1.0)


@pytest.mark.parametrize(("name", "bias"), [*((name, False) for name in NETWORKS), ("mixer", True)])
def test_no_example_and_no_weights_pass_a_bound(name, bias):
    """Ascent on weights, biases, input and label, in float64, at every tensor's gradient in turn."""
    torch.manual_seed(0)
    shape, reached = NETWORKS[name]
    built = objective(network(name, bias), shape)
    ratios = largest_ratios(built, gradient_bounds(built), steps=60 if name in ("mlp", "mixer") else 20)
    assert max(ratios.values()) <= 1
    assert bias or max(ratios.values()) >= reached, ratios


def test_a_chain_of_linear_layers_reaches_every_bound():
    """Identity weights and an input along the gradient: u x^T has the norm L X in every layer, by hand."""
    chain = nn.Sequential(nn.Linear(CLASSES, CLASSES, False), nn.Identity(), nn.Linear(CLASSES, CLASSES, False))
    built = objective(chain, (CLASSES,), norm=2.0)
    for layer in (chain[0], chain[2]):
        nn.init.eye_(layer.weight)
    loss = built(torch.tensor([[2.0, 0, 0]], dtype=torch.float64), torch.tensor([1]))
    for name, parameter in built.named_parameters():
        (gradient,) = torch.autograd.grad(loss.sum(), parameter, retain_graph=True)
        expected = 2 * math.sqrt(CLASSES / (CLASSES - 1))
        assert gradient.norm().item() == pytest.approx(expected)
        assert gradient_bounds(built)[name] == pytest.approx(expected, rel=1e-4)
        assert gradient_bounds(built)[name] >= expected


def test_bounds_by_hand():
    """A convolution of stride 2 with a bias on its map, a residual, and the norm of what a bias adds."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1),  # m = 2 * 2; 3 x 3 positions of 5 x 5 pixels
        layers.Scale(0.5),
        layers.Residual(nn.Identity()),
        nn.Flatten(),
        nn.Linear(36, CLASSES),
    )
    loss = losses.SharpCrossEntropy(3.0, gradient_bound=0.25)
    bounds = gradient_bounds(objective(network, (1, 5, 5), loss, norm=2.0))
    after = 0.5 * (2 * 2.0 + 3 * 0.5)  # Scale of: sqrt(m) X + sqrt(9) B
    assert bounds == {
        "network.0.weight": pytest.approx(0.25 * 0.5 * 2 * 2.0, rel=1e-4),
        "network.0.bias": pytest.approx(0.25 * 0.5 * 3, rel=1e-4),
        "network.4.weight": pytest.approx(0.25 * after, rel=1e-4),
        "network.4.bias": pytest.approx(0.25, rel=1e-4),
    }


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "reads"), [(3, 1, 1, 9), (3, 2, 1, 4), (4, 4, 0, 1), (5, 2, 2, 9), (2, 3, 0, 1)]
)
def test_a_convolution_is_no_longer_than_its_bound(kernel, stride, padding, reads):
    """The operator's norm by singular values of its whole matrix; some kernel comes near."""
    torch.manual_seed(0)
    largest = 0.0
    for _ in range(3):
        layer = nn.Conv2d(2, 3, kernel, stride, padding, bias=False).double()
        nn.init.orthogonal_(layer.weight)
        columns = torch.eye(2 * 12 * 12, dtype=torch.float64).view(-1, 2, 12, 12)
        largest = max(largest, torch.linalg.matrix_norm(layer(columns).flatten(1), 2).item())
    constant = torch.ones(1, 2, kernel, kernel, dtype=torch.float64)
    layer.weight.data = constant.expand(3, -1, -1, -1) / math.sqrt(3 * constant.numel())
    largest = max(largest, torch.linalg.matrix_norm(layer(columns).flatten(1), 2).item())
    assert 0.6 * math.sqrt(reads) <= largest <= math.sqrt(reads) * (1 + 1e-9)


LOSSES: list[tuple[losses.LipschitzLoss, float]] = [
    (losses.SharpCrossEntropy(1.0), 1.41421),
    (losses.SharpCrossEntropy(32.0), 1.41421),
    (losses.Cosine(0.5), 2.0),
    (losses.Hinge(0.7), 0.94868),
    (losses.KantorovichRubinstein(), 1.05409),
    (losses.HingeKantorovichRubinstein(3.0, 0.7), 3 * 0.948683 + 1.054093),
    (losses.SharpCrossEntropy(10.0, gradient_bound=0.3), 0.3),
    (losses.HingeKantorovichRubinstein(3.0, 0.7, gradient_bound=9.0), 3 * 0.948683 + 1.054093),
]


@pytest.mark.parametrize(
    ("loss", "constant"), LOSSES, ids=lambda v: type(v).__name__ if isinstance(v, nn.Module) else None
)
def test_constants_of_losses_are_reached_and_never_passed(loss, constant):
    torch.manual_seed(0)
    rows = torch.randn(4000, 10, dtype=torch.float64) * torch.logspace(-3, 3, 4000, dtype=torch.float64)[:, None]
    logits = torch.cat([rows, -20 * torch.nn.functional.one_hot(torch.arange(10), 10), torch.zeros(10, 10)])
    logits = logits + torch.cat(
        [torch.zeros(4010, 10), 19 * torch.nn.functional.one_hot((torch.arange(10) + 1) % 10, 10)]
    )
    targets = torch.cat([torch.randint(10, (4000,)), torch.arange(10), torch.arange(10)])
    logits.requires_grad_()
    (slopes,) = torch.autograd.grad(loss(logits, targets).sum(), logits)
    norms = slopes.norm(dim=1)
    assert loss.lipschitz(10) == pytest.approx(constant, abs=1e-5)
    assert 0.999 * constant <= norms.max() <= loss.lipschitz(10) * (1 + 1e-9)


def hooked(register: Callable[[nn.Linear], object]) -> nn.Module:
    layer = linear(4, 2, False)
    register(layer)
    return nn.Sequential(nn.Flatten(), layer)


def replace_forward(layer: nn.Linear) -> None:
    layer.forward = lambda x: 10 * nn.functional.linear(x, layer.weight)  # type: ignore[method-assign]


class Loose(Spectral):
    """A constraint that keeps nothing."""

    def project(self, parameters: object) -> None:
        """Do nothing."""


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "unknown": (lambda: nn.Sequential(nn.Flatten(), nn.GELU(), linear(4, 2, False)), "1: no bound is known for a GELU"),
    "subclass": (lambda: nn.Sequential(nn.Flatten(), type("Own", (nn.Linear,), {})(4, 2)), "no bound .* for a Own"),
    "shared": (lambda: nn.Sequential(nn.Flatten(), *[linear(4, 4, False)] * 2), "shares its weights"),
    "overlapping": (lambda: nn.Sequential(nn.MaxPool2d(2, 1), nn.Flatten(), linear(1, 2, False)), "MaxPool2d"),
    "groups": (lambda: nn.Sequential(nn.Conv2d(1, 2, 1, padding_mode="circular"), nn.Flatten()), "padding other"),
    "divisor": (lambda: nn.Sequential(nn.AvgPool2d(2, divisor_override=1), nn.Flatten()), "AvgPool2d"),
    "hooked": (lambda: hooked(lambda layer: layer.register_forward_hook(lambda *_: None)), "hooks"),
    "hooked back": (lambda: hooked(lambda layer: layer.register_full_backward_pre_hook(lambda *_: None)), "hooks"),
    "hooked at its weights": (lambda: hooked(lambda layer: layer.weight.register_hook(lambda *_: None)), "hooks"),
    "its own way": (lambda: hooked(replace_forward), "another forward pass"),
    "sigmoid": (lambda: nn.Sequential(nn.Flatten(), nn.Sigmoid(), linear(4, 2, False)), "Sigmoid"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_bound_is_refused_by_name(name):
    build, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        gradient_bounds(objective(build(), (1, 2, 2)))


@pytest.mark.parametrize(
    ("loss", "norm", "constraint", "message"),
    [
        (KR, None, Spectral(), "inputs of bounded norm"),
        (KR, 1.0, None, "constraint=spectral"),
        (KR, 1.0, Loose(), "constraint=spectral"),
        (nn.MSELoss(reduction="none"), 1.0, Spectral(), "no Lipschitz constant is known for the loss MSELoss"),
    ],
)
def test_bounds_require_bounded_inputs_weights_and_loss(loss, norm, constraint, message):
    with pytest.raises(ValueError, match=message):
        gradient_bounds(Objective(network("mlp", False), loss, InputBound((1, 2, 3), norm), constraint))


def test_a_pool_is_that_of_autograd():
    """Function and gradient, where windows do not cover the map, and zero for a window of zeros."""
    torch.manual_seed(0)
    images = torch.randn(3, 2, 5, 7, dtype=torch.float64)
    images[0, 0, :2, :2] = 0
    for pool in (layers.L2Pool2d(2), layers.GlobalL2Pool()):
        mine, theirs = images.clone().requires_grad_(), images.clone().requires_grad_()
        pooled, expected = pool(mine), smooth_pools(pool)(theirs)
        weights = torch.randn_like(pooled)
        (gradient,) = torch.autograd.grad((pooled * weights).sum(), mine)
        (reference,) = torch.autograd.grad((expected * weights).sum(), theirs)
        assert torch.allclose(pooled, expected)
        assert torch.allclose(gradient, reference.nan_to_num(0.0))
    assert (pool(images).norm(dim=1) <= images.flatten(1).norm(dim=1) * (1 + 1e-12)).all()
    assert not torch.isnan(gradient).any()


def test_layers_keep_norms_and_slopes():
    """GroupSort2 sorts, Center projects; both never lengthen a difference."""
    x = torch.tensor([[1.0, 5, 3, 2]])
    assert layers.GroupSort2()(x).tolist() == [[3, 5, 1, 2]]
    assert torch.equal(layers.GroupSort2()(x[..., None, None])[..., 0, 0], layers.GroupSort2()(x))
    assert layers.Center()(torch.tensor([[[[1.0, 3]]]])).tolist() == [[[[-1, 1]]]]
    assert layers.Center(over_channels=True)(torch.tensor([[[[1.0]], [[3.0]]]])).tolist() == [[[[-1]], [[1]]]]
    with pytest.raises(ValueError, match="pairs"):
        layers.GroupSort2()(torch.zeros(1, 3))


def test_networks_begin_in_their_constraint():
    for name in list(NETWORKS)[:-1]:
        for parameter in network(name, True).parameters():
            if parameter.dim() > 1:
                assert torch.linalg.matrix_norm(parameter.detach().double().flatten(1), 2) <= 1 + 1e-6
