"""Backpropagation clipping: an adversary against its sensitivity, a float64 reference one example at a time."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from runner.clipping import Backprop, BackpropOfMeanLoss, gradient_sum
from runner.clipping import backprop as module
from runner.clipping.backprop import clip_rows, clip_rows_backward, clip_upstream, example_norms
from runner.gradients import Objective
from runner.gradients.interface import OrdinaryPass
from runner.networks.architectures import small_cnn
from tests.failing import ScaledByItsWeight
from tests.gradients.test_one_pass import CalledTwice, FoldsExamples
from tests.references import Upstream, distance, norm

A, B = 1.5, 0.3
PLAIN = nn.CrossEntropyLoss(reduction="none")


def contribution(layer: nn.Module, clipping: Backprop, x: Tensor, u: Tensor) -> Tensor:
    """One example's contribution to a layer's weight and bias, flat: what the strategy itself computes."""
    objective = Objective(copy.deepcopy(layer), Upstream())
    computed = clipping.sum_contributions(OrdinaryPass(objective), x[None], u[None])
    return torch.cat([g.flatten() for g in computed.gradients.values()])


def bound(layer: nn.Module, clipping: Backprop) -> float:
    (group,) = clipping.noise_groups(nn.Sequential(layer))
    return group.sensitivity


LAYERS = {
    "linear": (lambda: nn.Linear(7, 5, bias=False), (7,)),
    "linear with bias": (lambda: nn.Linear(7, 5), (7,)),
    "1x1": (lambda: nn.Conv2d(3, 4, 1, bias=False), (3, 5, 5)),
    "valid": (lambda: nn.Conv2d(2, 3, 3, bias=False), (2, 7, 7)),
    "padded": (lambda: nn.Conv2d(2, 3, 4, padding=3, bias=False), (2, 6, 6)),
    "strided": (lambda: nn.Conv2d(1, 4, 8, stride=2, padding=3), (1, 14, 14)),
    "dilated": (lambda: nn.Conv2d(2, 3, 3, padding=2, dilation=2), (2, 6, 6)),
    "oblong": (lambda: nn.Conv2d(2, 3, (1, 4), stride=(2, 1), padding=(0, 2)), (2, 5, 6)),
    "groups": (lambda: nn.Conv2d(4, 6, 3, padding=1, groups=2), (4, 5, 5)),
}


def adversary(layer: nn.Module, shape: tuple[int, ...], convolution_norm: str, steps: int = 60) -> tuple[float, float]:
    """Return the largest ratios of a contribution to its bound, computed by the strategy itself.

    Inputs and upstream gradients are random, constant, one-hot, or found by gradient ascent on the reference below. The
    ascent is on ||g|| / (|x| |||u|||), in closed form, because the clipping of lengths cannot help the adversary.
    """
    clipping = Backprop(A, B, convolution_norm)
    layer = layer.double()
    out = layer(torch.zeros(1, *shape, dtype=torch.float64)).shape[1:]
    limit = bound(layer, clipping)
    by_channel = isinstance(layer, nn.Conv2d) and convolution_norm == "l1_l2"
    largest = {"tried": 0.0, "optimised": 0.0}

    def tried(kind: str, x: Tensor, u: Tensor) -> None:
        for scale in (1e-3, 1.0, 1e3):
            got = contribution(layer, clipping, x.detach() * scale, u.detach() * scale).norm().item() / limit
            largest[kind] = max(largest[kind], got)

    def unit(x: Tensor, l1: bool) -> Tensor:
        return x / example_norms(x[None], l1)

    torch.manual_seed(0)
    x, u = torch.randn(*shape, dtype=torch.float64), torch.randn(*out, dtype=torch.float64)
    hot_x, hot_u = torch.zeros_like(x), torch.zeros_like(u)
    hot_x.view(-1)[x.abs().argmax()], hot_u.view(-1)[u.abs().argmax()] = 1, 1
    basis = torch.zeros(out, dtype=torch.float64)
    basis[(0, *(size // 2 for size in out[1:]))] = 1  # one output, and the input that it alone reads
    (read,) = torch.autograd.grad(layer(x.requires_grad_()[None]), x, basis[None])
    x = x.detach()
    pairs = [(x, u), (torch.ones_like(x), torch.ones_like(u)), (hot_x, hot_u), (x, hot_u), (hot_x, u), (read, basis)]
    for pair in pairs:
        tried("tried", *pair)
    x.requires_grad_(), u.requires_grad_()
    ascent = torch.optim.Adam([x, u], lr=0.1)
    for _ in range(steps):
        ascent.zero_grad()
        scaled = A * unit(x, False)
        output = layer(scaled[None])
        upstream = B * unit(u, by_channel)[None]
        gradients = torch.autograd.grad(output, list(layer.parameters()), upstream, create_graph=True)
        norm = torch.cat([g.flatten() for g in gradients]).norm()
        (-norm).backward()
        ascent.step()
    tried("optimised", x, u)
    return largest["tried"], largest["optimised"]


EACH = [(name, "l1_l2") for name in LAYERS] + [(name, "l2") for name in ("1x1", "padded", "groups")]


@pytest.mark.parametrize(("name", "convolution_norm"), EACH)
def test_no_adversary_exceeds_the_sensitivity(name: str, convolution_norm: str) -> None:
    build, shape = LAYERS[name]
    layer = build()
    if convolution_norm == "l2" and isinstance(layer, nn.Conv2d):
        layer.bias = None
    tried, optimised = adversary(layer, shape, convolution_norm)
    assert max(tried, optimised) <= 1 + 1e-9
    # The bound is used: under a halved one, and so under halved noise, the same adversary would win.
    tight = convolution_norm == "l1_l2" or isinstance(layer, nn.Linear)
    assert max(tried, optimised) > (0.999 if tight else 0.35)  # sqrt(kh kw) is reached on large maps: see below
    assert optimised > (0.99 if isinstance(layer, nn.Linear) else 0.35)


def test_the_plain_norm_needs_its_factor() -> None:
    """A constant image and upstream gradient: with l2 alone ||g|| is near sqrt(kh kw) a b, far above a b."""
    layer = nn.Conv2d(1, 1, 5, bias=False)
    clipping = Backprop(A, B, "l2")
    assert bound(layer, clipping) == pytest.approx(5 * A * B)
    got = contribution(layer, clipping, torch.ones(1, 60, 60), torch.ones(1, 56, 56)).norm().item()
    assert 4.5 * A * B < got <= 5 * A * B


def test_stated_sensitivities() -> None:
    assert bound(nn.Linear(3, 2, bias=False), Backprop(2.0, 0.5)) == pytest.approx(1.0)
    assert bound(nn.Linear(3, 2), Backprop(2.0, 0.5)) == pytest.approx(0.5 * math.sqrt(5))
    assert bound(nn.Conv2d(3, 2, (2, 8), bias=False), Backprop(2.0, 0.5, "l2")) == pytest.approx(4.0)
    groups = Backprop(2.0, 0.5).noise_groups(small_cnn([1, 28, 28], 10, nn.ReLU, [16, 32], 32, 0))
    assert [g.parameters for g in groups] == [(f"{n}.weight", f"{n}.bias") for n in ("0", "3", "7", "9")]


def cnn(bias: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 4, stride=2, padding=1, bias=bias),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(4, 5, 3, bias=bias),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(45, 6, bias=bias),
        nn.ReLU(),
        nn.Linear(6, 10, bias=bias),
    )


def example_by_hand(network: nn.Sequential, x: Tensor, y: Tensor, c: Backprop, weight: float = 1.0) -> list[Tensor]:
    """One example, in float64, layer by layer: the definition, with autograd for one layer's own derivatives only."""
    befores, current = [], x[None]  # what each layer is given, before it is clipped
    for layer in network:
        befores.append(current)
        if any(True for _ in layer.parameters()):
            current = current * min(1.0, c.input_bound / max(float(current.norm()), 1e-300))
        current = layer(current).detach()
    logits = current.requires_grad_()
    (upstream,) = torch.autograd.grad(nn.functional.cross_entropy(logits, y[None]) * weight, logits)
    gradients: list[Tensor] = []
    for layer, before in reversed(list(zip(network, befores, strict=True))):
        parameters = list(layer.parameters())
        before = before.detach().requires_grad_()
        clipped = before
        if parameters:
            if upstream.dim() == 4 and c.convolution_norm == "l1_l2":
                size = math.sqrt(sum(float(channel.abs().sum()) ** 2 for channel in upstream[0]))
            else:
                size = float(upstream.norm())
            upstream = upstream * min(1.0, c.upstream_bound / max(size, 1e-300))
            if float(before.detach().norm()) > c.input_bound:
                clipped = before * c.input_bound / before.norm()
        upstream, *contribution = torch.autograd.grad(layer(clipped), [before, *parameters], upstream)
        gradients = [*contribution, *gradients]
    return gradients


