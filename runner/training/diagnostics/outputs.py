"""Outputs of the network and of its layers."""

import torch
from torch import Tensor, nn

from runner.networks.objective import hooked, layer_outputs, layers_with_parameters
from runner.training.diagnostics import Batch, Diagnostic, Subject
from runner.training.evaluate import Evaluation, predict


class ActivationNorms(Diagnostic):
    """L2 norms of the outputs of hidden activations, in the mean over a batch, every `diagnostics_every` steps.

    An activation has the name of its place in the network.
    """

    passes_training_images = True
    measures_steps = True

    def step(self, step: int, epoch: int, batch: Batch) -> None:
        if not self.due(step):
            return
        norms: dict[str, float] = {}

        def note(name: str, _: nn.Module, __: object, output: Tensor) -> None:
            norms[name] = output.flatten(1).norm(dim=1).mean().item()

        network, kind = self.subject.objective.network, self.subject.run.activation_type
        layers = {name: layer for name, layer in network.named_modules() if isinstance(layer, kind)}
        with hooked(layers, note), torch.no_grad():
            network(batch.inputs)
        self.append(step=step, **norms)


class LayerNorms(Diagnostic):
    """L2 norms by layer, in the order of the calls, before training (epoch 0) and after each epoch.

    `weights` are the norms of each layer's weights. `pre_activations` are the norms of its output before the
    activation, in the mean over the first 2,048 training examples. The output of the last layer is the logits.
    """

    passes_training_images = True

    def weights(self, epoch: int) -> None:
        network = self.subject.objective.network
        with self.subject.evaluating(), torch.no_grad(), layer_outputs(network) as outputs:
            network(self.subject.fixed[0])
        layers = layers_with_parameters(network)
        weights = {name: torch.as_tensor(layers[name].weight).norm().item() for name in outputs}
        norms = {name: output.flatten(1).norm(dim=1).mean().item() for name, output in outputs.items()}
        self.append(epoch=epoch, weights=weights, pre_activations=norms)


class Confusion(Diagnostic):
    """The confusion matrix of the training split.

    `counts[true class][predicted class]` after the epochs of `confusion_epochs` and after the last.
    """

    passes_training_images = True

    def epoch(self, epoch: int, evaluation: Evaluation) -> None:
        if epoch in (*self.subject.run.config.confusion_epochs, self.subject.run.epochs):
            classes = len(evaluation.class_accuracy)
            predicted, _ = predict(self.subject.objective, self.subject.training)
            counts = torch.bincount(self.subject.training.targets * classes + predicted, minlength=classes**2)
            self.append(epoch=epoch, counts=counts.view(classes, classes).tolist())


class PerClassAccuracy(Diagnostic):
    """The accuracy in percent of each class on the evaluation split: a list an epoch."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.values = []

    def epoch(self, epoch: int, evaluation: Evaluation) -> None:
        self.values.append(evaluation.class_accuracy)
