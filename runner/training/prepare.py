"""From a composed config to the parts of a run, with every check that needs no data.

`prepare` builds on PyTorch's meta device first: a wrong type, value or combination is found before a byte is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from omegaconf import DictConfig
from torch import nn

from runner.accounting import calibrate_noise_multiplier, last_within, sound_epsilon
from runner.accounting.calibration import Accountant
from runner.clipping import Backprop, Clipping, NoClipping, NoiseGroup
from runner.config import FIELDS, ConfigError, Engine, Evaluation, Step
from runner.data.datasets import ImageDataset, Split, holdout_examples
from runner.data.features import Features
from runner.gradients import ENGINES, Objective, VmapEngine
from runner.gradients import Engine as EngineProtocol
from runner.mechanism.dp_sgd import Mechanism
from runner.mechanism.layerwise import OfMeanLoss
from runner.mechanism.seeds import derived_seed
from runner.mechanism.statistics import Normalization
from runner.speed.slices import examples_in_cache, examples_with_gradients
from runner.training.checks import (
    check_arguments,
    check_fields,
    check_mean_loss,
    check_momentum,
    check_objective,
    check_one_example,
)
from runner.training.diagnostics import NEED_PER_EXAMPLE_NORMS, OF_STEPS
from runner.training.parts import device_of, instantiated, normalization_of, objective_of
from runner.training.stacked import NotStackableError
from runner.training.stacked import Step as StackedStep
from runner.training.updates.screened import Annealing

ORDINARY_PASS = (NoClipping, Backprop)  # need no engine


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
            return objective_of(self.config, self.dataset, self.features).to(self.device)

    @property
    def activation_type(self) -> type[nn.Module]:
        return type(instantiated(self.config, "activation"))

    @cached_property
    def physical_batch(self) -> int:
        """Examples per forward pass: as configured, else as many as keep what is computed for them in a fast memory.

        The one_pass engine cuts batches itself and is best given whole ones.
        """
        configured: int | None = self.config.runtime.physical_batch
        if configured is not None:
            return configured
        if isinstance(self.clipping, ORDINARY_PASS):
            return examples_in_cache(self.objective.network, self.features.shape(self.dataset.shape))
        if self.config.runtime.engine is Engine.one_pass:
            return self.mechanism.examples
        return examples_with_gradients(self.parameters, self.device.type)

    @property
    def max_tries(self) -> int:
        """The most steps that the run can take, those thrown away by screening included."""
        tries = self.epochs * self.mechanism.steps_per_epoch
        return tries if self.screening is None else self.screening.most_tries(tries, self.max_accepted)

    @cached_property
    def epsilon_at_max_tries(self) -> float:
        """The sound epsilon of so many: what the run guarantees before it starts."""
        return sound_epsilon(self.mechanism.charges(self.max_tries).actual, self.config.delta)

    @property
    def step(self) -> Step:
        """How steps are taken: `eager`, or as `graph` (see `runner.training.stacked.step`).

        `auto` is `graph` on CUDA, where an eager step of a small network waits for its launches.
        """
        configured: Step = self.config.runtime.step
        if configured is not Step.auto:
            return configured
        graph = self.device.type == "cuda" and self.config.runtime.engine is Engine.one_pass
        return Step.graph if graph else Step.eager

    def optimizer(self, objective: Objective) -> torch.optim.Optimizer:
        optimizer: torch.optim.Optimizer = instantiated(self.config, "optimizer")(objective.parameters())
        return optimizer


def prepare(config: DictConfig) -> Run:
    """Check a resolved config (see `runner.runs.identity.resolved`) and build what needs no data.

    Raises:
        ConfigError: with one sentence, for anything that cannot be run as configured.
    """
    check_fields(config)
    for name, field in FIELDS.items():
        if field.names_class and (config[name] or not field.optional):
            check_arguments(config, name)
    dataset, features = instantiated(config, "dataset"), instantiated(config, "features")
    clipping, accountant = instantiated(config, "clipping"), instantiated(config, "accountant")
    normalization = normalization_of(config)
    screening = instantiated(config, "screening") if config.screening else None
    if screening is not None and config.mechanism is not None:
        raise ConfigError("screening charges kept steps one by one, so it takes no mechanism but DP-SGD's own.")
    device = device_of(config.runtime.device)
    groups: list[tuple[Any, str, type]] = [(clipping, "clipping", Clipping), (accountant, "accountant", Accountant)]
    if normalization is not None:
        groups.append((normalization, "normalization", Normalization))
    for part, group, methods in groups:
        missing = [name for name in vars(methods) if not name.startswith("_") and not hasattr(part, name)]
        if missing:
            raise ConfigError(f"{group}: {config[group]._target_} has no method {missing[0]}.")

    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        objective = objective_of(config, dataset, features)
        check_objective(objective, features.shape(dataset.shape))
        one_by_one = not isinstance(clipping, ORDINARY_PASS) or bool(NEED_PER_EXAMPLE_NORMS & set(config.diagnostics))
        if one_by_one and config.runtime.engine == Engine.vmap:
            check_one_example(objective, features.shape(dataset.shape))
    check_momentum(instantiated(config, "optimizer", call_with=list(objective.parameters())))

    examples = dataset.train_examples
    if config.evaluation == Evaluation.holdout:
        examples -= holdout_examples(examples)
    kind = Mechanism if config.mechanism is None else instantiated(config, "mechanism")
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
        with torch.device("meta"):
            check_mean_loss(clipping, objective, features.shape(dataset.shape))
    parameters = sum(p.numel() for p in objective.parameters())
    run = Run(
        config, dataset, features, normalization, clipping, accountant, chosen, epochs, device, parameters, screening,
        max_accepted,
    )  # fmt: skip
    if config.runtime.step is Step.graph:
        _check_graph(run, objective)
    return run


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


def _noise_multiplier(config: DictConfig, accountant: Accountant, mechanism: Any) -> float:
    given: float | None = config.noise_multiplier
    if config.target_epsilon is None:
        if given is None:
            raise ConfigError("Set noise_multiplier (0 for none) or target_epsilon.")
        return given
    if given is not None:
        raise ConfigError("Set noise_multiplier or target_epsilon, not both: one follows from the other.")
    mechanism(1.0)  # the other settings must allow noise at all
    return calibrate_noise_multiplier(
        accountant,
        lambda nm: mechanism(nm).charges_of_epochs(config.epochs).claimed,
        config.target_epsilon,
        config.delta,
    )


def _epochs(config: DictConfig, accountant: Accountant, mechanism: Mechanism) -> int:
    planned: int = config.epochs
    if config.max_epsilon is None:
        return planned
    _check_private(mechanism)
    epochs = last_within(
        accountant,
        lambda n: mechanism.charges_of_epochs(n).claimed,
        config.max_epsilon,
        config.delta,
        planned,
    )
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
        if run.config.runtime.guard_every is not None:
            raise NotStackableError("runtime.guard_every takes some steps twice")
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
    accepted = last_within(accountant, lambda n: mechanism.charges(n).claimed, config.max_epsilon, config.delta, limit)
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
