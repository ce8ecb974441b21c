"""Conversion of a composed config to the parts of a run, with every check that needs no data.

`prepare` builds the network once. The checked and the trained networks are copies of it, so that both are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from omegaconf import DictConfig
from torch import nn

from runner.accounting import Ledger, calibrate_noise_multiplier, epsilon_by, last_within, sound_epsilon
from runner.accounting.calibration import Accountant
from runner.clipping import Backprop, Clipping, NoClipping, OwnClipping, own_clipping
from runner.config import FIELDS, ConfigError, EngineName, EvaluationSplit, StepMode
from runner.config.origin import is_own
from runner.data.augmentation import Augmentation
from runner.data.datasets import ImageDataset, Split, holdout_examples
from runner.data.features import Features
from runner.gradients import (
    ENGINES,
    Engine,
    IsolatedEngine,
    IsolatedPrediction,
    Mapped,
    NotMappableError,
    Objective,
    is_known,
    private_copy,
    unknown,
)
from runner.gradients.interface import OrdinaryPass
from runner.gradients.undisturbed import hook_on_all_modules
from runner.mechanism.choices import mechanism_for, own_noise, own_releases
from runner.mechanism.dp_sgd import Mechanism, Scheduled
from runner.mechanism.seeds import derived_seed
from runner.mechanism.statistics import Normalization
from runner.networks.lipschitz import gradient_bounds
from runner.networks.lipschitz.course import COUNT, counting_course
from runner.speed.slices import examples_in_cache
from runner.training.averaging import Averaging
from runner.training.checks import (
    check_arguments,
    check_averaging,
    check_constraint,
    check_fields,
    check_objective,
    check_optimizer,
    check_steps,
    check_weights,
    within_memory,
)
from runner.training.diagnostics import diagnostic
from runner.training.instantiation import (
    augmentation_of,
    device_of,
    instantiated,
    objective_of,
    schedule_of,
    update_rule_of,
)
from runner.training.own import OwnFeatures, OwnViews
from runner.training.stacked import NotStackableError, StackedStep
from runner.training.updates import Schedule, UpdateRule


@dataclass(frozen=True)
class Run:
    """The parts of one run that need no data.

    `paid_for` is the number of kept steps, if any, at which the run ends before the last of its `epochs`. `built` is
    the network with its first weights, and its loss. `apart` is the reason why its examples are computed one by one,
    or None if all of its modules are known. `averaging` is the average of the weights that is evaluated, or None for
    the last weights. `augmentation` has the views that an example's gradient is averaged over, or is None.
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
    rule: UpdateRule
    paid_for: int | None
    built: Objective
    apart: str | None
    averaging: Averaging | None
    augmentation: Augmentation | None

    def new_objective(self) -> Objective:
        """Return a projected copy of `built` on the device, with weights that depend only on the seed."""
        objective = private_copy(self.built)
        objective.isolated = self.isolated
        objective.project()
        return objective.to(self.device)

    @property
    def isolated(self) -> bool:
        """Return True if examples are computed one by one: a user wrote a part, and contributions are bounded."""
        return self.apart is not None and not isinstance(self.clipping, NoClipping)

    @property
    def activation_type(self) -> type[nn.Module]:
        return type(instantiated(self.config, "activation"))

    @cached_property
    def physical_batch(self) -> int:
        """Return the examples per forward pass: as configured, else as many as fit into a fast memory.

        Engines that compute per-example gradients split batches themselves, so they get whole ones.
        """
        configured: int | None = self.config.runtime.physical_batch
        if configured is not None:
            return configured
        if self.clipping.needs_engine or self.apart:
            return self.mechanism.examples
        images = examples_in_cache(self.new_objective().network, self.features.shape(self.dataset.shape))
        return images if self.augmentation is None else max(1, images // self.augmentation.views)

    @cached_property
    def mapped_parts(self) -> dict[str, Mapped]:
        """Return the user's parts that are applied to each example separately, by a readable name.

        Raises:
            ConfigError: a part cannot be applied to one example.
        """
        objective, clipping, augmentation = self.new_objective(), self.clipping, self.augmentation
        engine = self.engine(objective)
        objective.start_epoch(0)
        inputs = torch.zeros(1, *self.features.shape(self.dataset.shape), device=self.device)
        targets = torch.zeros(1, dtype=torch.long, device=self.device)
        parts: dict[str, Mapped] = {}
        try:
            where = "features"
            if isinstance(self.features, OwnFeatures):
                images = torch.zeros(1, *self.dataset.shape, device=self.device)
                parts[type(self.features.own).__qualname__] = self.features.mapped(images)
            where = "augmentation"
            if isinstance(augmentation, OwnViews):
                parts[type(augmentation.own).__qualname__] = augmentation.mapped(inputs)
            where = "clipping"
            if isinstance(clipping, OwnClipping):
                parts[type(clipping.own).__qualname__] = clipping.mapped(objective)
            where = f"architecture or loss ({_names(objective)})"
            if self.isolated and isinstance(engine, IsolatedEngine):
                within = clipping if isinstance(clipping, Backprop) else None
                parts[_names(objective)] = engine.mapped(inputs, targets, within)
                where += " in evaluation"
                IsolatedPrediction(objective, inputs, targets)
        except NotMappableError as error:
            raise ConfigError(f"{where}: it cannot be applied to one example at a time: {error}") from error
        return parts

    def engine(self, objective: Objective) -> Engine:
        """Return the engine for an objective: the fast one if all of its modules are known."""
        if self.apart or getattr(self.clipping, "needs_gradients", False):
            return IsolatedEngine(objective)
        return ENGINES[self.config.runtime.engine.value](objective)

    @property
    def most_steps(self) -> int:
        """Return the largest number of steps that the run can take, kept or not."""
        return self.rule.most_steps(self.epochs * self.mechanism.steps_per_epoch, self.paid_for)

    @property
    def unsound(self) -> str | None:
        """Return the reason why no sound epsilon is known, in one sentence, or None if releases are the package's."""
        return own_noise(self.mechanism) or own_releases(self.normalization)

    @cached_property
    def epsilon_at_most_steps(self) -> float | None:
        """Return the sound epsilon of `most_steps`, which the run guarantees before it starts. None: see `unsound`."""
        return self.sound_epsilon(self.mechanism.charges(self.most_steps))

    def sound_epsilon(self, ledger: Ledger) -> float | None:
        """Return the sound epsilon of a ledger of this run. None: see `unsound`."""
        return None if self.unsound else sound_epsilon(ledger.actual, self.config.delta)

    @property
    def step(self) -> StepMode:
        """Return the way in which steps are executed: `eager`, or as `graph` or `compiled`.

        `auto` is `graph` on CUDA, where an eager step of a small network waits for its launches. `StackedStep` compiles
        it if that pays.
        """
        configured: StepMode = self.config.runtime.step
        if configured is not StepMode.auto:
            return configured
        graph = self.device.type == "cuda" and self.config.runtime.engine is EngineName.one_pass
        return StepMode.graph if graph else StepMode.eager

    def optimizer(self, objective: Objective) -> torch.optim.Optimizer:
        """Build the optimizer of an objective. One with a method `take_noise` gets the noise of each parameter."""
        optimizer: torch.optim.Optimizer = instantiated(self.config, "optimizer")(objective.parameters())
        if hasattr(optimizer, "take_noise"):
            std = self.mechanism.noise_of_mean()
            optimizer.take_noise({parameter: std[name] for name, parameter in objective.named_parameters()})
        return optimizer

    def schedule(self, optimizer: torch.optim.Optimizer) -> Schedule:
        """Return the learning rate's schedule, which begins with the first epoch's rate."""
        return schedule_of(self.config, optimizer, self.epochs * self.mechanism.steps_per_epoch)


def _names(objective: Objective) -> str:
    """Return the classes of an objective that are not known, each once."""
    kinds = {type(module).__qualname__: None for module in objective.modules() if not is_known(module)}
    return ", ".join(kinds) or type(objective.network).__qualname__


def prepare(config: DictConfig) -> Run:
    """Check a resolved config (see `runner.records.identity.resolved`) and build the parts that need no data.

    Raises:
        ConfigError: the config cannot be run; the message is one sentence.
    """
    check_fields(config)
    for name, field in FIELDS.items():
        if field.names_class and (config[name] or not field.optional):
            check_arguments(config, name)
    dataset, features = instantiated(config, "dataset"), instantiated(config, "features")
    if is_own(features):
        try:
            features = OwnFeatures(features)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"features: {error}") from error
    clipping, accountant = instantiated(config, "clipping"), instantiated(config, "accountant")
    normalization, averaging = instantiated(config, "normalization"), instantiated(config, "averaging")
    rule = update_rule_of(config)
    device = device_of(config.runtime.device)
    groups: list[tuple[Any, str, type]] = [
        (accountant, "accountant", Accountant),
        (None if is_own(clipping) else clipping, "clipping", Clipping),
        (normalization, "normalization", Normalization),
        (averaging, "averaging", Averaging),
    ]
    for part, group, methods in groups:
        if part is None:
            continue
        missing = [name for name in vars(methods) if not name.startswith("_") and not hasattr(part, name)]
        if missing:
            raise ConfigError(f"{group}: {config[group]._target_} has no {missing[0]}.")

    built = _built(config, dataset, features)
    if hook_on_all_modules():
        raise ConfigError(
            "architecture: a hook is on all modules, and no sum calls it: put it on the modules of the network."
        )
    check_weights(built)
    apart = unknown(built)
    objective = private_copy(built)
    if is_own(clipping):
        try:
            clipping = own_clipping(clipping, objective)
        except (AttributeError, TypeError, ValueError) as error:
            raise ConfigError(f"clipping: {error}") from error
    if not apart:
        objective = private_copy(built).to("meta")
    with torch.device("cpu" if apart else "meta"):
        if not apart:
            check_objective(objective, features.shape(dataset.shape), dataset.classes)
        if objective.constraint is not None:
            check_constraint(objective)
    optimizer = instantiated(config, "optimizer", call_with=list(objective.parameters()))
    check_optimizer(optimizer)

    examples = dataset.train_examples
    if config.evaluation == EvaluationSplit.holdout:
        examples -= holdout_examples(examples)
    kind = Mechanism if config.mechanism is None else instantiated(config, "mechanism")
    made_up = torch.empty(2, *features.shape(dataset.shape), device="meta"), torch.zeros(2, device="meta").long()
    try:
        mechanism = mechanism_for(
            kind,
            config.sampling,
            examples,
            config.batch_size,
            noise_groups=clipping.noise_groups(objective),
            before=() if normalization is None else normalization.releases,
            epochs=config.epochs,
            noise_multiplier=config.noise_multiplier,
        )
        if not (clipping.needs_engine or apart):  # its bound may depend on the pass itself
            clipping.sum_contributions(OrdinaryPass(objective), *made_up)
        noise_multiplier = _noise_multiplier(config, accountant, mechanism)
        chosen = mechanism(noise_multiplier)
        chosen.check(clipping, objective, *made_up)
        if rule.takes_back and isinstance(chosen, Scheduled):
            raise ValueError("screening: kept steps are charged alike, so the noise has to be the same at all steps.")
        varying = isinstance(chosen, Scheduled) or len(chosen.coefficients) > 1
        if hasattr(optimizer, "take_noise") and (varying or getattr(built.loss, "course", None) is not None):
            raise ValueError(f"optimizer: {type(optimizer).__name__} needs the same noise at all steps.")
        rule.check(chosen)
        if counting_course(built.loss) is not None and not any(
            COUNT in each.parameters for each in chosen.noise_groups
        ):
            raise ValueError("loss: its course needs a private count, which clipping=lipschitz releases: choose that.")
        epochs, paid_for = _within_budget(config, accountant, chosen, rule)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(str(error)) from error
    trial = torch.zeros_like(min(objective.parameters(), key=torch.numel), device="cpu", requires_grad=True)
    trial.grad = torch.zeros_like(trial)
    trial_optimizer = instantiated(config, "optimizer", call_with=[trial])
    schedule = schedule_of(config, trial_optimizer, epochs * chosen.steps_per_epoch)
    check_steps(trial_optimizer, schedule, epochs, device)
    parameters = sum(p.numel() for p in objective.parameters())
    run = Run(
        config, dataset, features, normalization, clipping, accountant, chosen, epochs, device, parameters, rule,
        paid_for, built, apart, averaging, augmentation_of(config, features, dataset.shape),
    )  # fmt: skip
    if (
        apart
        and chosen.private
        and (looking := [name for name in sorted(config.diagnostics) if diagnostic(name).passes_training_images])
    ):
        raise ConfigError(
            f"diagnostics: {looking[0]} passes training images through modules whose gradients are computed example by "
            f"example, as {apart}: leave it out."
        )
    _check_views(run)
    if averaging is not None:
        check_averaging(averaging, run.most_steps)
    if run.unsound or is_own(accountant):
        try:
            for steps in (1, run.most_steps):
                epsilon_by(accountant, chosen.charges(steps).claimed, config.delta)
        except ValueError as error:
            raise ConfigError(f"accountant: {error}") from error
    if "bound_ratios" in config.diagnostics:
        try:
            gradient_bounds(objective)
        except ValueError as error:
            raise ConfigError(f"diagnostics: bound_ratios: {error}.") from error
    if config.runtime.step in (StepMode.graph, StepMode.compiled):
        _check_graph(run, objective, Split(*made_up))
    return run


