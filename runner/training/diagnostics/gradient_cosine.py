"""The angle by which clipping turns a gradient sum."""

from __future__ import annotations

from functools import reduce

import torch

from runner.gradients import GradientSum
from runner.training.diagnostics.interface import SLICE, Batch, Diagnostic


class GradientCosine(Diagnostic):
    """The cosine between a batch's sums of clipped and of raw gradients before noise, and the step.

    It is measured at each step of the first epoch, then every `diagnostics_every` steps.
    """

    passes_training_images = True
    measures_steps = True

    def step(self, step: int, epoch: int, batch: Batch) -> None:
        """Measure on a batch."""
        if self.due(step) or epoch == 1:
            self.append(step=step, cosine=_cosine(batch))


def _cosine(batch: Batch) -> float:
    pieces = zip(batch.inputs.split(SLICE), batch.targets.split(SLICE), strict=True)
    raw = reduce(GradientSum.__add__, (batch.engine.plain_sum(*piece) for piece in pieces)).gradients
    a, b = (torch.cat([part[name].flatten() for name in raw]).double() for part in (raw, batch.clipped.gradients))
    return torch.nn.functional.cosine_similarity(a, b, dim=0).item()
