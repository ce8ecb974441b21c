"""An objective as a function of one vector of weights, whose layers keep what their gradients need."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from runner.gradients import Objective
from runner.networks.geometry import unsupported
from runner.speed.pooling import pool_first, with_parts
from runner.training.graph.layers import Layer, NotCapturableError


class RecordedObjective:
    """An objective as a function of weights, inputs [P, ...] and targets [P], by layers that record the pass.

    With several `views` of each example, inputs are [P, views, ...].

    Attributes:
        objective: the given one.
        values: [numbers], the present weights. The objective's parameters become views of it.
        parts: by parameter name, its place in `values`, and its shape.
        layers: the recorded layers, by name.

    Raises:
        NotCapturableError: a layer is not known.
    """

    def __init__(self, objective: Objective, views: int = 1) -> None:
        self.objective, self.views = objective, views
        parameters = dict(objective.named_parameters())
        self.values = torch.cat([p.detach().flatten() for p in parameters.values()])
        self.parts: dict[str, tuple[slice, torch.Size]] = {}
        end = 0
        for name, parameter in parameters.items():
            place = slice(end, end + parameter.numel())
            self.parts[name], end = (place, parameter.shape), place.stop
            parameter.data = self.values[place].view(parameter.shape)
        self._names = {id(parameter): name for name, parameter in parameters.items()}
        self.layers: dict[str, Layer] = {}
        recorded = self._with_layers(pool_first(objective), "")
        self._recorded = _Recorded(recorded.get_submodule("network"), recorded.get_submodule("loss"))
        self._recorded.views = views
        # Parameters have other names inside a layer, and after `pool_first`.
        self._places = {place: self._names[id(p)] for place, p in self._recorded.named_parameters()}

    def weights(self, values: Tensor) -> dict[str, Tensor]:
        """Return views of values [numbers], by parameter name."""
        return {name: values[place].view(shape) for name, (place, shape) in self.parts.items()}

    def losses(self, weights: Mapping[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        """Return losses [P] at these weights, by parameter name."""
        self.forget()
        by_place = {place: weights[name] for place, name in self._places.items()}
        losses: Tensor = functional_call(self._recorded, by_place, (inputs, targets))
        return losses

    def forget(self) -> None:
        """Drop what the layers keep of the last pass."""
        for layer in self.layers.values():
            layer.forget()

    @torch.no_grad()
    def project(self, values: Tensor) -> None:
        """Project weights [numbers] in place onto the constraint, if there is one."""
        if self.objective.constraint is not None:
            self.objective.constraint.project(self.weights(values))

    def _with_layers(self, module: nn.Module, name: str) -> nn.Module:
        """Return a module with a `Layer` around each module inside it that has parameters of its own."""
        own = next(module.parameters(recurse=False), None)
        if own is None:
            parts = {
                key: part and self._with_layers(part, f"{name}.{key}".lstrip("."))
                for key, part in module._modules.items()
            }
            return with_parts(module, parts)
        if reason := unsupported(module):
            raise NotCapturableError(f"{name}: {reason}")
        layer = Layer(module, self.views)
        self.layers[self._names[id(own)].rpartition(".")[0]] = layer
        return layer


class _Recorded(Objective):
    """An objective of recorded layers. They keep their outputs, so that no hook has to read these."""

    def predict(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.network(inputs)
        if not getattr(self.loss, "reads_pre_activations", False):
            return logits, self.loss(logits, targets)
        *hidden, _ = [layer.output for layer in self.network.modules() if isinstance(layer, Layer)]
        return logits, self.loss(logits, targets, hidden)
