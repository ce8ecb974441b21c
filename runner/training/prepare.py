"""Conversion of a composed config to the parts of a run, with every check that needs no data.

`prepare` builds the network once. The checked and the trained networks are copies of it, so that both are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from omegaconf import DictConfig

from runner.accounting import epsilon_by
from runner.accounting.calibration import Accountant
from runner.clipping import Clipping, NoClipping
from runner.clipping.interface import NoiseGroup
from runner.config import FIELDS, ConfigError, EngineName, EvaluationSplit, StepMode
from runner.config.origin import is_own
from runner.data.datasets import HOLDOUT_PARTS, ImageDataset, Split, holdout_examples
from runner.data.features import Features
from runner.gradients import Objective, fresh_copy, unknown
from runner.gradients.interface import OrdinaryPass
from runner.mechanism.dp_sgd import Mechanism, Scheduled
from runner.mechanism.seeds import derived_seed
from runner.mechanism.statistics import Normalization
from runner.networks.lipschitz import gradient_bounds
from runner.networks.lipschitz.course import COUNT, counting_course
from runner.terminal import number
from runner.training.averaging import Averaging
from runner.training.budget import noise_multiplier_of, within_budget
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
from runner.training.graph import NotCapturableError
from runner.training.instantiation import (
    augmentation_of,
    device_of,
    instantiated,
    objective_of,
    schedule_of,
    update_rule_of,
)
from runner.training.run import Run, graph_step
from runner.training.updates import UpdateRule
from runner.trust.clipping import own_clipping
from runner.trust.mechanism import mechanism_for
from runner.trust.parts import OwnFeatures


def prepare(config: DictConfig) -> Run:
    """Check a resolved config (see `runner.records.identity.resolved`) and build the parts that need no data.

    Raises:
        ConfigError: the config cannot be run; the message is one sentence.
    """
    check_fields(config)
    for name, field in FIELDS.items():
        if field.names_class and not (field.optional and config[name] in (None, {})):
            check_arguments(config, name)
    dataset, features = instantiated(config, "dataset"), _features(config)
    clipping, accountant = instantiated(config, "clipping"), instantiated(config, "accountant")
    normalization, averaging = instantiated(config, "normalization"), instantiated(config, "averaging")
    rule, device = update_rule_of(config), device_of(config.runtime.device)
    _check_methods(config, "accountant", accountant, Accountant)
    if not is_own(clipping):
        _check_methods(config, "clipping", clipping, Clipping)
    _check_methods(config, "normalization", normalization, Normalization)
    _check_methods(config, "averaging", averaging, Averaging)

    built = _built(config, dataset, features)
    apart = unknown(built)
    if is_own(clipping):
        try:
            clipping = own_clipping(clipping, fresh_copy(built))
        except Exception as error:  # any error of a user's code
            where = (
                ""
                if isinstance(error, ValueError)
                else f"{type(clipping).__qualname__}.noise_groups: {type(error).__name__}: "
            )
            raise ConfigError(f"clipping: {where}{error}") from error
    objective = fresh_copy(built) if apart else fresh_copy(built).to("meta")
    with torch.device("cpu" if apart else "meta"):
        if not apart:
            check_objective(objective, features.shape(dataset.shape), dataset.classes)
        if objective.constraint is not None:
            check_constraint(objective)
    optimizer = instantiated(config, "optimizer", call_with=list(objective.parameters()))
    check_optimizer(optimizer)

    made_up = torch.empty(2, *features.shape(dataset.shape), device="meta"), torch.zeros(2, device="meta").long()
    try:
        with_noise = _with_noise(config, dataset, clipping.noise_groups(objective), normalization)
        if not (clipping.needs_engine or apart):  # its bound may depend on the pass itself
            clipping.sum_contributions(OrdinaryPass(objective), *made_up)
        mechanism = with_noise(noise_multiplier_of(config, accountant, with_noise, rule, normalization))
        _check_delta(config.delta, mechanism)
        mechanism.check(clipping, objective, *made_up)
        _check_same_noise(mechanism, rule, optimizer, built)
        rule.check(mechanism)
        epochs, paid_for = within_budget(config, accountant, mechanism, rule)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(str(error)) from error
    _check_trial_steps(config, objective, epochs, mechanism, device)
    parameters = sum(p.numel() for p in objective.parameters())
    run = Run(
        config, dataset, features, normalization, clipping, accountant, mechanism, epochs, device, parameters, rule,
        paid_for, built, apart, averaging, augmentation_of(config, features, dataset.shape),
    )  # fmt: skip
    _check_diagnostics(run, objective)
    _check_views(run)
    if averaging is not None:
        check_averaging(averaging, run.most_steps)
    if run.unsound or is_own(accountant):
        try:
            for steps in (1, run.most_steps):
                epsilon_by(accountant, mechanism.charges(steps).claimed, config.delta)
        except ValueError as error:
            raise ConfigError(f"accountant: {error}") from error
    if config.runtime.step in (StepMode.graph, StepMode.compiled):
        _check_graph(run, objective, Split(*made_up))
    return run


def _features(config: DictConfig) -> Features:
    features = instantiated(config, "features")
    try:
        return OwnFeatures(features) if is_own(features) else features
    except (TypeError, ValueError) as error:
        raise ConfigError(f"features: {error}") from error


def _check_methods(config: DictConfig, group: str, part: Any, interface: type) -> None:
    """Raise ConfigError if a part, if there is one, lacks a method or an attribute of the interface of its group."""
    missing = [name for name in vars(interface) if not name.startswith("_") and not hasattr(part, name)]
    if part is not None and missing:
        raise ConfigError(f"{group}: {config[group]._target_} has no {missing[0]}.")


def _with_noise(
    config: DictConfig, dataset: ImageDataset, noise_groups: Sequence[NoiseGroup], normalization: Normalization | None
) -> Callable[[float], Mechanism]:
    """Return the function that makes the run's mechanism, given a noise multiplier."""
    examples = dataset.train_examples
    if config.evaluation == EvaluationSplit.holdout:
        if examples < HOLDOUT_PARTS:
            raise ConfigError(f"evaluation=holdout needs at least {HOLDOUT_PARTS} training examples, not {examples}.")
        examples -= holdout_examples(examples)
    return mechanism_for(
        Mechanism if config.mechanism is None else instantiated(config, "mechanism"),
        config.sampling,
        examples,
        config.batch_size,
        noise_groups=noise_groups,
        before=() if normalization is None else normalization.releases,
        epochs=config.epochs,
        noise_multiplier=config.noise_multiplier,
    )


