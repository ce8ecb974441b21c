"""From a composed config to the parts of a run, with every check that needs no data.

`prepare` builds on PyTorch's meta device first: a wrong type, value or combination is found before a byte is read.
"""

from __future__ import annotations

import inspect
import math
import typing
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass
from functools import cached_property, partial
from typing import Any

import torch
from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from torch import nn

from runner.accounting import calibrate_noise_multiplier, epochs_within, last_step_within
from runner.accounting.calibration import Accountant
from runner.clipping import Backprop, Clipping, NoClipping, NoiseGroup
from runner.config import Config, ConfigError, Engine, Evaluation, Step
from runner.datasets import ImageDataset, Split, holdout_examples
from runner.diagnostics import DIAGNOSTICS, NEED_PER_EXAMPLE_NORMS, OF_STEPS
from runner.engines import ENGINES, Objective, VmapEngine
from runner.engines import Engine as EngineProtocol
from runner.engines.one_pass.slices import examples_in_cache, examples_with_gradients
from runner.features import Features
from runner.layerwise import OfMeanLoss
from runner.mechanism import Mechanism
from runner.normalization import Normalization
from runner.screening import Annealing
from runner.seeds import derived_seed
from runner.stacked import NotStackableError
from runner.stacked import Step as StackedStep

_GROUPS = (
    "dataset", "features", "architecture", "activation", "loss", "clipping", "accountant", "optimizer",
)  # fmt: skip
_ABSENT_BY_DEFAULT = ("normalization", "mechanism", "screening")
_DEVICES = ("cpu", "cuda")

_ORDINARY_PASS = (NoClipping, Backprop)  # need no engine


