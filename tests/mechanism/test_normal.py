"""Standard normal numbers: their distribution, their end, and what an end costs."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from runner.clipping import NoiseGroup
from runner.config import Sampling
from runner.mechanism import normal
from runner.mechanism.dp_sgd import Mechanism
from runner.mechanism.normal import (
    END,
    anchor,
    box_muller,
    cost_of_rounding,
    delta_of_end,
    delta_of_radii,
    noisy_mean,
    rounded_once,
    standard_normal,
)
from runner.speed import kernels

COUNT = 2_000_001
MNIST = Mechanism(Sampling.poisson, 60_000, 512, 1.23, (NoiseGroup(("w",), 0.1),))
STD = MNIST.noise_std(MNIST.noise_groups[0])


def numbers(count: int = COUNT) -> torch.Tensor:
    return standard_normal(count, torch.Generator().manual_seed(5), torch.device("cpu"))


@pytest.fixture(params=["kernel", "torch"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """By the compiled kernel, and by PyTorch alone."""
    assert kernels.why_off() is None
    if request.param == "torch":
        monkeypatch.setattr("runner.mechanism.normal.library", lambda *_: None)
    return request.param


def test_numbers_are_standard_normal_and_independent(by: str) -> None:
    z = numbers()
    assert (z.shape, z.dtype) == ((COUNT,), torch.float64)
    assert stats.kstest(z.numpy(), "norm").pvalue > 1e-3
    for power in (2, 4, 6):
        moments = z**power
        due, spread = math.prod(range(1, power, 2)), math.prod(range(1, 2 * power, 2))
        assert moments.mean().item() == pytest.approx(due, abs=4 * math.sqrt((spread - due**2) / COUNT))
    first, second = z[: COUNT // 2], z[COUNT // 2 + 1 :]  # of the same pairs
    for function in (torch.clone, torch.abs, torch.square):
        correlation = torch.corrcoef(torch.stack([function(first), function(second)]))[0, 1].abs()
        assert correlation < 4 / math.sqrt(COUNT / 2)


def test_the_kernel_computes_the_numbers_of_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = (1, 2, 7, 100_001)
    of_kernel = [numbers(count) for count in counts]
    monkeypatch.setattr("runner.mechanism.normal.library", lambda *_: None)
    for count, z in zip(counts, of_kernel, strict=True):
        assert torch.allclose(z, numbers(count), rtol=0, atol=2.0**-47)


@pytest.mark.parametrize("count", [1, 13, 300_001])
def test_a_noisy_mean_is_rounded_once(by: str, count: int) -> None:
    """To the nearest multiple of 2^-12 to 2^-11 standard deviations, by float64 numbers, also of transposed sums."""
    z = numbers(2 * count).view(2, count)
    sums = 5 * torch.randn(count, 2, generator=torch.Generator().manual_seed(0)).T
    mean = noisy_mean(sums, z, 0.3, 7)
    grid = 2.0**-13
    assert 2.0**-12 <= grid / 0.3 <= 2.0**-11
    right = ((sums.double() + 0.3 * z) / grid).round() * grid / 7
    assert mean.dtype is torch.float32
    assert torch.equal(mean, right.float())
    assert torch.equal(noisy_mean(sums.double(), z, 0.3, 7), right)
    stds = torch.tensor([[0.3], [0.6]], dtype=torch.float64)
    anchors = torch.tensor([[anchor(0.3)], [anchor(0.6)]], dtype=torch.float64)
    assert torch.equal(rounded_once(sums, z, stds, anchors, 7)[1], noisy_mean(sums[1], z[1], 0.6, 7))


def test_every_bit_is_random() -> None:
    bits = torch.empty(40_000, dtype=torch.int64).random_(generator=torch.Generator().manual_seed(0))
    shares = torch.stack([(bits >> bit & 1).double().mean() for bit in range(63)])
    assert (shares - 0.5).abs().max() < 4.5 * 0.5 / 200


def test_box_muller_by_hand() -> None:
    """The least and the most bits, and the quarters of a turn with a radius of sqrt(2 ln 2)."""
    most, half = (1 << 63) - 1, 1 << 62
    a = torch.tensor([0, most, half, half, half, half])
    b = torch.tensor([0, 0, 0, 1 << 61, 1 << 62, 3 << 61])
    radius = math.sqrt(2 * math.log(2))
    along, across = [END, 0, radius, 0, -radius, 0], [0, 0, 0, radius, 0, -radius]
    torch.testing.assert_close(
        box_muller(torch.stack([a, b])), torch.tensor(along + across, dtype=torch.float64), rtol=1e-14, atol=1e-14
    )


@pytest.mark.parametrize("shift", [0.004, 0.02, 0.8])
def test_pairs_that_an_example_makes_impossible(shift: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted among the K = 64 largest of 2^12 radii, instead of 2^24: none without the shift."""
    monkeypatch.setattr(normal, "_RADII", largest := np.sqrt(-2 * np.log(np.arange(1, 65) * 2.0**-12)))
    random = np.random.default_rng(0)
    angle = random.uniform(0, 2 * math.pi, count := 400_000)
    radius = random.choice(largest, count)
    for length in (0.0, shift):
        distance = np.hypot(radius * np.cos(angle) + length, radius * np.sin(angle))
        nearest = np.abs(distance[:, None] - largest).min(axis=1)
        impossible = (distance > largest[-1]) & (nearest > normal.RESOLUTION)
        due = normal._impossible(length) * 2**24 / 64 if length else 0.0
        assert impossible.mean() == pytest.approx(due, abs=4 * math.sqrt(due / count))


