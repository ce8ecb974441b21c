"""The one-pass engine: exact clipped sums at nearly the cost of an ordinary training step.

For each slice of a batch it runs one forward pass, and one backward pass that stops at the outputs of the layers. The
inputs and output gradients of a layer give the exact norms of its per-example gradients. The factors follow from the
norms, and then one weighted sum is formed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runner.gradients.interface import GradientSum, OrdinaryPass
from runner.gradients.mapped import MappedEngine
from runner.gradients.one_pass.affine import affine
from runner.gradients.one_pass.choice import choose
from runner.gradients.one_pass.instantiate import instantiate
from runner.gradients.one_pass.kernel import kernel, usable, winograd
from runner.gradients.one_pass.linear import linear
from runner.gradients.one_pass.standardized import through_standardization
from runner.gradients.one_pass.tape import NotRecordableError, Tape, output_gradients, recording
from runner.gradients.terms import Factors, Terms, factors_of, group_norms, is_gradient, silenced, weighted_sums
from runner.networks.geometry import Geometry, geometry, unsupported
from runner.networks.objective import Objective, layers_with_parameters
from runner.networks.standardized import StandardizedConv2d
from runner.speed.faster import faster
from runner.speed.slices import channels_last, examples_per_slice

METHODS: Mapping[str, Callable[[Tensor, Tensor, Geometry, bool], Terms]] = {
    "kernel": kernel,
    "winograd": winograd,
    "instantiate": instantiate,
}


Planned = tuple[Geometry, str]  # a layer at one input size, and the method that finds its norms
Plan = dict[str, Planned]  # by layer name


class OnePassEngine(OrdinaryPass):
    """An engine for objectives of known modules (`runner.gradients.known`): `ENGINES` passes no others.

    It supports linear layers, group normalisation, and two-dimensional convolutions with zero padding and one group,
    with weights that may be standardised. Each is called once per pass on one row per example. An objective with any
    other layer goes to the mapped engine, with a line on stderr.
    """

    def __init__(self, objective: Objective) -> None:
        super().__init__(objective)
        self._ordered = faster(objective)
        self._layers = layers_with_parameters(objective)
        self._plans: dict[tuple[torch.Size, torch.dtype, torch.device], Plan] = {}
        self._fallback: MappedEngine | None = None
        self._checked = False  # before a stop
        for name, module in self._layers.items():
            reason = unsupported(module)
            if reason:
                self._fall_back(f"{name or 'the objective'}: {reason}")
                return
        parameters = [p for module in self._layers.values() for p in module.parameters(False)]
        if len({id(p) for p in parameters}) < len(parameters):
            self._fall_back("two layers share a parameter")

    def _losses(self, inputs: Tensor, targets: Tensor) -> Tensor:
        losses: Tensor = self._ordered(channels_last(inputs), targets)
        return losses

    def _fall_back(self, reason: str) -> None:
        print(f"engine one_pass: {reason}, so the gradient of each example is computed by itself.", file=sys.stderr)
        self._fallback = MappedEngine(self.objective)

    def clipped_sum(
        self, inputs: Tensor, targets: Tensor, groups: Sequence[Sequence[str]], factors: Factors
    ) -> GradientSum:
        kind = (inputs.shape[1:], inputs.dtype, inputs.device)
        if self._fallback is None:
            try:
                if kind not in self._plans:
                    self._plans[kind] = self._plan(inputs, targets)
                return self._clipped_sum(self._plans[kind], inputs, targets, groups, factors)
            except NotRecordableError as reason:
                self._fall_back(str(reason))
        assert self._fallback is not None
        return self._fallback.clipped_sum(inputs, targets, groups, factors)

    def state_dict(self) -> dict[str, Any]:
        """Return whether it has fallen back, which later digits depend on."""
        return {"fallen_back": self._fallback is not None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on as before: with later weights, the check of a plan may come out another way."""
        if state["fallen_back"] and self._fallback is None:
            self._fall_back("as before")
        self._checked = True

    def _plan(self, inputs: Tensor, targets: Tensor) -> Plan:
        """Choose a method for every layer, and check the plan on two examples against ordinary autograd."""
        with recording(self._layers) as tape, torch.no_grad():
            self._ordered(inputs[:1], targets[:1])
        plan: Plan = {}
        for name, module in self._layers.items():
            if name in tape.outputs:
                shape = geometry(module, tape.inputs[name], tape.outputs[name], self.objective.views)
                plan[name] = shape, _method(module, shape, inputs)
        names = [name for name, _ in self.objective.named_parameters()]
        for i in range(0 if self._checked else min(2, len(targets))):
            one = inputs[i : i + 1], targets[i : i + 1]
            found = self._clipped_sum(plan, *one, [names], torch.ones_like)
            assert found.norms is not None
            if not is_gradient(self.objective, *one, found.gradients, found.norms[0]):
                raise NotRecordableError(
                    "its gradients are not those of its layers (a weight is used outside its layer?)"
                )
        return plan

    def _clipped_sum(
        self, plan: Plan, inputs: Tensor, targets: Tensor, groups: Sequence[Sequence[str]], factors: Factors
    ) -> GradientSum:
        per_slice = examples_per_slice([shape for shape, _ in plan.values()], len(targets), inputs)
        total: dict[str, Tensor] = {}
        losses, norms = [], []
        with recording(self._layers) as tape:
            for some_inputs, some_targets in zip(inputs.split(per_slice), targets.split(per_slice), strict=True):
                some_losses = self._ordered(channels_last(some_inputs), some_targets)
                with torch.no_grad():
                    norms.append(self._add_slice(total, plan, tape, some_losses, groups, factors))
                losses.append(some_losses.detach())
                tape.clear()
        for name in (name for group in groups for name in group if name not in total):
            total[name] = torch.zeros_like(self._parameters[name], requires_grad=False)
        return GradientSum(total, torch.cat(losses), torch.cat(norms))

    def _add_slice(
        self,
        total: dict[str, Tensor],
        plan: Plan,
        tape: Tape,
        losses: Tensor,
        groups: Sequence[Sequence[str]],
        factors: Factors,
    ) -> Tensor:
        """Add a slice's contributions to `total`. Return the norms before clipping: [examples]."""
        gradients, examples = output_gradients(tape, losses), len(losses)
        rows = examples * self.objective.views
        for name, g in gradients.items():
            if name not in plan or len(g) != rows or len(tape.inputs[name]) != rows:
                raise NotRecordableError(f"{name} is not called on one row an example")
        terms = {name: _terms(self._layers[name], *plan[name], tape.inputs[name], g) for name, g in gradients.items()}
        norms = group_norms(terms, groups, losses.new_zeros(examples))
        if math.isfinite(norms.sum().item()):
            weights = factors(norms)
        else:  # rare: repeat the slice with the broken examples' inputs and gradients set to zero
            broken = ~torch.isfinite(norms).all(dim=1)
            every = broken.repeat_interleave(self.objective.views)
            terms = {
                name: _terms(self._layers[name], *plan[name], silenced(tape.inputs[name], every), silenced(g, every))
                for name, g in gradients.items()
            }
            weights = factors_of(norms, broken, factors)
        for name, added in weighted_sums(terms, groups, weights):
            added = added.reshape(self._parameters[name].shape)
            total[name] = total[name] + added if name in total else added.contiguous()
        whole: Tensor = torch.linalg.vector_norm(norms, dim=1)
        return whole


def _method(module: nn.Module, shape: Geometry, inputs: Tensor) -> str:
    """Return the cheapest method for a layer."""
    return "affine" if isinstance(module, nn.GroupNorm) else choose(shape, usable(inputs, shape))


def _terms(module: nn.Module, shape: Geometry, method: str, a: Tensor, g: Tensor) -> Terms:
    """Return a layer's per-example gradients by its method, from its inputs and output gradients."""
    if isinstance(module, nn.GroupNorm):
        return affine(F.group_norm(a, module.num_groups, eps=module.eps), g, shape.views)
    has_bias = module.bias is not None
    if method == "outer":
        return linear(a.flatten(1), g.flatten(1), has_bias)
    if isinstance(module, nn.Linear):
        a, g = (each.reshape(-1, 1, shape.positions, each.shape[-1]) for each in (a, g))
    else:
        a, g = a.permute(0, 2, 3, 1), g.permute(0, 2, 3, 1)
    terms = METHODS[method](a, g, shape, has_bias)
    return through_standardization(terms, module, shape) if isinstance(module, StandardizedConv2d) else terms