@dataclass(frozen=True)
class Run:
    """The parts of one run that need no data.

    With `screening`, the steps of the `epochs` are tries, and `max_accepted` is the number of kept ones, if any, at
    which the run ends.
    """

    config: DictConfig
    dataset: ImageDataset
    features: Features
    normalization: Normalization | None
    clipping: Clipping
    accountant: Accountant
    mechanism: Mechanism
    epochs: int
    device: torch.device
    parameters: int
    screening: Annealing | None = None
    max_accepted: int | None = None

    @property
    def objective(self) -> Objective:
        """A freshly initialised network and its loss on the device: a function of the seed only."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed(self.config.seed, "init"))
            return _objective(self.config, self.dataset, self.features).to(self.device)

    @property
    def activation_type(self) -> type[nn.Module]:
        return type(_instantiate(self.config, "activation"))

    @cached_property
    def physical_batch(self) -> int:
        """Examples per forward pass: as configured, else as many as keep what is computed for them in a fast memory.

        The one_pass engine cuts batches itself and is best given whole ones.
        """
        if self.config.runtime.physical_batch is not None:
            return self.config.runtime.physical_batch
        if isinstance(self.clipping, _ORDINARY_PASS):
            return examples_in_cache(self.objective.network, self.features.shape(self.dataset.shape))
        if self.config.runtime.engine is Engine.one_pass:
            return self.mechanism.examples
        return examples_with_gradients(self.parameters, self.device.type)

    @property
    def step(self) -> Step:
        """How steps are taken: `eager`, or as `graph` (see `runner.stacked.step`).

        `auto` is `graph` on CUDA, where an eager step of a small network waits for its launches.
        """
        if self.config.runtime.step is not Step.auto:
            return self.config.runtime.step
        graph = self.device.type == "cuda" and self.config.runtime.engine is Engine.one_pass
        return Step.graph if graph else Step.eager

    def optimizer(self, objective: Objective) -> torch.optim.Optimizer:
        return _instantiate(self.config, "optimizer")(objective.parameters())


def prepare(config: DictConfig) -> Run:
    """Check a resolved config (see `runner.identity.resolved`) and build what needs no data.

    Raises:
        ConfigError: with one sentence, for anything that cannot be run as configured.
    """
    _check_fields(config)
    for group in (*_GROUPS, *(name for name in _ABSENT_BY_DEFAULT if config[name])):
        _check_arguments(config, group)
    dataset, features = _instantiate(config, "dataset"), _instantiate(config, "features")
    clipping, accountant = _instantiate(config, "clipping"), _instantiate(config, "accountant")
    normalization = _normalization(config)
    screening = _instantiate(config, "screening") if config.screening else None
    if screening is not None and config.mechanism is not None:
        raise ConfigError("screening charges kept steps one by one, so it takes no mechanism but DP-SGD's own.")
    device = _device(config.runtime.device)
    groups: list[tuple[Any, str, type]] = [(clipping, "clipping", Clipping), (accountant, "accountant", Accountant)]
    if normalization is not None:
        groups.append((normalization, "normalization", Normalization))
    for part, group, methods in groups:
        missing = [name for name in vars(methods) if not name.startswith("_") and not hasattr(part, name)]
        if missing:
            raise ConfigError(f"{group}: {config[group]._target_} has no method {missing[0]}.")

    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        objective = _objective(config, dataset, features)
        _check_objective(objective, features.shape(dataset.shape))
        one_by_one = not isinstance(clipping, _ORDINARY_PASS) or bool(NEED_PER_EXAMPLE_NORMS & set(config.diagnostics))
        if one_by_one and config.runtime.engine == Engine.vmap:
            _check_one_example(objective, features.shape(dataset.shape))
    _instantiate(config, "optimizer", call_with=list(objective.parameters()))

    examples = dataset.train_examples
    if config.evaluation == Evaluation.holdout:
        examples -= holdout_examples(examples)
    kind = Mechanism if config.mechanism is None else _instantiate(config, "mechanism")
    try:
        mechanism = partial(
            kind,
            config.sampling,
            examples,
            config.batch_size,
            noise_groups=_noise_groups(clipping, objective, features.shape(dataset.shape)),
            before=() if normalization is None else normalization.releases,
        )
        noise_multiplier = _noise_multiplier(config, accountant, mechanism)
        chosen = mechanism(noise_multiplier)
        epochs = _epochs(config, accountant, chosen) if screening is None else config.epochs
        max_accepted = None if screening is None else _max_accepted(config, accountant, chosen)
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from error
    if isinstance(chosen, OfMeanLoss):
        _check_mean_loss(clipping, objective)
    parameters = sum(p.numel() for p in objective.parameters())
    run = Run(
        config, dataset, features, normalization, clipping, accountant, chosen, epochs, device, parameters, screening,
        max_accepted,
    )  # fmt: skip
    if config.runtime.step is Step.graph:
        _check_graph(run, objective)
    return run


def _check_fields(config: DictConfig) -> None:
    """Names and ranges of the fields that no group's class checks."""
    unknown_fields = sorted(set(map(str, config)) - set(Config.__dataclass_fields__))
    if unknown_fields:
        raise ConfigError(f"There is no field {unknown_fields[0]!r} in a run's configuration.")
    positive, whole = "greater than 0 and finite", "a whole number from 1 up"
    ranges = {
        "seed": ("0 or greater", config.seed >= 0),
        "epochs": (whole, config.epochs >= 1),
        "batch_size": (whole, config.batch_size >= 1),
        "delta": ("between 0 and 1", 0 < config.delta < 1),
        "diagnostics_every": (whole, config.diagnostics_every >= 1),
        "confusion_epochs": ("whole numbers from 1 up", all(epoch >= 1 for epoch in config.confusion_epochs)),
        "runtime.physical_batch": (whole, _absent_or(config.runtime.physical_batch, 1)),
        "runtime.threads": (whole, _absent_or(config.runtime.threads, 1)),
        "runtime.lockstep": (whole, _absent_or(config.runtime.lockstep, 1)),
        "target_epsilon": (positive, config.target_epsilon is None or 0 < config.target_epsilon < math.inf),
        "max_epsilon": (positive, config.max_epsilon is None or 0 < config.max_epsilon < math.inf),
        "noise_multiplier": ("0 or greater, and finite", _absent_or(config.noise_multiplier, 0)),
    }
    for name, (range_, holds) in ranges.items():
        if not holds:
            value: Any = OmegaConf.select(config, name)
            raise ConfigError(f"{name}={value} is out of range: it has to be {range_}.")
    unknown = sorted(set(config.diagnostics) - set(DIAGNOSTICS))
    if unknown:
        raise ConfigError(f"diagnostics has no {unknown[0]}: choose from {', '.join(DIAGNOSTICS)}.")


def _absent_or(value: float | None, least: float) -> bool:
    return value is None or least <= value < math.inf


