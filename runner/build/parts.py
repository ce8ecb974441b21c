"""The parts of a run that need more than an instance of their group, and the checks of single parts.

Each function takes the checked groups or an instance and raises `ConfigError` with one sentence that names the part.
"""

import inspect
import json
import math
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.nn.parameter import is_lazy

from runner.build.groups import Group, refusing, words_of
from runner.clipping import Clipping
from runner.config import ConfigError, is_own
from runner.data.augmentation import Augmentation
from runner.data.datasets import ImageDataset, OwnDataset
from runner.data.examples import Examples, splits_of
from runner.data.features import Features, Pixels
from runner.data.reproducible import reproducible
from runner.gradients import Objective, fresh_copy
from runner.gradients.interface import check_losses
from runner.mechanism.dp_sgd import Normalization
from runner.networks.frozen import freeze
from runner.networks.objective import InputBound, layers_with_parameters
from runner.speed.machine import memory
from runner.training.updates import Schedule, UpdateRule, Updates
from runner.trust.own_parts import OwnClipping, OwnFeatures, OwnViews
from runner.trust.sources import sources_of, weight_files

_EPOCHS = 1000  # of a schedule that are tried, at most


def device_of(name: str) -> torch.device:
    """Return the device of this machine that a config calls auto, cpu or cuda."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"runtime.device={name} is not a device: choose auto, cpu or cuda.") from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"runtime.device={name} is not supported: choose auto, cpu or cuda.")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= count:
        present = f"{count} CUDA devices, from cuda:0," if count else "no CUDA device"
        raise ConfigError(f"runtime.device={name}, but PyTorch finds {present} here.")
    return device


def build_dataset(group: Group, config: DictConfig) -> ImageDataset:
    """Return the data set of a config. A class of torchvision's kind, or a function, is the user's, and read here."""
    arguments = inspect.signature(group.target).parameters
    of_torchvision = inspect.isclass(group.target) and "root" in arguments and not hasattr(group.target, "load")
    root = OmegaConf.select(config, "runtime.data_root") or os.environ.get("DP_DATA_ROOT") or "~/.cache/dp-data"
    with reproducible(), group.errors_in_words():
        if of_torchvision and arguments.keys() & {"train", "split"}:
            place = {} if "root" in group.node else {"root": str(Path(root).expanduser())}
            splits = splits_of(group.target)
            dataset: Any = [instantiate(group.node, **place, **split, _convert_="all") for split in splits]
        else:
            dataset = instantiate(group.node, _convert_="all")
        if isinstance(dataset, tuple | list):
            dataset = Examples.of(dataset)
        elif not is_own(dataset):
            return cast(ImageDataset, dataset)
        return cast(ImageDataset, OwnDataset(dataset, config.scale.bundled_data))  # which has the same methods


def build_features(group: Group) -> Features:
    """Return the features; a user's are applied to one image at a time, and cut to the norm that they state."""
    features = group.build()
    if not is_own(features):
        return cast(Features, features)
    key = ""
    if weight_files(group.node, "features"):
        made_of = sources_of(OmegaConf.create({"features": group.node}), ["features"])
        key = json.dumps([OmegaConf.to_container(group.node, resolve=True), made_of], sort_keys=True)
    with refusing("features"):
        return OwnFeatures(features, key)


def build_views(group: Group, features: Features, dataset: ImageDataset) -> Augmentation | OwnViews | None:
    """Return the views of each image, or None. They have to be of pixels, and to have the shape of the images."""
    views = group.build()
    if views is None:
        return None
    if type(features) is not Pixels:
        raise ConfigError(
            f"augmentation: it makes views of pixels, not of {type(features).__name__}: use features=pixels."
        )
    shape = features.shape(dataset.shape)
    with refusing("augmentation"):
        views = OwnViews(views) if is_own(views) else views
        view = views(torch.zeros(1, *shape), views.draw(1, torch.Generator()))
    assert view.shape == (1, views.views, *shape)
    return cast("Augmentation | OwnViews", views)