def _check_views(run: Run) -> None:
    """Check that the other parts of a run can take views of examples, if there are any.

    Raises:
        ConfigError: one cannot.
    """
    if run.augmentation is None:
        return
    if not (run.clipping.needs_engine or isinstance(run.clipping, NoClipping)):
        raise ConfigError(
            f"augmentation: {type(run.clipping).__name__} bounds single images inside a pass, not the mean of an "
            "example's views: use clipping=flat, automatic, psac or per_layer."
        )
    for name in run.config.diagnostics:
        if diagnostic(name).measures_steps and diagnostic(name).passes_training_images:
            raise ConfigError(f"diagnostics: {name} measures batches of images, not of views: leave it out.")


def _built(config: DictConfig, dataset: ImageDataset, features: Features) -> Objective:
    """Return a copy of the network with its first weights and its loss; the network's maker may hold the original."""
    with torch.random.fork_rng(devices=[]), within_memory():
        torch.default_generator.manual_seed(derived_seed(config.seed, "init"))  # CUDA's generators keep their state
        objective = objective_of(config, dataset, features)
    try:
        return private_copy(objective)
    except NotMappableError as error:
        raise ConfigError(f"architecture or loss: {error}") from error


def _check_graph(run: Run, objective: Objective, examples: Split) -> None:
    """Build the step on the meta device, so that a config that allows no graph fails before work starts."""
    asked = f"runtime.step={run.config.runtime.step.value}"
    if run.config.runtime.engine is not EngineName.one_pass:
        raise ConfigError(f"{asked} has its own gradient engine: leave runtime.engine at one_pass.")
    with torch.device("meta"):
        try:
            stacked_step([run], [objective], examples)
        except NotStackableError as reason:
            raise ConfigError(f"{asked} is not possible here: {reason}.") from reason