@pytest.mark.parametrize("bounds", [(0.8, 0.02), (50.0, 10.0)])
@pytest.mark.parametrize("norm", module.NORMS)
def test_matches_float64_reference_one_example_at_a_time(kernels: str, norm: str, bounds: tuple[float, float]) -> None:
    """The sum in physical batches of several sizes, and of a mean loss, whose rows have an eighth of the weight."""
    clipping, network = Backprop(*bounds, norm), cnn()
    engine = OrdinaryPass(Objective(network, PLAIN))
    inputs, targets = torch.randn(8, 1, 12, 12) * torch.logspace(-2, 1, 8)[:, None, None, None], torch.arange(8)
    exact = copy.deepcopy(network).double()
    for strategy, weight, physical_batches in (
        (clipping, 1.0, (1, 3, 8)),
        (BackpropOfMeanLoss(clipping, 8), 1 / 8, (3,)),
    ):
        examples = zip(inputs.double(), targets, strict=True)
        contributions = [example_by_hand(exact, x, y, clipping, weight) for x, y in examples]
        for physical_batch in physical_batches:
            computed = gradient_sum(strategy, engine, inputs, targets, physical_batch).gradients
            for got, parts in zip(computed.values(), zip(*contributions, strict=True), strict=True):
                wanted = torch.stack(parts).sum(0)
                assert (got.double() - wanted).norm() <= 1e-5 * wanted.norm()


