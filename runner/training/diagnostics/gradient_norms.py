"""Norms of per-example gradients before clipping."""

from __future__ import annotations

from runner.training.diagnostics.interface import Batch, Diagnostic, gradient_norms


class GradientNorms(Diagnostic):
    """Every `diagnostics_every` steps the mean, median and 90th percentile of a batch's L2 norms, and the step."""

    measures_steps = True

    def step(self, step: int, epoch: int, batch: Batch) -> None:
        """Measure on a batch."""
        if self.due(step):
            norms = gradient_norms(batch)
            self.append(
                step=step,
                mean=norms.mean().item(),
                median=norms.median().item(),
                p90=norms.quantile(0.9).item(),
            )
