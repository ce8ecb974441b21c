"""Noise, sampling and what is charged for them: measured, not believed."""

import math

import pytest
import torch
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from scipy import stats

from runner.accounting import Ledger, RdpClassic, sound_epsilon
from runner.clipping import NoiseGroup
from runner.config import Sampling
from runner.mechanism.dp_sgd import Mechanism
from runner.mechanism.normal import standard_normal
from tests.accounting.releases import closed_form

ONE = (NoiseGroup(("w",), 0.5),)
THREE = (NoiseGroup(("a", "b"), 0.5), NoiseGroup(("c",), 2.0), NoiseGroup(("d",), 0.1))


def mechanism(sampling: Sampling = Sampling.poisson, noise_multiplier: float = 1.1, groups=ONE) -> Mechanism:
    return Mechanism(sampling, examples=1000, batch_size=100, noise_multiplier=noise_multiplier, noise_groups=groups)


def test_groups_form_one_gaussian_with_the_stated_multiplier() -> None:
    m = mechanism(groups=THREE)
    sums = {name: torch.zeros(100_000) for name in "abcd"}
    noisy = m.release(sums, torch.Generator().manual_seed(0))
    measured = [noisy[g.parameters[0]].double().std().item() * m.batch_size for g in THREE]
    joint = sum((g.sensitivity / std) ** 2 for g, std in zip(THREE, measured, strict=True)) ** -0.5
    assert joint == pytest.approx(1.1, rel=0.006)
    for group, std in zip(THREE, measured, strict=True):
        due = 1.1 * math.sqrt(3) * group.sensitivity
        assert std == pytest.approx(due, rel=0.01)
        numbers = noisy[group.parameters[0]].double() * m.batch_size / due
        assert stats.kstest(numbers.numpy(), "norm").pvalue > 1e-4


def test_coordinates_and_steps_get_noise_of_their_own() -> None:
    m = mechanism(groups=THREE)
    generator = torch.Generator().manual_seed(0)
    first, second = (m.release({name: torch.zeros(50_000) for name in "abcd"}, generator) for _ in range(2))
    for left, right in [(first["a"], first["b"]), (first["a"], second["a"]), (first["c"], first["d"])]:
        assert abs(torch.corrcoef(torch.stack([left, right]))[0, 1]) < 0.02


def test_a_noiseless_release_is_the_sum_over_expected_batch_size() -> None:
    quiet = mechanism(noise_multiplier=0.0)
    assert torch.equal(quiet.release({"w": torch.full((3,), 7.0)}, torch.Generator())["w"], torch.full((3,), 0.07))


def test_noise_is_the_stream_of_its_generator() -> None:
    """Of many numbers, which a compiled kernel draws, and of a few, step after step."""
    ours, theirs = (torch.Generator().manual_seed(3) for _ in range(2))
    for _ in range(2):
        noisy = mechanism().release({"w": torch.zeros(30_001)}, ours)["w"]
        expected = standard_normal(30_001, theirs, torch.device("cpu")) * 1.1 * 0.5 / 100
        assert torch.allclose(noisy.double(), expected, rtol=0, atol=2.0**-12 * 1.1 * 0.5 / 100 + 1e-9)
    assert torch.equal(ours.get_state(), theirs.get_state())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_reaches_the_end_of_float64_numbers(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    """Of all random bits zero, the radius is the largest there is: 10.79, where float32 numbers end at 5.77."""
    monkeypatch.setattr(torch.Tensor, "random_", lambda self, *, generator: self.zero_())
    noisy = mechanism().release({"w": torch.zeros(3, 2, dtype=dtype)}, torch.Generator())["w"]
    assert noisy.max().item() * 100 == pytest.approx(math.sqrt(168 * math.log(2)) * 1.1 * 0.5, rel=3e-5)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.bfloat16])
def test_sums_of_other_numbers_are_not_released(dtype: torch.dtype) -> None:
    """Each part of a complex number would get less noise than is charged, by the square root of 2."""
    with pytest.raises(ValueError, match=f"The sum of w is {dtype}"):
        mechanism().release({"w": torch.zeros(2, dtype=dtype)}, torch.Generator())
    noisy = mechanism().release({"w": torch.zeros(200_000, dtype=torch.float64)}, torch.Generator().manual_seed(0))
    assert noisy["w"].std().item() * 100 == pytest.approx(1.1 * 0.5, rel=0.006)


def test_every_parameter_is_in_one_noise_group() -> None:
    with pytest.raises(ValueError, match="partition"):
        mechanism().release({"w": torch.zeros(1), "forgotten": torch.zeros(1)}, torch.Generator())
    twice = (NoiseGroup(("w",), 1.0), NoiseGroup(("w",), 1.0))
    with pytest.raises(ValueError, match="partition"):
        mechanism(groups=twice).release({"w": torch.zeros(1)}, torch.Generator())