def _noise_multiplier(config: DictConfig, accountant: Accountant, mechanism: Callable[[float], Mechanism]) -> float:
    given: float | None = config.noise_multiplier
    if config.target_epsilon is None:
        if given is None:
            raise ConfigError("Set noise_multiplier (0 for none) or target_epsilon.")
        return given
    if given is not None:
        raise ConfigError(
            "Set noise_multiplier or target_epsilon, not both: one follows from the other "
            "(target_epsilon=3 noise_multiplier=null, say)."
        )
    mechanism(1.0)  # raises if the other settings do not allow noise
    return calibrate_noise_multiplier(
        accountant,
        lambda nm: mechanism(nm).charges_of_epochs(config.epochs).claimed,
        config.target_epsilon,
        config.delta,
    )


def _within_budget(
    config: DictConfig, accountant: Accountant, mechanism: Mechanism, rule: UpdateRule
) -> tuple[int, int | None]:
    """Return the epochs that max_epsilon pays for, and None; for a rule that rejects steps, all epochs and kept steps.

    Kept steps of None mean that only the epochs end the run.
    """
    if config.max_epsilon is None:
        return config.epochs, None
    if not mechanism.private:
        raise ConfigError("max_epsilon stops a private run, but noise_multiplier is 0.")
    unit, steps = ("step", 1) if rule.takes_back else ("epoch", mechanism.steps_per_epoch)
    paid_for = last_within(
        accountant,
        lambda n: mechanism.charges(n * steps).claimed,
        config.max_epsilon,
        config.delta,
        config.epochs * mechanism.steps_per_epoch // steps,
    )
    if paid_for == 0:
        raise ConfigError(f"max_epsilon={config.max_epsilon} does not allow a single {unit} of this setting.")
    return (config.epochs, paid_for) if rule.takes_back else (paid_for, None)


