"""The largest eigenvalue of the Hessian of the training loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator, Tensor

from runner.gradients import Objective
from runner.mechanism.normal import generator
from runner.training.diagnostics import SLICE, Diagnostic, Subject

_ITERATIONS = 50
_TOLERANCE = 1e-2


class Hessian(Diagnostic):
    """The `eigenvalue` of largest absolute value of the Hessian, before training (epoch 0) and after each epoch.

    The Hessian belongs to the mean training loss, as it was in that epoch, on the first 2,048 training examples.
    `residual` is the norm at which the power iteration ended.
    """

    passes_training_images = True

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        stream = generator(subject.run.config.seed, "hessian", subject.training.images.device)
        self._top = TopEigenvalue(subject.objective, *subject.fixed, stream)

    def weights(self, epoch: int) -> None:
        with self.subject.evaluating():
            eigenvalue, residual = self._top()
        self.append(epoch=epoch, eigenvalue=eigenvalue, residual=residual)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "top": self._top.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._top.load_state_dict(state["top"])


class TopEigenvalue:
    """Power iteration on the Hessian of the mean loss over fixed examples: inputs [n, ...], targets [n].

    v <- H v / ||H v||_2 converges to the eigenvector of the eigenvalue that is largest in absolute value. That is the
    largest singular value of H up to its sign. Every call starts from the last call's vector, which changes little
    between two epochs, plus a random one of the same length. The random part lets it leave an eigenvector that is no
    longer the largest. It stops if the residual's norm ||H v - lambda v||_2, which bounds the distance of lambda to an
    eigenvalue, is below 0.01 |lambda|. It also stops after 50 products with H.

    Cost: a product with H is about twice a gradient over the examples (R. Pearlmutter, 1994).
    """

    def __init__(self, objective: Objective, inputs: Tensor, targets: Tensor, generator: Generator) -> None:
        self._objective, self._inputs, self._targets = objective, inputs, targets
        self._parameters = list(objective.parameters())
        numbers = sum(p.numel() for p in self._parameters)
        self._generator = generator
        self._vector = torch.zeros(numbers, device=inputs.device, dtype=inputs.dtype)

    def __call__(self) -> tuple[float, float]:
        """Return lambda (with its sign) and the norm of the residual, at the objective's present weights."""
        fresh = torch.empty_like(self._vector).normal_(generator=self._generator)
        start = self._vector + fresh / fresh.norm()
        vector, value, residual = start / start.norm(), 0.0, float("inf")
        for _ in range(_ITERATIONS):
            product = self._times_hessian(vector)
            value = torch.dot(vector, product).item()
            residual = (product - value * vector).norm().item()
            norm = product.norm()
            if not torch.isfinite(norm) or norm == 0 or residual < _TOLERANCE * abs(value):
                break
            vector = product / norm
        self._vector = vector
        return value, residual

    def state_dict(self) -> dict[str, Tensor]:
        return {"vector": self._vector, "draws": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._vector = state["vector"].to(self._vector.device)
        self._generator.set_state(state["draws"].cpu())

    def _times_hessian(self, vector: Tensor) -> Tensor:
        """Return H v, the gradient of (gradient of the mean loss) . v, a slice of the examples at a time."""
        total = torch.zeros_like(vector)
        for inputs, targets in zip(self._inputs.split(SLICE), self._targets.split(SLICE), strict=True):
            loss = self._objective(inputs.clone(), targets).sum() / len(self._targets)
            gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, self._parameters, create_graph=True)])
            second = torch.autograd.grad(gradient @ vector, self._parameters)
            total += torch.cat([g.flatten() for g in second])
        return total