def test_the_network_is_left_as_it_was() -> None:
    objective = Objective(cnn(), PLAIN)
    inputs, targets = torch.randn(3, 1, 12, 12), torch.arange(3)
    before = objective(inputs, targets)
    Backprop(0.1, 0.1).sum_contributions(OrdinaryPass(objective), inputs, targets)
    assert torch.equal(objective(inputs, targets), before)
    with pytest.raises(RuntimeError):
        Backprop(0.1, 0.1).sum_contributions(OrdinaryPass(objective), inputs[:, :, :5, :5], targets)
    assert torch.equal(objective(inputs, targets), before)


@pytest.mark.parametrize("scale", [0.0, 1e18, math.inf, math.nan])
@pytest.mark.parametrize("where", ["input", "loss"])
def test_one_example_moves_the_sum_by_at_most_the_sensitivity(kernels: str, where: str, scale: float) -> None:
    """Add-or-remove-one neighbours, through the whole altered backward pass, layer by layer."""

    class Scaled(nn.Module):
        def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
            return logits[:, 0] * torch.tensor([1.0, scale if where == "loss" else 1.0])[targets]

    objective = Objective(cnn(), Scaled())
    inputs, targets = torch.randn(4, 1, 12, 12), torch.tensor([0, 0, 0, 1])
    if where == "input":
        inputs[3] *= scale
    clipping, engine = Backprop(0.5, 0.01), OrdinaryPass(objective)
    with_it = clipping.sum_contributions(engine, inputs, targets).gradients
    without = clipping.sum_contributions(engine, inputs[:3], targets[:3]).gradients
    for group in clipping.noise_groups(objective):
        moved = distance(with_it, without, group.parameters)
        assert moved <= group.sensitivity * (1 + 1e-4)  # which no infinity or NaN is
    if where == "loss" and scale == 1e18:
        assert moved > 0.5 * group.sensitivity  # of the last layer