def stacked_step(runs: Sequence[Run], objectives: Sequence[Objective], data: Split) -> StackedStep:
    """Return the step of all of `runs`, whose objectives are on the device of `data`.

    Raises:
        NotStackableError: it cannot be one fixed sequence of calls.
    """
    for run in runs:
        if type(run.rule).updates is not UpdateRule.updates:
            raise NotStackableError(f"the update rule {type(run.rule).__qualname__} makes the updates")
        if run.config.tracking.every:
            raise NotStackableError("tracking.every reads single steps")
        for name in run.config.diagnostics:
            if diagnostic(name).measures_steps:
                raise NotStackableError(f"the diagnostic {name} reads every step")
        if run.apart:
            raise NotStackableError(run.apart)
        if isinstance(run.augmentation, OwnViews):
            raise NotStackableError("the views are made of one image at a time")
        if len(runs) > 1 and (constraint := run.built.constraint) is not None and is_own(constraint):
            raise NotStackableError("a user's constraint might mix the weights of several runs")
    optimizers = [run.optimizer(objective) for run, objective in zip(runs, objectives, strict=True)]
    return StackedStep(
        objectives,
        [run.clipping for run in runs],
        [run.mechanism for run in runs],
        optimizers,
        data,
        runs[0].config.runtime.physical_batch,
        [run.schedule(optimizer) for run, optimizer in zip(runs, optimizers, strict=True)],
        [run.config.seed for run in runs],
        runs[0].averaging,
        runs[0].augmentation,
        runs[0].config.runtime.step,
        max(run.epochs * run.mechanism.steps_per_epoch for run in runs),
    )
