"""Histograms of the norms of inputs and of gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from runner.training.diagnostics.interface import Diagnostic, Subject, norms_of

_BINS = 50


class NormHistograms(Diagnostic):
    """L2 norms of the first 2,048 training examples, in 50 bins of equal width from 0 to the `largest`.

    `inputs` is the histogram of their features. `gradients` has a histogram of their gradients before training
    (epoch 0) and after each epoch.
    """

    passes_training_images = True

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.values = {"epoch": [], "gradients": []}

    def weights(self, epoch: int) -> None:
        """Count the norms of inputs and gradients."""
        inputs, targets = self.subject.fixed
        self.values["inputs"] = _counts(torch.linalg.vector_norm(inputs.flatten(1), dim=1))
        self.values["epoch"].append(epoch)
        with self.subject.evaluating() as objective:
            names = [name for name, _ in objective.named_parameters()]
            self.values["gradients"].append(_counts(norms_of(objective, inputs, targets, [names])[:, 0]))


def _counts(norms: Tensor) -> dict[str, Any]:
    """Count norms [examples] in bins; those that are not finite are in the last."""
    norms = norms.double()
    finite = norms[torch.isfinite(norms)]
    largest = finite.max().item() if len(finite) else 0.0
    places = (norms / largest * _BINS).nan_to_num(_BINS, _BINS) if largest else torch.zeros_like(norms)
    counts = torch.bincount(places.long().clamp(0, _BINS - 1), minlength=_BINS)
    return {"largest": largest, "counts": counts.tolist()}