def test_what_reads_a_hidden_output_reads_it_past_the_clip(kernels: str) -> None:
    """A loss that takes pre-activations (LosingLess): its gradient into a layer is clipped with the rest."""

    class Reads(nn.Module):
        reads_pre_activations = True

        def forward(self, logits: Tensor, targets: Tensor, hidden: list[Tensor]) -> Tensor:
            return logits.sum(1) + 1e6 * sum(h.flatten(1).sum(1) for h in hidden)

    objective = Objective(cnn(), Reads())
    clipping = Backprop(0.5, 0.01)
    computed = clipping.sum_contributions(OrdinaryPass(objective), torch.randn(1, 1, 12, 12), torch.zeros(1).long())
    for group in clipping.noise_groups(objective):
        assert norm(computed.gradients, group.parameters) <= group.sensitivity * (1 + 1e-5)


def test_what_cannot_be_bounded_is_refused() -> None:
    clipping = Backprop(1.0, 1.0)
    for network, message in (
        (nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4)), "GroupNorm"),
        (type("Own", (nn.Linear,), {})(4, 2), "Own"),
        (nn.Conv2d(1, 4, 3, padding=1, padding_mode="replicate"), "padding_mode"),
    ):
        with pytest.raises(ValueError, match=message):
            clipping.noise_groups(nn.Sequential(network))
    tied = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    tied[1].weight = tied[0].weight
    with pytest.raises(ValueError, match=r"1\.weight, which is 0\.weight"):
        clipping.noise_groups(tied)
    with pytest.raises(ValueError, match="bias"):
        replace(clipping, convolution_norm="l2").noise_groups(nn.Sequential(nn.Conv2d(1, 1, 2)))
    again = nn.Conv2d(16, 16, 3, padding=1)  # such as are compiled
    for network, shape, message in (
        (CalledTwice(), (8,), "called twice"),
        (nn.Sequential(again, nn.Tanh(), again, nn.Flatten()), (16, 5, 5), "called twice"),
        (nn.Sequential(nn.Sequential(again), nn.Sequential(again), nn.Flatten()), (16, 5, 5), "called twice"),
        (nn.Sequential(nn.Linear(4, 4), nn.Flatten()), (3, 4), "inputs of shape"),
    ):
        engine = OrdinaryPass(Objective(network, PLAIN))
        with pytest.raises(ValueError, match=message):
            clipping.sum_contributions(engine, torch.randn(2, *shape), torch.zeros(2).long())


