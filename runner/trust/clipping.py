"""A clipping written by a user: a function of one example, whose results are cut to the bound that it states.

The user's class states a bound by `noise_groups` and has one of two methods, which receive one example:

    factors(norms)             norms [groups] of one example's gradient -> a factor for each group
    contribution(gradients)    one example's gradient, by parameter name -> its contribution, by the same names

Let S_g be the sensitivity that the class states for group g, and c_g the method's result for one example in that group.
The example adds c_g min(1, S_g / ||c_g||_2) to the sum, and zero if a norm is not finite. Its contribution has a norm
of at most S_g for any method. So the sensitivity of the sum is S_g, and the noise is drawn for it.

The methods are mapped over the examples (`runner.trust.mapped`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from runner.clipping import LEAST_NORM, NoiseGroup, cut_to
from runner.gradients import Engine, GradientSum, MappedEngine
from runner.gradients.interface import weigh_and_sum
from runner.trust.mapped import Mapped, MappedObject

METHODS = ("factors", "contribution")
_MADE_UP = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e3)  # norms
_ROUNDING = 1e-4  # relative, of such norms
_LARGEST = 1e12  # squares of much larger numbers leave the range of float32
_INSTEAD = (
    "write `factors(norms)`, of the norms [groups] of one example, or `contribution(gradients)`, of one "
    "example's gradient by parameter name: it is applied to each example by itself"
)


@dataclass(frozen=True)
class OwnClipping:
    """A user's clipping, with its contributions cut.

    Attributes:
        part: the user's object.
        groups: the groups that it states, as plain numbers, read when this object is created.
        needs_gradients: True if its method receives gradients, False if it receives only their norms.
    """

    part: Any
    groups: tuple[NoiseGroup, ...]
    needs_gradients: bool

    needs_engine = True
    sums_by_engine = False

    @property
    def _names(self) -> list[str]:
        return [name for group in self.groups for name in group.parameters]

    @cached_property
    def _method(self) -> MappedObject:
        """Return the method, of norms [batch, groups] or of gradients in the order of the groups' parameters."""
        if not self.needs_gradients:
            return MappedObject(self.part, lambda part, norms: part.factors(norms), lambda norms: norms)

        def contribution(part: Any, *gradients: Tensor) -> list[Tensor]:
            added = part.contribution(dict(zip(self._names, gradients, strict=True)))
            return [added[name] for name in self._names]

        return MappedObject(self.part, contribution, lambda *gradients: list(gradients))

    def _contributions(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        added = self._method(*(gradients[name] for name in self._names))
        return dict(zip(self._names, added, strict=True))

    def noise_groups(self, model: nn.Module) -> tuple[NoiseGroup, ...]:
        """Return the groups that the class states."""
        return self.groups

    def sum_contributions(
        self, engine: Engine, inputs: Tensor, targets: Tensor, groups: Sequence[NoiseGroup] = ()
    ) -> GradientSum:
        """Return the sum over one physical batch of every example's contribution, cut to the stated sensitivity.

        Raises:
            NotMappableError: the method fails on one example.
        """
        names = [group.parameters for group in self.groups]
        if not self.needs_gradients:
            return engine.clipped_sum(inputs, targets, names, self._bounded_factors)
        assert isinstance(engine, MappedEngine)

        def cut_sum(gradients: dict[str, Tensor], losses: Tensor) -> GradientSum:
            return weigh_and_sum(self._contributions(gradients), losses, names, cut_to(self.groups))

        return engine.summed(inputs, targets, cut_sum)

    def mapped(self, model: nn.Module) -> Mapped:
        """Return the method, ready to be mapped over examples of gradients of this model's parameters."""
        if self.needs_gradients:
            parameters = dict(model.named_parameters())
            return self._method.ready(*(parameters[name].detach()[None] for name in self._names))
        return self._method.ready(next(model.parameters()).new_zeros(1, len(self.groups)))

    def longer(self, model: nn.Module) -> list[str]:
        """Return a sentence if a contribution is longer than the stated bound, as it is cut then.

        The method is applied to made-up gradients, whose norms are from 0.001 to 1000 in every group.

        Raises:
            ValueError: a result is not finite, so that such an example would add nothing.
        """
        norms = torch.tensor(_MADE_UP)[:, None].expand(-1, len(self.groups)).to(next(model.parameters()))
        if self.needs_gradients:
            generator = torch.Generator().manual_seed(0)
            random = {
                name: torch.randn(p.shape, generator=generator).to(p)[None] for name, p in model.named_parameters()
            }
            unit = {name: random[name][0] / _norms(random, group) for group in self.groups for name in group.parameters}
            gradients = {name: torch.stack([unit[name] * length for length in _MADE_UP]) for name in random}
            added = self._contributions(gradients)
            lengths = torch.stack([_norms(added, group) for group in self.groups], dim=1)
        else:
            lengths = (self._method(norms) * norms).abs()
        name = f"{type(self.part).__qualname__}.{METHODS[self.needs_gradients]}"
        for length, row in zip(_MADE_UP, lengths.tolist(), strict=True):
            for norm, group in zip(row, self.groups, strict=True):
                if not math.isfinite(norm):
                    raise ValueError(f"{name} is not finite for a gradient of norm {length:g}.")
                if norm > group.sensitivity * (1 + _ROUNDING):
                    return [
                        f"{name} turns a gradient of norm {length:g} into one of {norm:.3g}. It is cut to the stated "
                        f"bound of {group.sensitivity:g}."
                    ]
        return []

    def _bounded_factors(self, norms: Tensor) -> Tensor:
        """Return factors [batch, groups] of norms [batch, groups] that keep gradients within their sensitivity."""
        factors = self._method(norms)
        most = torch.tensor([group.sensitivity for group in self.groups], dtype=norms.dtype, device=norms.device)
        most = most / norms.clamp_min(LEAST_NORM)
        return torch.where(factors.isfinite(), factors, 0.0).clamp(-most, most)


def own_clipping(part: Any, model: nn.Module) -> OwnClipping:
    """Read once the bounds that a user's clipping states for the parameters of a model.

    Raises:
        ValueError: it would receive a whole batch, has neither method, or does not bound all parameters.
    """
    name = type(part).__qualname__
    sums = getattr(type(part), "sum_contributions", None)
    if sums is not None and sums.__module__ != cut_to.__module__:
        raise ValueError(f"{name}.sum_contributions would see a whole batch: {_INSTEAD}.")
    methods = [method for method in METHODS if hasattr(part, method)]
    if not methods:
        raise ValueError(f"{name} has no method that clips one example: {_INSTEAD}.")
    if not hasattr(part, "noise_groups"):
        raise ValueError(f"{name} states no bound: it needs `noise_groups(model)`.")
    groups = []
    for group in part.noise_groups(model):  # any object may state it
        sensitivity, share = float(group.sensitivity), None if group.share is None else float(group.share)
        if not LEAST_NORM <= sensitivity <= _LARGEST:
            raise ValueError(
                f"{name}.noise_groups states a sensitivity of {sensitivity}: it has to be from {LEAST_NORM:g} to "
                f"{_LARGEST:g}."
            )
        groups.append(NoiseGroup(tuple(group.parameters), sensitivity, share))
    clipping = OwnClipping(part, tuple(groups), needs_gradients="contribution" in methods)
    bounded = [parameter for group in clipping.groups for parameter in group.parameters]
    if sorted(bounded) != sorted(parameter for parameter, _ in model.named_parameters()):
        raise ValueError(f"{name}.noise_groups does not name every parameter once.")
    return clipping


def _norms(tensors: Mapping[str, Tensor], group: NoiseGroup) -> Tensor:
    """Return the norms [batch] of the parameters of a group, given tensors [batch, *shape] by name."""
    return torch.cat([tensors[name].flatten(1) for name in group.parameters], dim=1).square().sum(dim=1).sqrt()
