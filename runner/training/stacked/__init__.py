"""Steps of one run or of R runs as one fixed sequence of calls, on CUDA replayed as a graph.

`step` is the whole, and `capture` compiles and captures it. `network` and `layers` merge R networks into one, `sums`
has the bounded sums, `batches` the padded batches, `updates` the optimizers. A CPU takes steps call by call
(`runner.training.call_by_call`), by an engine with kernels for processors. Results are tested against it on the CPU,
and `python -m checks parity` compares them on a GPU.
"""

from runner.training.stacked.batches import enough, whole
from runner.training.stacked.layers import NotStackableError
from runner.training.stacked.step import StackedStep

__all__ = ["NotStackableError", "StackedStep", "enough", "whole"]
