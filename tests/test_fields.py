"""The schema: every field says what it is."""

from __future__ import annotations

import dataclasses

import pytest

from runner.config.fields import Part, properties_of, stated


def test_a_field_that_states_none_is_refused() -> None:
    @dataclasses.dataclass
    class Incomplete:
        seed: int = stated(0, part=Part.run)
        added: bool = False

    with pytest.raises(TypeError, match=r"Incomplete\.added does not state"):
        properties_of(Incomplete)
