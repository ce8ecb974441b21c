"""The one-pass engine, one idea a file: `engine` is the whole, `choice` says which method a layer gets."""

from runner.gradients.one_pass.engine import OnePassEngine

__all__ = ["OnePassEngine"]
