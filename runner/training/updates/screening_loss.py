"""The loss that screening decides by, computed only as far as a decision needs it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from runner.data.datasets import Split
from runner.gradients import Objective
from runner.speed.inference import batches
from runner.training.evaluate import Predictor


class ScreeningLoss:
    """The sum of the cross-entropies of `images` at the network's present weights, which is n times J.

    Losses are summed in float64, batch by batch, in one fixed order. None is negative and rounding is monotone, so the
    running sum never falls, even in floating point. Once it is above a bound, so is the whole sum. `at_most` can stop
    there with the same answer as from the whole sum.

    `sort` puts the images with the largest losses first. Most images have almost no loss, so a bad candidate is
    rejected long before the last image.
    """

    def __init__(self, network: nn.Module, images: Split, *, isolated: bool = False) -> None:
        """Prepare to evaluate a network. `isolated`: see `Objective.isolated`."""
        objective = Objective(network, nn.CrossEntropyLoss(reduction="none"))
        objective.isolated = isolated
        self._predictor, self._images, self._targets = Predictor(objective, images), images.images, images.targets
        self.device = self._images.device
        self.order = torch.arange(len(images), device=self.device)  # the index in `images` at each position

    def __len__(self) -> int:
        return len(self._images)

    def total(self) -> float:
        """Return the whole sum."""
        return self.at_most(math.inf)[1]

    def at_most(self, bound: float) -> tuple[bool, float]:
        """Return True if the sum is at most `bound` (a NaN is not), and the sum: whole if it is, else maybe partial."""
        total = 0.0
        with self._predictor.evaluating():
            for losses in self._losses():  # a rejection can stop between two
                total += losses.double().sum().item()
                if total > bound:
                    return False, total
        return total <= bound, total

    def sort(self) -> None:
        """Sort the images by their losses at the present weights, the largest first."""
        with self._predictor.evaluating():
            losses = torch.cat(list(self._losses()))
        self._take(losses.argsort(descending=True, stable=True))

    def put_in_order(self, order: Tensor) -> None:
        """Put the images, still in their original order, in the saved `order` of the same images."""
        self._take(order.to(self.device))

    def _take(self, order: Tensor) -> None:
        self._images, self._targets, self.order = self._images[order], self._targets[order], self.order[order]

    def _losses(self) -> Iterator[Tensor]:
        """Yield the losses of all images in their order, a batch at a time."""
        for inputs, targets in batches(self._images, self._targets):
            yield self._predictor(inputs, targets)[1]
