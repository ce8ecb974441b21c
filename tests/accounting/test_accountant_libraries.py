"""Every accountant against dp_accounting's PLD, used directly, Opacus' PRV and jax_privacy; bounds and estimates.

jax_privacy needs JAX, so its numbers are those of its version 2.0.0, at a delta of 1e-5. They are computed again where
it is installed.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant
from hydra.utils import instantiate
from opacus.accountants import PRVAccountant

from checks.audit.targets import option
from runner.accounting import sound_epsilon
from runner.cli.epsilon import _KINDS
from runner.clipping import NoiseGroup
from runner.config import Sampling
from runner.mechanism.banded import Banded
from tests.accounting.releases import DELTA, sampled
from tests.tracked import tracked_options

RUNS = {  # q, sigma, steps: epsilon by jax_privacy's accountants of Poisson batches, by PLD and by RDP
    (512 / 60_000, 1.23, 4680): (2.361374, 2.578992),
    (1024 / 60_000, 2.3259, 1160): (0.999878, 1.096927),
    (1024 / 50_000, 1.54, 1440): (2.365093, 2.585397),
}
BANDED = (60_000, 256, 1.1, 2320, 4, 2.074816)  # examples, batch, sigma, steps, bands, epsilon by PLD
OPTIONS = tracked_options("accountant")


@cache
def dp_accounting_pld(q: float, sigma: float, steps: int) -> float:
    event = PoissonSampledDpEvent(q, GaussianDpEvent(sigma))
    return float(PLDAccountant().compose(event, steps).get_epsilon(DELTA))


@cache
def opacus_prv(q: float, sigma: float, steps: int) -> tuple[float, float]:
    """Return Opacus' lower and upper end."""
    accountant = PRVAccountant()
    accountant.history = [(sigma, q, steps)]
    private = accountant._get_dprv(eps_error=0.01, delta_error=DELTA / 1000)
    low, _, high = private.compute_epsilon(DELTA, DELTA / 1000, 0.01)
    return low, high


@pytest.mark.parametrize("run", RUNS)
def test_the_sound_epsilon_is_that_of_three_libraries(run: tuple[float, float, int]) -> None:
    """Rounded up, dp_accounting's and jax_privacy's may be above ours by their own grid; Opacus' ends enclose it."""
    sound = sound_epsilon(sampled(*run), DELTA)
    low, high = opacus_prv(*run)
    assert low < sound < high < low + 0.03
    assert sound == pytest.approx(dp_accounting_pld(*run), abs=1e-3)
    assert sound == pytest.approx(RUNS[run][0], abs=1e-3)
    assert instantiate(option("accountant", "rdp")).epsilon(sampled(*run), DELTA) == pytest.approx(
        RUNS[run][1], abs=2e-2
    )


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", OPTIONS)
def test_a_bound_is_above_and_an_estimate_is_marked(name: str, run: tuple[float, float, int]) -> None:
    accountant = instantiate(option("accountant", name))
    epsilon = accountant.epsilon(sampled(*run), DELTA)
    low, _ = opacus_prv(*run)
    assert _KINDS[accountant.bound] == ("an estimate" if name == "gdp" else "a bound")
    if accountant.bound:
        assert epsilon > low
        assert epsilon > dp_accounting_pld(*run) - 1e-3
    else:
        assert 0.9 * low < epsilon < low, "it is too small, so it is no bound"


def test_banded_noise_costs_what_jax_privacy_says() -> None:
    examples, batch, sigma, steps, bands, epsilon = BANDED
    mechanism = Banded(Sampling.poisson, examples, batch, sigma, (NoiseGroup(("weight",), 1.0),), bands=bands)
    assert sound_epsilon(mechanism.charges(steps).actual, DELTA) == pytest.approx(epsilon, abs=1e-3)


def test_the_numbers_of_jax_privacy_are_its_numbers() -> None:
    accounting = pytest.importorskip("jax_privacy.accounting")

    def epsilon(config: Any, examples: int, batch: int, sigma: float, steps: int, cycle: int | None) -> float:
        parameters = accounting.DpParams(
            noise_multipliers=sigma, num_samples=examples, delta=DELTA, batch_size=batch, cycle_length=cycle
        )
        return float(accounting.DpsgdTrainingAccountant(config).compute_epsilon(steps, parameters))

    pld, rdp = accounting.PldAccountantConfig(), accounting.RdpAccountantConfig()
    for (q, sigma, steps), expected in RUNS.items():
        examples = 50_000 if sigma == 1.54 else 60_000
        computed = [epsilon(c, examples, round(q * examples), sigma, steps, None) for c in (pld, rdp)]
        assert computed == pytest.approx(expected, abs=1e-4)
    assert epsilon(pld, *BANDED[:5]) == pytest.approx(BANDED[5], abs=1e-4)
