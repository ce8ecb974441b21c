"""Steps of one run or of R runs as one fixed sequence of calls, on CUDA replayed as a graph.

`step` is the whole. `network` and `layers` merge R networks into one, `sums` has the bounded sums, `batches` the padded
batches, `updates` the optimizers. Results are tested against the eager loop on the CPU. The speed on a GPU has not been
measured yet.
"""

from runner.training.stacked.batches import EpochBatches, draw_epoch, whole
from runner.training.stacked.layers import NotStackableError
from runner.training.stacked.step import StackedStep

__all__ = ["EpochBatches", "NotStackableError", "StackedStep", "draw_epoch", "whole"]