def _check_arguments(config: DictConfig, group: str) -> None:
    """Types of a group's fields against the signature of its `_target_`."""
    node = config[group]
    if not isinstance(node, DictConfig) or "_target_" not in node:
        raise ConfigError(f"{group} names no class: its file needs a line `_target_: package.Class`.")
    try:
        target = get_object(node._target_)
    except Exception as error:
        raise ConfigError(f"{group}._target_={node._target_} cannot be imported: {error}") from error
    hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    defaults = {name: p.default for name, p in inspect.signature(target).parameters.items()}
    for name, value in ((str(key), v) for key, v in node.items()):
        if name in ("_target_", "_partial_"):
            continue
        if name not in defaults:
            raise ConfigError(
                f"{group}.{name} is not an argument of {node._target_} (what an experiment sets stays when a group is "
                f"swapped: take it away with ~{group}.{name}, or start from another experiment)."
            )
        expected = _plain_type(hints.get(name), defaults[name])
        try:
            OmegaConf.merge(OmegaConf.structured(_holder(name, expected)), {name: value})
        except OmegaConfBaseException as error:
            readable = getattr(expected, "__name__", str(expected))
            raise ConfigError(f"{group}.{name}={value} is not of type {readable}.") from error


def _plain_type(hint: Any, default: Any) -> Any:
    """The type to hold an argument to: its annotation where OmegaConf knows it, else that of its default."""
    if hint is not None:
        try:
            OmegaConf.structured(_holder("value", hint))
            return hint
        except (OmegaConfBaseException, ValueError):
            pass
    if isinstance(default, (bool, int, float, str)):
        return type(default)
    return Any


def _holder(name: str, expected: Any) -> type:
    return make_dataclass("Arguments", [(name, expected, "???")])


def _instantiate(config: DictConfig, group: str, call_with: Any = None, **arguments: Any) -> Any:
    """`hydra.utils.instantiate` of a group (then called once, where asked), its errors as one sentence."""
    try:
        built = instantiate(config[group], **arguments, _convert_="all")
        return built if call_with is None else built(call_with)
    except InstantiationException as error:
        raise ConfigError(f"{group}: {error.__cause__ or error}") from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{group}: {error}") from error


def _objective(config: DictConfig, dataset: ImageDataset, features: Features) -> Objective:
    try:
        shape = features.shape(dataset.shape)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    activation = partial(_instantiate, config, "activation")
    network = _instantiate(config, "architecture", input_shape=shape, classes=dataset.classes, activation=activation)
    normalization = _normalization(config)
    if normalization is not None:
        try:
            layer = normalization.layer(shape[0])
        except ValueError as error:
            raise ConfigError(f"normalization: {error}.") from error
        network = nn.Sequential(OrderedDict(normalization=layer, network=network))
    return Objective(network, _instantiate(config, "loss"))


def _normalization(config: DictConfig) -> Normalization | None:
    return None if config.normalization is None else _instantiate(config, "normalization")


def _check_objective(objective: Objective, shape: list[int]) -> None:
    """One pass of two examples on the meta device: shapes fit, and there is no batch normalisation.

    Other ways to couple examples (a mean over the batch, say) show in numbers only: see `runner.independence`.
    """
    normalised = [m for m in objective.modules() if isinstance(m, nn.modules.batchnorm._NormBase)]
    coupling = [m for m in normalised if isinstance(m, nn.modules.batchnorm._BatchNorm) or m.track_running_stats]
    if coupling:
        raise ConfigError(
            f"architecture: {type(coupling[0]).__name__} mixes examples, in a batch or in running statistics "
            f"without noise, so no example's contribution can be bounded: use group normalisation or none."
        )
    try:
        objective.start_epoch(0)
        losses = objective(torch.empty(2, *shape), torch.zeros(2, dtype=torch.long))
    except (RuntimeError, ValueError, TypeError) as error:
        raise ConfigError(f"architecture: the network cannot take features of shape {shape}: {error}") from error
    if losses.shape != (2,):
        raise ConfigError(
            f"loss: expected one loss per example, shape (2,) for two examples, got {tuple(losses.shape)}."
        )


def _check_one_example(objective: Objective, shape: list[int]) -> None:
    """What the vmap engine does, on the meta device: not every loss or layer can be taken one example at a time."""
    try:
        VmapEngine(objective).gradients(torch.empty(2, *shape), torch.zeros(2, dtype=torch.long))
    except (RuntimeError, ValueError, TypeError) as error:
        raise ConfigError(
            f"the gradient of one example cannot be taken (try runtime.engine=opacus): {str(error).split('. ')[0]}"
        ) from error


def _check_graph(run: Run, objective: Objective) -> None:
    """The step on the meta device: what cannot be one fixed sequence of calls is said before work starts."""
    if run.config.runtime.engine is not Engine.one_pass:
        raise ConfigError("runtime.step=graph computes gradients its own way: leave runtime.engine at one_pass.")
    shape = run.features.shape(run.dataset.shape)
    with torch.device("meta"):
        examples = Split(torch.empty(2, *shape), torch.zeros(2, dtype=torch.long))
        try:
            stacked_step([run], [objective], examples)
        except NotStackableError as reason:
            raise ConfigError(f"runtime.step=graph is not possible here: {reason}.") from reason


