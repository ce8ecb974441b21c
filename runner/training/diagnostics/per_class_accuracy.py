"""Accuracy by class."""

from __future__ import annotations

from runner.training.diagnostics.interface import Diagnostic, Subject
from runner.training.evaluate import Evaluation


class PerClassAccuracy(Diagnostic):
    """A list an epoch: the accuracy in percent of each class on the evaluation split."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.values = []

    def epoch(self, epoch: int, evaluation: Evaluation) -> None:
        """Append the accuracies of an epoch."""
        self.values.append(evaluation.class_accuracy)
