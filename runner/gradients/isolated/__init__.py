"""Per-example gradients of what a user wrote, computed where no other example is in reach."""

from runner.gradients.isolated.engine import IsolatedEngine, private_copy
from runner.gradients.isolated.mapped import Mapped, NotMappableError

__all__ = ["IsolatedEngine", "Mapped", "NotMappableError", "private_copy"]