def test_an_attack_on_float32_noise_recognises_an_example() -> None:
    """MNIST's network, B = 512, sigma = 1.23, all pairs shifted alike: delta >= 0.72, by noise of PyTorch itself."""
    setting = {"noise_multiplier": 1.23, "sampling_rate": 512 / 60_000, "steps": 4_680}
    assert delta_of_radii(12_945, **setting) == pytest.approx(0.72198, abs=1e-5)
    assert delta_of_radii(1, **setting) == pytest.approx(8.3e-5, rel=0.01)
    assert delta_of_radii(0, **setting) == 0
    assert delta_of_radii(12_945, **setting | {"steps": 10**9}) == 0.9999
    shift, largest = 1 / (1.23 * math.sqrt(12_945)), np.sqrt(-2 * np.log(np.arange(1, 65) * 2.0**-24))
    generator, counts = torch.Generator().manual_seed(0), np.zeros(2)
    for _ in range(60):
        x, y = torch.empty(16 * 2**16).normal_(generator=generator).view(-1, 2, 8).unbind(1)
        far = (torch.addcmul(x.square(), y, y) > (largest[-1] - 2 * shift) ** 2).nonzero(as_tuple=True)
        for example in (0, 1):
            distance = (x[far] + example * shift).double().hypot(y[far].double()).numpy()
            distance = distance[distance > largest[-1]]
            counts[example] += (np.abs(distance[:, None] - largest).min(axis=1) > normal.RESOLUTION).sum()
    due = normal._impossible(shift) * 60 * 2**19
    assert counts[0] == 0
    assert counts[1] == pytest.approx(due, abs=4 * math.sqrt(due))


@pytest.mark.parametrize("bits", [6, 10])
def test_an_end_costs_at_most_its_bound(bits: int) -> None:
    """The pairs that a shift moves out of their disc: measured for radii of few bits, u >= 2^-bits."""
    random, end = np.random.default_rng(0), math.sqrt(2 * bits * math.log(2))
    radius = np.sqrt(-2 * np.log(random.uniform(2.0**-bits, 1, 1_000_000)))
    angle = random.uniform(0, 2 * math.pi, len(radius))
    for shift in (0.01, 0.1, 1.0, 2.0):
        share = np.mean(np.hypot(radius * np.cos(angle) + shift, radius * np.sin(angle)) > end)
        assert share <= math.expm1(end * shift - shift**2 / 2) / (2**bits - 1)


def test_the_end_of_float64_noise_costs_less_than_1e_12() -> None:
    """For sigma from 0.7, while T sqrt(n) <= 10^7 and n <= 10^6. A shift up to END - 1 has a bound."""
    assert delta_of_end(10**6, 0.7, 10**4) < 1e-12 < delta_of_end(10**6, 0.68, 10**4)
    assert delta_of_end(13_005, 1.23, 4_680) == pytest.approx(1.31e-16, rel=0.01)
    assert delta_of_end(1, 0.11, 1) < 1 == delta_of_end(1, 0.10, 1)
    shifts = np.linspace(0.01, END - 1, 500)
    over = np.array([delta_of_end(1, 1 / shift, 1) - 2.0**-84 for shift in shifts]) / shifts
    assert np.all(np.diff(over) > 0)


def released(total: torch.Tensor) -> torch.Tensor:
    """The noisy sum of MNIST's setting, before it is divided, in float64."""
    return MNIST.release({"w": total}, torch.Generator().manual_seed(0))["w"].double() * 512