def _check_delta(delta: float, mechanism: Mechanism) -> None:
    """Raise ValueError if a private run has a delta of at least 1/N, with N the examples that it trains on.

    Publishing every example with probability delta, independently of the others, is (0, delta)-differentially private,
    and publishes delta N examples in the mean: from a delta of 1/N, no epsilon protects all of them (Dwork and Roth,
    The Algorithmic Foundations of Differential Privacy, 2014, section 2.3).
    """
    if mechanism.private and delta * mechanism.examples >= 1:
        raise ValueError(
            f"delta={delta:g} is not below 1/N for N = {mechanism.examples:,} training examples: so large a δ allows "
            f"publishing one of them. Choose less than {number(1 / mechanism.examples, bound='lower')}."
        )


def _check_same_noise(
    mechanism: Mechanism, rule: UpdateRule, optimizer: torch.optim.Optimizer, built: Objective
) -> None:
    """Raise ValueError where a part needs the same noise at all steps, or a private count, and there is none."""
    if rule.takes_back and isinstance(mechanism, Scheduled):
        raise ValueError("screening: kept steps are charged alike, so the noise has to be the same at all steps.")
    varying = isinstance(mechanism, Scheduled) or len(mechanism.coefficients) > 1
    if hasattr(optimizer, "take_noise") and (varying or getattr(built.loss, "course", None) is not None):
        raise ValueError(f"optimizer: {type(optimizer).__name__} needs the same noise at all steps.")
    counted = any(COUNT in each.parameters for each in mechanism.noise_groups)
    if counting_course(built.loss) is not None and not counted:
        raise ValueError("loss: its course needs a private count, which clipping=lipschitz releases: choose that.")


def _check_trial_steps(
    config: DictConfig, objective: Objective, epochs: int, mechanism: Mechanism, device: torch.device
) -> None:
    """Try the optimizer and the schedule on the smallest parameter. Raises ConfigError: see `check_steps`."""
    trial = torch.zeros_like(min(objective.parameters(), key=torch.numel), device="cpu", requires_grad=True)
    trial.grad = torch.zeros_like(trial)
    optimizer = instantiated(config, "optimizer", call_with=[trial])
    schedule = schedule_of(config, optimizer, epochs * mechanism.steps_per_epoch)
    check_steps(optimizer, schedule, epochs, mechanism.steps_per_epoch, device)


def _check_diagnostics(run: Run, objective: Objective) -> None:
    """Raise ConfigError if a diagnostic cannot be measured in this run."""
    looking = [name for name in sorted(run.config.diagnostics) if diagnostic(name).passes_training_images]
    if run.apart and run.mechanism.private and looking:
        raise ConfigError(
            f"diagnostics: {looking[0]} passes training images through modules whose gradients are computed example by "
            f"example, as {run.apart}: leave it out."
        )
    if "bound_ratios" in run.config.diagnostics:
        try:
            gradient_bounds(objective)
        except ValueError as error:
            raise ConfigError(f"diagnostics: bound_ratios: {error}.") from error


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
        built = fresh_copy(objective)
    except ValueError as error:
        raise ConfigError(f"architecture or loss: {error}") from error
    check_weights(built)
    return built


def _check_graph(run: Run, objective: Objective, examples: Split) -> None:
    """Build the step on the meta device, so that a config that allows no graph fails before work starts."""
    asked = f"runtime.step={run.config.runtime.step.value}"
    if run.config.runtime.engine is not EngineName.one_pass:
        raise ConfigError(f"{asked} has its own gradient engine: leave runtime.engine at one_pass.")
    with torch.device("meta"):
        try:
            graph_step(run, objective, examples)
        except NotCapturableError as reason:
            raise ConfigError(f"{asked} is not possible here: {reason}.") from reason
