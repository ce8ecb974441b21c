"""Update rules, which decide how a step's gradients change the weights."""

from runner.training.updates.interface import UpdateRule, Updates
from runner.training.updates.schedule import Schedule

__all__ = ["Schedule", "UpdateRule", "Updates"]