def mean_gradient(clipping: Backprop, network: nn.Module, loss: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    rows = BackpropOfMeanLoss(clipping, len(targets))
    computed = rows.sum_contributions(OrdinaryPass(Objective(network, loss)), inputs, targets)
    return torch.cat([g.flatten() for g in computed.gradients.values()])


def test_mean_loss_rows_move_by_almost_twice_the_sensitivity() -> None:
    """n aligned rows of exactly the bound, and one example more, against them: a b is not enough, 2 a b is."""
    network = nn.Sequential(nn.Linear(3, 2, bias=False)).double()
    clipping = Backprop(1.0, 0.1)
    for n in (1, 10, 1000):
        inputs = torch.tensor([[5.0, 0.0, 0.0]], dtype=torch.float64).expand(n + 1, 3)
        upstream = torch.zeros(n + 1, 2, dtype=torch.float64)
        upstream[:n, 0], upstream[n, 0] = 0.1 * n, -1e3  # u / n is b: the rows are at the bound, and fall below it
        before = mean_gradient(clipping, network, Upstream(), inputs[:n], upstream[:n])
        after = mean_gradient(clipping, network, Upstream(), inputs, upstream)
        moved = (after - before).norm().item()
        assert moved == pytest.approx(0.1 * (1 + n / (n + 1)), rel=1e-9)
        assert moved < 2 * 0.1


def test_mean_loss_rows_move_by_less_than_twice_the_sensitivity() -> None:
    """The induction over a chain of layers, on random batches with rows on both sides of the bound."""
    for seed in range(8):
        torch.manual_seed(seed)
        network = cnn(bias=bool(seed % 2)).double()
        n = int(torch.randint(1, 30, ()))
        inputs, targets = 3 * torch.randn(n + 1, 1, 12, 12, dtype=torch.float64), torch.arange(n + 1) % 10
        clipping = Backprop(1.0, 10 ** float(torch.empty(()).uniform_(-3.5, -0.5)))
        engine = OrdinaryPass(Objective(network, PLAIN))
        sums = [
            BackpropOfMeanLoss(clipping, m).sum_contributions(engine, inputs[:m], targets[:m]).gradients
            for m in (n, n + 1)
        ]
        for group in clipping.noise_groups(engine.objective):
            assert distance(*sums, group.parameters) < 2 * group.sensitivity


@pytest.mark.parametrize(
    ("shape", "layout"),
    [((4, 22, 23), torch.channels_last), ((64, 64, 64), torch.contiguous_format), ((256, 21, 21), torch.channels_last)],
)
@pytest.mark.parametrize("l1_over_space", [False, True])
def test_norms_of_many_small_entries_are_not_lost(shape, layout, l1_over_space: bool) -> None:
    """One float32 sum over a large entry and many small ones would lose up to a part in 1,000 of the norm."""
    x = torch.full((1, *shape), 2.3e-4)
    x[0, 0, 0, 0] = 1.0
    x = x.to(memory_format=layout)
    exact = x.double().abs().sum((2, 3)).norm() if l1_over_space else x.double().norm()
    assert example_norms(x, l1_over_space).item() == pytest.approx(exact.item(), rel=1e-5)


def test_a_layer_on_other_rows_than_one_an_example_is_refused() -> None:
    objective = Objective(FoldsExamples(), PLAIN)
    with pytest.raises(ValueError, match="cannot bound"):
        Backprop(1.0, 1.0).sum_contributions(OrdinaryPass(objective), torch.randn(4, 8), torch.arange(4))


def test_a_weight_outside_its_layer_leaves_the_gradient_bounded() -> None:
    objective = Objective(ScaledByItsWeight(8, 10, bias=False), PLAIN)
    clipping = Backprop(1.0, 1e-3)
    for target in range(10):
        x = 100 * torch.randn(1, 8)
        computed = clipping.sum_contributions(OrdinaryPass(objective), x, torch.tensor([target]))
        assert computed.gradients["network.layer.weight"].norm() <= 1e-3 * (1 + 1e-5)
    assert all(p.requires_grad for p in objective.parameters())


def test_a_mean_loss_row_counts_alike_for_all_batch_sizes() -> None:
    """A row whose norm overflows in float32 must count, or not, whatever the number of examples."""
    sums = []
    for n in (64, 65):
        network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False), nn.Linear(2, 2, bias=False))
        for p in network.parameters():
            p.data.fill_(1.19e21)
        network[2].weight.data[1].neg_()
        objective = Objective(network, SquaredSum())
        x, y = torch.ones(n, 1, 2, 2), torch.zeros(n, dtype=torch.long)
        computed = BackpropOfMeanLoss(Backprop(1.0, 1.0), n).sum_contributions(OrdinaryPass(objective), x, y)
        sums.append(torch.cat([g.flatten() for g in computed.gradients.values()]))
    assert (sums[0] - sums[1]).norm() < 2 * math.sqrt(2)


class SquaredSum(nn.Module):
    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return logits.sum(1)


SHAPES = [(1,), (63,), (64,), (2049,), (3, 1, 1), (16, 9, 11), (5, 40, 41), (130, 2, 2)]


def rows(shape: tuple[int, ...], seed: int) -> Tensor:
    """Six examples of very different sizes, and one of zeros."""
    generator = torch.Generator().manual_seed(seed)
    scale = torch.tensor([1e-12, 1e-3, 0.1, 1.0, 30.0, 1e6, 0.0])
    x = torch.randn(7, *shape, generator=generator) * scale.view(-1, *[1] * len(shape))
    return x / math.sqrt(math.prod(shape))


def norms(x: Tensor, l1_over_space: bool = False) -> Tensor:
    x = x.double()
    return x.abs().sum((2, 3)).norm(dim=1) if l1_over_space else x.flatten(1).norm(dim=1)


