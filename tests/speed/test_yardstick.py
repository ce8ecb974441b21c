"""The machine's yardstick: the least time is kept, and what the clock says over it is how crowded the machine is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from runner.speed import yardstick


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_the_least_time_is_kept_and_crowding_is_told_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces that take 3 s of the clock each, where one took 2 s of the processor alone before: 1.5 times longer."""
    assert yardstick.recalled() is None
    monkeypatch.setattr(yardstick, "_taken", lambda: (2.0, 40.0, 10))
    assert yardstick.measured() == yardstick.Yardstick(2.0, 2.0)
    monkeypatch.setattr(yardstick, "_taken", lambda: (2.5, 30.0, 10))
    assert yardstick.measured() == yardstick.Yardstick(2.0, 1.5)
    assert yardstick.recalled() == 2.0
    monkeypatch.setattr(yardstick, "_taken", lambda: (1.0, 10.0, 10))
    assert yardstick.measured() == yardstick.Yardstick(1.0, 1.0)


def test_a_machine_that_is_not_known_is_measured_more_than_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the least of one measurement may be far from its own."""
    bursts = [(3.0, 40.0, 10), (2.0, 40.0, 10), (2.5, 40.0, 10), (4.0, 30.0, 10), (9.0, 90.0, 10)]
    monkeypatch.setattr(yardstick, "_taken", lambda: bursts.pop(0))
    assert yardstick.measured() == yardstick.Yardstick(2.0, 1.5), "crowding is what the last says"
    assert yardstick.measured() == yardstick.Yardstick(2.0, 4.5)
    assert not bursts


@pytest.mark.parametrize("content", ["", "{", "{}", '{"seconds": 0}', '{"seconds": "fast"}', "[1]"])
def test_what_is_damaged_is_not_used(content: str) -> None:
    yardstick._keep(2.0)
    yardstick._path().write_text(content)
    assert yardstick.recalled() is None


def test_what_others_may_have_written_is_not_used() -> None:
    yardstick._keep(2.0)
    yardstick._path().chmod(0o666)
    assert yardstick.recalled() is None


def test_a_measurement_is_short_and_leaves_random_numbers_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    lowest, elapsed, pieces = yardstick._taken()
    assert 0 < lowest <= elapsed
    assert pieces >= 1
    assert torch.equal(before, torch.get_rng_state())
