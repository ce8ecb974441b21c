"""What becomes of a step's update before it counts."""

from runner.training.updates.interface import UpdateRule, Updates
from runner.training.updates.plain import Plain

__all__ = ["Plain", "UpdateRule", "Updates"]
