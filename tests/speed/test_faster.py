"""A network made faster gives the same numbers and the same gradients."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from checks.benchmarks.problems import problem
from runner.clipping import NoClipping, gradient_sum
from runner.gradients import ENGINES, GradientSum
from runner.networks.lipschitz.layers import GlobalL2Pool, GroupSort2, L2Pool2d
from runner.speed.compiled import FastGroupNorm, FastMaxPool, FastTanh
from runner.speed.convolution import FastConvolution
from runner.speed.faster import examples_in_cache, faster
from runner.speed.lipschitz import FastGlobalL2Pool, FastGroupSort, FastL2Pool
from runner.training.evaluate import evaluating

POOLS = {
    "overlapping": nn.MaxPool2d(2, 1),
    "apart": nn.MaxPool2d(2, 2),
    "rest left over": nn.MaxPool2d(3, 2),
    "gaps": nn.MaxPool2d(2, 3),
    "not square": nn.MaxPool2d((3, 1), (1, 2)),
    "rows overlap": nn.MaxPool2d((2, 3), (1, 3)),
    "whole image": nn.MaxPool2d((7, 10), 1),
}


LAYOUTS = (torch.channels_last, torch.contiguous_format)
Within = tuple[float, float]  # relative and absolute


def assert_alike(fast: nn.Module, plain: nn.Module, x: torch.Tensor, numbers: Within, gradients: Within) -> None:
    """Compare numbers, NaN among them, and gradients by numbers of two digits."""
    x = x.requires_grad_()
    computed, expected = fast(x), plain(x)
    torch.testing.assert_close(computed, expected, rtol=numbers[0], atol=numbers[1], equal_nan=True)
    upstream = torch.randn_like(expected).round(decimals=2)
    ours, theirs = (torch.autograd.grad(y, x, upstream)[0] for y in (computed, expected))
    torch.testing.assert_close(ours, theirs, rtol=gradients[0], atol=gradients[1])


@pytest.mark.parametrize("channels", [1, 3, 40])
@pytest.mark.parametrize("number", range(len(POOLS)), ids=list(POOLS))
def test_max_pooling(kernels: str, number: int, channels: int) -> None:
    """Ties, NaN and infinities among the numbers. Layouts alternate."""
    pool, layout = list(POOLS.values())[number], LAYOUTS[(number + channels // 3) % 2]
    assert isinstance(faster(pool), FastMaxPool)
    torch.manual_seed(channels)
    x = torch.randn(3, channels, 7, 10).round(decimals=1)
    x[0, 0, 2, 3], x[1, -1, 0, 0], x[2, 0, 6, 9] = math.nan, math.inf, -math.inf
    assert_alike(FastMaxPool(pool.kernel_size, pool.stride), pool, x.to(memory_format=layout), (0, 0), (0, 1e-5))


@pytest.mark.parametrize(
    ("fast", "plain", "off"),
    [
        (lambda _: FastMaxPool(3, 2), nn.MaxPool2d(3, 2), 0.0),
        (lambda _: nn.Sequential(FastGroupSort(), FastL2Pool(2)), nn.Sequential(GroupSort2(), L2Pool2d(2)), 0.0),
        (faster, nn.Conv2d(16, 48, 3, padding=1), 1e-4),
    ],
)
def test_layers_shared_among_threads(kernels: str, fast, plain: nn.Module, off: float) -> None:
    try:
        torch.set_num_threads(3)
        assert_alike(fast(plain), plain, torch.randn(11, 16, 40, 41), (1e-6, off), (1e-5, max(off, 1e-5)))
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize(
    "plain",
    [
        nn.MaxPool2d(3, padding=1), nn.MaxPool2d(2, dilation=2), nn.MaxPool2d(2, ceil_mode=True),
        nn.MaxPool2d(2, return_indices=True), nn.AvgPool2d(2), nn.GroupNorm(2, 4), nn.BatchNorm2d(4, affine=False),
    ],
)  # fmt: skip
def test_other_layers_stay(plain: nn.Module) -> None:
    assert faster(plain) is plain


class Listed(nn.Module):
    """A layer inside a module that has a length, as what `torch.compile` returns has one, which raises."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Tanh()

    def __len__(self) -> int:
        raise TypeError("Listed does not support len()")


