"""Standard normal numbers: their distribution, their end, and what an end costs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from runner.clipping import NoiseGroup
from runner.config import Sampling
from runner.mechanism import normal
from runner.mechanism.dp_sgd import Mechanism
from runner.mechanism.normal import END, box_muller, delta_of_end, delta_of_radii, standard_normal
from runner.speed import kernels

COUNT = 2_000_001
FLOAT32, FLOAT64 = torch.empty(0), torch.empty(0, dtype=torch.float64)


def numbers(like: torch.Tensor, count: int = COUNT) -> torch.Tensor:
    return standard_normal(count, torch.Generator().manual_seed(5), like)


@pytest.mark.parametrize("like", [FLOAT32, FLOAT64])
def test_numbers_are_standard_normal_and_independent(like: torch.Tensor) -> None:
    z = numbers(like)
    assert (z.shape, z.dtype) == ((COUNT,), like.dtype)
    assert stats.kstest(z.double().numpy(), "norm").pvalue > 1e-3
    for power in (2, 4, 6):
        moments = z.double() ** power
        due, spread = math.prod(range(1, power, 2)), math.prod(range(1, 2 * power, 2))
        assert moments.mean().item() == pytest.approx(due, abs=4 * math.sqrt((spread - due**2) / COUNT))
    first, second = z[: COUNT // 2].double(), z[COUNT // 2 + 1 :].double()  # of the same pairs
    for function in (torch.clone, torch.abs, torch.square):
        correlation = torch.corrcoef(torch.stack([function(first), function(second)]))[0, 1].abs()
        assert correlation < 4 / math.sqrt(COUNT / 2)


def test_the_kernel_rounds_the_numbers_of_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels.why_off() is None
    for count in (1, 2, 7, 100_001):
        assert torch.allclose(numbers(FLOAT32, count).double(), numbers(FLOAT64, count), rtol=6e-8, atol=1e-11)
    of_kernel = numbers(FLOAT32, 9_999)
    monkeypatch.setattr("runner.mechanism.normal.library", lambda *_: None)
    assert torch.allclose(of_kernel, numbers(FLOAT32, 9_999), rtol=1.2e-7, atol=1e-11)


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


def test_float32_radii_of_a_cpu_are_on_a_lattice() -> None:
    """u = k 2^-24 for whole k, in pairs of numbers that are 8 apart, but not in tensors of fewer than 16 numbers."""
    z = torch.empty(16 * 2**16).normal_(generator=torch.Generator().manual_seed(0)).double().view(-1, 2, 8)
    radii = z.square().sum(1).sqrt()
    k = (radii.square() / -2).exp() * 2**24
    far = radii > 4.5  # where float32's errors are below the gaps
    assert far.sum() > 10
    assert (k - k.round())[far].abs().max() < 0.01
    few, exact = (
        torch.empty(15, dtype=dtype).normal_(generator=torch.Generator().manual_seed(0))
        for dtype in (torch.float32, torch.float64)
    )
    assert torch.equal(few, exact.float())


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
    assert delta_of_radii(12_960, **setting) == pytest.approx(0.722, abs=1e-3)
    assert delta_of_radii(1, **setting) == pytest.approx(8.3e-5, rel=0.01)
    assert delta_of_radii(0, **setting) == 0
    assert delta_of_radii(12_960, **setting | {"steps": 10**9}) == 0.9999
    shift, largest = 1 / (1.23 * math.sqrt(12_960)), np.sqrt(-2 * np.log(np.arange(1, 65) * 2.0**-24))
    generator, counts = torch.Generator().manual_seed(0), np.zeros(2)
    for _ in range(60):
        z = torch.empty(16 * 2**16).normal_(generator=generator).view(-1, 2, 8)
        for example in (0, 1):
            distance = (z + example * torch.tensor([shift, 0]).view(2, 1)).norm(dim=1)
            distance = distance[distance > largest[-1]].double().numpy()
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


def test_the_last_digits_tell_of_an_example() -> None:
    """A limit, not a feature: of noise drawn in float64, rounded and added, the digits show what it was added to."""
    mechanism = Mechanism(Sampling.poisson, 60_000, 512, 1.23, (NoiseGroup(("w",), 0.1),))
    without, std = torch.zeros(26_010), mechanism.noise_std(mechanism.noise_groups[0])
    sums = without, torch.full_like(without, 0.1 / math.sqrt(26_010))

    def impossible(noisy: torch.Tensor, total: torch.Tensor) -> int:
        z = ((noisy.double() - total.double()) / std).float()
        near = [z, *(torch.nextafter(z, torch.tensor(side)) for side in (-math.inf, math.inf))]
        return int((~torch.stack([total.add(each, alpha=std) == noisy for each in near]).any(0)).sum())

    for given in (0, 1):
        noisy = mechanism.release({"w": sums[given]}, torch.Generator().manual_seed(0))["w"] * 512
        assert impossible(noisy, sums[given]) == 0
        assert impossible(noisy, sums[1 - given]) > 100
