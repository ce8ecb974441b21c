"""Standard normal numbers: their distribution, their end, and what an end costs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from runner.mechanism.normal import END, END_OF_FLOAT32, _outside, box_muller, delta_growth, standard_normal
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


@pytest.mark.parametrize("shift", [0.1, 1.0, 2.5, 4.0])
def test_an_example_shifts_a_pair_out_of_its_disc(shift: float) -> None:
    """Measured for a radius of few random bits: u >= 2^-6."""
    random, end = np.random.default_rng(0), math.sqrt(12 * math.log(2))
    radius = np.sqrt(-2 * np.log(random.uniform(2**-6, 1, 2_000_000)))
    angle = random.uniform(0, 2 * math.pi, len(radius))
    share = np.mean(np.hypot(radius * np.cos(angle) + shift, radius * np.sin(angle)) > end)
    due = _outside(end, shift) / (1 - 2**-6)
    assert share == pytest.approx(due, abs=4 * math.sqrt(due / len(radius)))


@pytest.mark.parametrize(("end", "shift"), [(END_OF_FLOAT32, 0.81), (END_OF_FLOAT32, 0.01), (END, 2.0), (END, 4.0)])
def test_the_integral_is_that_over_the_plane(end: float, shift: float) -> None:
    def density(x: float, y: float) -> float:
        return math.exp(-(x**2 + y**2) / 2) / (2 * math.pi)

    def left(y: float) -> float:  # of the shifted disc's edge, and of the disc's
        return math.sqrt(end**2 - y**2)

    due, _ = integrate.dblquad(
        density, -end, end, lambda y: max(-left(y), left(y) - shift), left, epsabs=0, epsrel=1e-7
    )
    assert _outside(end, shift) == pytest.approx(due, rel=1e-4)


def test_the_worst_example_of_float32_noise_costs_more_than_delta() -> None:
    """MNIST's network, B = 512 and sigma = 1.23: 41 times delta = 1e-5 if the example shifts all pairs alike."""
    setting = {"noise_multiplier": 1.23, "sampling_rate": 512 / 60_000, "steps": 4_680}
    attained, bound = delta_growth(END_OF_FLOAT32, 13_005, **setting)
    assert attained == pytest.approx(4.1e-4, rel=0.01)
    assert attained <= bound == pytest.approx(4.4e-3, rel=0.01)
    one_pair, _ = delta_growth(END_OF_FLOAT32, 1, **setting)
    assert one_pair == pytest.approx(512 / 60_000 * 4_680 * _outside(END_OF_FLOAT32, 1 / 1.23), rel=1e-3)
    assert delta_growth(END, 13_005, **setting)[1] < 1e-18
    assert delta_growth(END, 275_285, 0.45, 512 / 60_000, 13_338)[1] < 1e-12


def test_the_bound_follows_from_the_growth_of_shifts() -> None:
    """F(s) / s grows with s, for ends from 3 to 12."""
    for end in (3.0, END_OF_FLOAT32, END, 12.0):
        shifts = np.linspace(0.01, 2.5, 60)
        shares = np.array([_outside(end, shift) for shift in shifts]) / shifts
        assert np.all(np.diff(shares) > 0)
