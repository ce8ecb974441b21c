"""A training step as one fixed sequence of calls, on CUDA replayed as a graph.

`step` is the whole, and `capture` compiles and captures it. `network` makes an objective a function of its weights that
records its layers, and has the bounded sums. `batches` has the padded batches. A CPU takes steps call by call
(`runner.training.loop`), by an engine with kernels for processors. Results are tested against it on the CPU,
and `python -m checks parity` compares them on a GPU.
"""

from runner.training.graph.batches import enough, usual, whole
from runner.training.graph.step import GraphStep

__all__ = ["GraphStep", "enough", "usual", "whole"]
