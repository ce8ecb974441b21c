"""The schema: every field says what it is, and what it says is what older hand-kept lists said."""

from __future__ import annotations

import dataclasses

import pytest

from runner.config import FIELDS
from runner.config.fields import (
    Differs,
    Part,
    properties_of,
    stated,
)


def test_a_field_that_states_none_is_refused() -> None:
    @dataclasses.dataclass
    class Incomplete:
        seed: int = stated(0, part=Part.run, differs=Differs.freely)
        added: bool = False

    with pytest.raises(TypeError, match=r"Incomplete\.added does not state"):
        properties_of(Incomplete)


def test_what_may_differ_between_runs_that_are_trained_together() -> None:
    """A wrong one trains runs on each other's batches, or keeps them apart for nothing."""
    numbers = {name for name, field in FIELDS.items() if field.differs is Differs.numbers}
    freely = {name for name, field in FIELDS.items() if field.differs is Differs.freely}
    assert numbers == {"activation", "loss", "clipping", "optimizer"}
    assert freely == {
        "seed", "draw", "noise_multiplier", "target_epsilon", "max_epsilon", "delta", "accountant", "tracking",
        "save_model", "title",
    }  # fmt: skip