def defined(x: Tensor, bound: float, l1_over_space: bool = False) -> Tensor:
    """x min(1, bound / norm), with a derivative where the norm is zero, too."""
    computed = norms(x, l1_over_space).view(-1, *[1] * (x.dim() - 1))
    return x.double() * torch.where(computed > bound, bound / computed.clamp(min=1e-300), 1.0)


def close(computed: Tensor, expected: Tensor, tolerance: float = 1e-6) -> None:
    """Row by row, by the norm of what differs."""
    assert computed.dtype is torch.float32
    difference, size = ((a - b).flatten(1).norm(dim=1) for a, b in ((computed.double(), expected), (expected, 0)))
    assert (difference <= tolerance * size).all(), (difference / size, size)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_clipped_rows_their_gradient_and_upstream_gradients(shape: tuple[int, ...]) -> None:
    """Layouts alternate from shape to shape; one in three has gaps between its numbers."""
    x, g = rows(shape, 0), rows(shape, 1).flip(0)
    if SHAPES.index(shape) % 3 == 0:
        x, g = (torch.stack([t, t + 1], dim=-1)[..., 0] for t in (x, g))
    elif SHAPES.index(shape) % 2 and len(shape) == 3:
        x, g = (t.contiguous(memory_format=torch.channels_last) for t in (x, g))
    before = x.clone(), g.clone()
    for bound in (1e-9, 0.5, 1e9):
        y, factors = clip_rows(x, bound)
        close(y, defined(x, bound))
        assert (norms(y) <= bound * (1 + 1e-6)).all()
        assert (factors[norms(x) <= bound * (1 - 1e-6)] == 1).all()
        exact = x.double().requires_grad_()
        (expected,) = torch.autograd.grad(defined(exact, bound), exact, g.double())
        computed = clip_rows_backward(y, factors, g, bound)
        # What is left after the part along y is taken away may be small: compared with what there was.
        scale = g.double().flatten(1).norm(dim=1) * factors.double()
        assert ((computed.double() - expected).flatten(1).norm(dim=1) <= 3e-6 * scale).all()
        for l1_over_space in (False, True) if len(shape) > 1 else (False,):
            computed = clip_upstream(x, bound, l1_over_space)
            close(computed, defined(x, bound, l1_over_space))
            assert (norms(computed, l1_over_space) <= bound * (1 + 1e-6)).all()
    assert torch.equal(x, before[0])
    assert torch.equal(g, before[1])


@pytest.mark.parametrize("size", [1e17, 1.8e19, 1e20, 3e38])
@pytest.mark.parametrize("bound", [1e-12, 2.56e-5, 1.0])
@pytest.mark.parametrize("l1_over_space", [False, True])
def test_huge_rows_stay_within_the_bound(l1_over_space: bool, bound: float, size: float) -> None:
    """Their factors are next to the smallest numbers that float32 has; above 1.8e19 the row counts as broken."""
    u = torch.zeros(2, 2, 2, 2)
    u[0, 0, 0, 0], u[1] = size, 0.1
    computed = clip_upstream(u, bound, l1_over_space)
    assert computed[0].norm() <= bound * (1 + 1e-6)
    assert (computed[0] == 0).all() or size < 1.9e19
    close(computed[1:], defined(u[1:], bound, l1_over_space))


@pytest.mark.parametrize("bad", [math.nan, -math.inf, 1e25])
@pytest.mark.parametrize("l1_over_space", [False, True])
def test_rows_without_finite_norm_are_zero_and_others_untouched(bad: float, l1_over_space: bool) -> None:
    x = torch.randn(5, 6, 7, 8)
    x[2, 3, 4, 5] = bad
    finite = [0, 1, 3, 4]
    computed = clip_upstream(x, 0.5, l1_over_space)
    assert (computed[2] == 0).all()
    close(computed[finite], defined(x[finite], 0.5, l1_over_space))
    assert torch.isfinite(computed).all()
    y, factors = clip_rows(x, 0.5)
    assert (y[2] == 0).all()
    close(y[finite], defined(x[finite], 0.5))
    assert torch.isfinite(factors).all()
