"""R networks that differ only in their weights and in numbers, as one network over one long batch.

Layers with weights become batched products (`layers`). A part without weights is used unchanged if the runs agree. If
they differ in a number (the scale of an activation) or hold buffers (the weight of a loss), it is mapped over the runs,
each with its numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from runner.gradients import Objective
from runner.networks.lipschitz.course import counting_course
from runner.speed.pooling import pool_first
from runner.training.stacked.layers import Layer, NotStackableError, layer, unsupported

Place = tuple[str, str]  # a module's path and an attribute's name


class StackedObjectives(nn.Module):
    """The objectives of R runs: values, inputs [R P, ...] and targets [R P] to losses [R P], P together from each run.

    With several `views` of each example, inputs are [R P, views, ...].

    Attributes:
        values: [R, numbers], the present weights. Every objective's parameters become views of its row.
        parts: by parameter name, its columns of `values`, and its shape.
        layers: the stacked layers, by name.

    Raises:
        NotStackableError: the runs differ in more than numbers, or have a layer that is not known.
    """

    def __init__(self, objectives: Sequence[Objective], views: int = 1) -> None:
        super().__init__()
        self.objectives = list(objectives)
        self.parts: dict[str, tuple[slice, torch.Size]] = {}
        end = 0
        for name, parameter in objectives[0].named_parameters():
            self.parts[name] = (slice(end, end + parameter.numel()), parameter.shape)
            end += parameter.numel()
        shapes = [{name: p.shape for name, p in each.named_parameters()} for each in objectives]
        if any(shape != shapes[0] for shape in shapes):
            raise NotStackableError("their weights have other shapes")
        first = next(objectives[0].parameters())
        self.values = torch.empty(len(objectives), end, dtype=first.dtype, device=first.device)
        for row, each in zip(self.values, objectives, strict=True):
            for name, parameter in each.named_parameters():
                columns, shape = self.parts[name]
                view = row[columns].view(shape)
                view.copy_(parameter.detach())
                parameter.data = view
        self.layers: dict[str, Layer] = {}
        self._names = {id(parameter): name for name, parameter in objectives[0].named_parameters()}
        self._mapped: list[_Mapped] = []
        stacked: Any = self._stack([pool_first(each) for each in objectives], "")
        self._stacked = _Stacked(stacked.network, stacked.loss)
        self._stacked.views = self.views = views
        for found in self.layers.values():
            found.views = views
        names = {id(each): name for name, each in self.layers.items()}
        self._places = {  # the parameters' names, by those in `_stacked`
            f"{place}.{kind}": f"{names[id(module)]}.{kind}"
            for place, module in self._stacked.named_modules()
            if id(module) in names
            for kind, _ in module.named_parameters()
        }

    def part(self, name: str, numbers: Tensor) -> Tensor:
        """Return the view of a parameter [R, *shape] in numbers [R, all of them]."""
        columns, shape = self.parts[name]
        return numbers[:, columns].view(-1, *shape)

    def forward(self, values: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        self.forget()
        weights = {place: self.part(name, values) for place, name in self._places.items()}
        losses: Tensor = functional_call(self._stacked, weights, (inputs, targets))
        return losses

    def forget(self) -> None:
        """Drop the inputs and outputs of the last pass."""
        for each in self.layers.values():
            each.forget()

    @torch.no_grad()
    def project(self, values: Tensor) -> None:
        """Project weights [R, numbers] in place onto the constraint, which all runs share."""
        constraint = self.objectives[0].constraint
        if constraint is not None:
            constraint.project({name: self.part(name, values) for name in self.parts})

    def start_epoch(self, epoch: int) -> None:
        """Pass the epoch that begins, counted from 0, to every objective."""
        for each in self.objectives:
            each.start_epoch(epoch)

    @contextmanager
    def counting(self, counters: Tensor) -> Iterator[None]:
        """Make a pass count: the derivative by `counters` [R P] is the count of each example in its run's loss."""
        of_runs = [mapped.course for mapped in self._mapped if mapped.course is not None]
        course = of_runs[0] if of_runs else counting_course(self.objectives[0].loss)
        assert course is not None
        with course.counting(counters):
            yield

    def _stack(self, modules: list[nn.Module], name: str) -> nn.Module:
        first = modules[0]
        if any(type(module) is not type(first) for module in modules):
            raise NotStackableError(f"{name} has other types")
        own = {key: parameter for key, parameter in first._parameters.items() if parameter is not None}
        if own:
            reason = unsupported(first)
            if reason:
                raise NotStackableError(f"{name}: {reason}")
            names = {key: self._names[id(parameter)] for key, parameter in own.items()}  # names before `pool_first`
            weights = {key: self.part(names[key], self.values) for key in own}
            found = layer(first, weights["weight"], weights.get("bias"))
            self.layers[names["weight"].rpartition(".")[0]] = found
            return found
        if not any(True for _ in first.parameters()):
            if len(modules) == 1:
                return first
            places = _differences(modules)
            if not places and not any(True for _ in first.buffers()):
                return first
            self._mapped.append(_Mapped(modules, places, self.values))
            return self._mapped[-1]
        if len(modules) > 1 and _differences(modules, recurse=False):
            raise NotStackableError(f"{name or 'the objective'} differs in {_differences(modules, recurse=False)}")
        copied = copy.copy(first)
        copied._modules = {
            child: self._stack([module.get_submodule(child) for module in modules], f"{name}.{child}".lstrip("."))
            for child in first._modules
        }
        return copied


