"""The confusion matrix of the training split."""

from __future__ import annotations

import torch

from runner.training.diagnostics.interface import Diagnostic
from runner.training.evaluate import Evaluation, predictions


class Confusion(Diagnostic):
    """`counts[true class][predicted class]` after the epochs of `confusion_epochs` and after the last."""

    passes_training_images = True

    def epoch(self, epoch: int, evaluation: Evaluation) -> None:
        """Count after an epoch that was asked for."""
        if epoch in (*self.subject.config.confusion_epochs, self.subject.epochs):
            classes = len(evaluation.class_accuracy)
            predicted = predictions(self.subject.objective, self.subject.training)
            counts = torch.bincount(self.subject.training.targets * classes + predicted, minlength=classes**2)
            self.append(epoch=epoch, counts=counts.view(classes, classes).tolist())
