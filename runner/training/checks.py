"""Checks of a config and of its objects that need no data. Each raises `ConfigError` with one sentence."""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass, make_dataclass
from functools import cache
from typing import Any

import torch
from hydra.utils import get_object
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.nn.parameter import is_lazy

from runner.config import FIELDS, ConfigError, check_ranges, check_values
from runner.gradients import Objective
from runner.networks.objective import layers_with_parameters
from runner.speed.machine import memory
from runner.terminal import nearest
from runner.training.averaging import Averaging
from runner.training.diagnostics import DIAGNOSTICS
from runner.training.updates import Schedule
from runner.trust.targets import check_targets

_PASSED = ("activation", "classes", "input_shape", "optimizer", "params", "steps")  # by the package, to a class
_EPOCHS = 1000  # of a schedule that are tried, at most


def check_fields(config: DictConfig) -> None:
    """Check names of fields, ranges that no group's class checks, and that numbers can be used."""
    unknown_fields = sorted(set(map(str, config)) - set(FIELDS))
    if unknown_fields:
        raise ConfigError(f"There is no field {unknown_fields[0]!r} in a run's configuration.")
    check_ranges(config)
    check_values(OmegaConf.to_container(config, resolve=True, enum_to_str=True))
    unknown = sorted(set(config.diagnostics) - set(DIAGNOSTICS))
    if unknown:
        raise ConfigError(f"diagnostics has no {unknown[0]}: choose from {', '.join(DIAGNOSTICS)}.")


def check_arguments(config: DictConfig, group: str) -> None:
    """Check the types of a group's fields against the signature of its `_target_`."""
    node = config[group]
    if not isinstance(node, DictConfig) or "_target_" not in node:
        raise ConfigError(f"{group} names no class: its file needs a line `_target_: package.Class`.")
    check_targets(config, group)
    target = get_object(node._target_)
    # For a dataclass, check the class: each base's annotations have to be evaluated in the module of that base.
    called = target.__init__ if inspect.isclass(target) and not is_dataclass(target) else target
    hints = typing.get_type_hints(called)
    defaults = {name: p.default for name, p in inspect.signature(target).parameters.items()}
    for name, value in ((str(key), v) for key, v in node.items()):
        if name == "_target_":
            continue
        if name not in (*defaults, "_partial_"):
            settable = [each for each in defaults if each not in _PASSED]
            others = nearest(name, settable) if settable else "It has no arguments."
            raise ConfigError(
                f"{group}.{name}={value} is not an argument of {node._target_}. {others} If the experiment sets "
                f"{group}.{name}, add ~{group}.{name}."
            )
        expected = bool if name == "_partial_" else _plain_type(hints.get(name), defaults[name])
        try:
            taken = OmegaConf.select(OmegaConf.merge(_holder(name, expected), {name: value}), name)
            if _is_text_for_number(value, taken):
                kind, plain = ("true or false", str(taken).lower()) if isinstance(taken, bool) else ("a number", taken)
                raise ConfigError(
                    f"{group}.{name}={value!r} is text, but it has to be {kind}: write {plain} without quotes."
                )
        except OmegaConfBaseException as error:
            readable = getattr(expected, "__name__", str(expected))
            raise ConfigError(f"{group}.{name}={value} is not of type {readable}.") from error


def _is_text_for_number(given: Any, taken: Any) -> bool:
    """Return True if a value that was taken for a number, or a number in it, was given as text."""
    if isinstance(given, str):
        return isinstance(taken, (int, float))
    return isinstance(given, ListConfig) and any(map(_is_text_for_number, given, taken))


def _plain_type(hint: Any, default: Any) -> Any:
    """Return the type of an argument: its annotation if OmegaConf supports it, else its default's type."""
    if hint is not None:
        try:
            _holder("value", hint)
            return hint
        except (OmegaConfBaseException, ValueError, TypeError):  # TypeError: an annotation without a hash is no type
            pass
    if isinstance(default, (bool, float, str)):
        return type(default)
    return float if isinstance(default, int) else Any  # a library's default `weight_decay=0` also accepts 0.1


@cache
def _holder(name: str, expected: Any) -> DictConfig:
    """Return a config with one field of a type, for merging. It is cached, as it takes milliseconds, and not changed.

    Raises:
        OmegaConfBaseException, ValueError: OmegaConf does not support the type.
    """
    made: DictConfig = OmegaConf.structured(make_dataclass("Arguments", [(name, expected, "???")]))
    return made


