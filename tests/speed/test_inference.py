"""Evaluation mode, and out of it again."""

from __future__ import annotations

import pytest
from torch import nn

from runner.training.evaluate import evaluating


def test_dropout_is_off_while_evaluating_and_on_again_after_an_error() -> None:
    dropout, seen = nn.Dropout(), []

    def fails() -> None:
        with evaluating(nn.Sequential(dropout)):
            seen.append(dropout.training)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert seen == [False]
    assert dropout.training


def test_a_part_that_was_in_evaluation_mode_stays_in_it() -> None:
    network = nn.Sequential(nn.Dropout().eval(), nn.Dropout())
    with evaluating(network):
        assert not network.training
    assert [child.training for child in network.modules()] == [True, False, True]
