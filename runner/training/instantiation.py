"""Construction of a run's parts from its config, and of its device. Errors become `ConfigError`."""

from __future__ import annotations

import inspect
import os
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf
from torch import nn

from runner.config import ConfigError
from runner.config.origin import is_own
from runner.data.augmentation import Augmentation
from runner.data.datasets import ImageDataset, OwnDataset
from runner.data.examples import Examples, splits_of
from runner.data.features import Features, Pixels
from runner.data.reading import reproducible
from runner.gradients import Objective
from runner.mechanism.statistics import Normalization
from runner.networks.objective import InputBound
from runner.training.updates import Schedule, UpdateRule
from runner.trust.parts import OwnViews
from runner.trust.targets import check_targets

_DEVICES = ("cpu", "cuda")
_CALLED_LATER = ("mechanism", "optimizer", "schedule")


def instantiated(config: DictConfig, group: str, call_with: Any = None, **arguments: Any) -> Any:
    """Call `hydra.utils.instantiate` on a group, and call the result with `call_with` if given; None stays None.

    Raises:
        ConfigError: it fails; the message is one sentence.
    """
    if config[group] is None:
        return None
    check_targets(config, group)
    try:
        if group == "dataset":
            with reproducible():
                return _dataset_of(config)
        built = instantiate(config[group], **arguments, _convert_="all")
        return built if call_with is None else built(call_with)
    except (Exception, SystemExit) as error:  # any error of a user's code, which may also end its process
        cause = (error.__cause__ or error) if isinstance(error, InstantiationException) else error
        # The others name the argument.
        vague = isinstance(cause, (ArithmeticError, AttributeError, LookupError, RuntimeError))
        named = isinstance(cause, ArithmeticError | LookupError | SystemExit)
        said = f"{type(cause).__name__}: {cause}" if named else cause
        if isinstance(cause, TypeError) and group in _CALLED_LATER and not config[group].get("_partial_"):
            said = f"{said}: its file needs a line `_partial_: true`."
        raise ConfigError(f"{group}: {said}{_given(config[group]) if vague else ''}") from error


def _dataset_of(config: DictConfig) -> ImageDataset | OwnDataset:
    """Return the data set of a config. A class of torchvision's kind, or a function, is the user's, and read here."""
    kind = get_object(config.dataset._target_)
    taken = inspect.signature(kind).parameters
    if inspect.isclass(kind) and "root" in taken and taken.keys() & {"train", "split"} and not hasattr(kind, "load"):
        root = OmegaConf.select(config, "runtime.data_root") or os.environ.get("DP_DATA_ROOT") or "~/.cache/dp-data"
        place = {} if "root" in config.dataset else {"root": str(Path(root).expanduser())}
        built: Any = [instantiate(config.dataset, **place, **which, _convert_="all") for which in splits_of(kind)]
    else:
        built = instantiate(config.dataset, _convert_="all")
    if isinstance(built, tuple | list):
        built = Examples.of(built)
    elif not is_own(built):
        return cast(ImageDataset, built)
    return OwnDataset(built, config.scale.bundled_data)


def _given(group: DictConfig) -> str:
    """List the arguments of a group in brackets."""
    return f" ({', '.join(f'{name!s}={value}' for name, value in group.items() if not str(name).startswith('_'))})"


def objective_of(config: DictConfig, dataset: ImageDataset, features: Features) -> Objective:
    """Return the network, after its normalisation if there is one, with its loss.

    It is built on the current default device and from the current random state.
    """
    try:
        shape = features.shape(dataset.shape)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    except (AttributeError, TypeError) as error:
        raise ConfigError(f"features: {error}") from error
    activation = partial(instantiated, config, "activation")
    network = instantiated(config, "architecture", input_shape=shape, classes=dataset.classes, activation=activation)
    normalization: Normalization | None = instantiated(config, "normalization")
    if normalization is not None:
        try:
            layer = normalization.layer(shape[0])
        except ValueError as error:
            raise ConfigError(f"normalization: {error}.") from error
        network = nn.Sequential(OrderedDict(normalization=layer, network=network))
    bound = input_bound(features, dataset)
    return Objective(network, instantiated(config, "loss"), bound, instantiated(config, "constraint"))


def input_bound(features: Features, dataset: ImageDataset) -> InputBound:
    """Return the bound on every input, which features of bounded norm state in `largest_norm`."""
    return InputBound(tuple(features.shape(dataset.shape)), getattr(features, "largest_norm", None))


def augmentation_of(config: DictConfig, features: Features, shape: Sequence[int]) -> Augmentation | OwnViews | None:
    """Return the config's views of images of this shape, or None.

    Raises:
        ConfigError: the features are not pixels, or the views do not fit.
    """
    made = instantiated(config, "augmentation")
    if made is None:
        return None
    if type(features) is not Pixels:
        raise ConfigError(
            f"augmentation: it makes views of pixels, not of {type(features).__name__}: use features=pixels."
        )
    try:
        made = OwnViews(made) if is_own(made) else made
        views = made(torch.zeros(1, *shape), made.draw(1, torch.Generator()))
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(f"augmentation: {str(error).partition(chr(10))[0]}") from error
    assert views.shape == (1, made.views, *shape)
    return made


def update_rule_of(config: DictConfig) -> UpdateRule:
    """Return the config's update rule, the plain one by default.

    Raises:
        ConfigError: a user's class is no update rule, or defines no updates.
    """
    rule: UpdateRule = instantiated(config, "screening") or UpdateRule()
    if not isinstance(rule, UpdateRule) or (is_own(rule) and type(rule).updates is UpdateRule.updates):
        target = config.screening._target_
        raise ConfigError(f"screening: {target} is no UpdateRule that defines `updates(run, objective, aside)`.")
    return rule


def schedule_of(config: DictConfig, optimizer: torch.optim.Optimizer, steps: int) -> Schedule:
    """Return the schedule of an optimizer's learning rate, constant by default, in a run of `steps` steps."""
    if not config.schedule:
        return Schedule(None)
    by_step = getattr(get_object(config.schedule._target_), "by_step", False)
    made = instantiated(config, "schedule", call_with=optimizer, **({"steps": steps} if by_step else {}))
    if not hasattr(made, "step"):
        raise ConfigError(f"schedule: {config.schedule._target_} makes no schedule with a method step, but {made!r}.")
    return Schedule(made)


def device_of(name: str) -> torch.device:
    """Return the device of this machine that a config calls auto, cpu or cuda."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"runtime.device={name} is not a device: choose auto, cpu or cuda.") from error
    if device.type not in _DEVICES:
        raise ConfigError(f"runtime.device={name} is not supported: choose auto, cpu or cuda.")
    there_are = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= there_are:
        found = f"{there_are} CUDA devices, from cuda:0," if there_are else "no CUDA device"
        raise ConfigError(f"runtime.device={name}, but PyTorch finds {found} here.")
    return device