@contextmanager
def within_memory() -> Iterator[None]:
    """Refuse weights that do not fit into the memory of this process with their gradient and its noise.

    PyTorch registers a parameter before its first values are drawn. Until then, no memory is taken.

    Raises:
        ConfigError: the weights are too large.
    """
    there, needed = memory(), 0

    def count(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
        nonlocal needed
        needed += 0 if is_lazy(parameter) else 3 * parameter.numel() * parameter.element_size()
        if needed > there:
            raise ConfigError(
                f"the weights, their gradient and its noise take more memory than the {there / 2**30:,.0f} GiB that "
                f"this process may use: choose a smaller network"
            )

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def check_weights(objective: Objective) -> None:
    """Check that noise can be drawn in the types of the weights, and that no module mixes examples by design.

    Raises:
        ConfigError: a weight is not float32 or float64, has no shape yet or is frozen, or there is batch
            normalisation.
    """
    for name, parameter in objective.named_parameters():
        if isinstance(parameter, nn.UninitializedParameter):
            raise ConfigError(f"architecture: {name} gets its shape in the first pass: use a layer that is not lazy.")
        if parameter.dtype not in (torch.float32, torch.float64):
            raise ConfigError(
                f"architecture: {name} has type {parameter.dtype}: weights have to be float32 or float64, the "
                f"types of the noise."
            )
        if not parameter.requires_grad:
            raise ConfigError(
                f"architecture: {name} is frozen, and all parameters are trained: make it a buffer, or make the frozen "
                f"part a class for features."
            )
    normalised = [m for m in objective.modules() if isinstance(m, nn.modules.batchnorm._NormBase)]
    coupling = [m for m in normalised if isinstance(m, nn.modules.batchnorm._BatchNorm) or m.track_running_stats]
    if coupling:
        raise ConfigError(
            f"architecture: {type(coupling[0]).__name__} mixes examples, in a batch or in running statistics "
            f"without noise, so no example's contribution can be bounded: use group normalisation or none."
        )


def _loss_alone(objective: Objective, classes: int) -> Exception | None:
    """Return the error of a loss on made-up logits, or None. A loss that reads more than logits is not tried."""
    if getattr(objective.loss, "reads_pre_activations", False):
        return None
    try:
        objective.loss(torch.zeros(2, classes), torch.zeros(2, dtype=torch.long))
    except Exception as error:
        return error
    return None


def check_objective(objective: Objective, shape: list[int], classes: int) -> None:
    """Pass two examples through an objective on the meta device to check shapes.

    Raises:
        ConfigError: they do not fit.
    """
    try:
        objective.start_epoch(0)
        losses = objective(torch.empty(2, *shape), torch.zeros(2, dtype=torch.long))
    except (AttributeError, IndexError, RuntimeError, ValueError, TypeError) as error:
        if (reason := _loss_alone(objective, classes)) is not None:
            raise ConfigError(f"loss: {reason}") from error
        raise ConfigError(f"architecture: the network cannot take features of shape {shape}: {error}") from error
    if losses.shape != (2,):
        raise ConfigError(
            f"loss: expected one loss per example, shape (2,) for two examples, got {tuple(losses.shape)}."
        )


def check_constraint(objective: Objective) -> None:
    """Check that all parameters are weights and biases of linear layers and convolutions, and project them once."""
    for name, layer in layers_with_parameters(objective).items():
        if type(layer) not in (nn.Linear, nn.Conv2d):
            raise ConfigError(
                f"constraint: it is for linear layers and convolutions, but {name} is a {type(layer).__name__}."
            )
    try:
        objective.project()
    except Exception as error:  # any error of a user's code
        raise ConfigError(f"constraint: {error}") from error


def check_steps(
    optimizer: torch.optim.Optimizer, schedule: Schedule, epochs: int, steps_per_epoch: int, device: torch.device
) -> None:
    """Take a step with a gradient of zero, and all of the schedule up to `_EPOCHS` epochs: some fail only there.

    Args:
        optimizer: one for a copy of a weight on the CPU, which is not used otherwise.
        schedule: its schedule.
        device: the run's. The optimizer is not tried for a GPU, which would be started wherever a run is planned.

    Raises:
        ConfigError: a step fails.
    """
    part = "optimizer"
    try:
        if device.type == "cpu":
            optimizer.step()
        part = "schedule"
        for epoch in range(min(epochs, _EPOCHS)):
            schedule.start_epoch()
            for _ in range(steps_per_epoch if schedule.by_step else 1):
                schedule.start_step()
                rate = optimizer.param_groups[0].get("lr", 0)
                if not 0 <= rate < math.inf:
                    raise ValueError(f"the learning rate would be {rate} in epoch {epoch + 1}")
    except Exception as error:
        raise ConfigError(f"{part}: a step fails: {error}") from error


def check_averaging(averaging: Averaging, steps: int) -> None:
    """Check that the share of the first and of the last weights in their average is one number from 0 to 1."""
    for updates in (1, steps):
        try:
            share = torch.as_tensor(averaging.share(torch.tensor(updates, dtype=torch.float64)))
        except Exception as error:  # any error of a user's code
            raise ConfigError(f"averaging: {error}") from error
        if share.numel() != 1 or not 0 <= share <= 1:
            raise ConfigError(f"averaging: expected a share from 0 to 1 at update {updates}, got {share.tolist()}.")


def check_optimizer(optimizer: Any) -> None:
    """Check that it is an optimizer, its rates are finite, and momentum is below 1, else gradients would never decay.

    PyTorch refuses only negative values.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ConfigError(f"optimizer: {type(optimizer).__name__} is no torch.optim.Optimizer.")
    group = optimizer.param_groups[0]
    rate, momentum = group.get("lr", 0), group.get("momentum", 0)
    if not math.isfinite(rate):
        raise ConfigError(f"optimizer.lr={rate} is out of range: it has to be finite.")
    if not 0 <= momentum < 1:
        raise ConfigError(f"optimizer.momentum={momentum} is out of range: it has to be 0 or greater, and below 1.")
