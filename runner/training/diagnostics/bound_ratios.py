"""Gradients over the bounds that follow from a Lipschitz network."""

from __future__ import annotations

from runner.networks.lipschitz import gradient_bounds
from runner.training.diagnostics.interface import Diagnostic, Subject, norms_of


class BoundRatios(Diagnostic):
    """Before training (epoch 0) and after each epoch, gradient norms over their bound, by parameter.

    A ratio is the L2 norm of an example's gradient of a parameter over the bound that follows from the network
    (`runner.networks.lipschitz`). `largest` and `mean` are over the first 2,048 training examples.
    """

    passes_training_images = True

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.values = {"epoch": [], "largest": {}, "mean": {}}

    def weights(self, epoch: int) -> None:
        """Measure the gradients of the weights."""
        self.values["epoch"].append(epoch)
        with self.subject.evaluating() as objective:
            bounds = gradient_bounds(objective).gradients
            norms = norms_of(objective, *self.subject.fixed, [[name] for name in bounds])
            for (name, bound), lengths in zip(bounds.items(), norms.unbind(1), strict=True):
                ratios = lengths / bound
                self.values["largest"].setdefault(name, []).append(ratios.max().item())
                self.values["mean"].setdefault(name, []).append(ratios.mean().item())