def test_poisson_sampling_is_what_the_ledger_says() -> None:
    """Each example joins at the charged rate, independently of the others and of other steps."""
    m, ledger = mechanism(), Ledger()
    m.charge_step(ledger, 0)
    ((event, count),) = ledger.actual
    assert isinstance(event, PoissonSampledDpEvent)
    assert (event.sampling_probability, count) == (100 / 1000, 1)
    assert event.event == GaussianDpEvent(1.1)
    generator = torch.Generator().manual_seed(0)
    batches = [indices for _ in range(400) for indices in m.batches(generator)]
    steps = len(batches)
    assert steps == 400 * m.steps_per_epoch == 4000
    joined = torch.zeros(steps, 1000)
    for step, indices in enumerate(batches):
        assert len(indices.unique()) == len(indices)
        joined[step, indices] = 1
    rate = event.sampling_probability
    per_example = stats.chisquare(joined.sum(0).numpy(), ddof=0).statistic * 1 / (1 - rate)
    assert 1e-4 < stats.chi2.cdf(per_example, 999) < 1 - 1e-4
    assert joined.mean().item() == pytest.approx(rate, abs=4 * math.sqrt(rate * (1 - rate) / joined.numel()))
    sizes = joined.sum(1)
    assert sizes.var().item() == pytest.approx(1000 * rate * (1 - rate), rel=0.12)  # 0 for batches of fixed size
    assert torch.corrcoef(torch.stack([joined[:-1, 0], joined[1:, 0]]))[0, 1].abs() < 0.07


def test_the_sizes_of_poisson_batches_are_binomial_to_their_ends() -> None:
    """B = 2 of N = 20: six in ten batches have another size than expected, and one in eight is above 1.5 times it.

    Cutting any of them off is another mechanism than the one that is charged.
    """
    draws, expected = 20_000, stats.binom(20, 0.1)
    m, generator = Mechanism(Sampling.poisson, 20, 2, 1.0, ONE), torch.Generator().manual_seed(0)
    sizes = [len(batch) for _ in range(draws // 10) for batch in m.batches(generator)]
    seen = torch.bincount(torch.tensor(sizes).clamp(max=6), minlength=7)
    due = [*(draws * expected.pmf(n) for n in range(6)), draws * expected.sf(5)]
    assert stats.chisquare(seen.numpy(), due).pvalue > 1e-4
    assert max(sizes) >= 8  # such a size has the chance 4e-4


def test_shuffled_batches_are_disjoint_and_of_full_size() -> None:
    """No example is in two of an epoch's batches, so the ledger charges once an epoch."""
    m = Mechanism(Sampling.shuffled, examples=1003, batch_size=100, noise_multiplier=1.0, noise_groups=ONE)
    generator = torch.Generator().manual_seed(0)
    epochs = [list(m.batches(generator)) for _ in range(2)]
    for batches in epochs:
        assert [len(batch) for batch in batches] == [100] * 10
        assert len(torch.cat(batches).unique()) == 1000
    assert not torch.equal(torch.cat(epochs[0]), torch.cat(epochs[1])), "every epoch has an order of its own"
    assert m.neighbouring_relation == "zero-out"


def test_shuffled_batches_are_charged_without_amplification() -> None:
    """Sound: one Gaussian an epoch, so the closed form with mu = sqrt(epochs) / noise multiplier. Claimed: Poisson."""
    m, ledger = mechanism(Sampling.shuffled, noise_multiplier=4.0), Ledger()
    for _ in range(3):
        for step in range(m.steps_per_epoch):
            m.charge_step(ledger, step)
    delta = 1e-5
    assert sound_epsilon(ledger.actual, delta) == pytest.approx(closed_form(math.sqrt(3) / 4.0, delta), abs=2e-3)
    assert ledger.claimed == m.charges_of_epochs(3).claimed == ((PoissonSampledDpEvent(0.1, GaussianDpEvent(4.0)), 30),)
    assert RdpClassic().epsilon(ledger.claimed, delta) < sound_epsilon(ledger.actual, delta)


@pytest.mark.parametrize(
    ("batch_size", "noise_multiplier", "sensitivity", "message"),
    [
        (0, 1.0, 1.0, "batch_size"),
        (1001, 1.0, 1.0, "batch_size"),
        (100, -0.1, 1.0, "noise_multiplier"),
        (100, math.nan, 1.0, "noise_multiplier"),
        (100, 1.0, math.inf, "sensitivity"),
    ],
)
def test_impossible_mechanisms_are_refused(batch_size, noise_multiplier, sensitivity, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Mechanism(Sampling.poisson, 1000, batch_size, noise_multiplier, (NoiseGroup(("w",), sensitivity),))
