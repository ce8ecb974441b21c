"""The one-pass engine. `engine` is the whole, `choice` chooses the method for a layer."""

from runner.gradients.one_pass.engine import OnePassEngine

__all__ = ["OnePassEngine"]
