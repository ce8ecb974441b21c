"""Norms of the outputs of hidden activations."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from runner.networks.objective import hooked
from runner.training.diagnostics.interface import Batch, Diagnostic


class ActivationNorms(Diagnostic):
    """Every `diagnostics_every` steps the mean over the batch of each hidden activation's L2 norm, and the step.

    An activation has the name of its place in the network.
    """

    passes_training_images = True
    measures_steps = True

    def step(self, step: int, epoch: int, batch: Batch) -> None:
        """Measure on a batch."""
        if self.due(step):
            self.append(step=step, **self._norms(batch.inputs))

    @torch.no_grad()
    def _norms(self, inputs: Tensor) -> dict[str, float]:
        norms: dict[str, float] = {}

        def note(name: str, _: nn.Module, __: object, output: Tensor) -> None:
            norms[name] = output.flatten(1).norm(dim=1).mean().item()

        network, kind = self.subject.objective.network, self.subject.activation_type
        with hooked({name: layer for name, layer in network.named_modules() if isinstance(layer, kind)}, note):
            network(inputs)
        return norms
