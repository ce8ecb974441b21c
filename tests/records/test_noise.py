"""What a record's noise costs: bounds for plain DP-SGD, and reasons where there is none."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from dp_accounting import GaussianDpEvent

from runner.clipping import NoiseGroup
from runner.config import Sampling
from runner.mechanism.dp_sgd import Mechanism, Scheduled
from runner.mechanism.normal import cost_of_rounding, delta_of_end, delta_of_radii
from runner.records.verify import cost_of_noise

TWO = (NoiseGroup(("a",), 1.0), NoiseGroup(("b",), 1.0))
PLAIN = Mechanism(Sampling.poisson, 60_000, 512, 1.23, (NoiseGroup(("a", "b"), 1.0),))
NAMES = ("sampling", "examples", "batch_size", "noise_multiplier", "noise_groups")
SCHEDULED = Scheduled(**{name: getattr(PLAIN, name) for name in NAMES})


def cost(mechanism: Mechanism = PLAIN, **provenance: str) -> tuple[float, float] | float | str:
    final = {"noise_multiplier": 1.23, "epsilon_sound": 2.6, "steps": 100, "max_tries": 200}
    run: Any = SimpleNamespace(mechanism=mechanism, parameters=26_010, config=SimpleNamespace(delta=1e-5))
    return cost_of_noise({"final": final, "provenance": {"device": "AMD EPYC"} | provenance}, run)


def test_the_most_steps_count_and_pairs_of_whole_sixteens_only() -> None:
    """Two tensors have up to 15 numbers each that belong to no pair of float32 numbers."""
    assert cost() == delta_of_radii((26_010 - 30) // 2, 1.23, 512 / 60_000, 200)
    assert cost(noise="float64") == delta_of_end(13_005, 1.23, 200)
    assert cost(noise="float64, rounded once") == cost_of_rounding(13_005, 200, 2.6, 1e-5)


@pytest.mark.parametrize(
    ("mechanism", "provenance", "reason"),
    [
        (PLAIN, {"device": "NVIDIA H200"}, "for the float32 noise of a GPU"),
        (replace(PLAIN, noise_groups=TWO), {}, "for several noise groups"),
        (replace(PLAIN, sampling=Sampling.shuffled), {}, "for shuffled batches"),
        (SCHEDULED, {}, "for this mechanism"),
        (SCHEDULED, {"noise": "float64"}, "for this mechanism"),
        (SCHEDULED, {"noise": "float64, rounded once"}, "for this mechanism"),
        (
            replace(PLAIN, before=((GaussianDpEvent(8.0), 1),)),
            {"noise": "float64"},
            "for runs that also release statistics",
        ),
    ],
)
def test_where_nothing_is_computed_the_reason_is_stated(
    mechanism: Mechanism, provenance: dict[str, str], reason: str
) -> None:
    assert cost(mechanism, **provenance) == reason


def test_float64_noise_is_bounded_for_groups_and_on_a_gpu() -> None:
    of_groups = cost(replace(PLAIN, noise_groups=TWO), noise="float64", device="NVIDIA H200")
    assert of_groups == delta_of_end(13_005, 1.23, 200)
