"""The one-pass engine: exact clipped sums at nearly the cost of an ordinary training step.

For each slice of a batch it runs one forward pass, and one backward pass that stops at the outputs of the layers. The
parameters do not require gradients in the meantime, so autograd forms no weight gradients. The inputs and output
gradients of a layer give the exact norms of its per-example gradients (`runner.gradients.terms`). The factors follow
from the norms, and then one weighted sum is formed.
"""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from runner.gradients import terms
from runner.gradients.interface import GradientSum, MappedEngine, OrdinaryPass
from runner.networks.geometry import Geometry, geometry, unsupported
from runner.networks.objective import Objective, hooked, layers_with_parameters
from runner.speed.faster import examples_per_slice, faster
from runner.speed.kernels import channels_last

Plan = dict[str, tuple[Geometry, str]]  # by layer name: the layer at one input size, and the method for it


class OnePassEngine(OrdinaryPass):
    """An engine for objectives of known modules (`runner.gradients.interface`): `ENGINES` passes no others.

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
        reasons = ((name or "the objective", unsupported(module)) for name, module in self._layers.items())
        if reason := next((f"{name}: {reason}" for name, reason in reasons if reason), None):
            self._fall_back(reason)
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
        self, inputs: Tensor, targets: Tensor, groups: Sequence[Sequence[str]], factors: terms.Factors
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
        for name, call in tape.items():
            module = self._layers[name]
            shape = geometry(module, call.inputs, call.output, self.objective.views)
            norm = isinstance(module, nn.GroupNorm)
            plan[name] = shape, "affine" if norm else terms.choose(shape, terms.usable(inputs, shape))
        names = [name for name, _ in self.objective.named_parameters()]

        def is_gradient(example: Tensor, target: Tensor) -> bool:
            computed = self._clipped_sum(plan, example, target, [names], torch.ones_like)
            assert computed.norms is not None
            return terms.is_gradient(self.objective, example, target, computed.gradients, computed.norms[0])

        for i in range(0 if self._checked else min(2, len(targets))):
            if not terms.agrees_at(is_gradient, (inputs[i : i + 1], targets[i : i + 1])):
                raise NotRecordableError(
                    "its gradients are not those of its layers (a weight is used outside its layer?)"
                )
        return plan

    def _clipped_sum(
        self, plan: Plan, inputs: Tensor, targets: Tensor, groups: Sequence[Sequence[str]], factors: terms.Factors
    ) -> GradientSum:
        per_slice = examples_per_slice([shape for shape, _ in plan.values()], len(targets), inputs)
        total: dict[str, Tensor] = {}
        losses, norms = [], []
        with recording(self._layers) as tape:
            for slice_inputs, slice_targets in zip(inputs.split(per_slice), targets.split(per_slice), strict=True):
                slice_losses = self._ordered(channels_last(slice_inputs), slice_targets)
                with torch.no_grad():
                    norms.append(self._add_slice(total, plan, tape, slice_losses, groups, factors))
                losses.append(slice_losses.detach())
                tape.clear()
        for name in (name for group in groups for name in group if name not in total):
            total[name] = torch.zeros_like(self._parameters[name], requires_grad=False)
        return GradientSum(total, torch.cat(losses), torch.cat(norms))

    def _add_slice(
        self,
        total: dict[str, Tensor],
        plan: Plan,
        tape: "Tape",
        losses: Tensor,
        groups: Sequence[Sequence[str]],
        factors: terms.Factors,
    ) -> Tensor:
        """Add a slice's contributions to `total`. Return the norms before clipping: [examples]."""
        gradients, examples = output_gradients(tape, losses), len(losses)
        rows = examples * self.objective.views
        for name, g in gradients.items():
            if name not in plan or len(g) != rows or len(tape[name].inputs) != rows:
                raise NotRecordableError(f"{name} is not called on one row an example")
        formed = {
            name: terms.layer_terms(self._layers[name], *plan[name], tape[name].inputs, g)
            for name, g in gradients.items()
        }
        norms = terms.group_norms(formed, groups, losses.new_zeros(examples))
        if math.isfinite(norms.sum().item()):
            weights = factors(norms)
        else:  # rare: repeat the slice with the broken examples' inputs and gradients set to zero
            broken = ~torch.isfinite(norms).all(dim=1)
            silent = broken.repeat_interleave(self.objective.views)
            for name, g in gradients.items():
                silenced = (terms.silenced(numbers, silent) for numbers in (tape[name].inputs, g))
                formed[name] = terms.layer_terms(self._layers[name], *plan[name], *silenced)
            weights = terms.factors_of(norms, broken, factors)
        for name, added in terms.weighted_sums(formed, groups, weights):
            added = added.reshape(self._parameters[name].shape)
            total[name] = total[name] + added if name in total else added.contiguous()
        lengths: Tensor = torch.linalg.vector_norm(norms, dim=1)
        return lengths


class NotRecordableError(Exception):
    """The objective uses a layer in a way that its inputs and output gradients do not show."""


class Call(NamedTuple):
    """The input and the output of a layer in one pass, and how often each had been changed in place."""

    inputs: Tensor
    output: Tensor
    versions: tuple[int, int]


Tape = dict[str, Call]  # by layer name


@contextmanager
def recording(layers: Mapping[str, nn.Module]) -> Iterator[Tape]:
    """Record every call of `layers` on a tape; inside, their parameters do not require gradients."""
    tape: Tape = {}

    def record(name: str, _: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        if name in tape:
            raise NotRecordableError(f"{name} is called twice")
        if not output.requires_grad:
            output.requires_grad_()
        tape[name] = Call(args[0].detach(), output, (args[0]._version, output._version))

    trainable = [p for module in layers.values() for p in module.parameters(recurse=False) if p.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        with hooked(layers, record), torch.enable_grad():
            yield tape
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)


def output_gradients(tape: Tape, losses: Tensor) -> dict[str, Tensor]:
    """Return d(sum of losses) / d(layer output), by layer, without layers that the loss does not depend on."""
    for name, (inputs, output, versions) in tape.items():
        if (inputs._version, output._version) != versions:
            raise NotRecordableError(f"the input or the output of {name} is changed in place")
    if not losses.requires_grad:
        return {}
    outputs = [call.output for call in tape.values()]
    with torch.enable_grad():
        total = losses.sum()  # gradients of a tensor of several numbers would import SymPy, for half a second
    gradients = torch.autograd.grad(total, outputs, allow_unused=True)
    return {name: g for name, g in zip(tape, gradients, strict=True) if g is not None}
