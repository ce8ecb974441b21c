"""Norms of weights and pre-activations by layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from runner.networks.objective import layer_outputs, layers_with_parameters
from runner.training.diagnostics.interface import Diagnostic, Subject


class LayerNorms(Diagnostic):
    """Before training (epoch 0) and after each epoch, L2 norms by layer in the order of the calls.

    `weights` are the norms of each layer's weights. `pre_activations` are the norms of its output before the
    activation, in the mean over the first 2,048 training examples. The output of the last layer is the logits.
    """

    passes_training_images = True

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.values = {"epoch": [], "weights": {}, "pre_activations": {}}

    def weights(self, epoch: int) -> None:
        """Measure the weights."""
        self.values["epoch"].append(epoch)
        with self.subject.evaluating() as objective:
            for kind, norms in _layer_norms(objective.network, self.subject.fixed[0]).items():
                for layer, norm in norms.items():
                    self.values[kind].setdefault(layer, []).append(norm)


@torch.no_grad()
def _layer_norms(network: nn.Module, inputs: Tensor) -> dict[str, dict[str, float]]:
    with layer_outputs(network) as outputs:
        network(inputs)
    layers = layers_with_parameters(network)
    weights = {name: torch.as_tensor(layers[name].weight).norm().item() for name in outputs}
    means = {name: output.flatten(1).norm(dim=1).mean().item() for name, output in outputs.items()}
    return {"weights": weights, "pre_activations": means}