def _noise_groups(clipping: Clipping, objective: Objective, shape: list[int]) -> tuple[NoiseGroup, ...]:
    """What the clipping bounds; where that hangs on the pass itself, one of two examples on the meta device."""
    groups = clipping.noise_groups(objective)
    if isinstance(clipping, Backprop):
        inputs, targets = torch.empty(2, *shape, device="meta"), torch.zeros(2, dtype=torch.long, device="meta")
        clipping.sum_contributions(VmapEngine(objective), inputs, targets)
    return groups


def _check_mean_loss(clipping: Clipping, objective: Objective) -> None:
    """What the sensitivity of `BackpropOfMeanLoss` is derived for: its rows, in a chain of layers."""
    if not isinstance(clipping, Backprop):
        raise ConfigError("This mechanism clips rows of the mean loss: it needs clipping=backprop.")
    parts = objective.network.modules()
    chain = all(isinstance(part, nn.Sequential) or not list(part.children()) for part in parts)
    if not chain or getattr(objective.loss, "reads_pre_activations", False):
        raise ConfigError("Rows of the mean loss are bounded in a chain of layers only: choose another mechanism.")


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"runtime.device={name} is not a device: choose auto, cpu or cuda.") from error
    if device.type not in _DEVICES:
        raise ConfigError(f"runtime.device={name} is not supported: choose auto, cpu or cuda.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("runtime.device=cuda, but PyTorch finds no CUDA device here.")
    return device


def _noise_multiplier(config: DictConfig, accountant: Accountant, mechanism: Any) -> float:
    if config.target_epsilon is None:
        if config.noise_multiplier is None:
            raise ConfigError("Set noise_multiplier (0 for none) or target_epsilon.")
        return config.noise_multiplier
    if config.noise_multiplier is not None:
        raise ConfigError("Set noise_multiplier or target_epsilon, not both: one follows from the other.")
    mechanism(1.0)  # the other settings must allow noise at all
    return calibrate_noise_multiplier(
        accountant,
        lambda nm: mechanism(nm).claimed_releases(config.epochs),
        config.target_epsilon,
        config.delta,
    )


def _epochs(config: DictConfig, accountant: Accountant, mechanism: Mechanism) -> int:
    if config.max_epsilon is None:
        return config.epochs
    _check_private(mechanism)
    epochs = epochs_within(accountant, mechanism.claimed_releases, config.max_epsilon, config.delta, config.epochs)
    if epochs == 0:
        raise ConfigError(f"max_epsilon={config.max_epsilon} does not allow a single epoch of this setting.")
    return epochs


def stacked_step(runs: Sequence[Run], objectives: Sequence[Objective], data: Split) -> StackedStep:
    """The step of all of `runs`, whose objectives are on the device of `data`.

    Raises:
        NotStackableError: where it cannot be one fixed sequence of calls.
    """
    for run in runs:
        if run.screening is not None:
            raise NotStackableError("screening may take an update back")
        for name in run.config.diagnostics:
            if name in OF_STEPS:
                raise NotStackableError(f"the diagnostic {name} looks into every step")
    return StackedStep(
        objectives,
        [run.clipping for run in runs],
        [run.mechanism for run in runs],
        [run.optimizer(objective) for run, objective in zip(runs, objectives, strict=True)],
        data,
        runs[0].config.runtime.physical_batch,
    )


def _max_accepted(config: DictConfig, accountant: Accountant, mechanism: Mechanism) -> int | None:
    """How many kept updates a screened run's max_epsilon pays for; None: it has none."""
    if config.max_epsilon is None:
        return None
    _check_private(mechanism)
    limit = config.epochs * mechanism.steps_per_epoch
    accepted = last_step_within(accountant, mechanism.claimed_steps, config.max_epsilon, config.delta, limit)
    if accepted == 0:
        raise ConfigError(f"max_epsilon={config.max_epsilon} does not allow a single step of this setting.")
    return accepted


def _check_private(mechanism: Mechanism) -> None:
    if not mechanism.private:
        raise ConfigError("max_epsilon stops a private run, but noise_multiplier is 0.")


def engine(config: DictConfig, objective: Objective) -> EngineProtocol:
    """The configured engine around an objective; ConfigError where it does not know a layer."""
    try:
        return ENGINES[Engine(config.runtime.engine).value](objective)
    except NotImplementedError as error:
        raise ConfigError(f"runtime.engine={config.runtime.engine.value}: {error}") from error
