"""Banded noise and cyclic sampling: covariances, participations and charges, against matrices in float64."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from scipy import stats
from scipy.linalg import toeplitz

from runner.accounting import sound_epsilon
from runner.build.prepare import prepare
from runner.clipping import NoiseGroup
from runner.config import ConfigError, Sampling
from runner.mechanism.banded import Banded, square_root
from runner.mechanism.dp_sgd import Mechanism
from runner.mechanism.normal import PastNoise
from runner.records.disk import as_today
from runner.records.identity import identify, resolved
from runner.training.loop import load, train, training
from tests.references import whole_and_resumed

DELTA = 1e-5
TWO = (NoiseGroup(("a",), 0.5), NoiseGroup(("b",), 2.0))
SMALL = (
    "architecture.units=4", "architecture.filters=[2,2]", "noise_multiplier=1.5", "scale.epochs=2",
    "scale.batch_size=100",
)  # fmt: skip


def banded(noise_multiplier: float = 1.1, examples: int = 1003, batch_size: int = 100, **more: Any) -> Banded:
    return Banded(Sampling.poisson, examples, batch_size, noise_multiplier, TWO, **more)


def strategy(coefficients: tuple[float, ...], steps: int) -> np.ndarray:
    """Return C, [steps, steps]."""
    column = np.zeros(max(steps, len(coefficients)))
    column[: len(coefficients)] = coefficients
    return np.tril(toeplitz(column[:steps]))


def workload(steps: int, momentum: float = 0.0) -> np.ndarray:
    """Return A [steps, steps] of the sums of steps of SGD with momentum."""
    return np.tril(toeplitz(np.cumsum(momentum ** np.arange(steps))))


def noise_of(mechanism: Mechanism, steps: int, size: int, *, correlated: bool = True) -> dict[str, torch.Tensor]:
    """Release zeros for some steps: the noise on the sums by parameter, [steps, size], float64."""
    generator = torch.Generator().manual_seed(1)
    past = [PastNoise(mechanism.coefficients)] if correlated else []
    zeros = {name: torch.zeros(size, dtype=torch.float64) for name in "ab"}
    seen = [mechanism.release(zeros, generator, *past) for _ in range(steps)]
    return {name: torch.stack([noise[name] for noise in seen]) * mechanism.denominator for name in "ab"}


def test_coefficients_are_the_square_root_of_the_workload() -> None:
    assert square_root(1) == (1.0,)
    assert np.array(square_root(4)) / square_root(4)[0] == pytest.approx([1, 1 / 2, 3 / 8, 5 / 16])
    for bands, momentum in ((4, 0.0), (8, 0.9), (3, 0.5)):
        c = np.array(square_root(bands, momentum))
        assert math.fsum(c**2) == pytest.approx(1, abs=1e-15)
        square = strategy(tuple(c / c[0]), bands) @ strategy(tuple(c / c[0]), bands)
        assert square == pytest.approx(workload(bands, momentum), abs=1e-12)
        roots = np.roots(c[::-1])
        assert (abs(roots) > 1).all(), "the recurrence is stable"


@pytest.mark.parametrize("bands", [1, 2, 4])
def test_decorrelated_noise_is_what_was_drawn(bands: int) -> None:
    """C y = z, with z the fresh numbers of the generator in order, and the charged standard deviation.

    Each release is off by 2^-12 of that, as it is rounded, and sum |c_k| <= 2.
    """
    mechanism, steps = banded(bands=bands), 11
    fresh, computed = noise_of(mechanism, steps, 5, correlated=False), noise_of(mechanism, steps, 5)
    c = torch.from_numpy(strategy(mechanism.coefficients, steps))
    for name, group in zip("ab", TWO, strict=True):
        rounded = 3 * 2.0**-12 * mechanism.noise_std(group)
        torch.testing.assert_close(c @ computed[name], fresh[name], rtol=0, atol=rounded)


def test_noise_over_steps_has_the_inverse_strategys_covariance() -> None:
    """200,000 coordinates, whose covariances are known to 1.5%: sigma^2 S_g^2 D (C^T C)^-1 over the steps."""
    mechanism = banded(bands=3)
    inverse = np.linalg.inv(strategy(mechanism.coefficients, 7))
    for (name, noise), group in zip(noise_of(mechanism, 7, 200_000).items(), TWO, strict=True):
        assert name in group.parameters
        due = (1.1 * math.sqrt(2) * group.sensitivity) ** 2 * inverse @ inverse.T
        assert np.cov(noise.numpy()) == pytest.approx(due, rel=0, abs=0.015 * due.max())


@pytest.mark.parametrize(("bands", "momentum", "steps"), [(4, 0.0, 12), (4, 0.0, 14), (3, 0.9, 11)])
def test_one_part_moves_disjoint_rows_by_at_most_the_bound(bands: int, momentum: float, steps: int) -> None:
    """||C x||^2 of an example that gives S = 1 at each turn of its part, against the charged number of releases."""
    mechanism = banded(bands=bands, momentum=momentum, batch_size=50)
    c = strategy(mechanism.coefficients, steps)
    ((_, charged),) = [(e, n) for e, n in mechanism.charges(steps).actual if isinstance(e, PoissonSampledDpEvent)]
    moved = []
    for part in range(bands):
        turns = c[:, part::bands]
        assert ((turns != 0).sum(1) <= 1).all(), "the rows of two turns of a part overlap"
        signs = np.random.default_rng(0).choice([-1, 1], turns.shape[1])
        moved.append(((turns @ signs) ** 2).sum())
    assert charged == math.ceil(steps / bands)
    assert max(moved) <= charged + 1e-12
    assert steps % bands or moved[0] == pytest.approx(charged), "the charge is exact after whole cycles"


@pytest.mark.parametrize("parts", [None, "independent"])
def test_examples_join_only_their_turns_at_the_charged_rate(parts: str | None) -> None:
    """Over 300 epochs of two cycles: part t mod b at step t, at q = b B / N, and in no other step."""
    mechanism, epochs = banded(bands=4, batch_size=100, parts=parts), 300
    assert mechanism.steps_per_epoch == 8
    generator = torch.Generator().manual_seed(0)
    batches = [batch for _ in range(epochs) for batch in mechanism.batches(generator)]
    joined = torch.zeros(4, 1003)
    for step, batch in enumerate(batches):
        joined[step % 4, batch] += 1
    assert ((joined > 0).sum(0) == 1).all(), "an example is in one part"
    ((event, count), *_) = mechanism.charges(len(batches)).actual
    assert isinstance(event, PoissonSampledDpEvent)
    rate = event.sampling_probability
    assert (rate, count) == (400 / 1003, 600)
    assert (joined.sum() / 600 / 1003).item() == pytest.approx(rate, abs=4 * math.sqrt(rate * (1 - rate) / 600 / 1003))
    if parts is None:
        assert (joined > 0).sum(1).tolist() == [251, 251, 251, 250]
        assert sum(map(len, batches)) / len(batches) == pytest.approx(100, rel=0.005)


def test_equal_parts_are_random_and_the_same_in_every_run() -> None:
    """They depend on the numbers of examples and of parts alone."""
    equal = banded(bands=4, batch_size=100).equal_parts
    assert torch.equal(equal, banded(bands=4, batch_size=50, noise_multiplier=3.0).equal_parts)
    in_order = (equal[1:] - equal[:-1]) % 4 == 1
    assert 0.15 < in_order.double().mean() < 0.35


def drawn_parts(examples: int, seed: int, bands: int = 4) -> torch.Tensor:
    mechanism = banded(examples=examples, bands=bands, parts="independent")
    return mechanism.part_of(torch.Generator().manual_seed(seed))


def test_independent_parts_are_uniform_and_independent() -> None:
    """By the counts of 40 runs: of each part, and of each pair of parts of two examples that follow each other."""
    parts = torch.stack([drawn_parts(2000, seed) for seed in range(40)])
    counts = torch.bincount(parts.flatten(), minlength=4)
    pairs = torch.bincount((4 * parts[:, 1:] + parts[:, :-1]).flatten(), minlength=16)
    seeds = torch.bincount((4 * parts[1:] + parts[:-1]).flatten(), minlength=16)
    for table in (counts, pairs, seeds):
        expected = table.sum() / len(table)
        statistic = ((table - expected) ** 2 / expected).sum().item()
        assert 0.001 < stats.chi2.sf(statistic, len(table) - 1) < 0.999


def test_an_added_example_moves_no_other_to_another_part() -> None:
    """So the parts of the others have one distribution in both neighbours, which equal parts do not have."""
    fewer, more = drawn_parts(1000, 3), drawn_parts(1001, 3)
    assert torch.equal(more[:1000], fewer)
    equal = [banded(examples=n, bands=4).equal_parts for n in (1000, 1001)]
    assert (equal[1][:1000] != equal[0]).double().mean() > 0.6


@pytest.mark.parametrize(("parts", "relation"), [(None, "zero-out"), ("independent", "add-or-remove-one")])
def test_the_neighbours_are_those_of_its_parts(parts: str | None, relation: str) -> None:
    assert banded(parts=parts).neighbouring_relation == relation


def test_equal_parts_keep_the_id_of_a_run(smoke) -> None:
    ids = [identify(resolved(smoke("mechanism=banded", *more)))[0] for more in ((), ("mechanism.parts=independent",))]
    without = smoke("mechanism=banded")
    del without.mechanism.parts
    assert ids[0] == identify(resolved(without))[0] != ids[1]


def test_an_older_record_of_equal_parts_is_read_as_zero_out() -> None:
    mechanism = {"_target_": "runner.mechanism.banded.Banded", "bands": 4}
    final = {"neighbouring_relation": "add-or-remove-one"}
    read = []
    for more in ({}, {"parts": "independent"}):
        config = {"mechanism": mechanism | more, "features": {}, "dataset": {"name": "MNIST"}}
        read.append(as_today({"config": config, "final": final, "history": {}, "provenance": {}})["final"])
    assert [final["neighbouring_relation"] for final in read] == ["zero-out", "add-or-remove-one"]


def test_costs_what_dp_accounting_says_for_a_release_a_cycle() -> None:
    """jax_privacy's event of the same run: ceil(T / b) releases of a Poisson sample of a part, also within a cycle."""
    mechanism = banded(examples=60_000, batch_size=256, bands=4)
    assert mechanism.steps_per_epoch == 232
    sampled = PoissonSampledDpEvent(4 * 256 / 60_000, GaussianDpEvent(1.1))
    for steps, cycles in ((1, 1), (4, 1), (5, 2), (9, 3), (232, 58)):
        assert dict(mechanism.charges(steps).actual)[sampled] == cycles
    charges = mechanism.charges_of_epochs(10)
    due = PLDAccountant().compose(SelfComposedDpEvent(sampled, 580)).get_epsilon(DELTA)
    assert sound_epsilon(charges.actual, DELTA) == pytest.approx(due, abs=1e-3) == pytest.approx(2.0748, abs=1e-3)
    assert charges.claimed == ((sampled, 580),)
    assert sound_epsilon(banded(noise_multiplier=0.0, bands=2).charges(1).actual, DELTA) == math.inf