def test_a_module_without_a_truth_value_is_made_faster() -> None:
    assert isinstance(faster(nn.Sequential(Listed()))[0].inner, FastTanh)  # type: ignore[index]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tanh_is_off_by_the_rounding_of_one(kernels: str, dtype: torch.dtype) -> None:
    x = torch.cat(
        [torch.linspace(-30, 30, 100001), torch.logspace(-40, 38, 1001), torch.tensor([0, math.inf, math.nan])]
    )
    x = torch.cat([x, -x]).to(dtype).requires_grad_()
    computed = FastTanh()(x)
    exact = x.detach().double().tanh()
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(computed.double(), exact, rtol=0, atol=2 * eps, equal_nan=True)
    assert computed[x == 0].count_nonzero() == 0
    bits = torch.tensor([0x7FC00001, 0x7F800001, 0x7FFFFFFF, -1]).int()  # NaNs
    assert FastTanh()(bits.view(torch.float32).to(dtype)).isnan().all()
    (gradient,) = torch.autograd.grad(computed, x, torch.full_like(computed, 3.0))
    torch.testing.assert_close(gradient.double(), 3 * (1 - exact**2), rtol=0, atol=12 * eps, equal_nan=True)


@pytest.mark.parametrize("order", ["channels last", "transposed", "every second", "expanded", "none"])
def test_tanh_of_any_order_in_memory(kernels: str, order: str) -> None:
    x = torch.randn(6, 5, 4, 3, generator=torch.Generator().manual_seed(0))
    x = {
        "channels last": x.to(memory_format=torch.channels_last),
        "transposed": x.transpose(0, 2),
        "every second": x[::2, :, 1::2],
        "expanded": x[:1].expand(7, -1, -1, -1),
        "none": x[:0],
    }[order]
    torch.testing.assert_close(FastTanh()(x), x.tanh(), rtol=0, atol=3e-7)


SORTED = {
    "channels last": lambda: torch.randn(3, 20, 5, 7).to(memory_format=torch.channels_last),
    "channels first": lambda: torch.randn(3, 20, 5, 7),
    "one channel each": lambda: torch.randn(9, 2, 4, 4).to(memory_format=torch.channels_last),
    "rows": lambda: torch.randn(7, 34),
    "tokens": lambda: torch.randn(3, 5, 6),
    "not in order": lambda: torch.randn(5, 3, 6).transpose(0, 1),
    "none": lambda: torch.randn(0, 6),
}


@pytest.mark.parametrize("case", SORTED)
def test_sorting_pairs(kernels: str, case: str) -> None:
    """The very numbers of PyTorch, with pairs that are equal, infinities and a NaN; and their gradient."""
    torch.manual_seed(0)
    x = SORTED[case]().round(decimals=1)
    if len(x):
        x[0, 0], x[-1, -1], x[0, 1] = math.nan, math.inf, -math.inf
    assert_alike(FastGroupSort(), GroupSort2(), x, (0, 0), (0, 1e-6))


@pytest.mark.parametrize(("size", "layout"), [(1, 1), (2, 0), (3, 1), ("all", 0), ("all", 1)])
def test_l2_pooling(kernels: str, size: int | str, layout: int) -> None:
    """With windows of zeros, of numbers whose squares float32 has not, and a rest that no window covers."""
    torch.manual_seed(0)
    x = torch.randn(3, 20, 7, 10)
    x[0, :, :4, :4], x[1, :, :4, :4] = 0, 1e-25
    plain, fast = (GlobalL2Pool(), FastGlobalL2Pool()) if size == "all" else (L2Pool2d(size), FastL2Pool(size))
    assert_alike(fast, plain, x.to(memory_format=LAYOUTS[layout]), (1e-6, 0), (1e-5, 1e-7))