def build_clipping(group: Group, objective: Objective) -> Clipping:
    """Return the clipping; a user's states its bounds for a copy of the objective, and is cut to them."""
    clipping = group.build()
    if not is_own(clipping):
        return cast(Clipping, clipping)
    with refusing(f"clipping: {type(clipping).__qualname__}.noise_groups"), refusing("clipping", ValueError):
        return OwnClipping(clipping, fresh_copy(objective))


def build_rule(group: Group) -> UpdateRule:
    """Return the update rule, the plain one by default. A user's class has to be an `UpdateRule` with updates."""
    rule: UpdateRule = group.build() or UpdateRule()
    if not isinstance(rule, UpdateRule) or (is_own(rule) and type(rule).updates is UpdateRule.updates):
        target = group.node._target_
        raise ConfigError(f"screening: {target} is no UpdateRule that defines `updates(run, objective, aside)`.")
    return rule


def build_schedule(group: Group, optimizer: torch.optim.Optimizer, steps: int) -> Schedule:
    """Return the schedule of an optimizer's learning rate, constant by default, in a run of `steps` steps."""
    if group.target is None:
        return Schedule(None)
    by_step = getattr(group.target, "by_step", False)
    scheduler = group.build(call_with=optimizer, **({"steps": steps} if by_step else {}))
    if not hasattr(scheduler, "step"):
        raise ConfigError(f"schedule: {group.node._target_} makes no schedule with a method step, but {scheduler!r}.")
    return Schedule(scheduler)


def build_objective(
    groups: Mapping[str, Group], dataset: ImageDataset, features: Features, normalization: Normalization | None
) -> Objective:
    """Return the network, after its normalisation if there is one, with its loss.

    It is built on the current default device and from the current random state, and its weights have to be of types in
    which noise can be drawn. The network's maker may hold the original, so a copy is returned.
    """
    with refusing("features"):
        try:
            shape = features.shape(dataset.shape)
        except ValueError as error:  # which names the field
            raise ConfigError(str(error)) from error
    activation = groups["activation"].build
    network = groups["architecture"].build(input_shape=shape, classes=dataset.classes, activation=activation)
    if (init := groups["init"].build()) is not None:
        with refusing("init"):
            init.initialize(network)
    with refusing("architecture"):
        frozen = freeze(network)
    if normalization is not None:
        with refusing("normalization"):
            layer = normalization.layer(shape[0])
        network = nn.Sequential(OrderedDict(normalization=layer, network=network))
    bound = InputBound(tuple(shape), getattr(features, "largest_norm", None))
    objective = Objective(network, groups["loss"].build(), bound, groups["constraint"].build())
    objective.frozen = frozen
    with refusing("architecture or loss"):
        objective = fresh_copy(objective)
    _check_weights(objective)
    return objective