def test_one_band_is_dp_sgd(smoke) -> None:
    """The same batches, noise and charges, bit by bit."""
    computed = []
    for overrides in (("mechanism=banded", "mechanism.bands=1"), ("accountant=pld",)):
        run = prepare(smoke(*SMALL, "scale.epochs=1", *overrides))
        computed.append(train(run, load(run), lambda row: None).history)
    assert computed[0] == computed[1]


@pytest.mark.parametrize("step", ["eager", "graph"])
def test_a_run_goes_on_with_the_noise_of_the_steps_before(smoke, step: str) -> None:
    run = prepare(smoke("mechanism=banded", *SMALL, f"runtime.step={step}"))
    data = load(run)
    whole, resumed, state = whole_and_resumed(run, data)
    assert resumed.history == whole.history
    parts = state["parts"]
    past = parts["past noise"].values() if step == "eager" else parts["step"]["buffers"][-1:]
    for tensor in past:
        assert len(tensor) == 3
        tensor.zero_()
    forgot = training(run, data, state=state)(lambda row: None)
    first, second = zip(forgot.history["test_loss"], whole.history["test_loss"], strict=True)
    assert first[0] == first[1]
    assert second[0] != second[1]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("mechanism.bands=400",), "draws each batch from one of its 400 parts, so batch_size can be at most"),
        (("mechanism.bands=0",), "mechanism.bands >= 1, got 0"),
        (("mechanism.bands=2.5",), "mechanism.bands=2.5 is not of type int"),
        (("mechanism.parts=random",), "mechanism.parts to be null or independent, got random"),
        (("mechanism.momentum=1",), "mechanism.momentum >= 0 and below 1, got 1"),
        (("sampling=shuffled",), "mechanism=banded needs sampling=poisson, got shuffled"),
        (("screening=annealing",), "screening charges kept steps one by one, so it takes no mechanism but DP-SGD's"),
        (("optimizer=adam_bc",), "AdamBC needs the same noise at all steps"),
    ],
)
def test_settings_without_a_derivation_are_refused(smoke, overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        prepare(smoke("mechanism=banded", *overrides))
