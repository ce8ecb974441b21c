"""What a figure needs beyond accuracy, measured only where a config asks for it.

Every number here is computed from private data without noise: it belongs in a reproduction, not in a release.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from runner.engines import Engine, GradientSum
from runner.evaluate import Evaluation

DIAGNOSTICS = ("gradient_norms", "activation_norms", "per_class_accuracy")


class Diagnostics:
    """Collects the diagnostics that were asked for; with none asked for, `step` and `epoch` do nothing.

    gradient_norms: L2 norms of per-example gradients before clipping, every `every` steps: mean, median and 90th
        percentile over the batch.
    activation_norms: L2 norm of each hidden activation's output, every `every` steps, mean over the batch; one list
        per activation, named by its place in the network.
    per_class_accuracy: accuracy in percent by class on the evaluation split, every epoch.
    """

    def __init__(self, names: Sequence[str], every: int, activation_type: type[nn.Module]) -> None:
        self._names, self._every, self._activation_type = set(names), every, activation_type
        self.values: dict[str, Any] = {}

    def step(self, step: int, engine: Engine, inputs: Tensor, targets: Tensor, computed: GradientSum) -> None:
        """Measure on this step's batch, with the weights that its gradients were taken at."""
        if step % self._every or len(targets) == 0:
            return
        if "gradient_norms" in self._names:
            norms = computed.norms if computed.norms is not None else _gradient_norms(engine, inputs, targets)
            measured = {"mean": norms.mean(), "median": norms.median(), "p90": norms.quantile(0.9)}
            self._append("gradient_norms", step, {name: value.item() for name, value in measured.items()})
        if "activation_norms" in self._names:
            self._append("activation_norms", step, self._activation_norms(engine.objective.network, inputs))

    def epoch(self, evaluation: Evaluation) -> None:
        """Keep what an epoch's evaluation says."""
        if "per_class_accuracy" in self._names:
            self.values.setdefault("per_class_accuracy", []).append(evaluation.class_accuracy)

    def _append(self, diagnostic: str, step: int, measured: dict[str, float]) -> None:
        columns = self.values.setdefault(diagnostic, {"step": []})
        columns["step"].append(step)
        for name, value in measured.items():
            columns.setdefault(name, []).append(value)

    @torch.no_grad()
    def _activation_norms(self, network: nn.Module, inputs: Tensor) -> dict[str, float]:
        norms: dict[str, float] = {}
        handles = [
            module.register_forward_hook(
                lambda _, __, output, name=name: norms.update({name: output.flatten(1).norm(dim=1).mean().item()})
            )
            for name, module in network.named_modules()
            if isinstance(module, self._activation_type)
        ]
        network(inputs)
        for handle in handles:
            handle.remove()
        return norms


def _gradient_norms(engine: Engine, inputs: Tensor, targets: Tensor) -> Tensor:
    """Per-example norms where the clipping strategy did not need them: [batch]."""
    names = [name for name, _ in engine.objective.named_parameters()]
    norms = engine.clipped_sum(inputs, targets, [names], torch.zeros_like).norms
    assert norms is not None
    return norms
