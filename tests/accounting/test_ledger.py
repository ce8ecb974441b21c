"""The ledger keeps every release that happened, and apart from it what the paper charges."""

import pytest
from dp_accounting import GaussianDpEvent, NonPrivateDpEvent, PoissonSampledDpEvent

from runner.accounting import Ledger, Rdp, RdpClassic, sound_epsilon

STEP = PoissonSampledDpEvent(512 / 60000, GaussianDpEvent(1.23))


def test_equal_events_are_merged_in_order_of_first_appearance():
    ledger = Ledger()
    assert ledger.actual == ledger.claimed == ()
    ledger.release(GaussianDpEvent(8.0), GaussianDpEvent(8.0), count=2)
    for _ in range(3):
        ledger.release(STEP, STEP)
    ledger.release(GaussianDpEvent(8), None)
    ledger.release(PoissonSampledDpEvent(512 / 60000, GaussianDpEvent(1.23)), STEP, 4)
    assert ledger.actual == ((GaussianDpEvent(8.0), 3), (STEP, 7))
    assert ledger.claimed == ((GaussianDpEvent(8.0), 2), (STEP, 7))


def test_a_rejected_try_is_charged_by_the_sound_accounting_only():
    """Noise screening on MNIST, two tries an accepted step: claimed 3.00, in truth 4.29 / 3.77 / 3.47."""
    ledger = Ledger()
    for _ in range(4698):
        ledger.release(STEP, STEP)
        ledger.release(STEP, None)
    assert RdpClassic().epsilon(ledger.claimed, 1e-5) == pytest.approx(3.00, abs=5e-3)
    assert RdpClassic().epsilon(ledger.actual, 1e-5) == pytest.approx(4.29, abs=5e-3)
    assert Rdp().epsilon(ledger.actual, 1e-5) == pytest.approx(3.77, abs=5e-3)
    assert sound_epsilon(ledger.actual, 1e-5) == pytest.approx(3.47, abs=5e-3)


def test_nothing_is_recorded_for_a_count_of_zero():
    ledger = Ledger()
    ledger.release(NonPrivateDpEvent(), STEP, count=0)
    ledger.release(STEP, STEP, count=1, claimed_count=0)
    assert ledger.actual == ((STEP, 1),)
    assert ledger.claimed == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": -1}, "Expected count >= 0, got -1"),
        ({"count": 1.5}, "Expected count to be a whole number, got 1.5"),
        ({"claimed_count": -2}, "Expected claimed_count >= 0, got -2"),
        ({"claimed": None, "claimed_count": 1}, "Expected claimed_count=None"),
    ],
)
def test_bad_counts_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Ledger().release(**{"actual": STEP, "claimed": STEP, **arguments})


def test_only_events_are_recorded():
    with pytest.raises(TypeError, match="Expected actual to be"):
        Ledger().release(1.23, None)