class _Stacked(Objective):
    """An objective of stacked layers. They keep their outputs, so that no hook has to read these."""

    def predict(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.network(inputs)
        if not getattr(self.loss, "reads_pre_activations", False):
            return logits, self.loss(logits, targets)
        *hidden, _ = [each.output for each in self.network.modules() if isinstance(each, Layer)]
        return logits, self.loss(logits, targets, hidden)


class _Mapped(nn.Module):
    """A module without weights, each run's version on that run's examples.

    The buffers of the runs' modules become views of the stacked ones. So a module that writes into its buffers changes
    the next pass.
    """

    def __init__(self, modules: Sequence[nn.Module], places: Mapping[Place, list[float]], like: Tensor) -> None:
        super().__init__()
        self._modules_of_runs = list(modules)
        self._template = copy.deepcopy(modules[0])
        self._places = list(places)
        self._numbers = [torch.tensor(v, dtype=like.dtype, device=like.device) for v in places.values()]
        self._stacked_buffers = {
            name: torch.stack([module.get_buffer(name) for module in modules]) for name, _ in modules[0].named_buffers()
        }
        for name, stacked in self._stacked_buffers.items():
            path, _, own = name.rpartition(".")
            for row, module in zip(stacked, modules, strict=True):
                module.get_submodule(path)._buffers[own] = row
        self.course = counting_course(self._template)
        self.reads_pre_activations = getattr(modules[0], "reads_pre_activations", False)  # see Objective
        self._call = vmap(self._call_one)

    def forward(self, *inputs: Tensor | list[Tensor]) -> Tensor:
        runs = len(self._modules_of_runs)
        by_run = tuple(
            [tensor.unflatten(0, (runs, -1)) for tensor in each]
            if isinstance(each, list)
            else each.unflatten(0, (runs, -1))
            for each in inputs
        )
        if self.course is None or self.course.counter is None:
            return self._call(self._numbers, self._stacked_buffers, by_run).flatten(0, 1)
        counters = self.course.counter
        try:
            return self._call(self._numbers, self._stacked_buffers, by_run, counters.view(runs, -1)).flatten(0, 1)
        finally:
            self.course.counter = counters

    def _call_one(
        self, numbers: list[Tensor], buffers: dict[str, Tensor], inputs: tuple[Any, ...], counters: Tensor | None = None
    ) -> Tensor:
        if self.course is not None:
            self.course.counter = counters
        for (path, name), value in zip(self._places, numbers, strict=True):
            setattr(self._template.get_submodule(path), name, value)
        output: Tensor = functional_call(self._template, buffers, inputs)
        return output


def _differences(modules: Sequence[nn.Module], recurse: bool = True) -> dict[Place, list[float]]:
    """Return numbers that differ, by place.

    Raises:
        NotStackableError: anything else differs.
    """
    found: dict[Place, list[float]] = {}
    trees = [dict(module.named_modules()) if recurse else {"": module} for module in modules]
    if any(list(tree) != list(trees[0]) for tree in trees):
        raise NotStackableError("they are built of other parts")
    for path in trees[0]:
        parts = [tree[path] for tree in trees]
        settings = [_settings(part) for part in parts]
        kind = type(parts[0]).__name__
        if any(type(part) is not type(parts[0]) for part in parts) or any(
            s.keys() != settings[0].keys() for s in settings
        ):
            raise NotStackableError(f"{path or kind} has other types")
        for name in settings[0]:
            values = [s[name] for s in settings]
            if all(value is values[0] or _equal(value, values[0]) for value in values):
                continue
            if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
                raise NotStackableError(f"{kind}.{name} differs")
            found[path, name] = values
    return found


def _settings(module: nn.Module) -> dict[str, Any]:
    """Return the attributes of a module that not every module has."""
    return {name: value for name, value in vars(module).items() if name not in _EVERY_MODULE}


_EVERY_MODULE = set(vars(nn.Module()))


def _equal(one: Any, other: Any) -> bool:
    if is_dataclass(one) and type(one) is type(other):
        return bool(one == other)
    return isinstance(one, (int, float, str, tuple, list, type(None))) and type(one) is type(other) and one == other