@contextmanager
def within_memory() -> Iterator[None]:
    """Refuse weights that do not fit into the memory of this process with their gradient and its noise.

    PyTorch registers a parameter before its first values are drawn. Until then, no memory is taken.
    """
    available, needed = memory(), 0

    def count(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
        nonlocal needed
        needed += 0 if is_lazy(parameter) else 3 * parameter.numel() * parameter.element_size()
        if needed > available:
            raise ConfigError(
                f"the weights, their gradient and its noise take more memory than the {available / 2**30:,.0f} GiB "
                f"that this process may use: choose a smaller network"
            )

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def _check_weights(objective: Objective) -> None:
    for name, parameter in objective.named_parameters():
        if isinstance(parameter, nn.UninitializedParameter):
            raise ConfigError(f"architecture: {name} gets its shape in the first pass: use a layer that is not lazy.")
        if not parameter.is_leaf:
            raise ConfigError(f"architecture: {name} of a copy is no parameter, as by torch.jit.script: leave it out")
        if not parameter.numel():
            shape = tuple(parameter.shape)
            raise ConfigError(f"architecture: {name} has the shape {shape}, so no weight: give each layer a unit.")
        if parameter.dtype not in (torch.float32, torch.float64):
            why = f"has type {parameter.dtype}: weights have to be float32 or float64, the types of the noise."
            raise ConfigError(f"architecture: {name} {why}")
    for module in objective.modules():
        couples = isinstance(module, nn.modules.batchnorm._BatchNorm)
        if couples or (isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats):
            raise ConfigError(
                f"architecture: {type(module).__name__} mixes examples, in a batch or in running statistics without "
                f"noise, so no example's contribution can be bounded: use group normalisation or none."
            )


def check_prediction(objective: Objective, count: int, shape: Sequence[int], classes: int) -> None:
    """Pass made-up examples through an objective, which may draw random numbers."""
    device = next(objective.parameters()).device
    images = torch.linspace(-1, 1, count * math.prod(shape), device=device).view(count, *shape)
    before = images.clone()
    targets = torch.zeros(count, dtype=torch.long, device=device)
    try:
        objective.start_epoch(0)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            logits, losses = objective.predict(images, targets)
    except Exception as error:  # any error of a user's code
        if not getattr(objective.loss, "reads_pre_activations", False):  # such a loss reads more than logits
            with refusing("loss"):
                objective.loss(torch.zeros(count, classes, device=device), targets)
        reason = (
            f"the network cannot take features of shape {list(shape)}" if objective.training else "evaluation fails"
        )
        raise ConfigError(f"architecture: {reason}: {words_of(error)}") from error
    actual = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
    if actual != (count, classes):
        raise ConfigError(f"architecture: expected logits of shape ({count}, {classes}), got {actual}.")
    with refusing("loss"):
        check_losses(losses, count)
    if not torch.equal(images, before):
        raise ConfigError("architecture: a module changes the images, which are used again: leave out inplace=True.")


def check_constraint(objective: Objective) -> None:
    """Check that all parameters are weights and biases of linear layers and convolutions, and project them once."""
    for name, layer in layers_with_parameters(objective).items():
        if type(layer) not in (nn.Linear, nn.Conv2d):
            kind = type(layer).__name__
            raise ConfigError(f"constraint: it is for linear layers and convolutions, but {name} is a {kind}.")
    with refusing("constraint"):
        objective.project()


def check_optimizer(
    groups: Mapping[str, Group], objective: Objective, epochs: int, steps_per_epoch: int, device: torch.device
) -> torch.optim.Optimizer:
    """Return an optimizer of an objective, after a trial step, and a trial of its schedule up to 1,000 epochs.

    Momentum has to be below 1, else gradients would never decay: PyTorch refuses only negative values. Other values
    fail only in a step or in a later epoch. So a copy of the smallest weight takes a step with a
    gradient of zero on the CPU. If the run is on a GPU, only the schedule is tried, because a step there would start
    the GPU wherever a run is planned.
    """
    complete: Any = groups["optimizer"].build(call_with=list(objective.parameters()))
    if not isinstance(complete, torch.optim.Optimizer):
        raise ConfigError(f"optimizer: {type(complete).__name__} is no torch.optim.Optimizer.")
    momentum = complete.param_groups[0].get("momentum", 0)
    if not 0 <= momentum < 1:
        raise ConfigError(f"optimizer.momentum={momentum} is out of range: it has to be 0 or greater, and below 1.")
    weight = torch.zeros_like(min(objective.parameters(), key=torch.numel), device="cpu", requires_grad=True)
    weight.grad = torch.zeros_like(weight)
    optimizer = groups["optimizer"].build(call_with=[weight])
    schedule = build_schedule(groups["schedule"], optimizer, epochs * steps_per_epoch)
    with refusing("optimizer: a step fails"):
        if device.type == "cpu":
            Updates(optimizer).step()
    with refusing("schedule: a step fails"):
        for epoch in range(min(epochs, _EPOCHS)):
            schedule.start_epoch()
            for _ in range(steps_per_epoch if schedule.by_step else 1):
                schedule.start_step()
                rate = optimizer.param_groups[0].get("lr", 0)
                if not 0 <= rate < math.inf:
                    raise ValueError(f"the learning rate would be {rate} in epoch {epoch + 1}")
    return complete
