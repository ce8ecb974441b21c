"""A histogram of the norms of per-example gradients before clipping."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from runner.training.diagnostics.interface import Batch, Diagnostic, Subject, gradient_norms
from runner.training.evaluate import Evaluation

BIN, _BINS = 0.5, 200  # their width and number


class GradientHistogram(Diagnostic):
    """An entry an epoch for the L2 norms of all its per-example gradients before clipping.

    `counts` has bins of width 0.5 from 0 to 100. The last of the 201 counts all norms above. `mean`, `median` and `p90`
    describe the same norms.
    """

    measures_steps = True

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._norms: list[Tensor] = []

    def step(self, step: int, epoch: int, batch: Batch) -> None:
        """Keep the norms of a batch."""
        self._norms.append(gradient_norms(batch))

    def epoch(self, epoch: int, evaluation: Evaluation) -> None:
        """Count the norms of an epoch."""
        self.append(epoch=epoch, **_histogram(self._norms))
        self._norms.clear()


def _histogram(batches: list[Tensor]) -> dict[str, Any]:
    if not batches:  # an epoch of empty batches
        return {"counts": [0] * (_BINS + 1), "mean": float("nan"), "median": float("nan"), "p90": float("nan")}
    norms = torch.cat(batches).double()
    bins = (norms / BIN).nan_to_num(nan=_BINS).clamp(0, _BINS).long()
    ordered = norms.sort().values  # NaN last: a gradient that is not finite is large
    quantiles = {
        name: ordered[int(share * (len(ordered) - 1))].item() for name, share in (("median", 0.5), ("p90", 0.9))
    }
    return {"counts": torch.bincount(bins, minlength=_BINS + 1).tolist(), "mean": norms.mean().item(), **quantiles}