def test_last_digits_do_not_tell_of_an_example(by: str) -> None:
    """Noisy numbers that no noise could have made without an example, or with it: none of 26,010.

    Any multiple of the grid can be reached from any sum. Noise that was rounded before it was added left 270 and 430.
    """
    without, grid = torch.zeros(26_010), 2.0**-15
    assert 2.0**-12 <= grid / STD <= 2.0**-11
    sums = without, torch.full_like(without, 0.1 / math.sqrt(26_010))
    for case in sums:
        noisy = released(case)
        rounded = (noisy / grid).round() * grid
        assert (noisy - rounded).abs().max() < grid / 1000, "the quotient is a float32 number"
        for total in sums:
            z = (rounded - total.double()) / STD
            again = rounded_once(total, z, STD, anchor(STD), 512).double() * 512
            assert int(((again - rounded).abs() > grid / 2).sum()) == 0


def test_noise_is_not_rounded_before_it_is_added(by: str) -> None:
    """Of 2,000,000 numbers, noise in float32 moves about a hundred to the next point of the grid, and float64 none."""
    noise = standard_normal(COUNT, torch.Generator().manual_seed(0), torch.device("cpu"))
    sums = torch.linspace(-1, 1, COUNT)
    right = ((sums.double() + STD * noise) * 2.0**15).round() * 2.0**-15
    assert (released(sums) - right).abs().max() < 2.0**-17
    before = ((sums.double() + STD * noise.float().double()) * 2.0**15).round() * 2.0**-15
    assert (before != right).sum() > 30


@pytest.mark.parametrize(("angles", "width"), [(2**12, 0.02), (2**10, 0.1)])
def test_cells_have_nearly_the_probability_of_exact_noise(angles: int, width: float) -> None:
    """Step 1 of the proof, for fewer angles: e(R) = 9 R / (N h), twice across an axis, is attained to a fifth."""
    random, largest = np.random.default_rng(0), 0.0
    for turn in range(60):
        corner, sides = random.uniform(-2, 2, 2), random.uniform(width, 2 * width, 2)
        if turn % 3 == 0:  # along an axis
            corner[0] = random.uniform(-1, 0) * sides[0] * (turn % 2)
        low, high = corner, corner + sides
        exact = np.prod(stats.norm.cdf(high) - stats.norm.cdf(low))
        angle = 2 * math.pi * np.arange(angles) / angles
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.stack([np.stack([low, high])[:, :, None] / np.stack([np.cos(angle), np.sin(angle)])])[0]
        near = np.nanmax(np.minimum(*ends), axis=0).clip(min=0)
        far = np.nanmin(np.maximum(*ends), axis=0).clip(min=near)
        error = abs(np.mean(np.exp(-(near**2) / 2) - np.exp(-(far**2) / 2)) / exact - 1)
        crossing = 2 ** int(np.sum((low < 0) & (high > 0)))
        outer = math.hypot(*np.maximum(abs(low), abs(high)))
        bound = crossing * 9 * outer / (angles * width) * math.exp(2**1.5 * width * outer)
        largest = max(largest, error / bound)
    assert 0.2 < largest <= 1


def test_the_cost_of_rounding_is_small() -> None:
    """MNIST's network by hand: m = 6.1e7 pairs, sqrt(v) = 19 * 2^-31, x = 26.6, and A^2 / 2 = 36.7, so 37."""
    epsilon, delta = cost_of_rounding(13_005, 4_680, 2.6, 1e-5)
    pairs, largest = 13_005 * 4_680, 161.2 * 2.0**-31 + 2.0**-69.8 * math.exp(37.006) / 8.602
    ratio = 19 * 2.0**-31 * math.sqrt(2.02 * pairs * 26.6) + 0.68 * largest * 26.6
    assert epsilon == pytest.approx(2 * ratio, rel=1e-3)
    assert delta == pytest.approx((1 + math.exp(2.6)) * pairs * math.exp(-37) + ratio * 1e-5, rel=0.01)
    assert (epsilon, delta) == (pytest.approx(1.08e-3, rel=0.02), pytest.approx(8.1e-8, rel=0.02))
    assert cost_of_rounding(13_005, 4_680, 8.0, 1e-5) == (pytest.approx(9e-3, rel=0.2), pytest.approx(1.5e-7, rel=0.2))
    assert cost_of_rounding(13_005, 4_680, 12.0, 1e-5) == (math.inf, 1.0)
