"""Per-example gradients of a user's code, computed without access to any other example."""

from runner.gradients.isolated.engine import IsolatedEngine, private_copy
from runner.gradients.isolated.mapped import Mapped
from runner.gradients.isolated.prediction import IsolatedPrediction
from runner.gradients.isolated.recording import NotMappableError

__all__ = ["IsolatedEngine", "IsolatedPrediction", "Mapped", "NotMappableError", "private_copy"]