@pytest.mark.parametrize(
    ("groups", "layout", "epsilon"), [(1, LAYOUTS[0], 1e-5), (4, LAYOUTS[1], 1e-5), (20, LAYOUTS[0], 1)]
)
def test_group_normalization(kernels: str, groups: int, layout: torch.memory_format, epsilon: float) -> None:
    """Some away from zero; an image of equal numbers; one with a NaN; an epsilon that is a whole number."""
    torch.manual_seed(0)
    plain = nn.GroupNorm(groups, 20, eps=epsilon, affine=False)
    x = torch.randn(5, 20, 7, 6) + 10 * torch.randn(5, 1, 1, 1)
    x[1], x[2, 3, 4, 5] = 3.0, math.nan
    x = x.to(memory_format=layout)
    fast = faster(plain)
    assert isinstance(fast, FastGroupNorm)
    computed = fast(x)
    torch.testing.assert_close(computed.double(), plain.double()(x.double()), rtol=1e-4, atol=1e-4, equal_nan=True)
    assert computed[[0, 1, 3, 4]].isfinite().all()
    if kernels == "compiled":  # where squares less squares of means have few digits left
        x = torch.randn(3, 20, 7, 6) + 1000
        torch.testing.assert_close(fast(x).double(), plain(x.double()), rtol=1e-3, atol=1e-3)
    x = torch.randn(3, 20, 4, 4).to(memory_format=layout).requires_grad_()
    (gradient,) = torch.autograd.grad(fast(x).square().sum() + fast(x)[0, 0, 0, 0], x)
    plain.float()
    expected = torch.autograd.grad(plain(x).square().sum() + plain(x)[0, 0, 0, 0], x)[0]
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-5)


REPLACED = {"M": (FastMaxPool, FastTanh), "C": (FastMaxPool, FastTanh, FastConvolution)}
REPLACED["VGG5"] = (FastGroupSort, FastL2Pool, FastGlobalL2Pool)


@pytest.mark.parametrize("name", REPLACED)
def test_a_whole_network(kernels: str, name: str) -> None:
    """As it is used. Of two numbers next to equal the pooling may take the other one, so gradients differ by more."""
    case = problem(name, 20)
    fast = faster(case.objective)
    for replacement in REPLACED[name]:
        assert any(isinstance(module, replacement) for module in fast.modules())
        assert not any(isinstance(module, replacement) for module in case.objective.modules())
    results = []
    for version in (fast, case.objective):
        losses = version(case.inputs, case.targets)
        results.append([losses.detach(), *torch.autograd.grad(losses.sum(), list(case.objective.parameters()))])
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-4, atol=1e-5)
    for computed, expected in zip(results[0][1:], results[1][1:], strict=True):
        assert (computed - expected).norm() < 0.02 * expected.norm()
    with evaluating(fast):
        torch.testing.assert_close(fast(case.inputs, case.targets), results[1][0], rtol=1e-4, atol=1e-5)


class Square(nn.Module):
    """Falls below zero, so that the largest number need not have the largest square."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.square()


@pytest.mark.parametrize("activation", [nn.GELU(), nn.SiLU(), Square()], ids=lambda a: type(a).__name__)
def test_a_non_monotone_activation_stays_before_the_pooling(activation: nn.Module) -> None:
    """max phi(x) is not phi(max x) there: what is measured would be another network."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 4, 3), activation, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 9, 3))
    images = 3 * torch.randn(20, 1, 8, 8)
    exchanged = network[3:](activation(network[2](network[0](images))))
    expected = network(images)
    assert (exchanged - expected).abs().max() > 1e-3, "the exchange would show"
    torch.testing.assert_close(faster(network)(images), expected)


@pytest.mark.parametrize(("network", "numbers"), [("M", 16 * 14 * 14), ("C", 32 * 32 * 32)])
def test_an_ordinary_pass_keeps_the_largest_output_in_the_cache(network: str, numbers: int) -> None:
    case = problem(network, 1)
    assert examples_in_cache(case.network, case.inputs.shape[1:]) == 8 * 2**20 // (4 * numbers)


def test_pieces_are_as_equal_as_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    case, sizes = problem("M", 10), []
    plain = NoClipping.sum_contributions

    def noted(self: NoClipping, engine: object, inputs: torch.Tensor, *further: Any) -> GradientSum:
        sizes.append(len(inputs))
        return plain(self, engine, inputs, *further)

    monkeypatch.setattr(NoClipping, "sum_contributions", noted)
    engine = ENGINES["isolated"](case.objective)
    gradient_sum(NoClipping(), engine, case.inputs, case.targets, physical_batch=8)
    assert sizes == [5, 5]
